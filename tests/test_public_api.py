"""The table as a DataFrame: types, and NA for what is unknown."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import pyprof
from pyprof.errors import InputError, UsageError
from pyprof.parse.records.records import Records
from tests.tiny import Nsys


def test_columns_types_and_unknowns(tmp_path: Path) -> None:
    n = Nsys()
    n.range('mm(bf16[4,8], bf16[8,2]) #pyprof{"mod":"torch"}', 10, 100)
    n.kernel("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_TNT", 20, 1000, 1100)
    n.kernel("unheard_of", None, 2000, 2200)
    path = str(n.write(tmp_path / "net.sqlite"))
    frame = pyprof.table(path, "idx,op,sil,flops,occ,tc")
    assert list(frame) == ["idx", "op", "sil", "flops", "occ", "tc"]
    assert frame["flops"].dtype == "Int64" and frame["flops"].tolist() == [2 * 4 * 8 * 2, pd.NA]
    assert isinstance(frame["op"].dtype, pd.CategoricalDtype) and frame["op"].isna().tolist() == [False, True]
    assert frame["sil"].sum() == 300 and frame["tc"].isna().tolist() == [False, True]
    assert len(pyprof.table(path).columns) > 40
    assert callable(pyprof.table)


def test_a_loaded_file_gives_records_and_ops(tmp_path: Path, data: Path) -> None:
    path = str(data / "kineto_cpu.json.gz")
    found = pyprof.load(path)
    assert isinstance(found.records, Records)
    pd.testing.assert_frame_equal(found.to_pandas(), pyprof.table(path))
    pd.testing.assert_frame_equal(found.to_pandas("records", "op,flops"), pyprof.table(path, "op,flops"))
    ops = found.to_pandas("ops")
    pd.testing.assert_frame_equal(ops, found.ops().to_pandas())
    assert list(ops)[:4] == ["op", "shape", "self_cpu", "self_cpu_pct"] and ops["calls"].dtype == "Int64"
    assert list(found.ops(shapes=False).to_pandas("op,cuda_time_total,count")) == ["op", "device_total", "calls"]
    with pytest.raises(UsageError):
        found.to_pandas("kernels")
    with pytest.raises(UsageError):
        found.to_pandas("ops", "no_such")
    from pyprof.cli import main

    assert main(["parse", path, "-o", str(tmp_path / "net.parquet")]) == 0
    records = pyprof.load(str(tmp_path / "net.parquet"))
    assert len(records.to_pandas()) == len(found.to_pandas())
    with pytest.raises(InputError, match="records hold no ops inside others"):
        records.ops()
