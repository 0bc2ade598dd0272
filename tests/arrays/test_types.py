"""A table that is used up: what is taken is gone from it, and from it alone."""

from __future__ import annotations

import numpy as np
import pytest

from pyprof.arrays.columns import Columns


def test_a_column_that_is_taken_is_gone_and_the_table_it_came_from_keeps_its_own() -> None:
    lent = {"start_ns": np.arange(3), "end_ns": np.arange(3) + 1}
    own = Columns(lent)
    assert own.take("end_ns") is lent["end_ns"]
    assert list(own) == ["start_ns"] and list(lent) == ["start_ns", "end_ns"]
    with pytest.raises(KeyError):
        own.take("end_ns")
