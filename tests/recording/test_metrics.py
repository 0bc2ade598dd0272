"""Hardware metrics asked of torch.profiler: which way each torch has, without a GPU."""

import json
from pathlib import Path

import pytest
import torch

import pyprof
from pyprof.cli import main
from pyprof.errors import ToolError
from pyprof.recording.metrics import measuring, sampling

METRICS = ["dram__bytes_read.sum", "dram__bytes_write.sum"]


def test_old_builds_count_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    found = measuring(METRICS, per_kernel=True)
    assert found.activity == torch.profiler.ProfilerActivity.CUDA
    assert found.options == {"profiler_metrics": METRICS, "profiler_measure_per_kernel": True}
    assert found.how == "counting 2 metrics of each launch, in place of the times of kernels"
    assert "as a whole" in measuring(METRICS, per_kernel=False).how


def test_new_releases_sample_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.profiler, "PerformanceMetricsConfig", lambda **options: ("sampling", options), raising=False)
    monkeypatch.setattr(torch.profiler, "ProfilerActivityConfig", lambda **options: ("activity", options), raising=False)
    found = measuring(METRICS[:1], per_kernel=True)
    expected = ("activity", {"profiler_configs": [("sampling", {"metric_names": METRICS[:1]})]})
    assert found.activity == {torch.profiler.ProfilerActivity.CUDA: expected} and not found.options
    assert found.how.startswith("sampling 1 metric of the whole device")


@pytest.mark.parametrize("cuda", [None, "12.8"])
def test_where_neither_is_there_ncu_is_named(monkeypatch: pytest.MonkeyPatch, cuda: str | None) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(ToolError, match="can neither count nor sample") as caught:
        measuring(METRICS, per_kernel=True)
    assert caught.value.hint.startswith("ncu --csv") and ",".join(METRICS) in caught.value.hint


def test_a_recording_says_so_before_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    with pytest.raises(ToolError, match="neither count"), pyprof.capture(path, metrics=METRICS, per_kernel=True):
        pass
    assert not path.exists()


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_metrics_reach_torchs_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    seen: dict[str, object] = {}
    original = torch._C._profiler._ExperimentalConfig

    def spying(**options: object) -> object:
        seen.update(options)
        return original(profile_all_threads=True)

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", spying)
    path = tmp_path / "net.json"
    with pyprof.capture(path, metrics=METRICS, table=0):
        torch.ones(2).add(1)
    assert seen["profiler_metrics"] == METRICS and seen["profiler_measure_per_kernel"] is True
    assert json.loads(path.read_text())["traceEvents"]


def test_run_refuses_before_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("open('ran', 'w')\n")
    assert main(["run", "--metrics", METRICS[0], "net.py"]) == 1
    assert "can neither count nor sample" in capsys.readouterr().err
    assert main(["run", "--tool", "nsys", "--metrics", METRICS[0], "net.py"]) == 2
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("option", ["--gpu-metrics-device", "--gpu-metrics-devices", ""])
def test_nsys_samples_by_the_option_that_it_has(tmp_path: Path, option: str) -> None:
    nsys = tmp_path / "nsys"
    nsys.write_text(f"#!/bin/sh\necho '\t{option}='\n")
    nsys.chmod(0o755)
    if option:
        assert sampling(str(nsys)) == f"{option}=all"
        return
    with pytest.raises(ToolError, match="does not sample"):
        sampling(str(nsys))


@pytest.mark.parametrize("words", [["nsys", "sm__x"], ["torch", "all"], ["auto", "all,sm__x"]])
def test_metrics_are_by_name_or_nsyss_own(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--tool", words[0], "--metrics", words[1], __file__]) == 2
    assert "nsys samples a set of metrics of its own" in capsys.readouterr().err
