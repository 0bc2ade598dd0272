"""Orders and groups of columns that are longer than what is sorted at once: parted by value, each part sorted by itself.

The results are those of numpy on the whole; only the memory taken differs. What the numbers mean is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pyprof.arrays.nesting import runs, stable_order
from pyprof.arrays.spool import PIECE_ROWS, computed, empty, pieces, row_type, taken
from pyprof.arrays.types import Array, Bools, Integers, Ints

_SAMPLES = 256  # of each part


def ascending(values: Array) -> bool:
    """Whether no value is less than the one before it."""
    return not any((values[p.start + 1 : p.stop + 1] < values[p.start : p.stop + 1][:-1]).any() for p in pieces(len(values)))


def order_of(values: Array) -> Array:
    """The rows in ascending order of their values; the order of equal ones is any."""
    rows = len(values)
    if rows <= 2 * PIECE_ROWS:
        return np.argsort(values)
    if ascending(values):
        return computed(rows, row_type(rows), lambda part: np.arange(part.start, part.stop))
    groups = Groups(parts_of(values, cuts_of(values, PIECE_ROWS)), -(-rows // PIECE_ROWS))
    order = empty(rows, row_type(rows))
    begin = 0
    for number in range(len(groups)):
        own = groups[number]
        order[begin : begin + len(own)] = own[np.argsort(values[own])]
        begin += len(own)
    return order


def order_by(first: Array, rest: Callable[[Array], Sequence[Array]]) -> Array:
    """The rows in ascending order of several columns, the first counts most, and of equal ones in their own; rest: the others
    of some rows, asked only for those that have the first in common with another."""
    order = order_of(first)
    tied, group = runs(same_as_before(first, order))
    if len(tied):
        rows = order[tied]
        order[tied] = rows[np.lexsort([rows, *reversed(rest(rows)), group])]
    return order


def same_as_before(values: Array, order: Array) -> Bools:
    """For each place of an order but the first whether its value is that of the place before it."""
    return computed(
        max(len(order) - 1, 0),
        np.bool_,
        lambda part: np.diff(values[order[part.start : part.stop + 1]]) == 0,
    )


def values_and_places(values: Array) -> tuple[Array, Array]:
    """The distinct values, ascending, and of each row the place of its own among them."""
    order, rows = order_of(values), len(values)
    new = np.logical_not(same_as_before(values, order))
    heads = np.append(0, np.flatnonzero(new) + 1)[:rows]
    place, number = empty(rows, row_type(rows)), np.int64(0)
    for part in pieces(rows):
        number_of = np.cumsum(new[max(part.start - 1, 0) : part.stop - 1]) + number
        place[order[part]] = number_of if part.start else np.append(number, number_of)
        number = number_of[-1] if len(number_of) else number
    return taken(values, taken(order, heads)), place


def cuts_of(values: Array, most: int) -> Array:
    """Values that part the rows into about equal numbers, about `most` in each: fewer parts where many are equal."""
    parts = -(-len(values) // most)
    if parts < 2:
        return values[:0]
    step = max(len(values) // (parts * _SAMPLES), 1)
    sample = np.sort(np.concatenate([values[part][::step] for part in pieces(len(values))]))  # they lie on all pages
    return np.unique(sample[np.arange(1, parts) * len(sample) // parts], return_counts=True)[0]


def parts_of(values: Array, cuts: Array) -> Array:
    """The number of each row's part; a cut begins the part after it."""
    if not len(cuts):
        return np.broadcast_to(np.int16(0), len(values))
    narrow = np.int16 if len(cuts) < 1 << 15 else np.int32
    return computed(len(values), narrow, lambda part: np.searchsorted(cuts, values[part], "right"))


class Groups:
    """Rows by a small number that each has, from 0 on, in their order within each group."""

    def __init__(self, number: Integers, count: int) -> None:
        rows = len(number)
        self._order: Array | None = None
        sizes = np.zeros(count + 1, np.int64)
        for part in pieces(rows):
            sizes[1:] += np.bincount(number[part], minlength=count)[:count]
        ends = np.cumsum(sizes)
        self._bounds = ends.tolist()
        if ascending(number):
            return
        self._order, next_ = empty(rows, row_type(rows)), ends[:-1].copy()
        for part in pieces(rows):
            own = stable_order(number[part])
            of = number[part][own]
            counts = np.bincount(of, minlength=count)
            within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
            self._order[next_[of] + within] = own + part.start
            next_ += counts

    @property
    def order(self) -> Array | None:
        """The rows by group, and in each as they stand; None where they stand so."""
        return self._order

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, number: int) -> Ints:
        """The rows of a group, ascending."""
        begin, end = self._bounds[number], self._bounds[number + 1]
        return np.arange(begin, end) if self._order is None else self._order[begin:end].astype(np.int64)
