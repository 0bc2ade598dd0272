"""Records -> classes of those that are alike in all that is no time and no number of one execution.

A program does the same in each iteration: millions of records are of a few thousand classes. What depends on kernel, op,
shapes, layer, phase and device alone is worked out for one record of each class. Classes are found while the records are read,
some rows at a time: rows are told apart by one number made of all that must be equal, and compared with the first of their
class, since two that differ could have the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows, encoded
from pyprof.arrays.joining import rows_where
from pyprof.arrays.processes import at_once
from pyprof.arrays.spool import computed, empty, pieces
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.parse.records.records import COLUMNS, Records

ALIKE = (
    "kind", "gpu", "phase", "copykind", "recomputed", "pid", "rank", "device", "stream", "call", "own", "inner", "name",
    "scope", "grid_z", "grid_y", "block_x", "grid_x",
)  # fmt: skip
"""Columns in which the records of a class are equal; they are equal as well in whether they have a forward instance."""
_PROCESSES = 2  # each finds the classes of its part of the records
_MASK = (1 << 64) - 1


class Classes(NamedTuple):
    """code: of each record its class; first: of each class the position of its first record; records: these, without the
    columns in which others of the class differ; linked: of each class whether its records have a forward instance."""

    code: Array
    first: Ints
    records: Records
    linked: Bools

    def __len__(self) -> int:
        return len(self.first)

    def rows(self, which: Bools) -> Ints:
        """The records of some classes."""
        if not which.any():
            return np.empty(0, np.int64)
        return rows_where(len(self.code), lambda part: which.take(self.code[part]))

    def of(self, values: Array) -> Array:
        """A column from a value of each class."""
        return computed(len(self.code), values.dtype, lambda part: values.take(self.code[part]))


class _Found(NamedTuple):
    """The classes of some records in the order of their first ones. code: of each record; first: positions of the first ones;
    columns: whether these have a forward instance, and what they are in ALIKE."""

    code: Array
    first: Ints
    columns: list[Array]


def classes_of(records: Records) -> Classes:
    """The classes of some records, in ascending order of whether they have a forward instance, then of ALIKE."""
    rows = len(records)
    edges = [rows * at // _PROCESSES for at in range(_PROCESSES + 1)]
    parts = [slice(begin, end) for begin, end in pairwise(edges)]
    _ = records.strings, records.calls, records.stacks, records.gpus  # which both processes look at, and as they are here
    found = at_once([partial(_found, records, part) for part in parts], rows)
    columns = [np.concatenate(each) for each in zip(*(one.columns for one in found), strict=True)]
    _, at, number = distinct_rows(*columns)
    code, begin = empty(rows, np.int32), 0
    for part, one in zip(parts, found, strict=True):
        own = number[begin : begin + len(one.first)].astype(np.int32)
        for some in pieces(len(one.code)):
            code[part.start + some.start : part.start + some.stop] = own.take(one.code[some])
        begin += len(one.first)
    linked, *alike = (column[at] for column in columns)
    pools = records.strings, records.stacks, records.calls, records.gpus, records.engine_steps
    firsts = Records(dict(zip(ALIKE, alike, strict=True)), *pools, np.zeros(len(at) + 1, np.int64))
    return Classes(code, np.concatenate([one.first for one in found])[at], firsts, linked)


def _found(records: Records, rows: slice) -> _Found:
    for seed in count():
        found = _told_apart(records, rows, _factors(len(ALIKE) + 1, seed))
        if found is not None:
            return found
    raise AssertionError


def _told_apart(records: Records, rows: slice, factors: Sequence[np.int64]) -> _Found | None:
    """The classes of some records by a number that is the sum of products of their columns with factors; None where two that
    differ have the same number."""
    code, first = empty(rows.stop - rows.start, np.int32), np.empty(0, np.int64)
    columns = [np.empty(0, np.bool_), *(np.empty(0, COLUMNS[name][0]) for name in ALIKE)]
    known, place = np.empty(0, np.int64), np.empty(0, np.int64)  # the numbers in ascending order, and the class of each
    for part, (forward, *alike) in records.pieces_of(("fwd_instance", *ALIKE), rows):
        values = [forward >= 0, *alike]
        keys, own = encoded(_numbers(values, factors))
        at = np.searchsorted(known, keys)
        there = known[np.minimum(at, len(known) - 1)] == keys if len(known) else np.zeros(len(keys), np.bool_)
        if not there.all():
            new = np.sort(_firsts(own, len(keys))[~there])
            first = np.concatenate([first, new + part.start])
            columns = [np.concatenate([column, of[new]]) for column, of in zip(columns, values, strict=True)]
            known, place = np.append(known, keys[own[new]]), np.append(place, np.arange(len(place), len(first)))
            order = np.argsort(known)
            known, place = known[order], place[order]
            at = np.searchsorted(known, keys)
        number = place[at].astype(np.int32)
        for column, of in zip(columns, values, strict=True):
            if not _agree(column[number], own, of):
                return None
        code[part.start - rows.start : part.stop - rows.start] = number[own]
    return _Found(code, first, columns)


def _numbers(values: Sequence[Array], factors: Sequence[np.int64]) -> Ints:
    """One number for each row, the same for rows that are equal."""
    result: Ints = np.zeros(len(values[0]), np.int64)
    for column, factor in zip(values, factors, strict=True):
        if (column != column[0]).any():
            result += np.multiply(column, factor, dtype=np.int64)
        else:
            result += np.multiply(column[:1], factor, dtype=np.int64)
    return result


def _firsts(own: Array, count: int) -> Ints:
    """For each number where it stands first."""
    result = np.empty(count, np.int64)
    result[own[::-1]] = np.arange(len(own) - 1, -1, -1)
    return result


def _agree(known: Array, own: Array, values: Array) -> bool:
    """Whether each row has the value that its number stands for. known: of each number."""
    if (known == values[0]).all() or (known[0] == known).all():
        return bool((values == known[0]).all())
    return bool((known[own] == values).all())


def _factors(number: int, seed: int) -> list[np.int64]:
    """Odd numbers of 64 bits that look random (splitmix64), others for each seed."""
    found = []
    for at in range(1, number + 1):
        mixed = (seed * number + at) * 0x9E3779B97F4A7C15 & _MASK
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ mixed >> shift) * factor & _MASK
        mixed = (mixed ^ mixed >> 31) | 1
        found.append(np.int64(mixed - (mixed >> 63 << 64)))
    return found
