"""The original PyProf's view of a record: its lists of sequence markers, ids, modules and ops, from a stack and its numbers.

Its rules are followed where they are only conventions and mended where they are mistakes: numbers are ordered as numbers (it
ordered them as text), and the number that counts does not depend on the kernel before.
"""

from __future__ import annotations

from typing import NamedTuple

from pyprof.parse.records.records import Stack

__all__ = ["Legacy", "legacy_view"]


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
    """Of neighbours with one number and names that contain each other only the first; done twice it changes nothing more."""
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
