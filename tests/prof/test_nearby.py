"""What is printed of a part of a capture is the same whether all of it was read or only what that part depends on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.loading import load
from pyprof.opcall import OpCall
from pyprof.parse.records import parquet
from pyprof.parse.records.records import Records
from pyprof.prof import nearby
from pyprof.prof.columns import HEADERS
from pyprof.prof.frame import Frame
from pyprof.prof.nearby import Nearby, around, frame_of
from tests.conftest import ROOT

CAPTURES = sorted([*(ROOT / "tests" / "data").glob("*.sqlite"), *(ROOT / "tests" / "data").glob("*.json.gz")])
GIVEN = [
    "nsys/h100_2gpu_train.nsys2026.2.sqlite", "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite", "nvprof/v100_lm/net.sql",
    "kineto/a100_train_stacks.json.gz", "kineto/mi300_resnet_checkpoint.json.gz", "kineto/serving/vllm_decode_full.run.json.gz",
]  # fmt: skip
ALL_COLUMNS = ",".join(header.key for header in HEADERS)


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_parts_of_captures(capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(capture, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVEN)
def test_parts_of_given_captures(captures: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(captures / name, tmp_path, capsys)


def check(capture: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    records = load(str(capture))
    file = folder / "net.parquet"
    parquet.write(records, file)
    start = records["start_ns"][records["start_ns"] >= 0]
    times = np.quantile(start, np.linspace(0, 1, 8)).astype(np.int64).tolist()
    commands = [["--time", f"{begin}:{end}", "-c", ALL_COLUMNS] for begin, end in pairwise(times)]
    commands += [
        ["--time", f"{times[3]}:{times[4]}", *rest]
        for rest in (
            ["--kinds", "all", "-c", ALL_COLUMNS],
            ["--kinds", "memcpy,kernel", "-c", "idx,bytes,lost,peak", "--format", "json"],
            ["--group-by", "op,dir", "-c", "op,dir,calls,time,share,flops,tflops,peak,lost,known"],
            ["--tree", "layer"],
            ["--sort", "lost", "--top", "3", "-c", "idx,lost,bound"],
        )
    ]
    for command in commands:
        with mock.patch.object(nearby, "_WORTH", 1 << 40):  # never worth it
            expected = run([str(file), *command], capsys)
        with mock.patch.object(nearby, "_WORTH", 0):
            assert run([str(file), *command], capsys) == expected
            assert run([str(capture), *command], capsys) == expected


def run(command: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["prof", *command])
    return code, *capsys.readouterr()


def _records(own: list[int], forward: list[int]) -> Records:
    columns = {name: np.full(len(own), 0, np.int64) for name in ("kind", "start_ns")}
    offsets = np.zeros(len(own) + 1, np.int64)
    return Records({**columns, "instance": np.array(own), "fwd_instance": np.array(forward)}, seq_offsets=offsets)


def test_all_of_an_op_its_forward_and_its_backward() -> None:
    records = _records(
        own=[0, 1, 0, -1, 9, 2, 3, -1, 4, 5, 10**13, 4], forward=[-1, -1, -1, -1, -1, 0, 1, -1, 2, 9, -1, 2]
    )  # instance 4 is the backward of 2, which is that of 0
    assert around(records, np.array([0])).tolist() == [0, 2, 5, 8, 11]
    assert around(records, np.array([8])).tolist() == [0, 2, 5, 8, 11]
    assert around(records, np.array([1, 3])).tolist() == [1, 3, 6]
    assert around(records, np.array([7, 10])).tolist() == [7, 10]
    assert around(records, np.array([], np.int64)).tolist() == []


def test_what_is_read_whole() -> None:
    records, inside, shown = _records(own=[*range(8)], forward=[-1] * 8), np.array([2]), np.ones(8, np.bool_)
    frame, rows = frame_of(records, shown, inside)
    assert isinstance(frame, Nearby) and frame.numbers.tolist() == [2] and rows.tolist() == [0]
    assert type(frame_of(records, shown, np.arange(5))[0]) is Frame  # most of it
    records.calls = [OpCall("fbgemm", "split_embedding_codegen_lookup_sgd_function")]
    assert type(frame_of(records, shown, inside)[0]) is Frame  # look-ups are paired by their number
