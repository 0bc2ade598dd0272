"""The original PyProf's view of a record: its lists of sequence markers, ids, modules and ops, and their text in net.dict.

Its rules are followed where they are only conventions and mended where they are mistakes: numbers are ordered as numbers (it
ordered them as text), and the number that counts does not depend on the kernel before.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from pyprof.model.opcall import sound_text
from pyprof.model.records import DIRECTIONS, Stack


class Legacy(NamedTuple):
    """seqMarker, seqId, altSeqId, mod and op of the original's record."""

    seq_marker: list[tuple[str, int]]  # name and number, which the line joins by `, seq = `
    seq_id: list[int]
    alt_seq_id: list[int]
    mod: list[str]
    op: list[str]


def legacy_view(stack: Stack, numbers: list[int], seq: int) -> Legacy:
    """numbers: one for each of stack.seq_names; seq: the number that counts, -1 none."""
    if not numbers:
        mod, op = _ops(stack, [])
        return Legacy([], [], [], mod, op)
    pairs = _pruned(sorted(set(zip(numbers, stack.seq_names, strict=True))))
    ids = sorted({number for number, _ in pairs})
    if len(ids) > 1 and ids[0] == 0 and seq != 0:
        ids = ids[1:]
    main = [seq] if seq in ids else []
    mod, op = _ops(stack, [name for _, name in pairs])
    return Legacy([(name, number) for number, name in pairs], main, [i for i in ids if i not in main], mod, op)


def _pruned(pairs: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Drop a pair whose neighbour before it has the same number and a name that contains, or is contained in, its own."""
    kept = pairs[:1]
    for number, name in pairs[1:]:
        before, name_before = kept[-1]
        if number != before or not (name in name_before or name_before in name):
            kept.append((number, name))
    return kept


def _ops(stack: Stack, names: list[str]) -> tuple[list[str], list[str]]:
    """Modules and ops: the Python-level calls, else backward functions, else dispatcher ops, else the user's range."""
    if stack.op:
        return list(stack.mod), list(stack.op)
    backward = [_forward_name(name) for name in names if name.endswith(("backward", "Backward"))]
    found = backward or names
    if found:
        return ["na"] * len(found), found
    return ["na"], list(stack.ranges[:1])


def _forward_name(name: str) -> str:
    for part in ("torch", "autograd", "_backward", "::", "jit", "(anonymous namespace)"):
        name = name.replace(part, "")
    return name.partition("Backward")[0]


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_text(value: object) -> str:
    """JSON that is a Python literal as well: no escapes that Python reads differently, no lone surrogates."""
    return sound_text(_encode(value))


def _escaped(value: object) -> str:
    return json_text(value).replace("%", "%%")


class Sequences:
    """The part of a line that sequence numbers change, filled into a pattern made once for each kind of stack.

    The view of a stack depends on how its numbers are ordered, on which of them counts and on whether the lowest is 0, not on
    their values: each such case is worked out once, with small numbers in place of the real ones.
    """

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
            f'"dir": "{(*DIRECTIONS, "na")[direction]}", "mod": {_escaped(view.mod)}, "op": {_escaped(view.op)}'
        ), tuple(places)
