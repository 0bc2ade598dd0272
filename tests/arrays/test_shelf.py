"""Tables that were put away come back, in their order and types, as often as they are wanted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.arrays.shelf import Shelf
from pyprof.arrays.spool import columns_on_disk

_COLUMN = st.tuples(st.sampled_from([np.int8, np.int32, np.int64, np.float64]), st.lists(st.integers(-100, 100), max_size=9))


@given(st.lists(st.lists(_COLUMN, max_size=3), max_size=4), st.sampled_from([2, None]))
def test_what_is_put_away_comes_back(tables: list[list[tuple[type, list[int]]]], piece_rows: int | None) -> None:
    put = [[np.array(values, dtype) for dtype, values in table] for table in tables]
    with columns_on_disk(piece_rows=piece_rows):
        shelf = Shelf()
        for number, table in enumerate(put):
            shelf.add(*table)
            for _ in range(2):
                found = [*shelf]
                assert len(found) == number + 1
                for mine, theirs in zip(found, put, strict=False):
                    assert [(c.dtype, c.tolist()) for c in mine] == [(c.dtype, c.tolist()) for c in theirs]
        shelf.close()


def test_it_lies_beside_the_output_and_is_read_only(tmp_path: Path) -> None:
    with columns_on_disk(tmp_path):
        shelf = Shelf()
        shelf.add(np.arange(5), np.arange(10)[::2])
        ((first, second),) = shelf
        assert second.tolist() == [0, 2, 4, 6, 8] and not list(tmp_path.iterdir())  # without a name
        with pytest.raises(ValueError, match="read-only"):
            first[0] = 1
        shelf.close()
        assert first.tolist() == [0, 1, 2, 3, 4]
