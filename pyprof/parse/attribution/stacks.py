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

from pyprof.arrays.distinct import distinct_rows
from pyprof.markers import Kind, Marker
from pyprof.parse.attribution.crossing import NEVER, Loose
from pyprof.parse.attribution.ranges import CONTEXT, Nested, by_thread
from pyprof.parse.records.records import Stack
from pyprof.parse.sources.trace import Trace

__all__ = ["Paths", "sequence_numbers"]

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
    r"|[/\\]apex[/\\]optimizers[/\\]|[/\\]pyprof[/\\](nvtx|recording|capture)[/\\]"
)


class Paths:
    """Gives codes to stacks; `stacks` are the distinct ones so far. Ranges may come nested in slices, one after another."""

    def __init__(self, trace: Trace, loose: Loose) -> None:
        self.trace, self.loose = trace, loose
        self.stacks: list[Stack] = []
        self.cut: dict[str, int] = {}  # how many kernels have a stack of which not all is told, by what is left out
        self._loose_of = by_thread(loose.thread, np.arange(len(loose)))
        self._chains = _Chains()
        self._units: dict[int, _Unit] = {}  # by their number
        self._domains, self._sources = (int(trace.ranges[name].max(initial=-1)) + 2 for name in ("domain", "src"))
        self._code_of: dict[tuple[object, ...], int] = {}
        self._told: dict[tuple[int, int, int], int] = {}  # chain, by time, set of loose ranges -> code
        self._sets: list[tuple[int, ...]] = [()]  # distinct sets of loose ranges, by code
        self._set_of: dict[tuple[int, ...], int] = {(): 0}

    def _count(self, what: str, kernels: int) -> None:
        self.cut[what] = self.cut.get(what, 0) + kernels

    def codes(self, nested: Nested, at: Ints, by_time: Bools, thread: Ints, when: Ints, seq: Ints) -> Ints:
        """The code of each kernel's stack: innermost range, whether taken by time, the loose ranges open then on its thread.

        at: positions in `nested`, -1 none; seq: the sequence number of each position.
        """
        chain = self._chain_ids(nested, at, seq)
        self._count(
            f"kernels inside more than {2 * _ENDS} nested ranges; the {_ENDS} outer and the {_ENDS} inner are told",
            self._chains.count_deep(chain),
        )
        loose, cut = self._loose(thread, when)
        self._count(f"kernels inside more than {_MOST_LOOSE} ranges that overlap or were never closed; the first are told", cut)
        return self._codes(chain, by_time, loose)

    def codes_of_ranges(self, nested: Nested, at: Ints, thread: Ints, start: Ints, seq: Ints) -> Ints:
        """The same for ranges themselves, which are no kernels: nothing is counted."""
        loose, _ = self._loose(thread, start)
        return self._codes(self._chain_ids(nested, at, seq), np.zeros(len(at), np.bool_), loose)

    def _codes(self, chain: Ints, by_time: Bools, loose: Ints) -> Ints:
        found = distinct_rows(chain, by_time, loose)
        codes = np.array([self._code(*key) for key in found.columns.T.tolist()], np.int64)
        return codes[found.inverse] if len(chain) else np.empty(0, np.int64)

    def _chain_ids(self, nested: Nested, at: Ints, seq: Ints) -> Ints:
        """An id for each range's chain of (label, domain, source line, whether it has a number): equal chains, equal ids."""
        used = np.zeros(len(nested.row), np.bool_)
        used[at[at >= 0]] = True
        for level in reversed(nested.levels):
            above = nested.parent[level[used[level]]]
            used[above[above >= 0]] = True
        ranges = self.trace.ranges
        ids = np.full(len(nested.row) + 1, -1, np.int32)
        for level in nested.levels:
            here = level[used[level]]
            if not len(here):
                break
            label, domain, src = (ranges[name][nested.row[here]].astype(np.int64) for name in ("label", "domain", "src"))
            unit = self._pack(label, domain, src, seq[here] >= 0)
            found = distinct_rows(ids[nested.parent[here]], unit)  # parent -1 reads the last element, which stays -1
            ids[here] = self._chains.ids(*found.columns.tolist())[found.inverse]
        return ids[at].astype(np.int64)

    def _loose(self, thread: Ints, when: Ints) -> tuple[Ints, int]:
        """A code for the set of loose ranges open on each thread at each time, 0 the empty set; of how many not all is told."""
        result, cut = np.zeros(len(thread), np.int64), 0
        if not len(self.loose):
            return result, cut
        for number, mine in by_thread(thread, np.arange(len(thread))).items():
            if number in self._loose_of:
                mine = mine[np.argsort(when[mine], kind="stable")]
                result[mine], more = self._sets_at(self._loose_of[number], when[mine])
                cut += more
        return result, cut

    def _sets_at(self, rows: Ints, times: Ints) -> tuple[Ints, int]:
        """The same of one thread at ascending times: one sweep over begins and ends, in which a set has a bounded size."""
        ends = self.loose.end[rows]
        never = ends == NEVER
        # In numbers of `times`: a range is open at times[begin:end].
        begin = np.searchsorted(times, self.loose.start[rows], "left")
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
        return result, cut

    def _set_code(self, members: tuple[int, ...]) -> int:
        code = self._set_of.get(members)
        if code is None:
            code = self._set_of[members] = len(self._sets)
            self._sets.append(members)
        return code

    def _code(self, chain: int, by_time: int, loose: int) -> int:
        code = self._told.get((chain, by_time, loose))
        if code is None:
            code = self._told[chain, by_time, loose] = self._new(chain, bool(by_time), loose)
        return code

    def _new(self, chain: int, by_time: bool, loose: int) -> int:
        aside = self._sets[loose]
        told = [self._pack(int(self.loose.label[i]), int(self.loose.domain[i]), int(self.loose.src[i]), 0) for i in aside]
        opened = any(self.loose.end[i] == NEVER for i in aside)
        units = self._chains.units(chain)  # what nests with nothing stands outermost, wherever it began
        told += [unit for unit in units if self._unit(unit).marker.kind in CONTEXT] if by_time else units
        key = (by_time, opened, *told)
        code = self._code_of.get(key)
        if code is None:
            code = self._code_of[key] = len(self.stacks)
            self.stacks.append(_describe(list(map(self._unit, told)), opened=opened))
        return code

    def _pack(self, label: Any, domain: Any, src: Any, numbered: Any) -> Any:
        """A range in one number: all that is told of it in a stack."""
        return ((label * self._domains + domain + 1) * 2 + numbered) * self._sources + src + 1

    def _unit(self, packed: int) -> _Unit:
        unit = self._units.get(packed)
        if unit is None:
            rest, src = divmod(packed, self._sources)
            rest, numbered = divmod(rest, 2)
            label, domain = divmod(rest, self._domains)
            strings = self.trace.strings
            unit = self._units[packed] = _unit_of(
                self.trace.markers[label], strings[domain - 1], strings[src - 1], numbered=bool(numbered)
            )
        return unit


class _Chains:
    """Chains of ranges as a tree of units, each told by its unit and the chain around it. Of long ones both ends are told."""

    def __init__(self) -> None:
        self._id_of: dict[tuple[int, int], int] = {}
        self._above: list[int] = []
        self._unit: list[int] = []
        self._depth: list[int] = []
        self._outer: list[int] = []  # the last one around it that still counts among the outermost; -1: it does itself

    def ids(self, above: list[int], unit: list[int]) -> Ints:
        """The id of each unit inside a chain, -1 for none around it."""
        return np.array([self._id(key) for key in zip(above, unit, strict=True)], np.int64)

    def _id(self, key: tuple[int, int]) -> int:
        found = self._id_of.get(key)
        if found is None:
            found = self._id_of[key] = len(self._unit)
            above = key[0]
            depth = self._depth[above] + 1 if above >= 0 else 0
            self._above.append(above)
            self._unit.append(key[1])
            self._depth.append(depth)
            self._outer.append(-1 if depth < _ENDS else above if depth == _ENDS else self._outer[above])
        return found

    def count_deep(self, chains: Ints) -> int:
        """How many of these are not told whole."""
        if max(self._depth, default=0) < 2 * _ENDS:
            return 0
        return int(np.array([*(depth >= 2 * _ENDS for depth in self._depth), False], np.bool_)[chains].sum())

    def units(self, chain: int) -> list[int]:
        """The units that are told, outermost first."""
        found: list[int] = []
        while chain >= 0:
            found.append(self._unit[chain])
            outer = self._outer[chain] if len(found) == _ENDS else -1
            chain = outer if outer >= 0 else self._above[chain]
        return found[::-1]


def sequence_numbers(nested: Nested, at: Ints, seq: Ints) -> tuple[Ints, Ints]:
    """The numbers of each stack, outermost first: (offsets, numbers); of a long one those of both ends."""
    outer = _outer_end(nested)
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
        outwards = nested.parent[current]
        if level == _ENDS - 1 and len(outer):
            outwards = np.where(outer[current] >= 0, outer[current], outwards)
        current = outwards
        level += 1
    offsets = np.cumsum(counts)
    numbers, end = np.empty(int(offsets[-1]), np.int64), offsets[1:].copy()
    for rows, values in found:
        end[rows] -= 1
        numbers[end[rows]] = values
    return offsets, numbers


def _outer_end(nested: Nested) -> npt.NDArray[np.int32]:
    """For each range the last one around it that still counts among the outermost; -1: it does itself."""
    result = np.full(len(nested.row) + 1 if len(nested.levels) > _ENDS else 0, -1, np.int32)
    for depth, level in enumerate(nested.levels[_ENDS:], _ENDS):
        above = nested.parent[level]
        result[level] = above if depth == _ENDS else result[above]
    return result


class _Unit(NamedTuple):
    """One range of a stack: what it means, the source line beside it, whether it has a sequence number; of a range of the
    user's also what it is called with its domain, and what it is called as a layer."""

    marker: Marker
    src: str
    numbered: bool
    shown: str | None
    layer: str | None


def _unit_of(marker: Marker, domain: str, src: str, *, numbered: bool) -> _Unit:
    if marker.kind != Kind.USER:
        return _Unit(marker, src, numbered, None, None)
    shown = f"{domain}:{marker.name}" if domain else marker.name
    return _Unit(marker, src, numbered, shown, None if _of_library(marker.name, domain) else marker.name)


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
        ranges=tuple([unit.shown for unit in units if unit.shown is not None]),
        open=opened,
    )


def _layers(units: list[_Unit]) -> tuple[str, ...]:
    """Named layers; of the modules' qualified paths the innermost; where nothing was named the user's own ranges."""
    named = [unit.marker for unit in units if unit.marker.kind == Kind.LAYER]
    if named:
        modules = [m for m in named if m.scope == "module"]
        return tuple(m.name for m in named if m.scope != "module" or m is modules[-1])
    return tuple([unit.layer for unit in units if unit.layer is not None])


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
