"""Odd but legal captures and records: edges of time, threads, columns and text that must neither mislead nor crash."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pyprof.cli import main
from pyprof.errors import PyprofError
from pyprof.loading.formats import op_rules
from pyprof.loading.load import load_capture
from pyprof.model.records import Records
from pyprof.parse.records.netdict.read import read_lines
from pyprof.parse.records.netdict.write import lines
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame
from tests.tiny import SCHEMA, Nsys

GEMM, ADD = "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4>(int)"


def load(capture: Nsys, path: Path, **options: Any) -> Records:
    return load_capture(capture.write(path / "net.sqlite", **options))


def table(records: Records, *keys: str) -> list[tuple[str, ...]]:
    """Rows of the named columns as prof prints them, of all columns where none is named."""
    frame = Frame(records)
    return list(zip(*(c.texts(frame) for c in COLUMNS if c.key in keys or not keys), strict=True))


def test_a_range_is_open_from_its_begin_until_just_before_its_end(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1", 10, 20)
    n.range("aten::add, op_id = 2", 20, 30)
    n.range("aten::mul, op_id = 3", 40, 40)  # no length: nothing was launched in it
    n.range("aten::div, op_id = 4", 60, 50)  # ends before it begins
    for number, launch in enumerate((10, 19, 20, 30, 40, 55)):
        n.kernel(GEMM, launch, 100 + number, 200)
    assert table(load(n, tmp_path), "op") == [("mm",), ("mm",), ("add",), ("na",), ("na",), ("na",)]


def test_the_backward_of_an_op_without_kernels_finds_it(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::view, seq = 3, op_id = 1", 1, 9)
    n.range("ViewBackward0, seq = 3, op_id = 2", 20, 90, thread=8)
    n.kernel(ADD, 50, 1000, 1010, thread=8)
    records = load(n, tmp_path)
    assert table(records, "dir", "op") == [("bprop", "view")] and records["fwd_instance"].tolist() == [0]


@pytest.mark.parametrize("side", [1_000_003, 100_003])
def test_shares_of_a_cost_beyond_what_a_float_holds_sum_exactly(tmp_path: Path, side: int) -> None:
    n = Nsys()
    n.range(f'linear(fp32[{side},{side}], fp32[{side},{side}]) #pyprof{{"mod":"torch.nn.functional"}}', 10, 900)
    for number in range(50):
        n.kernel(GEMM, 20 + number, 1000 + 100 * number, 1000 + 100 * number + number * number % 97)
    shares = [int(row[0]) for row in table(load(n, tmp_path), "flops")]
    assert sum(shares) == 2 * side**3 and min(shares) == 0 and shares[0] == 0  # a kernel without time carries none


def _training() -> Nsys:
    n = Nsys()
    n.range("aten::linear, seq = 5, op_id = 1, sizes = [[4, 8], [2, 8], []]", 10, 40)
    n.kernel(GEMM, 20, 1000, 1100)
    n.range("AddmmBackward0, seq = 5, op_id = 4, sizes = [[4, 2]]", 50, 90, thread=8)
    n.kernel(GEMM, 60, 1100, 1200, thread=8)
    n.range("layer:x", 5, None)
    n.kernel("g", 25, 1300, 1400, node=500)
    n.rows["CUDA_GRAPH_NODE_EVENTS"].append((20, 21, (1 << 48) | (7 << 24) | 7, 500, None))
    n.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100", 0, 108, 8, 0))
    return n


_COLUMNS = [(name, column.split()[0]) for name, columns in SCHEMA.items() for column in columns.split(", ")]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _training().write(tmp_path_factory.mktemp("training") / "net.sqlite").read_bytes()


@pytest.mark.parametrize(("name", "column"), _COLUMNS)
def test_a_column_may_be_missing_or_hold_extremes(tmp_path: Path, training: bytes, name: str, column: str) -> None:
    path = tmp_path / "net.sqlite"
    for change in (
        f'ALTER TABLE {name} DROP COLUMN "{column}"',
        *(f'UPDATE {name} SET "{column}" = {v}' for v in ("NULL", "-1", "9223372036854775807", "-9223372036854775808")),
    ):
        path.write_bytes(training)
        db = sqlite3.connect(path)
        try:
            db.execute(change)
            db.commit()
        except sqlite3.Error:
            continue  # a key cannot be dropped, what is NOT NULL cannot be NULL
        finally:
            db.close()
        try:
            records = load_capture(path)
        except PyprofError as error:
            assert error.hint
            continue
        written = list(lines(records))
        assert len(written) == len(table(records)) and list(lines(read_lines(written, "x", op_rules()))) == written


def test_the_sequence_number_0_of_a_backward_function_is_kept_by_net_dict(tmp_path: Path) -> None:
    n = Nsys()
    n.range("AddmmBackward0, seq = 0, op_id = 1", 10, 90)
    n.range("aten::mm, seq = 2, op_id = 2, sizes = [[3, 4], [4, 5]]", 20, 80)
    n.kernel(GEMM, 50, 100, 200)
    records = load(n, tmp_path)
    again = read_lines(lines(records), "net.dict", op_rules())
    assert table(records, "seq", "altseq", "dir") == table(again, "seq", "altseq", "dir") == [("0", "2", "bprop")]


def test_reasons_without_flops_stand_in_one_order_whatever_the_order_of_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = Nsys()
    for number, op in enumerate("zebra yak wolf xerus".split()):
        n.range(f"mine::{op}, op_id = {number}", 10 + 20 * number, 20 + 20 * number)
        n.kernel(GEMM, 15 + 20 * number, 1000 + 10 * number, 1005 + 10 * number)
    said = set()
    for seed in range(4):
        assert main(["prof", str(n.write(tmp_path / "net.sqlite", shuffle=seed))]) == 0
        said.add(capsys.readouterr().err)
    (only,) = said
    assert only.count("no FLOPs for 1 row (25.0 %") == 4


def test_kernels_of_one_name_and_time_stand_in_one_order_in_inductor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = Nsys()
    ops = (
        ("aten::mm", "[[3, 4], [4, 5]]"),
        ("aten::layer_norm", "[[3, 4], []]"),
        ("aten::conv2d", "[[3, 4, 5, 5], [4, 4, 3, 3]]"),
    )
    for at, (op, sizes) in enumerate(ops):  # of three categories
        n.range(f"{op}, op_id = {at}, sizes = {sizes}", 100 * at, 100 * at + 50)
        n.kernel("strange", 100 * at + 10, 1000 + 10 * at, 1010 + 10 * at)
    said = set()
    for seed in range(8):
        assert main(["inductor", str(n.write(tmp_path / "net.sqlite", shuffle=seed))]) == 0
        said.add(capsys.readouterr().out)
    assert len(said) == 1 and said.pop().count("strange") == 3
