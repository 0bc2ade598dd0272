"""The summary and its advice on captures whose truth fits on a screen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.loading import load_capture
from pyprof.prof.frame import Frame
from pyprof.report.old_advice import advise
from tests.tiny import Nsys


def _product(path: Path, kernel: str, tag: str, size: int, cc: tuple[int, int], name: str) -> Path:
    n = Nsys()
    n.range(f'mm({tag}[{size},{size}], {tag}[{size},{size}]) #pyprof{{"mod":"torch"}}', 10, 50)
    n.kernel(kernel, 20, 1_000, 501_000)
    n.rows["TARGET_INFO_GPU"].append((0, name, 0, 108, *cc))
    return n.write(path / "net.sqlite")


A100 = "NVIDIA A100-SXM4-80GB"


def test_the_time_and_the_advice_are_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = str(_product(tmp_path, "ampere_sgemm_128x64_nn", "fp32", 1024, (8, 0), A100))
    assert main(["summary", capture, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1 and {"by": "op", "name": "mm", "time": 500_000, "share": 100.0} in found["time"]
    (advice,) = found["advice"]
    assert advice["change"].startswith("allow TF32") and advice["saves_ns"] <= advice["time_ns"] == 500_000
    assert main(["summary", capture, "--table", "time", "--where", "by=op", "-c", "name,time", "--csv"]) == 0
    assert capsys.readouterr().out == "Name,Time(ns)\r\nmm,500000\r\n"
    assert main(["summary", capture, "--csv"]) == 2 and "--table time|advice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kernel", "tag", "size", "change", "peak"),
    [
        ("ampere_sgemm_128x64_nn", "fp32", 1024, "allow TF32", 156e12),
        ("gemmSN_NN_kernel", "fp16", 1001, "pad m 1001 to 1008, n 1001 to 1008, k 1001 to 1008", 312e12),
    ],
)
def test_products_without_tensor_cores(tmp_path: Path, kernel: str, tag: str, size: int, change: str, peak: float) -> None:
    (found,) = advise(Frame(load_capture(_product(tmp_path, kernel, tag, size, (8, 0), A100))))
    assert found.change.startswith(change) and found.time_ns == 500_000 and f"m={size}" in found.evidence
    assert found.saves_ns == pytest.approx(500_000 - 2 * size**3 / peak * 1e9, rel=0.001)


def test_silent_where_tensor_cores_did_it_or_there_are_none(tmp_path: Path) -> None:
    used = _product(tmp_path, "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_nn", "fp16", 1024, (8, 0), A100)
    frame = Frame(load_capture(used))
    assert [v.tc for v in frame.verdicts[1]] == ["1"] and frame.costs.flops.tolist() == [2 * 1024**3]
    assert advise(frame) == []
    volta = _product(tmp_path, "volta_sgemm_128x64_nn", "fp32", 1024, (7, 0), "Tesla V100-SXM2-16GB")
    assert advise(Frame(load_capture(volta))) == []


def test_the_screen_of_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(_product(tmp_path, "ampere_sgemm_128x64_nn", "fp32", 1024, (8, 0), A100))]) == 0
    out = capsys.readouterr().out
    assert "1 kernels, 0.500 ms" in out and "mm 100.0 %" in out and "Tensor Cores: 0.0 %" in out and "allow TF32" in out


@pytest.mark.parametrize(
    "name",
    [
        "kineto/h100_bert_small.json.gz",
        "kineto/h100_vit.json.gz",
        "kineto/v100_resnet50_2021.json.gz",
        "kineto/a100_train_stacks.json.gz",
        "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite",
        "nsys/h100_2gpu_train.nsys2026.2.sqlite",
        "nsys/a100_gpt2.7b.nsys2024.6.sqlite",
        "nvprof/v100_lm/net.sql",
    ],
)
def test_the_verdict_is_known_on_real_captures(captures: Path, name: str) -> None:
    frame = Frame(load_capture(captures / name))
    codes, verdicts = frame.verdicts
    time = np.where(frame.records["kind"] == 0, frame.records["dur_ns"], 0)
    known = np.array([v.tc is not None for v in verdicts])[codes]
    assert 0 < 0.99 * time.sum() <= time[known].sum()


def test_ops_on_the_cpu_are_not_called_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    n = Nsys()
    n.range("aten::mm, op_id = 1, sizes = [[4, 8], [8, 2]]", 0, 300_000)
    n.range("aten::add, op_id = 2, sizes = [[4, 2], [4, 2]]", 400_000, 500_000)
    assert main(["summary", str(n.write(tmp_path / "net.sqlite"))]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 ops on the CPU, 0.400 ms",
        "phase:    forward 100.0 %",
        "op:       mm 75.0 %, add 25.0 %",
        "above the roofline: not known, since this CPU was not measured (pyprof doctor --calibrate)",
        "coverage: op 100.0 %, FLOPs 100.0 %, bytes 0.0 % of the time",
    ]


def test_a_part_of_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What lies inside of a step counts, and the device's idle time between its kernels, not that beside it."""
    n = Nsys()
    for step, late in ((1, 30_000), (2, 10_000)):
        begin = 100_000 * step
        n.range(f"ProfilerStep#{step}", begin, begin + 90_000)
        n.range('add(fp32[1000], fp32[1000]) #pyprof{"mod":"torch"}', begin, begin + 60_000)
        n.kernel("void add_kernel()", begin + 10, begin + 20, begin + 1_020)
        n.kernel("void add_kernel()", begin + 50_000, begin + 1_020 + late + 40_000, begin + 1_020 + late + 42_000)
    capture = str(n.write(tmp_path / "net.sqlite"))
    texts = []
    for step in ("1", "2", "1:3"):
        assert main(["summary", capture, "--step", step]) == 0
        texts.append(capsys.readouterr().out)
    assert [text.splitlines()[0] for text in texts] == ["2 kernels, 0.003 ms", "2 kernels, 0.003 ms", "4 kernels, 0.006 ms"]
    assert "saves at most 0.070 of 0.070 ms" in texts[0] and "saves at most 0.050 of 0.050 ms" in texts[1]
    assert main(["summary", capture]) == 0 and capsys.readouterr().out == texts[2]
    assert main(["summary", capture, "--range", "no"]) == 1
