"""Measured launches and the records of a timeline -> the record that each launch is.

Counter tools run the program once more, so launches can be matched only by name, size, NVTX ranges and order. For each
process and device they are compared by (kernel, grid, block), in launch order. If a launch matches several records, all are
kept, and values on which these agree are known. Knows no op and no metric.

Kernel names differ between tools. Nsight Compute writes them without namespaces, and newer versions lose parts of them
(`unnamed>::silu_kernel`); the other tools write them whole. They are compared as they are, then by the words that every tool
keeps, then, where a tool wrote the bare function only, by that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Bools, Ints
from pyprof.hardware.names import demangle, normalise
from pyprof.model.markers import Kind, decode
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind
from pyprof.parse.sources.measured.launches import Dim, Launch

# exact: as many launches of this kernel and size on both sides; nvtx: as many inside its ranges; order: all launches were
# measured without a gap and fit at one place only, or keep their order in one way only; ambiguous: several places; none.
HOW = ("exact", "nvtx", "order", "ambiguous", "none")
EXACT, NVTX, ORDER, AMBIGUOUS, NONE = range(5)
_MOST_PLACES = 20_000_000  # of all launches together, that are kept one by one


class Match(NamedTuple):
    """Launch n may be any of the records pool[begin[n]:end[n]], none where these are equal; how: codes of HOW."""

    pool: Ints
    begin: Ints
    end: Ints
    how: Ints

    @property
    def candidates(self) -> list[list[int]]:
        """The records that each launch may be."""
        return [self.pool[begin:end].tolist() for begin, end in zip(self.begin.tolist(), self.end.tolist(), strict=True)]

    @property
    def settled(self) -> Ints:
        """The records of launches that are one record and no other."""
        return self.pool[self.begin[self.how < AMBIGUOUS]]

    def agreed(self, codes: Ints) -> Ints:
        """A column of the records for each launch: the value on which all its candidates agree, else -1."""
        found = np.full(len(self.how), -1)
        some = np.flatnonzero(self.end > self.begin)
        values = codes[self.pool]
        changes = np.cumsum(np.append(0, values[1:] != values[:-1]))
        agree = some[changes[self.begin[some]] == changes[self.end[some] - 1]]
        found[agree] = values[self.begin[agree]]
        return found

    def only(self, launch: int, rows: Ints) -> Match:
        """The match in which this launch has only these candidates."""
        begin, end = self.begin.copy(), self.end.copy()
        begin[launch], end[launch] = len(self.pool), len(self.pool) + len(rows)
        return self._replace(pool=np.append(self.pool, rows), begin=begin, end=end)


def unmatched(count: int, how: int = NONE) -> Match:
    """A match of launches without records."""
    return Match(np.zeros(0, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, how))


_Ranges = frozenset[tuple[Kind, object]]  # (kind, name, text or number)


class _Side(NamedTuple):
    """Launches or records in order of launch: their rows, and a number for each distinct (kernel, grid, block)."""

    rows: Ints
    keys: Ints

    def take(self, which: Ints | Bools) -> _Side:
        return _Side(self.rows[which], self.keys[which])


def match(launches: Sequence[Launch], records: Records) -> Match:
    """Find the record of a timeline for each measured launch."""
    rows = np.flatnonzero(records["kind"] == ActivityKind.KERNEL)
    when = np.where(records["launch_ns"][rows] >= 0, records["launch_ns"][rows], records["start_ns"][rows])
    rows = rows[np.lexsort((rows, when))]
    keys, of_records = _keys(launches, records, rows)
    keys[[launch.is_scope or launch.times != 1 for launch in launches]] = -1  # they are no one record
    ranges = _ranges(launches, records)
    found = [(np.zeros(0, np.int64), unmatched(0))]
    pids, devices = (np.array([getattr(one, what) for one in launches], np.int64) for what in ("pid", "device"))
    for device, pid in dict.fromkeys(zip(devices.tolist(), pids.tolist(), strict=True)):
        mine = np.flatnonzero((devices == device) & (pids == pid))
        there = (records["device"][rows] == device) | (device < 0)
        own, processes = _Side(mine, keys[mine]), np.unique(records["pid"][rows[there]]).tolist()
        fits = []
        for process in processes:
            other = np.flatnonzero(there & (records["pid"][rows] == process))
            fits.append(_fit(own, _Side(rows[other], of_records[other]), ranges, records))
        found.append((mine, _best(fits) if fits else unmatched(len(mine))))
    order, fits = np.argsort(np.concatenate([mine for mine, _ in found])), [fit for _, fit in found]
    shift = np.cumsum([0, *(len(fit.pool) for fit in fits[:-1])]).tolist()
    begin = np.concatenate([fit.begin + by for fit, by in zip(fits, shift, strict=True)])
    end = np.concatenate([fit.end + by for fit, by in zip(fits, shift, strict=True)])
    how = np.concatenate([fit.how for fit in fits])
    return Match(np.concatenate([fit.pool for fit in fits]), begin[order], end[order], how[order])


def _keys(launches: Sequence[Launch], records: Records, rows: Ints) -> tuple[Ints, Ints]:
    """A number for each distinct (kernel, grid, block) of launches and of rows; -1 for a kernel that the other side lacks."""
    names, _, code = distinct_rows(records["name"][rows])
    own = list(dict.fromkeys(launch.name for launch in launches))
    classes, others = same_kernels(own, [records.strings[name] for name in names[0].tolist()])
    class_of = dict(zip(own, classes, strict=True))
    sized = all(one.grid is not None and one.block is not None for one in launches) and bool(
        (records["grid_x"][rows] >= 0).any()
    )
    unknown: Dim = (-1, -1, -1)
    one = [
        (class_of[launch.name], *((launch.grid or unknown) + (launch.block or unknown) if sized else ())) for launch in launches
    ]
    sizes = [records[f"{what}_{axis}"][rows].astype(np.int64) for what in ("grid", "block") for axis in "xyz"] if sized else []
    other = np.array([np.array(others, np.int64)[code], *sizes])
    both = np.concatenate([np.array(one, np.int64).reshape(len(launches), len(other)).T, other], axis=1)
    numbers = np.where(both[0] >= 0, distinct_rows(*both).inverse, -1)
    return numbers[: len(launches)], numbers[len(launches) :]


def _best(fits: Sequence[Match]) -> Match:
    """The best of the fits of one process's launches with each process of the timeline; equally good ones are joined."""

    def merit(fit: Match) -> tuple[int, ...]:
        return tuple(int((fit.how == how).sum()) for how in range(NONE))

    best = [fit for fit in fits if merit(fit) == max(map(merit, fits))]
    if len(best) == 1:
        return best[0]
    each = [[row for rows in some for row in rows] for some in zip(*(fit.candidates for fit in best), strict=True)]
    end = np.cumsum([len(rows) for rows in each], dtype=np.int64)
    how = np.where([len(rows) > 0 for rows in each], AMBIGUOUS, NONE)
    pool = np.array([row for rows in each for row in rows], np.int64)
    return Match(pool, np.append(0, end[:-1]), end, how)


def _fit(own: _Side, other: _Side, ranges: Sequence[_Ranges], records: Records) -> Match:
    """Match the launches of one process on one device with the records of one process there."""
    common = np.flatnonzero(np.isin(own.keys, other.keys) & (own.keys >= 0))
    found = unmatched(len(own.keys))
    if not len(common):
        return found
    mine, other = own.take(common), other.take(np.isin(other.keys, own.keys[common]))
    by_ranges = _inside_as_many(mine, other, ranges, records)
    for number, (at, place) in enumerate(by_ranges, max(mine.keys.max(), other.keys.max()) + 1):
        mine.keys[at] = other.keys[place] = number

    def agree(places: Ints) -> Ints:
        """Keep the places where each launch lies inside its ranges."""
        for at, launch in enumerate(mine.rows.tolist()):
            if len(places) and ranges[launch]:
                places = places[_inside(ranges[launch], records, other.rows[places + at])]
        return places

    fit = _by_order(mine.keys, other.keys, agree)
    fit.how[[at for at, _ in by_ranges]] = NVTX
    for what in ("begin", "end", "how"):
        getattr(found, what)[common] = getattr(fit, what)
    return _narrowed(found._replace(pool=other.rows[fit.pool]), own, ranges, records)


def _by_order(keys: Ints, others: Ints, agree: Callable[[Ints], Ints]) -> Match:
    """Possible matches of each key in `others`, which contains every key; both in launch order."""
    order = np.argsort(others, kind="stable")
    counts = [np.bincount(side, minlength=int(max(keys.max(), others.max())) + 1) for side in (keys, others)]
    complete = (counts[0] == counts[1])[keys]
    places = np.zeros(0, np.int64) if complete.all() else agree(_places(keys, others))
    if 0 < len(places) * len(keys) <= _MOST_PLACES:
        begin, pool = np.arange(len(keys)) * len(places), (places + np.arange(len(keys))[:, np.newaxis]).ravel()
        return Match(pool, begin, begin + len(places), np.full(len(keys), ORDER if len(places) == 1 else AMBIGUOUS))
    if complete.all() or (found := _spans(keys, others)) is None:
        by_key = np.argsort(keys, kind="stable")
        nth = np.empty(len(keys), np.int64)
        nth[by_key] = np.arange(len(keys)) - np.searchsorted(keys[by_key], keys[by_key])
        begin, end = (np.searchsorted(others[order], keys, side) for side in ("left", "right"))
        found = _Spans(np.where(complete, begin + nth, begin), np.where(complete, begin + nth + 1, end), complete)
        rest, theirs = np.flatnonzero(~complete), np.isin(others, keys[~complete])
        if (among := _spans(keys[rest], others[theirs])) is not None:
            back = np.append(np.flatnonzero(theirs[order]), 0)
            found.begin[rest], found.certain[rest] = back[among.begin], among.certain
            found.end[rest] = np.where(among.end > among.begin, back[among.end - 1] + 1, back[among.begin])
    how = np.where(found.certain, np.where(complete, EXACT, ORDER), np.where(found.end > found.begin, AMBIGUOUS, NONE))
    return Match(order, found.begin, found.end, how)


class _Spans(NamedTuple):
    """Where a launch can be, among the others sorted by key: from begin to before end; certain: there and nowhere else."""

    begin: Ints
    end: Ints
    certain: Bools


def _spans(keys: Ints, others: Ints) -> _Spans | None:
    """Earliest and latest possible match of each launch, if one of the sequences is a subsequence of the other; else None."""
    order = np.argsort(others, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    if (bounds := _bounds(keys, others)) is not None:
        begin, end = rank[bounds[0]], rank[bounds[1]] + 1
        return _Spans(begin, end, end - begin == 1)
    if (bounds := _bounds(others, keys)) is None:
        return None
    first, last = (of[order] + others[order] * len(keys) for of in bounds)
    own = np.arange(len(keys)) + keys * len(keys)
    begin, end = np.searchsorted(last, own), np.searchsorted(first, own, "right")
    end = np.maximum(begin, end)
    certain = (end - begin == 1) & (np.append(first, 0)[begin] == np.append(last, 1)[begin])
    return _Spans(np.where(end > begin, begin, 0), np.where(end > begin, end, 0), certain)


def _bounds(few: Ints, many: Ints) -> tuple[Ints, Ints] | None:
    """Earliest and latest possible place of each of `few` in `many`, keeping their order; None if they do not all fit."""
    first = _earliest(few, many)
    if first is None:
        return None
    last = _earliest(few[::-1], many[::-1])
    assert last is not None
    return first, len(many) - 1 - last[::-1]


def _earliest(few: Ints, many: Ints) -> Ints | None:
    rest = iter(enumerate(many.tolist()))
    found = [next((at for at, key in rest if key == wanted), -1) for wanted in few.tolist()]
    return None if -1 in found else np.array(found, np.int64)


def _places(keys: Ints, others: Ints) -> Ints:
    """Where in a sequence another lies without a gap."""
    begins = np.flatnonzero(others[: max(len(others) - len(keys) + 1, 0)] == keys[0])
    for at in range(1, len(keys)):
        begins = begins[others[begins + at] == keys[at]]
        if not len(begins):
            break
    return begins


def _inside_as_many(own: _Side, other: _Side, ranges: Sequence[_Ranges], records: Records) -> list[tuple[int, int]]:
    """Pairs of places: launches inside some ranges, in their order, where as many records of their kernel are inside these."""
    counts = [np.bincount(side.keys, minlength=int(max(own.keys.max(), other.keys.max())) + 1) for side in (own, other)]
    groups: dict[tuple[int, _Ranges], list[int]] = {}
    for at in np.flatnonzero((counts[0] != counts[1])[own.keys]).tolist():
        if around := ranges[own.rows[at]]:
            groups.setdefault((int(own.keys[at]), around), []).append(at)
    order = np.argsort(other.keys, kind="stable")
    pairs: list[tuple[int, int]] = []
    for (key, around), group in groups.items():
        begin, end = np.searchsorted(other.keys[order], [key, key + 1]).tolist()
        inside = order[begin:end][_inside(around, records, other.rows[order[begin:end]])]
        pairs += zip(group, inside.tolist(), strict=True) if len(inside) == len(group) else ()
    return pairs


def _narrowed(found: Match, own: _Side, ranges: Sequence[_Ranges], records: Records) -> Match:
    """Keep the candidates inside the NVTX ranges of each launch, unless there are none."""
    for at in np.flatnonzero(found.how == AMBIGUOUS).tolist():
        if around := ranges[own.rows[at]]:
            rows = found.pool[found.begin[at] : found.end[at]]
            inside = rows[_inside(around, records, rows)]
            if 0 < len(inside) < len(rows):
                found = found.only(at, inside)
    return found


def _ranges(launches: Sequence[Launch], records: Records) -> list[_Ranges]:
    """The ranges around each launch, of those that the timeline knows."""
    known: set[tuple[Kind, object]] = {(Kind.STEP, step) for step in np.unique(records["step"]).tolist()}
    for stack in records.stacks:
        known.update((Kind.LAYER, name) for name in stack.layer)
        known.update((Kind.USER, name) for name in (*stack.layer, *stack.ranges))
        known.update((Kind.OP, text) for text in stack.marker)
    found: dict[tuple[str, ...], _Ranges] = {}
    for scopes in dict.fromkeys(launch.scopes for launch in launches):
        markers = map(decode, scopes)
        named = ((one.kind, {Kind.STEP: one.step, Kind.OP: one.text}.get(one.kind, one.name)) for one in markers)
        found[scopes] = frozenset(named) & known
    return [found[launch.scopes] for launch in launches]


def _inside(ranges: _Ranges, records: Records, rows: Ints) -> Bools:
    """Whether records were launched inside all of these ranges."""
    found = np.ones(len(rows), np.bool_)
    for kind, step in ranges:
        found &= (records["step"][rows] == step) | (kind != Kind.STEP)
    codes, fits = records["stack"][rows], []
    for code in np.unique(codes[found]).tolist():
        stack = records.stacks[code] if code >= 0 else None
        if stack is not None:
            names = {Kind.LAYER: stack.layer, Kind.USER: (*stack.layer, *stack.ranges), Kind.OP: stack.marker}
            fits += [code] if all(kind == Kind.STEP or name in names[kind] for kind, name in ranges) else []
    return found & np.isin(codes, fits)


_INSTANCE = re.compile(r"\(instance (\d+)\)")
_PARENTHESES = re.compile(r"\([^()]*\)")
_QUALIFIER = re.compile(r"\b[A-Za-z_]\w*::")
_WORD = re.compile(r"[A-Za-z_]\w*|\d+")
_SPELLED = {"true": "1", "false": "0"}
# Words that only some of the tools write, or write elsewhere.
_DROPPED = frozenset({"const", "void", "unnamed", "lambda", "std", "operator"})
_FUNCTION = re.compile(r"(?:[\w:!, ]+(?:<[^<>]*>)?(?:::\w+)* )?((?:\w+::)*\w+)")


@lru_cache(maxsize=8192)
def words(name: str) -> tuple[str, ...]:
    """The words of a name, without namespaces, lists of parameters and what tools spell in their own way."""
    text = _QUALIFIER.sub("", _INSTANCE.sub(r"#\1", _unnamed(name)))
    while (less := _PARENTHESES.sub("", text)) != text:
        text = less
    found = [_SPELLED.get(word, word.lower()) for word in _WORD.findall(text)]
    return tuple(word for word in found if word not in _DROPPED)


@lru_cache(maxsize=8192)
def base(name: str) -> str:
    """The function's own name: `vectorized_elementwise_kernel`."""
    found = _FUNCTION.match(_unnamed(name))
    return found[1].rpartition("::")[2] if found is not None else name


def same_kernels(one: Sequence[str], other: Sequence[str]) -> tuple[list[int], list[int]]:
    """A group number for each name of two lists: names that may be the same kernel share one; -1 has no partner.

    A name joins the names of the other list that it equals at the first level of comparison where it equals any.
    """
    parent = list(range(len(one) + len(other)))

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = at = parent[parent[at]]
        return at

    paired = set[int]()
    for level in (lambda name: normalise(demangle(name)), words, base):
        by_key: dict[object, list[int]] = {}
        for at, name in enumerate(other):
            by_key.setdefault(level(name), []).append(len(one) + at)
        for at, name in enumerate(one):
            is_compared = at not in paired and (level is not base or not {"<", "("} & {*name})
            partners = by_key.get(level(name), []) if is_compared else []
            for partner in partners:
                parent[root(partner)] = root(at)
            paired.update([at, *partners] if partners else ())
    classes = [root(at) if at in paired else -1 for at in range(len(parent))]
    return classes[: len(one)], classes[len(one) :]


def _unnamed(name: str) -> str:
    return normalise(demangle(name)).replace("(anonymous namespace)::", "")
