"""Collectives of many ranks -> which of them are the same one: the n-th of its kind, size and process group in a step.

Each rank's are written to a file of its own turn and read back in blocks of one rank, so that memory does not grow with ranks:
what stays are the distinct meetings. A rank that has another number of some kind in a step than most ranks cannot be compared
there, and is left out of these; without steps, times from one to the next tell which it lacks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.errors import InputError
from pyprof.report.ranks.collectives import Collective
from pyprof.report.ranks.shift import FARTHEST, pair_up

__all__ = ["Attended", "Meetings"]

Ints = npt.NDArray[np.int64]
_STEP_BITS, _TURN_BITS = 19, 24
_MOST_KEYS = 1 << (62 - _STEP_BITS - _TURN_BITS)


class Attended(NamedTuple):
    """One unit's part in meetings: the meeting, when it came and left in ns of the unit's own clock, bytes (-1 unknown).
    meeting -1: cannot be compared with other ranks."""

    meeting: Ints
    start: Ints
    end: Ints
    nbytes: Ints


@dataclass(frozen=True)
class _Key:
    """What collectives have in common that can be the same one; lane: of communication streams, where no group is known."""

    kind: str
    group: str
    group_size: int | None
    lane: int
    nbytes: int | None


class Meetings:
    """All meetings of all units, a unit at a time."""

    def __init__(self) -> None:
        self.keys: dict[_Key, int] = {}
        self.steps: dict[tuple[int, int], int] = {}  # (how many files of this rank had that step before, step)
        self._numbers: list[int] = []  # the step of each
        self._seen: dict[int, dict[int, int]] = {}
        self._counts: dict[int, dict[int, int]] = {}  # (key, step) -> how many there are -> units that have as many
        self._ends: dict[int, Ints] = {}  # (key, no step) -> ends of the first unit that has it
        self._known = np.empty(0, np.int64)
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="pyprof-ranks-")
        self._blocks: list[int] = []

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, rank: int, step: Ints, stream: Ints, which: Ints, start: Ints, end: Ints, found: list[Collective]) -> None:
        """One unit's collectives, a row each; which: place in `found`; rank: any number that is the rank's own."""
        lanes = {int(s): lane for lane, s in enumerate(stream[np.sort(np.unique(stream, return_index=True)[1])].tolist())}
        lane = np.array([lanes[s] for s in stream.tolist()], np.int64)
        key = self._key_codes(which, lane, found)
        pair = (key << _STEP_BITS) | self._step_codes(rank, step)
        order = np.lexsort((start, pair))
        first = np.flatnonzero(np.diff(pair[order], prepend=-2))
        counts = np.diff(np.append(first, len(order)))
        if len(order) and int(counts.max()) >= (1 << _TURN_BITS) - 2 * FARTHEST:
            raise InputError(
                "a rank has more than 16 million collectives of one kind in one step", "choose steps with --step A:B"
            )
        turn = np.empty(len(order), np.int64)
        turn[order] = np.arange(len(order)) - np.repeat(first, counts)
        comparable = np.array([one.meets for one in found] + [False], np.bool_)[which]
        for rows in np.split(order, first[1:]) if len(order) else []:
            at = int(pair[rows[0]])
            if self._has_step(at):
                known = self._counts.setdefault(at, {})
                known[len(rows)] = known.get(len(rows), 0) + 1
            else:
                shift, fits = pair_up(self._ends.setdefault(at, end[rows]), end[rows])
                turn[rows] += shift + FARTHEST
                comparable[rows] &= fits
        number = np.where(comparable, (pair << _TURN_BITS) | turn, -1)
        new = np.setdiff1d(number[number >= 0], self._known)
        if len(new):
            self._known = np.union1d(self._known, new)
        nbytes = np.array([-1 if one.nbytes is None else one.nbytes for one in found] + [-1], np.int64)[which]
        self._write(np.stack([number, start, end, nbytes]))

    def _has_step(self, pair: int) -> bool:
        return self._numbers[pair & ((1 << _STEP_BITS) - 1)] >= 0

    def _key_codes(self, which: Ints, lane: Ints, found: list[Collective]) -> Ints:
        width = int(lane.max(initial=0)) + 1
        distinct, inverse = np.unique(which * width + lane, return_inverse=True)
        codes = []
        for both in distinct.tolist():
            one = found[both // width]
            key = _Key(one.kind, one.group, one.group_size, -1 if one.group else both % width, one.size_of_all)
            codes.append(self.keys.setdefault(key, len(self.keys)))
        if len(self.keys) > _MOST_KEYS:
            raise InputError(
                "more than 500 thousand kinds of collectives: process groups that never come again cannot be compared"
            )
        return np.array(codes, np.int64)[inverse.ravel()] if len(which) else which

    def _step_codes(self, rank: int, step: Ints) -> Ints:
        seen = self._seen.setdefault(rank, {})
        distinct, inverse = np.unique(step, return_inverse=True)
        codes = []
        for number in distinct.tolist():
            before = seen.get(number, 0)
            seen[number] = before + 1
            code = self.steps.setdefault((before, number), len(self.steps))
            if code == len(self._numbers):
                self._numbers.append(number)
            codes.append(code)
        if len(self.steps) > 1 << _STEP_BITS:
            raise InputError("more than 500 thousand steps at once", "choose some with --step A:B")
        return np.array(codes, np.int64)[inverse.ravel()] if len(step) else step

    def _write(self, block: Ints) -> None:
        self._blocks.append(self._file.tell())
        np.save(self._file, block)

    def units(self) -> Iterator[Attended]:
        """Each unit's part, in the order in which they were added; meetings are numbered from 0."""
        usual = {pair: max(counts.items(), key=lambda item: (item[1], item[0]))[0] for pair, counts in self._counts.items()}
        for place in self._blocks:
            self._file.seek(place)
            number, start, end, nbytes = np.load(self._file)
            pair = number >> _TURN_BITS
            distinct, inverse, count = np.unique(pair, return_inverse=True, return_counts=True)
            fits = np.array(
                [at >= 0 and usual.get(at, n) == n for at, n in zip(distinct.tolist(), count.tolist(), strict=True)], np.bool_
            )
            fit = fits[inverse.ravel()] if len(number) else np.empty(0, np.bool_)
            yield Attended(np.where(fit, np.searchsorted(self._known, number), -1), start, end, nbytes)

    def key_of(self) -> Ints:
        """Place in `keys` of each meeting."""
        return self._known >> (_STEP_BITS + _TURN_BITS)

    def step_of(self) -> Ints:
        """Place in `steps` of each meeting."""
        return (self._known >> _TURN_BITS) & ((1 << _STEP_BITS) - 1)

    def turn_of(self) -> Ints:
        """How many of its kind came before it in the step."""
        has_step = np.array([step >= 0 for _, step in self.steps] + [False], np.bool_)[self.step_of()]
        return (self._known & ((1 << _TURN_BITS) - 1)) - np.where(has_step, 0, FARTHEST)

    def group_of(self) -> Ints:
        """A number of the process group of each meeting, from 0."""
        groups: dict[tuple[str, int], int] = {}
        of_key = [groups.setdefault((key.group, key.lane), len(groups)) for key in self.keys]
        return np.array([*of_key, -1], np.int64)[self.key_of()]
