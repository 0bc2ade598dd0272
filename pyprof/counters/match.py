"""Measured launches and the records of a timeline -> which record each launch is.

A tool of counters runs a program again, launch by launch, so nothing but names, sizes and order say what is what. On each
device launches are compared by (kernel, grid, block), in order of launch. Where a timeline repeats itself and the measured part
fits at several places, all of them are kept: what these have in common is known. Knows no op and no metric.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Bools, Ints
from pyprof.counters.names import same_kernels
from pyprof.markers import Kind, decode
from pyprof.parse.records.records import Records
from pyprof.parse.sources.measured.launches import Dim, Launch
from pyprof.parse.sources.trace import ActivityKind

# exact: as many launches of this kernel and size on both sides; nvtx: the ranges around it decide; order: the only place where
# its neighbours fit as well; ambiguous: several places; none.
HOW = ("exact", "nvtx", "order", "ambiguous", "none")
EXACT, NVTX, ORDER, AMBIGUOUS, NONE = range(5)
_MOST_COMPARED = 50_000_000  # pairs of launches that are aligned one by one


class Match(NamedTuple):
    """candidates: the records that each launch may be, one where it is settled; how: codes of HOW."""

    candidates: list[list[int]]
    how: Ints

    def agreed(self, codes: Ints) -> Ints:
        """A column of the records, for each launch: what all its candidates have, -1 where they differ or there is none."""
        found = [{int(codes[row]) for row in rows} for rows in self.candidates]
        return np.array([values.pop() if len(values) == 1 else -1 for values in found], np.int64)


class _Side(NamedTuple):
    """Launches or records in order of launch: their rows, and a number for each distinct (kernel, grid, block)."""

    rows: Ints
    keys: Ints

    def take(self, which: Ints | Bools) -> _Side:
        return _Side(self.rows[which], self.keys[which])


def match(launches: Sequence[Launch], records: Records) -> Match:
    """The records of a timeline that measured launches are."""
    rows = np.flatnonzero(records["kind"] == ActivityKind.KERNEL)
    when = np.where(records["launch_ns"][rows] >= 0, records["launch_ns"][rows], records["start_ns"][rows])
    rows = rows[np.lexsort((rows, when))]
    keys, of_records = _keys(launches, records, rows)
    found = Match([[] for _ in launches], np.full(len(launches), NONE))
    own, devices = np.array([launch.device for launch in launches]), records["device"][rows]
    for device in np.unique(own).tolist():
        there = np.ones(len(rows), np.bool_) if device < 0 else devices == device
        mine = np.flatnonzero(own == device)
        _match_device(_Side(mine, keys[mine]), _Side(rows[there], of_records[there]), found)
    _decide_by_ranges(launches, records, found)
    return found


def _keys(launches: Sequence[Launch], records: Records, rows: Ints) -> tuple[Ints, Ints]:
    """A number for each distinct (kernel, grid, block) of launches and of rows; -1 of a kernel that the other side has not."""
    names, _, code = distinct_rows(records["name"][rows])
    own = list(dict.fromkeys(launch.name for launch in launches))
    classes, others = same_kernels(own, [records.strings[name] for name in names[0].tolist()])
    class_of = dict(zip(own, classes, strict=True))
    sized = all(launch.grid is not None and launch.block is not None for launch in launches)
    unknown: Dim = (-1, -1, -1)
    one = [
        (class_of[launch.name], *((launch.grid or unknown) + (launch.block or unknown) if sized else ())) for launch in launches
    ]
    sizes = [records[f"{what}_{axis}"][rows].astype(np.int64) for what in ("grid", "block") for axis in "xyz"] if sized else []
    other = np.array([np.array(others, np.int64)[code], *sizes])
    both = np.concatenate([np.array(one, np.int64).reshape(len(launches), len(other)).T, other], axis=1)
    numbers = np.where(both[0] >= 0, distinct_rows(*both).inverse, -1)
    return numbers[: len(launches)], numbers[len(launches) :]


def _match_device(own: _Side, other: _Side, found: Match) -> None:
    """Match the launches of one device with its records."""
    own = own.take(np.isin(own.keys, other.keys) & (own.keys >= 0))
    other = other.take(np.isin(other.keys, own.keys))
    if not len(own.keys):
        return
    counts = [np.bincount(side.keys, minlength=int(own.keys.max()) + 1) for side in (own, other)]
    complete = counts[0] == counts[1]
    places = np.zeros(0, np.int64) if complete.all() else _places(own.keys, other.keys)
    if len(places):
        for at, launch in enumerate(own.rows.tolist()):
            found.candidates[launch] = other.rows[places + at].tolist()
        found.how[own.rows] = ORDER if len(places) == 1 else AMBIGUOUS
        return
    _pair(own.take(complete[own.keys]), other.take(complete[other.keys]), found)
    _align(own.take(~complete[own.keys]), other.take(~complete[other.keys]), found)


def _pair(own: _Side, other: _Side, found: Match) -> None:
    """The n-th launch of each key with the n-th record of it."""
    by_key = (side.rows[np.argsort(side.keys, kind="stable")].tolist() for side in (own, other))
    for launch, row in zip(*by_key, strict=True):
        found.candidates[launch] = [row]
    found.how[own.rows] = EXACT


def _places(keys: Ints, others: Ints) -> Ints:
    """Where in a sequence another lies without a gap."""
    begins = np.flatnonzero(others[: max(len(others) - len(keys) + 1, 0)] == keys[0])
    for at in range(1, len(keys)):
        begins = begins[others[begins + at] == keys[at]]
        if not len(begins):
            break
    return begins


def _align(own: _Side, other: _Side, found: Match) -> None:
    """Keep the order: pair the longest parts that both sequences share, where looking from either end gives the same pairs.

    What is left may be any record of its key.
    """
    if 0 < len(own.keys) * len(other.keys) <= _MOST_COMPARED:
        backwards = _shared(own.keys[::-1], other.keys[::-1])
        turned = {(len(own.keys) - 1 - one, len(other.keys) - 1 - two) for one, two in backwards}
        for launch, row in turned & _shared(own.keys, other.keys):
            found.candidates[int(own.rows[launch])] = [int(other.rows[row])]
            found.how[own.rows[launch]] = ORDER
    for launch, key in zip(own.rows.tolist(), own.keys.tolist(), strict=True):
        if not found.candidates[launch]:
            found.candidates[launch] = other.rows[other.keys == key].tolist()
            found.how[launch] = AMBIGUOUS


def _shared(keys: Ints, others: Ints) -> set[tuple[int, int]]:
    """The pairs of places in the longest parts that two sequences share."""
    blocks = difflib.SequenceMatcher(None, keys.tolist(), others.tolist(), autojunk=False).get_matching_blocks()
    return {(block.a + at, block.b + at) for block in blocks for at in range(block.size)}


def _decide_by_ranges(launches: Sequence[Launch], records: Records, found: Match) -> None:
    """Of several candidates those inside the NVTX ranges of the launch; where they all are or none is, nothing is decided."""
    for at in np.flatnonzero(found.how == AMBIGUOUS).tolist():
        if scopes := launches[at].scopes:
            inside = [row for row in found.candidates[at] if _is_inside(scopes, records, row)]
            found.candidates[at] = inside or found.candidates[at]
            found.how[at] = NVTX if len(inside) == 1 else AMBIGUOUS


def _is_inside(scopes: Sequence[str], records: Records, row: int) -> bool:
    """Whether a record was launched inside these ranges, as far as records keep them."""
    code, step = int(records["stack"][row]), int(records["step"][row])
    if code < 0:
        return False
    stack = records.stacks[code]
    for marker in map(decode, scopes):
        if marker.kind == Kind.STEP and marker.step != step:
            return False
        if marker.kind == Kind.LAYER and marker.name not in stack.layer:
            return False
        if marker.kind == Kind.USER and marker.name not in (*stack.layer, *stack.ranges):
            return False
        if marker.kind == Kind.OP and marker.text not in stack.marker:
            return False
    return True
