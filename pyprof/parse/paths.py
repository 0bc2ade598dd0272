"""Distinct stacks of ranges: each kernel's stack becomes a code, and each distinct stack one `Stack` object.

A path is a chain of labels from the outermost range to the innermost. Real captures have thousands of paths for a million
kernels, so what is said of a stack is worked out per path.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.markers import Kind, Marker
from pyprof.parse.distinct import distinct_rows
from pyprof.parse.records import Stack
from pyprof.parse.stacks import Facts, Nested
from pyprof.parse.trace import Trace

__all__ = ["Paths"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# What is told of a stack has bounds, for ranges pile up where a program leaks them or recurses.
_MOST_LOOSE = 32  # ranges that were never closed, and start/end ranges that cross others: of each the first
_ENDS = 64  # nested ranges: so many of the outermost and of the innermost
# Domains of libraries, whose ranges are no layers of the user's.
_LIBRARY_DOMAINS = frozenset(
    {"NCCL", "cuBLAS", "cuBLASLt", "cuDNN", "cuSPARSE", "cuSOLVER", "cuFFT", "CCCL", "libcudf", "NVSHMEM"}
)
# Files of torch through which a call passes on its way to the op; they say nothing of the user's program. The first line is the
# original's list, so that `trace` stays what it was.
_LIBRARY_FILE = re.compile(
    r"[/\\]torch[/\\](nn/modules/|nn/functional\.py|tensor\.py|autograd/__init__\.py|_jit_internal\.py|_utils\.py|optim/"
    r"|_tensor\.py|autograd/graph\.py|utils/_contextlib\.py|_ops\.py|_dynamo/|_functorch/|_inductor/)"
    r"|[/\\]apex[/\\]optimizers[/\\]|[/\\]pyprof[/\\](nvtx|capture)[/\\]"
)


class Paths:
    """Gives codes to stacks; `stacks` are the distinct ones so far."""

    def __init__(self, trace: Trace, nested: Nested, facts: Facts) -> None:
        self.trace, self.nested, self.facts = trace, nested, facts
        self.stacks: list[Stack] = []
        self._code_of: dict[tuple[object, ...], int] = {}
        self._sets: list[tuple[int, ...]] = [()]  # distinct sets of loose ranges, by code
        self._set_of: dict[tuple[int, ...], int] = {(): 0}
        self.cut: dict[str, int] = {}  # how many kernels have a stack of which not all is told, by what is left out
        self._never = set(nested.loose[nested.loose_ends == np.iinfo(np.int64).max].tolist())
        self._outer = self._outer_end()

    def _count(self, what: str, kernels: int) -> None:
        self.cut[what] = self.cut.get(what, 0) + kernels

    def _outer_end(self) -> npt.NDArray[np.int32]:
        """For each range the last one around it that still counts among the outermost; -1: it does itself."""
        result = np.full(len(self.nested.row) + 1, -1, np.int32)
        for depth, level in enumerate(self.nested.levels[_ENDS:], _ENDS):
            above = self.nested.parent[level]
            result[level] = above if depth == _ENDS else result[above]
        self._deep = np.zeros(len(result), np.bool_)
        for level in self.nested.levels[2 * _ENDS :]:
            self._deep[level] = True
        return result

    def codes(self, at: Ints, by_time: Bools, thread: Ints, when: Ints, seq: Ints) -> Ints:
        """The code of each stack: innermost range, whether taken by time, and the loose ranges open then on its thread."""
        self._count(
            f"kernels inside more than {2 * _ENDS} nested ranges; the {_ENDS} outer and the {_ENDS} inner are told",
            int(self._deep[at].sum()),
        )
        loose = self._loose(thread, when)
        path = self._path_ids(at, seq)
        _, first, inverse = distinct_rows(path, by_time, loose)
        codes = np.array(
            [self._stack(int(at[row]), bool(by_time[row]), int(loose[row]), seq) for row in first.tolist()], np.int64
        )
        return codes[inverse] if len(at) else np.empty(0, np.int64)

    def _path_ids(self, at: Ints, seq: Ints) -> Ints:
        """An id for each range's chain of (label, domain, source line, whether it has a number): equal chains, equal ids."""
        nested = self.nested
        used = np.zeros(len(nested.row), np.bool_)
        used[at[at >= 0]] = True
        for level in reversed(nested.levels):
            above = nested.parent[level[used[level]]]
            used[above[above >= 0]] = True
        ranges, free = self.trace.ranges, 0
        domains, sources = (int(ranges[name].max(initial=-1)) + 2 for name in ("domain", "src"))
        path = np.full(len(nested.row) + 1, -1, np.int32)
        for level in nested.levels:
            here = level[used[level]]
            if len(here):
                label, domain, src = (ranges[name][nested.row[here]].astype(np.int64) for name in ("label", "domain", "src"))
                unit = ((label * domains + domain + 1) * 2 + (seq[here] >= 0)) * sources + src + 1
                above = path[nested.parent[here]]  # parent -1 reads the last element, which stays -1
                inverse = distinct_rows(above, unit).inverse
                path[here] = inverse + free
                free += int(inverse.max()) + 1
        return path[at].astype(np.int64)

    def _loose(self, thread: Ints, when: Ints) -> Ints:
        """A code for the set of loose ranges open on each thread at each time; 0 is the empty set."""
        rows, ends, ranges = self.nested.loose, self.nested.loose_ends, self.trace.ranges
        result = np.zeros(len(thread), np.int64)
        for number in np.unique(ranges["thread"][rows]).tolist():
            mine = np.flatnonzero(thread == number)
            mine = mine[np.argsort(when[mine], kind="stable")]
            own = ranges["thread"][rows] == number
            result[mine] = self._sets_at(rows[own], ends[own], when[mine])
        return result

    def _sets_at(self, rows: Ints, ends: Ints, times: Ints) -> Ints:
        """The sets of one thread at ascending times: one sweep over begins and ends, in which a set has a bounded size."""
        never = ends == np.iinfo(np.int64).max
        # In numbers of `times`: a range is open at times[begin:end].
        begin = np.searchsorted(times, self.trace.ranges["start_ns"][rows], "left")
        end = np.where(never, len(times), np.searchsorted(times, ends, "left"))
        shown = begin < end
        changes = np.unique(np.concatenate([begin[shown], end[shown], [0, len(times)]]))
        events: dict[int, list[int]] = {}
        for index in np.flatnonzero(shown).tolist():
            events.setdefault(int(begin[index]), []).append(index)
            events.setdefault(int(end[index]), []).append(~index)
        opened: list[int] = []  # what is open, ascending: order of begin
        leaks: list[int] = []
        leaked = cut = 0
        result = np.zeros(len(times), np.int64)
        for since, until in pairwise(changes.tolist()):
            for event in sorted(events.get(since, ())):  # ends first
                if event < 0:
                    opened.pop(bisect_left(opened, ~event))
                elif not never[event]:
                    insort(opened, event)
                else:
                    leaked += 1
                    leaks += [event] * (leaked <= _MOST_LOOSE)
            cut += (until - since) * (max(leaked, len(opened)) > _MOST_LOOSE)
            members = sorted([*leaks, *opened[:_MOST_LOOSE]])
            result[since:until] = self._set_code(tuple(rows[members].tolist()))
        self._count(f"kernels inside more than {_MOST_LOOSE} ranges that overlap or were never closed; the first are told", cut)
        return result

    def _set_code(self, members: tuple[int, ...]) -> int:
        code = self._set_of.get(members)
        if code is None:
            code = self._set_of[members] = len(self._sets)
            self._sets.append(members)
        return code

    def sequence_numbers(self, at: Ints, seq: Ints) -> tuple[Ints, Ints]:
        """The numbers of each stack, outermost first: (offsets, numbers)."""
        found: list[tuple[Ints, Ints]] = []  # rows and numbers, from the innermost ranges outwards
        counts = np.zeros(len(at) + 1, np.int64)
        rows, level = np.arange(len(at)), 0
        current: npt.NDArray[Any] = at
        while len(rows):
            alive = current >= 0
            current, rows = current[alive], rows[alive]
            has = seq[current] >= 0
            found.append((rows[has], seq[current[has]]))
            counts[rows[has] + 1] += 1
            outwards = self.nested.parent[current]
            current = np.where(self._outer[current] >= 0, self._outer[current], outwards) if level == _ENDS - 1 else outwards
            level += 1
        offsets = np.cumsum(counts)
        numbers, end = np.empty(int(offsets[-1]), np.int64), offsets[1:].copy()
        for rows, values in found:
            end[rows] -= 1
            numbers[end[rows]] = values
        return offsets, numbers

    # ------------------------------------------------------------------ one distinct stack

    def _stack(self, at: int, by_time: bool, loose: int, seq: Ints) -> int:
        chain: list[int] = []
        position = at
        while position >= 0:
            chain.append(position)
            outer = int(self._outer[position]) if len(chain) == _ENDS else -1
            position = outer if outer >= 0 else int(self.nested.parent[position])
        chain.reverse()
        if by_time:
            chain = [p for p in chain if self.facts.context[self.trace.ranges["label"][self.nested.row[p]]]]
        members = [(int(self.nested.row[p]), bool(seq[p] >= 0)) for p in chain]
        extra = [(row, False) for row in self._sets[loose]]
        members = extra + members  # what nests with nothing stands outermost, wherever it began
        label, domain, src = (self.trace.ranges[name] for name in ("label", "domain", "src"))
        opened = not self._never.isdisjoint(self._sets[loose])
        key = (by_time, opened, *((int(label[r]), int(domain[r]), int(src[r]), numbered) for r, numbered in members))
        code = self._code_of.get(key)
        if code is None:
            code = self._code_of[key] = len(self.stacks)
            strings, markers = self.trace.strings, self.trace.markers
            units = [_Unit(markers[label[r]], strings[int(domain[r])], strings[int(src[r])], has) for r, has in members]
            self.stacks.append(_describe(units, opened=opened))
        return code


class _Unit(NamedTuple):
    """One range of a stack: what it means, its domain, the source line beside it, whether it has a sequence number."""

    marker: Marker
    domain: str
    src: str
    numbered: bool


def _describe(units: list[_Unit], *, opened: bool) -> Stack:
    """What one stack says; units outermost first."""
    markers = [unit.marker for unit in units]
    calls = [m for m in markers if m.kind == Kind.OP and m.call is not None]
    numbered = [unit.marker for unit in units if unit.numbered]
    backward = [i for i, m in enumerate(numbered) if m.kind == Kind.BACKWARD and "CheckpointFunctionBackward" not in m.name]
    return Stack(
        mod=tuple(m.call.module for m in calls if m.call),
        op=tuple(m.call.op for m in calls if m.call),
        marker=tuple(m.text for m in calls),
        layer=_layers(units),
        trace=_trace(units),
        reprs=tuple(m.text for m in markers if m.kind == Kind.REPR),
        seq_names=tuple(m.name for m in numbered),
        backward_at=backward[-1] if backward else -1,
        ranges=tuple(f"{u.domain}:{u.marker.name}" if u.domain else u.marker.name for u in units if u.marker.kind == Kind.USER),
        open=opened,
    )


def _layers(units: list[_Unit]) -> tuple[str, ...]:
    """Named layers; of the modules' qualified paths the innermost; where nothing was named the user's own ranges."""
    named = [unit.marker for unit in units if unit.marker.kind == Kind.LAYER]
    if named:
        modules = [m for m in named if m.scope == "module"]
        return tuple(m.name for m in named if m.scope != "module" or m is modules[-1])
    return tuple(u.marker.name for u in units if u.marker.kind == Kind.USER and not _of_library(u.marker.name, u.domain))


def _of_library(name: str, domain: str) -> bool:
    return domain in _LIBRARY_DOMAINS or name.startswith(("nccl", "cublas", "cudnn", "FSDP::"))


def _trace(units: list[_Unit]) -> tuple[str, ...]:
    """Source lines of the innermost range that has them, torch's own files left out."""
    for unit in reversed(units):
        if unit.marker.src:
            return tuple(line for line in unit.marker.src if not _LIBRARY_FILE.search(line))
        if unit.src:
            return (unit.src,)
    return ()
