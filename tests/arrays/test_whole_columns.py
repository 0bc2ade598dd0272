"""Long columns that are handled piece by piece give what they give as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyprof.arrays import columns, intervals, spool
from pyprof.arrays.columns import distinct_rows


@pytest.mark.parametrize("spread", [4, 60, 1 << 40])
def test_distinct_rows_of_pieces_are_those_of_all(monkeypatch: pytest.MonkeyPatch, spread: int) -> None:
    rng = np.random.default_rng(spread)
    one, other = rng.integers(-3, spread, 500), rng.integers(0, 9, 500).astype(np.int32)
    whole = distinct_rows(one, other)
    monkeypatch.setattr(spool, "PIECE_ROWS", 64)
    monkeypatch.setattr(columns, "_HASHED_ROWS", 16)
    for found, expected in zip(distinct_rows(one, other), whole, strict=True):
        assert np.array_equal(found, expected)


def test_intervals_of_pieces_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    group = np.sort(rng.integers(0, 3, 400))
    start = rng.integers(0, 4000, 400)
    end = start + rng.integers(0, 30, 400)
    asked, times = rng.integers(-1, 4, 200), rng.integers(-5, 4100, 200)

    def results() -> list[Any]:
        segments = intervals.union(group, start, end)
        parts = [segments.group, segments.start, segments.end, segments.covered(asked, times)]
        return [*parts, intervals.latest(group, end), intervals.summed(group, start, 3)]

    whole = results()
    monkeypatch.setattr(spool, "PIECE_ROWS", 32)
    for found, expected in zip(results(), whole, strict=True):
        assert np.array_equal(found, expected)


def test_rows_of_a_column_of_one_value_are_taken_without_making_the_whole(monkeypatch):
    monkeypatch.setattr(spool, "PIECE_ROWS", 32)
    column = np.broadcast_to(np.int32(7), 1 << 40)  # 4 TB, if it were made
    found = spool.taken(column, np.arange(100))
    assert found.dtype == np.int32 and found.tolist() == [7] * 100 and found.flags.writeable
    assert spool.taken(column, np.arange(0)).tolist() == []
