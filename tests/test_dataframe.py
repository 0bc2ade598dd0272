"""The table as a DataFrame: types, and NA for what is unknown."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import pyprof
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
