"""Classes of records: two records are of one class if and only if they are alike in all columns that count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyprof.arrays import processes, spool
from pyprof.parse.records import classes as module
from pyprof.parse.records.classes import ALIKE, classes_of
from pyprof.parse.records.parquet import read as read_parquet
from pyprof.parse.records.parquet import write as write_parquet
from pyprof.parse.records.parquet import writer
from pyprof.parse.records.records import COLUMNS, Records
from pyprof.parse.sources.trace import Strings


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
@pytest.mark.parametrize("piece", [7, 1 << 18])
def test_records_of_a_class_are_alike_and_all_that_are_alike_are_of_one(
    rows: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "PIECE_ROWS", piece)
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


def test_different_rows_of_one_number_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = [*map(np.int64, (1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))]
    factors, asked = module._factors, list[int]()

    def colliding(number: int, seed: int) -> list[np.int64]:
        asked.append(seed)
        return alike if seed < 2 else factors(number, seed)

    expected = classes_of(_records(500, 1))
    monkeypatch.setattr(module, "_factors", colliding)
    classes = classes_of(_records(500, 1))
    assert asked.count(0) and asked.count(1) and asked.count(2)
    assert classes.code.tolist() == expected.code.tolist() and classes.first.tolist() == expected.first.tolist()


def test_two_processes_find_the_classes_that_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LEAST_ROWS", 1)
    monkeypatch.setattr(writer, "_ROWS", 300)
    columns = dict(_records(2_000, 3).columns)
    for name, (dtype, _) in COLUMNS.items():
        if name in ("call", "own", "inner", "scope", "gpu"):
            columns[name] = np.full(2_000, -1, dtype)
    columns["name"] = (np.arange(2_000) * 7 % 11).astype(np.int32)
    none = np.zeros(2_001, np.int64)
    strings = Strings()
    strings.codes([f"kernel {at}" for at in range(11)])
    records = Records(columns, strings, seq_offsets=none, seq_numbers=none[:0])
    write_parquet(records, tmp_path / "net.parquet")
    found = []
    for jobs in (1, 2):
        with processes.several(jobs):
            read = read_parquet(tmp_path / "net.parquet")
            found.append(classes_of(read))
            names = [read.strings[code] for code in found[-1].records["name"].tolist()]
            assert [names[code] for code in found[-1].code.tolist()] == [f"kernel {at * 7 % 11}" for at in range(2_000)]
    one, two = found
    assert one.code.tolist() == two.code.tolist() and one.first.tolist() == two.first.tolist()
    assert one.linked.tolist() == two.linked.tolist()
