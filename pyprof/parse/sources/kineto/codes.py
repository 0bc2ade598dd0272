"""Things that many rows have in common -> numbers in the order in which they are met -> those of the whole trace.

Blocks are read with numbers of the reader's own. Where they are joined each thing gets its number in the trace when a block
first refers to it, since that may need more than the block. What the things are is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np

from pyprof.arrays.types import Array

Key = TypeVar("Key", bound=Hashable)

_UNMET = np.iinfo(np.int32).min


class Codes(dict[Key, int]):
    """Thing -> its number, in the order in which they were met."""

    def __init__(self) -> None:
        super().__init__()
        self._new: list[Key] = []

    def __missing__(self, key: Key) -> int:
        number = self[key] = len(self)
        self._new.append(key)
        return number

    def of(self, keys: Iterable[Key], count: int) -> Array:
        """The numbers of so many."""
        return np.fromiter(map(self.__getitem__, keys), np.int32, count)

    def new(self) -> list[Key]:
        """Those met since this was last asked."""
        found, self._new = self._new, []
        return found


class Numbering(Generic[Key]):
    """The numbers in the trace of what the reader met. number: gives one, for a thing and which variant of it is meant;
    variants: how many there are of each, so that the reader's number is that of the thing times this, and the variant's."""

    def __init__(self, number: Callable[[Key, int], int], variants: int = 1) -> None:
        self._number, self._variants = number, variants
        self._keys: list[Key] = []
        self._known: Array = np.full(1, -1, np.int32)  # the last: what -1 stands for

    def met(self, keys: list[Key]) -> None:
        """Things that the reader met next."""
        if keys:
            self._keys += keys
            self._known = np.concatenate(
                [self._known[:-1], np.full(len(keys) * self._variants, _UNMET, np.int32), self._known[-1:]]
            )

    def of(self, codes: Array) -> Array:
        """The numbers in the trace for the reader's own; -1 stays."""
        found = self._known[codes]
        if (found == _UNMET).any():
            values, first = np.unique(codes[found == _UNMET], return_index=True)
            for code in values[np.argsort(first)].tolist():
                self._known[code] = self._number(self._keys[code // self._variants], code % self._variants)
            found = self._known[codes]
        return found
