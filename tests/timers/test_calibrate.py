"""`pyprof doctor --calibrate`: rates are work over time, and are kept and told."""

import functools
from pathlib import Path
from typing import Any

import pytest

from pyprof.cli import main
from pyprof.hardware import cpus
from pyprof.hardware.cpus import CpuPeak
from pyprof.timers import calibrate
from pyprof.timers.timing import Timing

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_rates_are_work_over_the_best_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that computes 10^11 FLOP/s, half as many in fp64 and no fp16, and moves 20 * 10^9 bytes/s."""
    works: list[Any] = []

    def timeit(work: Any, **_: Any) -> Timing:
        works.append(work)
        if isinstance(work, functools.partial):
            matrix = work.args[0]
            if matrix.dtype == torch.float16:
                raise RuntimeError("not implemented for Half")
            took = 2 * matrix.shape[0] ** 3 / (5e10 if matrix.dtype == torch.float64 else 1e11)
        else:
            names = dict(zip(work.__code__.co_freevars, (cell.cell_contents for cell in work.__closure__), strict=True))
            took = 3 * 4 * names["a"].numel() / 20e9
        took *= 1 + len(works) % 3  # busy at times
        return Timing("cpu", (took, 2 * took), (took, 2 * took))

    monkeypatch.setattr(calibrate, "timeit", timeit)
    monkeypatch.setattr(calibrate, "_ARRAY_LEAST", 4000)
    monkeypatch.setattr(calibrate, "cache_bytes", lambda: None)
    found = calibrate.measure()
    assert found.tflops == pytest.approx({"fp32": 0.1, "fp64": 0.05, "bf16": 0.1}) and found.dram_gbs == pytest.approx(20)
    assert found.name == cpus.cpu_name() and found.threads == torch.get_num_threads()


def test_a_real_measurement_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "_GEMM_S", 1e-9)  # small matrices only
    monkeypatch.setattr(calibrate, "_ARRAY_LEAST", 1 << 20)
    monkeypatch.setattr(calibrate, "cache_bytes", lambda: None)
    assert main(["doctor", "--quick"]) == 0
    assert "-> pyprof doctor --calibrate" in capsys.readouterr().out
    assert main(["doctor", "--quick", "--calibrate"]) == 0
    kept = cpus.peak()
    assert kept is not None and kept.tflops["fp32"] > 0 and kept.dram_gbs > 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("CPU "))
    assert kept.name in line and f"{kept.tflops['fp32']:.3g} fp32" in line and f"{kept.dram_gbs:.3g} GB/s" in line


def test_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyprof").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "measure", lambda: CpuPeak("x", 1, {"fp32": 1.0}, 1.0))
    assert main(["doctor", "--quick", "--calibrate"]) == 1
    err = capsys.readouterr().err
    assert "cpu.json" in err and "hint: " in err
