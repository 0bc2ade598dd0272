"""net.parquet as DuckDB and pandas see it: grouped by op and layer, and the FLOPs of products by the shapes of their arguments."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.loading.load import load_capture
from pyprof.model.opcall import OpCall
from pyprof.model.records import COLUMNS, Records
from pyprof.parse.records import parquet
from pyprof.parse.records.parquet.schema import SCHEMA, SCHEMA_VERSION, schema_text
from tests.tiny import Nsys

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
pandas = pytest.importorskip("pandas")


def written(capture: Path, folder: Path) -> tuple[Records, str]:
    """Records of a capture, and the name of the Parquet file of them."""
    records = load_capture(capture)
    parquet.write(records, folder / "net.parquet")
    return records, str(folder / "net.parquet")


def times(records: Records, keys: list[object]) -> dict[object, int]:
    """Time by key of each row, from the records themselves."""
    found: dict[object, int] = {}
    for key, ns in zip(keys, records["dur_ns"].tolist(), strict=True):
        found[key] = found.get(key, 0) + ns
    return found


def calls(records: Records) -> list[OpCall | None]:
    return [records.calls[code] if code >= 0 else None for code in records["call"].tolist()]


def test_time_by_op_and_by_layer(captures: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    records, path = written(captures / "nsys/h100_2gpu_train.nsys2026.2.sqlite", tmp_path)
    by_op = times(records, [None if call is None else call.op for call in calls(records)])
    assert len(by_op) > 5
    assert dict(duckdb.sql(f"SELECT op, sum(sil)::BIGINT FROM '{path}' GROUP BY op").fetchall()) == by_op
    by_layer = times(records, [records.stacks[code].layer for code in records["scope"].tolist()])
    rows = duckdb.sql(f"SELECT layer, sum(sil)::BIGINT FROM '{path}' GROUP BY layer").fetchall()
    assert {tuple(layer): ns for layer, ns in rows} == by_layer
    frame = pandas.read_parquet(path)
    grouped = frame.groupby("op", observed=True, dropna=False)["sil"].sum()
    assert {None if op != op else op: int(ns) for op, ns in grouped.items()} == by_op
    assert frame.groupby(frame["layer"].map(tuple))["sil"].sum().to_dict() == by_layer


def test_flops_of_products_by_shape(captures: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    records, path = written(captures / "kineto/h100_vit.json.gz", tmp_path)
    name = "linear"
    linears = [call for call in calls(records) if call is not None and call.op == name]
    assert linears
    expected: dict[object, int] = {}
    for call in linears:
        x, weight = call.tensors[:2]
        key = (x.shape, weight.shape)
        expected[key] = expected.get(key, 0) + 2 * x.numel * weight.shape[0]
    query = f"""
        SELECT args[1].shape, args[2].shape, sum(2 * list_product(args[1].shape) * args[2].shape[1])::BIGINT
        FROM '{path}' WHERE op = '{name}' GROUP BY 1, 2"""
    assert {(tuple(x), tuple(w)): flops for x, w, flops in duckdb.sql(query).fetchall()} == expected
    frame = pandas.read_parquet(path)
    found: dict[object, int] = {}
    for args in frame.loc[frame["op"] == name, "args"]:
        x, w = tuple(args[0]["shape"]), tuple(args[1]["shape"])
        found[x, w] = found.get((x, w), 0) + 2 * int(np.prod(x)) * int(w[0])
    assert found == expected


def test_arguments_of_every_kind(tmp_path: Path) -> None:
    n = Nsys()
    n.range('f(fp16[4,8]{1,4}, [fp32[2], fp32[3]^], [1, 2], 0.5, None, "a", fp32, out=int64[]) #pyprof{"mod":"torch"}', 0, 90)
    n.kernel("k", 5, 200, 210)
    parquet.write(load_capture(n.write(tmp_path / "n.sqlite")), tmp_path / "n.parquet")
    row = pandas.read_parquet(tmp_path / "n.parquet").iloc[0]
    shown = [
        (
            a["name"],
            None if a["shape"] is None else list(a["shape"]),
            a["dtype"],
            None if a["strides"] is None else list(a["strides"]),
            a["value"],
        )
        for a in row["args"]
    ]
    assert shown == [
        (None, [4, 8], "float16", [1, 4], None), (None, [2], "float32", None, None), (None, [3], "float32", None, None),
        (None, None, None, None, "[1, 2]"), (None, None, None, None, "0.5"), (None, None, None, None, "None"),
        (None, None, None, None, '"a"'), (None, None, None, None, "fp32"), ("out", [], "int64", None, None),
    ]  # fmt: skip
    assert (row["mod"], row["op"], row["kernel"], row["sil"], row["kind"]) == ("torch", "f", "k", 10, "kernel")
    assert row["params"].startswith("fp16[4,8]{1,4}, [fp32[2], ")


def test_the_page_lists_every_column() -> None:
    text = schema_text()
    assert f"version {SCHEMA_VERSION}" in text and all(f" {column.name} " in text for column in SCHEMA)
    assert {column.record for column in SCHEMA} == {"", *COLUMNS}
