"""Replays of a run and the graphs that were captured -> for each replayed activity its launch in a capture.

A replay is one execution of a graph. A graph that is captured in pieces is replayed piece by piece, in the order of capture.
Two match if they have the same kernels in the same order by name, or, if the capture has no names, equally many kernels, copies
and fills in the same order. A graph of another size than the step's never matches, however well it fits. All is decided once
for each distinct sequence of kernels and each distinct sequence of replays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.columns.alignment import aligned
from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.types import Bools, Ints
from pyprof.model.trace import ActivityKind, Trace
from pyprof.parse.attribution.captured import COPY, FILL, UNNAMED, Family, Graph
from pyprof.parse.attribution.launches import launch_of_activity

LEAST_FIT = 0.9  # of a replay's activities, and of a graph's calls
_MOST_APART = 2000
_MOST_DIFFERENCES = 1000  # between a replay and a graph that does not fit, for saying how far it does
_MOST_LOOKED_AT = 64
_PRIME = np.uint64(0x9E3779B97F4A7C15)


# ---------------------------------------------------------------------------------------------- what was replayed


class Replays(NamedTuple):
    """The replays of a run in order of (process, thread, launch): their launches, and their activities in the order of capture
    where that is known.

    Replay i has rows[first[i]:first[i + 1]] of `activities`; codes: of each as in captured graphs; lane: stream + 1 of each
    where a replay ran on several streams and the order of its nodes is unknown, else 0; sequence: for each replay the number of
    its sequence of codes and lanes; example: for each sequence one replay.
    """

    launch: Ints
    process: Ints
    thread: Ints
    rows: Ints
    first: Ints
    codes: Ints
    lane: Ints
    sequence: Ints
    example: Ints

    def of_sequence(self, sequence: int) -> tuple[Ints, Ints]:
        """Codes and lanes of one sequence."""
        replay = self.example[sequence]
        own = slice(self.first[replay], self.first[replay + 1])
        return self.codes[own], self.lane[own]

    def length(self, sequence: int) -> int:
        """Number of activities of a sequence."""
        return len(self.of_sequence(sequence)[0])


def replays(run: Trace, among: Bools) -> Replays:
    """The replays of graphs; among: which activities may be part of one."""
    activities, launches = run.activities, run.launches
    launch = np.where(among, launch_of_activity(run), -1)
    rows = np.flatnonzero(launch >= 0)
    launch = launch[rows]
    begin, thread = launches["start_ns"][launch], launches["thread"][launch]
    calls, _, call = distinct_rows(activities["process"][rows], thread, begin, launch)
    start, node, stream = (activities[name][rows].astype(np.int64) for name in ("start_ns", "graph_node", "stream"))
    streams = np.bincount(distinct_rows(call, stream).columns[0], minlength=calls.shape[1])
    # On one stream they ran in the order in which they were captured; on several the numbers of nodes follow it, where they
    # were recorded: those given by order of begin say no more than that.
    order = np.lexsort((stream, activities["end_ns"][rows], start, call))
    first = np.searchsorted(call[order], np.arange(calls.shape[1] + 1))
    counted = np.ones(calls.shape[1], np.bool_)
    counted[call[order][node[order] != 1 + np.arange(len(rows)) - first[call[order]]]] = False
    lane = np.where((streams > 1)[call] & counted[call], stream + 1, 0)
    place = np.where((streams > 1)[call] & ~counted[call], node, start)
    order = np.lexsort((stream, activities["end_ns"][rows], start, place, call))
    rows, lane = rows[order], lane[order]
    kind, name = activities["kind"][rows], activities["name"][rows].astype(np.int64)
    codes = np.where(kind == ActivityKind.KERNEL, name, np.where(kind == ActivityKind.MEMCPY, COPY, FILL))
    return Replays(calls[3], calls[0], calls[1], rows, first, codes, lane, *_sequences(codes, lane, first))


def _sequences(codes: Ints, lane: Ints, first: Ints) -> tuple[Ints, Ints]:
    """For each replay the number of its sequence, and for each sequence one replay."""
    length = np.diff(first)
    place = np.arange(len(codes)) - np.repeat(first[:-1], length)
    both = distinct_rows(codes, lane).inverse
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(int(length.max(initial=0)) + 1, _PRIME))
        sums = np.cumsum((both + 7).astype(np.uint64) * powers[place], dtype=np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), sums])
    _, example, inverse = distinct_rows(length, (sums[first[1:]] - sums[first[:-1]]).view(np.int64) >> 3)
    if len(both) and not (both == both[np.repeat(first[example[inverse]], length) + place]).all():  # hashes equal by chance
        parts = [both[a:b].tobytes() for a, b in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)]
        number = {part: at for at, part in enumerate(dict.fromkeys(parts))}
        inverse = np.array([number[part] for part in parts])
        example = np.unique(inverse, return_index=True)[1]
    return inverse, example


# ---------------------------------------------------------------------------------------------- what fits what


class Fit(NamedTuple):
    """pairs: number of activities paired in some best alignment; calls: for each activity the index of its call in the graph,
    -1 if it has none, or several candidates with different ranges around them."""

    pairs: int
    calls: Ints


class Fits:
    """How well sequences of kernels fit captured graphs; each pair is compared once."""

    def __init__(self, of: Replays, families: list[Family]) -> None:
        self.replays, self.families = of, families
        self._known: dict[tuple[int, bytes, bytes], Fit | None] = {}
        self._passes: dict[tuple[int, tuple[int, ...], bool], tuple[int, list[tuple[int, Ints]]]] = {}

    def fit(self, sequence: int, graph: Graph, *, unnamed: bool) -> Fit | None:
        """A sequence and one graph; None if less than LEAST_FIT of either is paired."""
        key = sequence, graph.codes.tobytes(), graph.said.tobytes()
        if key not in self._known:
            self._known[key] = _fit(*self.replays.of_sequence(sequence), graph.codes, graph.said, unnamed=unnamed)
        return self._known[key]

    def fits(self, sequence: int, bit: int) -> bool:
        """Whether a sequence may be a part of a family."""
        family = self.families[bit]
        if family.bounded:
            return any(self.fit(sequence, graph, unnamed=family.unnamed) is not None for graph in family.graphs)
        mine = _comparable(self.replays.of_sequence(sequence)[0], unnamed=family.unnamed)
        return bool(np.isin(mine, family.graphs[0].codes).mean() >= LEAST_FIT)

    def of_pass(self, bit: int, sequences: tuple[int, ...], *, stepped: bool) -> tuple[int, list[tuple[int, Ints]]]:
        """How many activities of a sequence of replays a family explains, and for each replay its graph and the call of each
        activity, -1 none. stepped: the sequence is a whole step."""
        key = bit, sequences, stepped
        if key not in self._passes:
            family = self.families[bit]
            self._passes[key] = (self._in_pieces if family.bounded else self._in_one)(family, sequences, stepped)
        return self._passes[key]

    def _in_pieces(self, family: Family, sequences: tuple[int, ...], stepped: bool) -> tuple[int, list[tuple[int, Ints]]]:
        """Each replay is the graph that fits it best. If several graphs with different ranges have its kernels, its place among
        the replays decides."""
        kinds, contents = _PieceKinds(family.graphs), dict[int, tuple[int, int]]()
        for sequence in dict.fromkeys(sequences):
            shares = {
                kind: found.pairs / max(len(found.calls), len(family.graphs[graph].codes))
                for kind, graph in kinds.example.items()
                if (found := self.fit(sequence, family.graphs[graph], unnamed=family.unnamed)) is not None
            }
            best = [kind for kind, share in shares.items() if share == max(shares.values())]
            pairs = max((round(shares[k] * max(self.replays.length(sequence), kinds.length(k))) for k in best), default=0)
            contents[sequence] = (best[0] if len(best) == 1 else -1), pairs
        wanted = np.array([contents[sequence][0] for sequence in sequences])
        graph = np.full(len(wanted), -1, np.int64)
        graph[wanted >= 0] = kinds.placed(wanted[wanted >= 0], stepped=stepped)
        none = {sequence: np.full(self.replays.length(sequence), -1, np.int64) for sequence in contents}
        answers = []
        for sequence, at in zip(sequences, graph.tolist(), strict=True):
            fit = self.fit(sequence, family.graphs[at], unnamed=family.unnamed) if at >= 0 else None
            answers.append((at, fit.calls) if fit is not None else (-1, none[sequence]))
        return sum(contents[sequence][1] for sequence in sequences), answers

    def _in_one(self, family: Family, sequences: tuple[int, ...], stepped: bool) -> tuple[int, list[tuple[int, Ints]]]:
        """Each replay is all calls, or the replays together are: the end of each graph is not known."""
        graph, unnamed = family.graphs[0], family.unnamed
        fits = {sequence: self.fit(sequence, graph, unnamed=unnamed) for sequence in dict.fromkeys(sequences)}
        none = {sequence: np.full(self.replays.length(sequence), -1, np.int64) for sequence in fits}
        alone = [(0, fit.calls) if (fit := fits[one]) is not None else (-1, none[one]) for one in sequences]
        pairs = sum(fit.pairs for one in sequences if (fit := fits[one]) is not None)
        if len(sequences) == 1 or all(fit is not None for fit in fits.values()):
            return pairs, alone
        parts = [self.replays.of_sequence(sequence) for sequence in sequences]
        mine, lanes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        times = max(round(len(mine) / len(graph.codes)), 1)
        together = None
        if not lanes.any() and (stepped or _PieceKinds.begins_once(graph)):
            together = _fit(mine, lanes, np.tile(graph.codes, times), np.tile(graph.said, times), unnamed=unnamed)
        if together is None or together.pairs <= pairs:
            return pairs, alone
        edges = np.cumsum([len(part) for part, _ in parts])[:-1]
        calls = [np.where(one >= 0, one % len(graph.codes), -1) for one in np.split(together.calls, edges)]
        twice = [len(np.unique(one[one >= 0])) < (one >= 0).sum() for one in calls]
        return together.pairs, [(0, np.full(len(one), -1) if bad else one) for one, bad in zip(calls, twice, strict=True)]

    def share(self, family: Family) -> tuple[float, bool]:
        """Largest share of a replay that is paired with calls of one of the family's graphs, in order, and whether it is exact
        (else an upper bound). Only the pairs with most names in common are compared."""
        graphs = {graph.codes.tobytes(): graph.codes for graph in family.graphs}.values()
        pairs = []
        for sequence in range(min(len(self.replays.example), _MOST_LOOKED_AT)):
            mine = _comparable(self.replays.of_sequence(sequence)[0], unnamed=family.unnamed)
            pairs += [(_common(mine, codes) / max(len(mine), len(codes)), mine, codes) for codes in graphs]
        best, exact = 0.0, True
        for most, mine, codes in sorted(pairs, key=lambda pair: -pair[0])[:2]:
            longest, found = max(len(mine), len(codes)), aligned(mine, codes, _MOST_DIFFERENCES)
            most = min(most, (len(mine) + len(codes) - _MOST_DIFFERENCES) / 2 / longest)
            share = most if found is None else float((found.own >= 0).sum()) / longest
            if share > best:
                best, exact = share, found is not None
        return best, exact


class _PieceKinds:
    """The graphs of a family. kind: the same for graphs with the same kernels; content: the same if the ranges around these
    agree too."""

    def __init__(self, graphs: list[Graph]) -> None:
        kinds, contents = dict[bytes, int](), dict[tuple[bytes, bytes], int]()
        self.kind = np.array([kinds.setdefault(graph.codes.tobytes(), len(kinds)) for graph in graphs])
        keys = [(graph.codes.tobytes(), graph.said.tobytes()) for graph in graphs]
        self.content = np.array([contents.setdefault(key, len(contents)) for key in keys])
        self.graphs = graphs
        self.example = {int(kind): at for at, kind in reversed(list(enumerate(self.kind.tolist())))}

    def length(self, kind: int) -> int:
        """Number of calls of a graph of a kind."""
        return len(self.graphs[self.example[kind]].codes)

    def placed(self, wanted: Ints, *, stepped: bool) -> Ints:
        """The graph of each replay, given the kind of each: they repeat in the order of capture; -1 if that does not decide.
        Within a step they begin with the first graph, and all are there."""
        alone = [kind for kind in self.example if len(np.unique(self.content[self.kind == kind])) == 1]
        example = np.array([self.example[kind] for kind in range(len(self.example))])
        result = np.where(np.isin(wanted, alone), example[wanted], -1)
        if not len(wanted) or (result >= 0).all():
            return result
        count = len(self.kind)
        if stepped:
            times = -(-len(wanted) // count)
            found = aligned(wanted, np.tile(self.kind, times))
            if found is not None:
                fixed = _agreed(found.first, found.second, found.own, np.tile(self.content, times)) & ~found.loose
                result = np.where(fixed & (result < 0), found.own % count, result)
            return result
        turns = [(np.arange(len(wanted)) + turn) % count for turn in range(count)]
        fitting = [turn for turn in turns if (self.kind[turn] == wanted).all()]
        if fitting:
            fixed = np.all([self.content[turn] == self.content[fitting[0]] for turn in fitting], axis=0)
            result = np.where(fixed & (result < 0), fitting[0], result)
        return result

    @staticmethod
    def begins_once(graph: Graph) -> bool:
        """Whether the place in a graph at which replays begin can be recognised: the graph is not made of equal parts with
        different ranges around them."""
        count = len(graph.codes)
        for part in (part for part in range(1, count // 2 + 1) if count % part == 0):
            if np.array_equal(graph.codes, np.roll(graph.codes, part)):
                return np.array_equal(graph.said, np.roll(graph.said, part))
        return True


def _agreed(first: Ints, second: Ints, index: Ints, said: Ints) -> Bools:
    """Which elements have a pair, and the same hash of ranges in all their possible pairs."""
    result = index >= 0
    result[first[said[second] != said[index[first]]]] = False
    return result


def _comparable(codes: Ints, *, unnamed: bool) -> Ints:
    return np.where(codes >= 0, UNNAMED, codes) if unnamed else codes


def _common(mine: Ints, calls: Ints) -> int:
    """Upper bound of the number of pairs: by how often each code occurs."""
    codes, counts = np.unique(mine, return_counts=True)
    others, of_others = np.unique(calls, return_counts=True)
    _, a, b = np.intersect1d(codes, others, assume_unique=True, return_indices=True)
    return int(np.minimum(counts[a], of_others[b]).sum())


def _fit(mine: Ints, lanes: Ints, calls: Ints, said: Ints, *, unnamed: bool) -> Fit | None:
    """Align one sequence with one graph. Without names only a sequence that is equal throughout can be paired."""
    mine, longest = _comparable(mine, unnamed=unnamed), max(len(mine), len(calls))
    if min(len(mine), len(calls)) < (1 if unnamed else LEAST_FIT) * longest or _common(mine, calls) < LEAST_FIT * longest:
        return None
    if unnamed and not lanes.any():
        return Fit(len(mine), np.arange(len(mine))) if np.array_equal(mine, calls) else None
    found = aligned(mine, calls, min(_MOST_APART, int(len(mine) + len(calls) - 2 * LEAST_FIT * longest) + 1))
    if found is None or (found.own >= 0).sum() < LEAST_FIT * longest:
        return None
    fixed = _agreed(found.first, found.second, found.own, said) & ~found.loose
    if lanes.any():
        fixed &= _told_apart(mine, lanes, calls, said, found.own)
    return Fit(int((found.own >= 0).sum()), np.where(fixed, found.own, -1))


def _told_apart(mine: Ints, lanes: Ints, calls: Ints, said: Ints, index: Ints) -> Bools:
    """Which activities have a certain call although they ran on several streams, in unknown order: all calls of their name have
    the same ranges, or as many of the name were captured, on one stream, and they are paired in order."""
    result = np.zeros(len(mine), np.bool_)
    for code in distinct_values(mine).tolist():
        own, called = np.flatnonzero(mine == code), np.flatnonzero(calls == code)
        if len(np.unique(said[called])) == 1:
            result[own] = True
        elif len(own) == len(called) and len(np.unique(lanes[own])) == 1:
            result[own] = index[own] == called
    return result


# ---------------------------------------------------------------------------------------------- all replays


class Matched(NamedTuple):
    """For each activity of the replays (in the order of Replays.rows) the family that it comes from, and the row in its
    capture's `launches`, -1 none; ambiguous: families that fit some replay equally well but with different ranges."""

    family: Ints
    launch: Ints
    ambiguous: set[int]


def matched(of: Replays, families: list[Family], step: Ints, allowed: list[int]) -> Matched:
    """Find the origin of each replayed activity. step: number of each replay's step, -1 unknown; allowed: for each replay the
    families of a size that its step may have run, as bits."""
    fits, result = Fits(of, families), _Result(of, families)
    wanted = [0] * len(of.example)  # of each sequence the families that are allowed somewhere
    for sequence, mask in set(zip(of.sequence.tolist(), allowed, strict=True)):
        wanted[sequence] |= mask
    fitting = [sum(fits.fits(sequence, bit) << bit for bit in _bits(mask)) for sequence, mask in enumerate(wanted)]
    for begin, end, candidates in _passes(of, step, fitting, allowed):
        sequences, stepped = tuple(of.sequence[begin:end].tolist()), bool(step[begin] >= 0)
        found = {bit: fits.of_pass(bit, sequences, stepped=stepped) for bit in _bits(candidates)}
        most = max(pairs for pairs, _ in found.values())
        best = [bit for bit, (pairs, _) in found.items() if pairs == most > 0]
        if len({families[bit].sizes for bit in best}) > 1:
            result.ambiguous.update(best)
        elif best:
            result.add(begin, best, [found[bit][1] for bit in best])
    return Matched(*result.columns(), result.ambiguous)


class _Result:
    """The answers for all replays so far, each distinct one once."""

    def __init__(self, of: Replays, families: list[Family]) -> None:
        self.replays, self.families, self.ambiguous = of, families, set[int]()
        self._answers: dict[tuple[tuple[int, int, int], ...], tuple[Ints, list[int]]] = {}

    def add(self, begin: int, best: list[int], found: list[list[tuple[int, Ints]]]) -> None:
        """Add one pass, with the answer of each of the families that fit it best."""
        for replay, answers in enumerate(zip(*found, strict=True), begin):
            key = tuple((bit, graph, id(calls)) for bit, (graph, calls) in zip(best, answers, strict=True))
            if key not in self._answers:
                self._answers[key] = self._common(best, list(answers)), []
            self._answers[key][1].append(replay)

    def _common(self, best: list[int], answers: list[tuple[int, Ints]]) -> Ints:
        """The calls of the first of equal answers, where the ranges of all agree."""
        said = [
            np.where(calls >= 0, self.families[bit].graphs[graph].said[calls], 0) if graph >= 0 else calls * 0
            for bit, (graph, calls) in zip(best, answers, strict=True)
        ]
        same = np.all([(one == said[0]) & (calls >= 0) for one, (_, calls) in zip(said, answers, strict=True)], axis=0)
        if not same.any():
            self.ambiguous.update(best)
        return np.where(same, answers[0][1], -1)

    def columns(self) -> tuple[Ints, Ints]:
        """Family and launch of each activity."""
        family, launch = np.full((2, len(self.replays.rows)), -1, np.int64)
        for ((bit, graph, _), *_), (calls, members) in self._answers.items():
            if graph >= 0:
                at = (self.replays.first[members][:, None] + np.arange(len(calls))[None, :])[:, calls >= 0]
                family[at], launch[at] = bit, self.families[bit].graphs[graph].rows[calls[calls >= 0]][None, :]
        return family, launch


def _bits(mask: int) -> Iterator[int]:
    return (bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _passes(of: Replays, step: Ints, masks: list[int], allowed: list[int]) -> Iterator[tuple[int, int, int]]:
    """Successive replays that one family may explain: (first, end, families as bits)."""
    owners = list(zip(step.tolist(), of.process.tolist(), of.thread.tolist(), strict=True))
    begin, common = 0, 0
    for replay, sequence in enumerate(of.sequence.tolist()):
        mine = masks[sequence] & allowed[replay]
        same = replay > begin and owners[replay] == owners[replay - 1]
        if same and not mine:  # of another graph, between pieces of one
            continue
        if not same or not common & mine:
            if common:
                yield begin, replay, common
            begin, common = replay, mine
        else:
            common &= mine
    if common:
        yield begin, len(owners), common
