"""Replays of a run and the graphs that were captured -> which launch of which capture each replayed activity comes from.

A replay is one execution of a graph. Where a graph is captured in pieces a step replays them one after another, in the order
in which they were captured. What fits: the same kernels in the same order by name where the capture knows the names, else as
many kernels, copies and fills in the same order. A graph of another size than the step's is not taken, however well it fits.
All is decided once for each distinct sequence of kernels and each distinct sequence of replays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.arrays.alignment import aligned
from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.attribution.captured import COPY, FILL, UNNAMED, Family
from pyprof.parse.attribution.launches import launch_of_activity
from pyprof.parse.sources.trace import ActivityKind, Trace

LEAST_FIT = 0.9  # of a replay's activities, and of a graph's calls
_PRIME = np.uint64(0x9E3779B97F4A7C15)


# ---------------------------------------------------------------------------------------------- what was replayed


class Replays(NamedTuple):
    """The replays of a run in order of (process, launch): their launches, and their activities in the order in which they were
    captured as far as that is known.

    Replay i has rows[first[i]:first[i + 1]] of `activities`; codes: what each is, as in captured graphs; sequence: of each
    replay the number of its sequence of codes, example: of each sequence a replay that has it.
    """

    launch: Ints
    process: Ints
    rows: Ints
    first: Ints
    codes: Ints
    sequence: Ints
    example: Ints

    def codes_of(self, sequence: int) -> Ints:
        """The codes of one sequence."""
        replay = self.example[sequence]
        return self.codes[self.first[replay] : self.first[replay + 1]]


def replays(run: Trace, among: Bools) -> Replays:
    """The replays of graphs; among: which activities may be part of one."""
    activities, launches = run.activities, run.launches
    launch = np.where(among, launch_of_activity(run), -1)
    rows = np.flatnonzero(launch >= 0)
    launch = launch[rows]
    begin, thread = launches["start_ns"][launch], launches["thread"][launch]
    calls, _, call = distinct_rows(activities["process"][rows], begin, thread, launch)
    streams = np.bincount(distinct_rows(call, activities["stream"][rows]).columns[0], minlength=calls.shape[1])
    # On one stream they ran in the order in which they were captured; on several the numbers of nodes follow it.
    place = np.where(streams[call] > 1, activities["graph_node"][rows], activities["start_ns"][rows])
    order = np.lexsort((activities["start_ns"][rows], place, call))
    rows = rows[order]
    first = np.searchsorted(call[order], np.arange(calls.shape[1] + 1))
    kind, name = activities["kind"][rows], activities["name"][rows].astype(np.int64)
    codes = np.where(kind == ActivityKind.KERNEL, name, np.where(kind == ActivityKind.MEMCPY, COPY, FILL))
    return Replays(calls[3], calls[0], rows, first, codes, *_sequences(codes, first))


def _sequences(codes: Ints, first: Ints) -> tuple[Ints, Ints]:
    """The number of the sequence of each replay, and of each sequence a replay that has it."""
    length = np.diff(first)
    place = np.arange(len(codes)) - np.repeat(first[:-1], length)
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(int(length.max(initial=0)) + 1, _PRIME))
        sums = np.cumsum((codes + 7).astype(np.uint64) * powers[place], dtype=np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), sums])
    _, example, inverse = distinct_rows(length, (sums[first[1:]] - sums[first[:-1]]).view(np.int64) >> 3)
    return inverse, example


# ---------------------------------------------------------------------------------------------- what fits what


class Fits:
    """How well sequences of kernels fit captured graphs; each pair is looked at once."""

    def __init__(self, of: Replays, families: list[Family]) -> None:
        self.replays, self.families = of, families
        self._known: dict[tuple[bytes, int], Ints | None] = {}
        self._passes: dict[tuple[int, tuple[int, ...]], tuple[float, list[tuple[int, Ints]]]] = {}

    def alignment(self, sequence: int, codes: Ints, *, unnamed: bool) -> Ints | None:
        """For each activity of a sequence the index of its call among codes, -1 none; None where they do not fit."""
        key = (codes.tobytes(), sequence)
        if key not in self._known:
            mine = self.replays.codes_of(sequence)
            found = None
            if min(len(mine), len(codes)) >= LEAST_FIT * max(len(mine), len(codes), 1):
                found = _aligned(mine, codes, unnamed=unnamed)
            if found is not None and (found >= 0).sum() < LEAST_FIT * max(len(mine), len(codes)):
                found = None
            self._known[key] = found
        return self._known[key]

    def mask(self, sequence: int) -> int:
        """The families of which a sequence may be a part, as bits."""
        found = 0
        for bit, family in enumerate(self.families):
            if family.bounded:
                fits = any(self.alignment(sequence, g.codes, unnamed=family.unnamed) is not None for g in family.graphs)
            else:
                names = np.unique(_comparable(self.replays.codes_of(sequence), unnamed=family.unnamed))
                fits = bool(np.isin(names, family.graphs[0].codes).mean() >= LEAST_FIT)
            found |= fits << bit
        return found

    def of_pass(self, family: int, sequences: tuple[int, ...]) -> tuple[float, list[tuple[int, Ints]]]:
        """How much of a sequence of replays a family explains, and of each replay (graph, call of each activity); graph -1:
        none."""
        key = (family, sequences)
        if key not in self._passes:
            found = (self._in_pieces if self.families[family].bounded else self._in_one)(self.families[family], sequences)
            total = sum(len(self.replays.codes_of(sequence)) for sequence in sequences)
            self._passes[key] = sum(int((calls >= 0).sum()) for _, calls in found) / total, found
        return self._passes[key]

    def _in_pieces(self, family: Family, sequences: tuple[int, ...]) -> list[tuple[int, Ints]]:
        """The replays aligned with the graphs, as often one after another as there are enough of them."""
        graphs, unnamed = family.graphs, family.unnamed
        code_of: dict[bytes, int] = {}
        kind = np.array([code_of.setdefault(graph.codes.tobytes(), len(code_of)) for graph in graphs])
        wanted = [
            next((k for g, k in zip(graphs, kind, strict=True) if self.alignment(s, g.codes, unnamed=unnamed) is not None), -1)
            for s in sequences
        ]
        place = aligned(np.array(wanted), np.tile(kind, -(-len(sequences) // len(graphs))))
        found = []
        for number, sequence in enumerate(sequences):
            graph = -1 if place is None or wanted[number] < 0 else int(place[number])
            graph = graph % len(graphs) if graph >= 0 else -1
            calls = self.alignment(sequence, graphs[graph].codes, unnamed=unnamed) if graph >= 0 else None
            found.append((graph, calls if calls is not None else np.full(len(self.replays.codes_of(sequence)), -1, np.int64)))
        return found

    def _in_one(self, family: Family, sequences: tuple[int, ...]) -> list[tuple[int, Ints]]:
        """The activities of all replays together aligned with the calls, since it is not known where a graph ends."""
        parts = [self.replays.codes_of(sequence) for sequence in sequences]
        mine, calls = np.concatenate(parts), family.graphs[0].codes
        times = max(round(len(mine) / len(calls)), 1)
        found = _aligned(mine, np.tile(calls, times), unnamed=family.unnamed)
        if found is None or (found >= 0).sum() < LEAST_FIT * max(len(mine), times * len(calls)):
            found = np.full(len(mine), -1, np.int64)
        edges = np.cumsum([len(part) for part in parts])[:-1]
        return [(0, np.where(one >= 0, one % len(calls), -1)) for one in np.split(found, edges)]

    def share(self, family: Family) -> float:
        """How much of some replay follows in the order of one of the family's graphs, at most."""
        best = 0.0
        for sequence in range(len(self.replays.example)):
            mine = self.replays.codes_of(sequence)
            for codes in {graph.codes.tobytes(): graph.codes for graph in family.graphs}.values():
                found = _aligned(mine, codes, unnamed=family.unnamed)
                if found is not None:
                    best = max(best, float((found >= 0).sum()) / max(len(mine), len(codes)))
        return best


def _comparable(codes: Ints, *, unnamed: bool) -> Ints:
    return np.where(codes >= 0, UNNAMED, codes) if unnamed else codes


def _aligned(mine: Ints, calls: Ints, *, unnamed: bool) -> Ints | None:
    """Where names are not known only a sequence that is the same throughout says which call is which."""
    mine = _comparable(mine, unnamed=unnamed)
    if unnamed:
        return np.arange(len(mine)) if np.array_equal(mine, calls) else None
    return aligned(mine, calls)


# ---------------------------------------------------------------------------------------------- all replays


class Matched(NamedTuple):
    """Of each of the replays' activities (in the order of Replays.rows) the family, and the row of `launches` in its capture,
    that it comes from, -1 none; ambiguous: families of different sizes that fit some replay equally."""

    family: Ints
    launch: Ints
    ambiguous: set[int]


def matched(of: Replays, families: list[Family], step: Ints, allowed: list[int]) -> Matched:
    """What each replayed activity comes from. step: of each replay the number of its step, -1 unknown; allowed: of each replay
    the families of the size that its step may have run, as bits."""
    fits = Fits(of, families)
    masks = [fits.mask(sequence) for sequence in range(len(of.example))]
    chosen: dict[tuple[int, int, int], list[int]] = {}
    calls_of: dict[tuple[int, int, int], Ints] = {}
    ambiguous: set[int] = set()
    for begin, end, candidates in _passes(of, step, masks, allowed):
        sequences = tuple(of.sequence[begin:end].tolist())
        ranked = sorted((-fits.of_pass(bit, sequences)[0], bit) for bit in _bits(candidates))
        best = [bit for share, bit in ranked if share == ranked[0][0] and share < 0]
        if len({families[bit].sizes for bit in best}) > 1:
            ambiguous.update(best)
        elif best:
            for replay, (graph, calls) in enumerate(fits.of_pass(best[0], sequences)[1], begin):
                if graph >= 0:
                    key = (best[0], graph, hash(calls.tobytes()))
                    calls_of[key] = calls
                    chosen.setdefault(key, []).append(replay)
    family, launch = np.full((2, len(of.rows)), -1, np.int64)
    for key, members in chosen.items():
        rows, calls = families[key[0]].graphs[key[1]].rows, calls_of[key]
        at = (of.first[members][:, None] + np.arange(len(calls))[None, :])[:, calls >= 0]
        family[at], launch[at] = key[0], rows[calls[calls >= 0]][None, :]
    return Matched(family, launch, ambiguous)


def _bits(mask: int) -> Iterator[int]:
    return (bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _passes(of: Replays, step: Ints, masks: list[int], allowed: list[int]) -> Iterator[tuple[int, int, int]]:
    """Replays one after another that one family may explain: (first, end, families as bits)."""
    steps, processes, sequences = step.tolist(), of.process.tolist(), of.sequence.tolist()
    begin, common = 0, 0
    for replay in range(len(steps)):
        mine = masks[sequences[replay]] & allowed[replay]
        same = replay > begin and steps[replay] == steps[replay - 1] and processes[replay] == processes[replay - 1]
        if same and not mine:  # of another graph, between pieces of one
            continue
        if not same or not common & mine:
            if common:
                yield begin, replay, common
            begin, common = replay, mine
        else:
            common &= mine
    if common:
        yield begin, len(steps), common
