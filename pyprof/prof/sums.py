"""Sums of values some of which are unknown: one rule says when the sum of the known ones stands for all.

It does where the others take less than 1 % of the time, and in a group that took no time where there are no others. Else the
sum is unknown, and what is known of it is a lower bound. Every report that adds up FLOPs, bytes or lost time asks here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pyprof.columns.intervals import summed
from pyprof.columns.types import Bools, Ints
from pyprof.tables.table import AnyInts

LEAST_KNOWN = 0.99  # share of the time that must be known
_Number = TypeVar("_Number", int, float)


class Amount(NamedTuple):
    """One sum. value: None where it is unknown; least: what it is at least then, None where nothing is known of it either."""

    value: int | None
    least: int | None


class KnownSums(NamedTuple):
    """Sums by group. total, known_ns, number: the sum, the time and the number of the rows whose value is known; all_ns, rows:
    time and number of all."""

    total: AnyInts
    known_ns: Ints
    number: Ints
    all_ns: Ints
    rows: Ints

    @property
    def enough(self) -> Bools:
        """Whether the sum stands for all rows of its group."""
        return np.asarray(is_enough(self.known_ns, self.all_ns, self.number, self.rows), np.bool_)

    def amounts(self) -> list[Amount]:
        """The sum of each group."""
        columns = (np.asarray(column).tolist() for column in (self.total, self.enough, self.number))
        return [Amount(total, None) if enough else Amount(None, total if number else None)
                for total, enough, number in zip(*columns, strict=True)]  # fmt: skip

    def shares(self) -> list[float | None]:
        """The share of each group's time that is known; None where it took none."""
        times = zip(self.known_ns.tolist(), self.all_ns.tolist(), strict=True)
        return [part / whole if whole else None for part, whole in times]

    def by(self, group: Ints, count: int) -> KnownSums:
        """Add up sums by group. group: the group of each sum, 0 to count - 1."""
        total, *others = self
        return KnownSums(exact_sum(total, group, count), *(summed(group, column, count) for column in others))

    def take(self, groups: Any) -> KnownSums:
        return KnownSums(*(column[groups] for column in self))


def is_enough(known_ns: Any, all_ns: Any, number: Any, rows: Any) -> Any:
    """Whether rows with a known value may stand for their whole group. known_ns, number: time and number of these rows; all_ns,
    rows: of all rows; each a number, or a column with one for each group."""
    return (number > 0) & ((number == rows) | (known_ns > LEAST_KNOWN * all_ns))


def sums_of(values: AnyInts, time_ns: Ints, group: Ints, count: int) -> KnownSums:
    """Sums by group. A value below 0 is unknown."""
    known = values >= 0
    return KnownSums(
        exact_sum(np.where(known, values, 0), group, count),
        summed(group, np.where(known, time_ns, 0), count),
        np.bincount(group[known], minlength=count),
        summed(group, time_ns, count),
        np.bincount(group, minlength=count),
    )


def added(amounts: Sequence[tuple[_Number | None, _Number | None]]) -> tuple[_Number | None, _Number | None]:
    """The sum of several (value, what it is at least), unknown where one of them is."""
    known = [number for value, least in amounts if (number := least if value is None else value) is not None]
    total = sum(known[1:], known[0]) if known else None
    return (None, total) if any(value is None for value, _ in amounts) else (total, None)


def exact_sum(values: AnyInts, group: Ints, groups: int) -> AnyInts:
    """Exact sums by group of non-negative numbers; Python integers if a sum exceeds 64 bits."""
    low, high = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    np.add.at(low, group, (values & 0xFFFFFFFF).astype(np.int64, copy=False))
    np.add.at(high, group, (values >> 32).astype(np.int64, copy=False))
    if not groups or int(high.max()) + (int(low.max()) >> 32) < 1 << 30:
        return (high << 32) + low
    return np.array([(h << 32) + n for h, n in zip(high.tolist(), low.tolist(), strict=True)], object)
