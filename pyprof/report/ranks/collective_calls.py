"""Collectives of many ranks -> which of them are the same one: the n-th of its kind, size and process group in a step.

A rank that has another number of some kind in a step than most ranks cannot be compared there and
is left out; without steps, the times between collectives show which it lacks.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import map_distinct
from pyprof.columns.sorting import places_in_runs
from pyprof.columns.types import Bools, Ints
from pyprof.errors import InputError
from pyprof.report.ranks.collectives import Collective

_STEP_BITS, _TURN_BITS = 19, 24
_MOST_KEYS = 1 << (62 - _STEP_BITS - _TURN_BITS)
FARTHEST = 64  # collectives of one kind that a rank may be behind or ahead
_LEAST = 8  # with fewer, times between them show nothing
_JITTER_NS = 2_000
_ROUNDING_NS = 200
_DRIFT = 50e-6


class Recorded(NamedTuple):
    """The collectives of one unit, a row each. start, end: ns of the unit's own clock; code: index into `collectives`."""

    step: Ints
    stream: Ints
    start: Ints
    end: Ints
    code: Ints
    collectives: list[Collective]


class Attended(NamedTuple):
    """One unit's part in collective calls. call: number of the call, -1 if it cannot be compared with other ranks; start,
    end: when the unit came and left, ns of its own clock; nbytes: -1 unknown."""

    call: Ints
    start: Ints
    end: Ints
    nbytes: Ints


class _Key(NamedTuple):
    """Properties that all ranks see alike in one collective call. lane: number of the communication stream, -1 if the group is
    known."""

    kind: str
    group: str
    group_size: int | None
    lane: int
    nbytes: int | None


class CollectiveCalls:
    """All collective calls of all units (`calls` of a Survey)."""

    def __init__(self) -> None:
        self.keys: dict[_Key, int] = {}
        self.steps: dict[tuple[int, int], int] = {}  # (number of earlier files of this rank with that step, step)
        self._seen: dict[int, dict[int, int]] = {}  # rank -> step -> files with that step
        self._counts: dict[int, dict[int, int]] = {}  # (key, step) -> number of collectives -> units that have as many
        self._ends: dict[int, Ints] = {}  # (key, no step) -> ends on the first unit that has it
        self._known = np.empty(0, np.int64)
        self._units: list[Attended] = []  # with calls by their number in full, -1 where they are none

    def __len__(self) -> int:
        return len(self._known)

    def add(self, rank: int, unit: Recorded) -> None:
        """One unit's collectives. rank: any number that is the rank's own."""
        key = self._key_codes(unit)
        pair = (key << _STEP_BITS) | self._step_codes(rank, unit.step)
        order = np.lexsort((unit.start, pair))
        first = np.flatnonzero(np.diff(pair[order], prepend=-2))
        counts = np.diff(np.append(first, len(order)))
        if len(order) and int(counts.max()) >= (1 << _TURN_BITS) - 2 * FARTHEST:
            raise InputError(
                "a rank has more than 16 million collectives of one kind in one step", "choose steps with --step A:B"
            )
        turn = np.empty(len(order), np.int64)
        turn[order] = places_in_runs(np.diff(pair[order], prepend=-2) != 0)
        comparable = np.array([one.meets for one in unit.collectives] + [False], np.bool_)[unit.code]
        numbers = [number for _, number in self.steps]
        for rows in np.split(order, first[1:]) if len(order) else []:
            at = int(pair[rows[0]])
            if numbers[at & ((1 << _STEP_BITS) - 1)] >= 0:
                known = self._counts.setdefault(at, {})
                known[len(rows)] = known.get(len(rows), 0) + 1
            else:
                shift, fits = pair_up(self._ends.setdefault(at, unit.end[rows]), unit.end[rows])
                turn[rows] += shift + FARTHEST
                comparable[rows] &= fits
        call = np.where(comparable, (pair << _TURN_BITS) | turn, -1)
        self._known = np.union1d(self._known, call[comparable])
        sizes = np.array([-1 if one.nbytes is None else one.nbytes for one in unit.collectives] + [-1], np.int64)
        self._units.append(Attended(call, unit.start, unit.end, sizes[unit.code]))

    def _key_codes(self, unit: Recorded) -> Ints:
        """A code into `keys` for each collective; streams are numbered in the order of their first collective."""
        lanes = {stream: lane for lane, stream in enumerate(dict.fromkeys(unit.stream.tolist()))}
        width = len(lanes) + 1

        def code(both: int) -> int:
            one = unit.collectives[both // width]
            key = _Key(one.kind, one.group, one.group_size, -1 if one.group else both % width, one.size_of_all)
            return self.keys.setdefault(key, len(self.keys))

        found = map_distinct(unit.code * width + map_distinct(unit.stream, lanes.__getitem__), code).astype(np.int64)
        if len(self.keys) > _MOST_KEYS:
            raise InputError(
                "more than 500 thousand kinds of collectives: process groups that never come again cannot be compared",
                "choose steps with --step A:B",
            )
        return found

    def _step_codes(self, rank: int, step: Ints) -> Ints:
        """A code into `steps` for each collective."""
        seen = self._seen.setdefault(rank, {})

        def code(number: int) -> int:
            seen[number] = seen.get(number, -1) + 1
            return self.steps.setdefault((seen[number], number), len(self.steps))

        found = map_distinct(step, code).astype(np.int64)
        if len(self.steps) > 1 << _STEP_BITS:
            raise InputError("more than 500 thousand steps at once", "choose some with --step A:B")
        return found

    @cached_property
    def units(self) -> list[Attended]:
        """Each unit's part, in the order of `add`; calls are numbered from 0. Ask for it when all units are added."""
        usual = {pair: max(counts.items(), key=lambda item: (item[1], item[0]))[0] for pair, counts in self._counts.items()}
        found = []
        for number, start, end, nbytes in self._units:
            pair = number >> _TURN_BITS
            distinct, inverse, count = np.unique(pair, return_inverse=True, return_counts=True)
            fits = np.array(
                [at >= 0 and usual.get(at, n) == n for at, n in zip(distinct.tolist(), count.tolist(), strict=True)], np.bool_
            )
            fit = fits[inverse.ravel()] if len(number) else np.empty(0, np.bool_)
            found.append(Attended(np.where(fit, np.searchsorted(self._known, number), -1), start, end, nbytes))
        return found

    def key_of(self) -> Ints:
        """Index into `keys` of each collective call."""
        return self._known >> (_STEP_BITS + _TURN_BITS)

    def step_of(self) -> Ints:
        """Index into `steps` of each collective call."""
        return (self._known >> _TURN_BITS) & ((1 << _STEP_BITS) - 1)

    def turn_of(self) -> Ints:
        """How many calls of its kind come before it in the step."""
        has_step = np.array([step >= 0 for _, step in self.steps] + [False], np.bool_)[self.step_of()]
        return (self._known & ((1 << _TURN_BITS) - 1)) - np.where(has_step, 0, FARTHEST)

    def group_of(self) -> Ints:
        """Number, from 0, of the process group of each collective call."""
        groups: dict[tuple[str, int], int] = {}
        of_key = [groups.setdefault((key.group, key.lane), len(groups)) for key in self.keys]
        return np.array(of_key, np.int64)[self.key_of()]


def pair_up(reference: Ints, ends: Ints) -> tuple[int, Bools]:
    """(shift, whether each pair fits): ends[i] and reference[i + shift] are of one collective; both in ns, ascending.

    With too few, they are counted from the first, and fit only where both have the same number.
    """
    fewer = min(len(reference), len(ends))
    if fewer < _LEAST:
        return 0, np.full(len(ends), len(reference) == len(ends))
    costs = {shift: _cost(reference, ends, shift) for shift in range(-FARTHEST, FARTHEST + 1)}
    best = min(costs, key=lambda shift: (costs[shift], abs(shift)))
    shift = 0 if costs[0] <= 2 * costs[best] + _ROUNDING_NS else best  # steady steps look the same at any shift
    at = np.arange(len(ends)) + shift
    inside = (at >= 0) & (at < len(reference))
    ahead = ends[inside] - reference[at[inside]]
    middle = np.median(ahead)
    far = np.abs(ends - np.median(ends)) * _DRIFT
    gap = float(np.median(np.diff(reference)))
    # What the reference did not record cannot be compared with it, but may be with other ranks.
    fits = np.full(len(ends), costs[shift] < gap / 4)
    fits[inside] &= np.abs(ahead - middle) <= gap / 2 + far[inside] + _JITTER_NS
    return shift, fits


def _cost(reference: Ints, ends: Ints, shift: int) -> float:
    """The median difference of times from one end to the next; infinite where too few are left."""
    own = ends[max(-shift, 0) :]
    other = reference[max(shift, 0) :]
    count = min(len(own), len(other))
    if count < max(_LEAST // 2, min(len(ends), len(reference)) // 2):
        return float("inf")
    return float(np.median(np.abs(np.diff(own[:count]) - np.diff(other[:count]))))
