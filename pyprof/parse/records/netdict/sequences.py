"""The part of a net.dict line that sequence numbers change, filled into a pattern made once for each kind of stack.

What `legacy_view` says of a stack depends on how its numbers are ordered, on which of them counts and on whether the lowest is
0, not on their values: it is asked once for each such case, with small numbers that stand for the real ones.
"""

from __future__ import annotations

import json
from typing import Any

from pyprof.opcall import sound_text
from pyprof.parse.records.netdict.original import legacy_view
from pyprof.parse.records.records import DIRECTIONS, Stack

__all__ = ["Sequences", "json_text"]


def json_text(value: Any) -> str:
    """JSON that is a Python literal as well: no escapes that Python reads differently, no lone surrogates."""
    return sound_text(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _escaped(value: Any) -> str:
    return json_text(value).replace("%", "%%")


class Sequences:
    """Texts for the stacks of one set of records."""

    def __init__(self, stacks: list[Stack]) -> None:
        self.stacks = stacks
        # (stack, direction, order of its numbers, which counts, whether the lowest is 0) -> pattern, places of its numbers
        self.patterns: dict[tuple[int, int, tuple[int, ...], int, bool], tuple[str, tuple[int, ...]]] = {}

    def text(self, stack: int, direction: int, numbers: list[int], seq: int, sub: int) -> str:
        """From seqMarker to op; numbers: one for each of the stack's seq_names; seq: the one that counts, -1 none."""
        if len(numbers) < 2:
            ids, order = numbers, (0,) * len(numbers)
        else:
            ids = sorted(set(numbers))
            order = tuple([ids.index(number) for number in numbers])
        counts = ids.index(seq) if seq in ids else -1
        key = (stack, direction, order, counts, bool(ids) and ids[0] == 0)
        found = self.patterns.get(key)
        if found is None:
            found = self.patterns[key] = self._pattern(*key)
        pattern, places = found
        values = [*ids, sub]
        return pattern % tuple([values[place] for place in places])

    def _pattern(
        self, stack: int, direction: int, order: tuple[int, ...], counts: int, from_zero: bool
    ) -> tuple[str, tuple[int, ...]]:
        """The text with %d for each number, and which of the ascending distinct numbers stands there; -1: the running one."""
        first = 0 if from_zero else 1
        view = legacy_view(self.stacks[stack], [place + first for place in order], counts + first if counts >= 0 else -1)
        markers = [_escaped(f"{name}, seq = ")[:-1] + '%d"' for name, _ in view.seq_marker]
        places = [number - first for _, number in view.seq_marker]
        places += [number - first for number in view.seq_id] + [-1] + [number - first for number in view.alt_seq_id]
        seq_id, alternatives = (", ".join(["%d"] * len(ids)) for ids in (view.seq_id, view.alt_seq_id))
        return (
            f'"seqMarker": [{", ".join(markers)}], "seqId": [{seq_id}], "subSeqId": %d, "altSeqId": [{alternatives}], '
            f'"dir": "{DIRECTIONS[direction]}", "mod": {_escaped(view.mod)}, "op": {_escaped(view.op)}'
        ), tuple(places)
