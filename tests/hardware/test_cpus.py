"""What was measured of this CPU is kept for this CPU, and a damaged file is as none."""

import json
from pathlib import Path

import pytest

from pyprof.hardware import cpus
from pyprof.hardware.cpus import CpuPeak


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_it_is_kept_for_this_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpus.peak() is None
    measured = CpuPeak(cpus.cpu_name(), 2, {"fp32": 0.2, "bf16": 1.5}, 21.5)
    assert cpus.save(measured) == tmp_path / "pyprof" / "cpu.json" and cpus.peak() == measured
    assert [path.name for path in (tmp_path / "pyprof").iterdir()] == ["cpu.json"]
    monkeypatch.setattr(cpus, "cpu_name", lambda: "another")
    assert cpus.peak() is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"name": "x"}', '{"name": "NAME", "tflops": [], "dram_gbs": 1}', "[" * 100_000]
    + [
        json.dumps({"name": "NAME", "tflops": {"fp32": rate}, "dram_gbs": gbs})
        for rate, gbs in [("a", 1), (0, 1), (1, -1), (1, None), (float("nan"), 1), (1, float("inf")), ([], 1), (10**400, 1)]
    ],
)
def test_a_damaged_file_is_as_none(text: str) -> None:
    path = cpus.cache_path()
    path.parent.mkdir()
    path.write_text(text.replace("NAME", cpus.cpu_name()))
    assert cpus.peak() is None


def test_what_is_left_out_is_unknown() -> None:
    path = cpus.cache_path()
    path.parent.mkdir()
    path.write_text(json.dumps({"name": cpus.cpu_name(), "tflops": {"fp32": 1}, "dram_gbs": 2}))
    assert cpus.peak() == CpuPeak(cpus.cpu_name(), 0, {"fp32": 1.0}, 2.0)


def test_a_relative_cache_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cpus.cache_path() == tmp_path / ".cache" / "pyprof" / "cpu.json"


def test_the_name(tmp_path: Path) -> None:
    (tmp_path / "info").write_text("processor : 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name : other\n")
    assert cpus.cpu_name(str(tmp_path / "info")) == "Some CPU @ 2 GHz"
    assert cpus.cpu_name(str(tmp_path / "none"))
