"""Groups of records: two records are in one group if and only if they are alike in all columns that count."""

import numpy as np
import pytest

from pyprof.model.records import ALIKE, COLUMNS, Records, classes_of


def _records(rows: int, seed: int) -> Records:
    random = np.random.default_rng(seed)
    columns = {name: np.full(rows, -1, dtype) for name, (dtype, _) in COLUMNS.items()}
    for name in ALIKE:
        columns[name] = random.integers(-1, 2, rows).astype(columns[name].dtype)
    columns["grid_x"] = random.choice([1, 7, 1 << 30], rows).astype(np.int32)
    columns["fwd_instance"] = random.integers(-1, 3, rows)
    columns["start_ns"] = np.arange(rows)
    few = random.integers(0, max(rows // 4, 1), rows)  # so that several are alike
    for name in (*ALIKE, "fwd_instance"):
        columns[name] = columns[name][few]
    return Records(columns)


@pytest.mark.parametrize("rows", [1, 50, 3_000])
def test_a_group_holds_all_records_that_are_alike_and_no_others(rows: int) -> None:
    records = _records(rows, rows)
    classes = classes_of(records)
    keys = [*zip(*(records[name].tolist() for name in ALIKE), (records["fwd_instance"] >= 0).tolist(), strict=True)]
    of_class: dict[int, object] = {}
    for code, key in zip(classes.code.tolist(), keys, strict=True):
        assert of_class.setdefault(code, key) == key
    assert len(set(of_class.values())) == len(of_class) == len(classes)
    assert classes.code[classes.first].tolist() == [*range(len(classes))]
    assert (classes.first == [classes.code.tolist().index(code) for code in range(len(classes))]).all()
    for name in ALIKE:
        assert (classes.of(classes.records[name]) == records[name]).all()
    which = classes.records["grid_x"] == 7
    assert classes.rows(which).tolist() == np.flatnonzero(records["grid_x"] == 7).tolist()


def test_no_records() -> None:
    classes = classes_of(_records(0, 0))
    assert not len(classes) and not len(classes.code) and not len(classes.rows(np.empty(0, np.bool_)))
