"""torch.profiler records once at a time: ends one recording before another one begins.

Otherwise the second takes over the state of the first, and ending the first crashes the process. No files, no schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from pyprof.nvtx.patch import Patches

_STARTERS = ("_prepare_profiler", "_enable_profiler")  # in torch.autograd.profiler: every recording in Python begins with these

P = ParamSpec("P")
R = TypeVar("R")


class Exclusive:
    """Between `watch` and `release` calls `give_way` once, before anything else begins to record."""

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self._ours = 0
        self._patches: Patches | None = None

    @contextmanager
    def ours(self) -> Iterator[None]:
        """What begins in here belongs to the recording that is watched over."""
        self._ours += 1
        try:
            yield
        finally:
            self._ours -= 1

    def watch(self) -> None:
        """Begin to watch, by wrapping torch's functions that start a recording."""
        from torch.autograd import profiler

        from pyprof.nvtx.patch import Patches

        self._patches = Patches()
        for name in _STARTERS:
            starter = getattr(profiler, name, None)
            if starter is not None:
                self._patches.replace(profiler, name, self._watched(starter))

    def release(self) -> None:
        """Stop watching, and leave torch as it was."""
        if self._patches is not None:
            self._patches.undo()

    def _watched(self, starter: Callable[P, R]) -> Callable[P, R]:
        def start(*args: P.args, **kwargs: P.kwargs) -> R:
            if not self._ours and self._patches:
                self.release()
                self._give_way()
            return starter(*args, **kwargs)

        return start
