"""pyprof.recording.torchprof: the schedule against torch's own, and the files that are written."""

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.errors import ToolError, UsageError
from pyprof.loading.load import open_trace
from pyprof.model.markers import Kind
from pyprof.recording.torchprof import ChosenSteps, Schedule, _cuda_is_there, capture, schedule
from tests.conftest import ROOT

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def work() -> Any:
    return torch.ones(2, 3) @ torch.ones(3, 4)


@given(st.integers(0, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3))
@example(wait=1, warmup=2, active=3, repeat=2, skip=3)
@example(wait=0, warmup=1, active=1, repeat=0, skip=0)
def test_the_schedule_is_torchs(wait: int, warmup: int, active: int, repeat: int, skip: int) -> None:
    theirs = torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip)
    ours = schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip=skip)
    assert [ours.action(step) for step in range(40)] == [theirs(step).name for step in range(40)]
    assert theirs(ours.first).name.startswith("RECORD") and not theirs(ours.first - 1).name.startswith("RECORD")


def test_chosen_windows_each_have_a_step_that_warms_up() -> None:
    chosen = ChosenSteps(((2, 4), (4, 5), (7, 8)))
    assert [chosen.action(step) for step in range(9)] == [
        *("NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "RECORD_AND_SAVE", "NONE", "WARMUP", "RECORD_AND_SAVE", "NONE")
    ]
    assert ChosenSteps(((0, 1),)).action(0) == "RECORD_AND_SAVE"


@pytest.mark.parametrize("wrong", [{"active": 0}, {"wait": -1}, {"warmup": -1}, {"repeat": -1}, {"skip": -1}])
def test_a_schedule_that_records_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        schedule(**wrong)


def test_each_cycle_has_a_file_and_a_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Path] = []
    with capture(tmp_path / "net", schedule=schedule(wait=1, active=2, repeat=2), on_trace=seen.append) as p:
        for _ in range(9):
            work()
            p.step()
    assert [path.name for path in p.traces] == ["rank0_step4.json.gz", "rank0_step8.json.gz"] and seen == p.traces
    tables = [path.with_name(path.name.replace(".json.gz", ".txt")) for path in p.traces]
    assert sorted((tmp_path / "net").iterdir()) == sorted([*p.traces, *tables])
    err = capfd.readouterr().err
    for path, table in zip(p.traces, tables, strict=True):
        text = table.read_text()
        (row,) = [line.split() for line in text.splitlines() if " matmul " in line]
        assert row[2:] == ["2", "forward", "matmul", "M=2,N=4,K=3,fp32"]
        assert text.endswith(f"all kernels: python -m pyprof.prof -w 150 {path}\n") and f"{table}:\n{text}" in err
    steps = [sorted(m.step for m in open_trace(path).markers if m.kind == Kind.STEP) for path in p.traces]
    assert steps == [[2, 3], [6, 7]]


@pytest.mark.parametrize("name", ["one.json", "one.json.gz"])
def test_one_file_without_a_schedule_holds_everything(tmp_path: Path, name: str) -> None:
    with capture(tmp_path / "new" / name, stacks=False, table=0) as p:
        for _ in range(2):
            work()
            p.step()
    trace = open_trace(tmp_path / "new" / name)
    # The last is what came after the last step().
    assert sorted(m.step for m in trace.markers if m.kind == Kind.STEP) == [0, 1, 2]
    (mm,) = [m for m in trace.markers if m.name == "aten::mm"]
    assert str(mm.call) == "mm(fp32[2,3], fp32[3,4])"
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]
    assert any("with_stack" in note for note in trace.notes)


def test_the_rank_is_the_launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    with capture(tmp_path, stacks=False, table=0) as p:
        work()
    assert [path.name for path in p.traces] == ["rank3_step0.json.gz"]
    assert open_trace(p.traces[0]).processes["rank"].tolist() == [3]


def test_a_program_that_ends_early_keeps_what_was_recorded(tmp_path: Path) -> None:
    with capture(tmp_path, schedule=schedule(active=5), stacks=False, table=0) as p:
        for _ in range(3):
            work()
            p.step()
    assert [path.name for path in p.traces] == ["rank0_step3.json.gz"]


def test_nothing_captured_is_said(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"step\(\) was called 1 times and the schedule records from step 7 on"):
        with capture(tmp_path, schedule=schedule(wait=5)) as p:
            p.step()
    assert p.traces == [] and list(tmp_path.iterdir()) == []


def test_the_users_exception_passes_through(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"), capture(tmp_path, stacks=False, table=0) as p:
        work()
        raise KeyError("mine")
    assert len(p.traces) == 1


def test_a_trace_that_cannot_be_written_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="could not be written"):
        with capture(tmp_path / "file" / "net", stacks=False, table=0) as p:
            result = work()
    assert p.traces == [] and result.shape == (2, 4)


def test_one_file_cannot_hold_two_cycles(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several cycles"):
        capture(tmp_path / "t.json", schedule=Schedule(repeat=2))


def test_a_later_recording_ends_this_one_and_is_whole(tmp_path: Path) -> None:
    starters = [torch.autograd.profiler._prepare_profiler, torch.autograd.profiler._enable_profiler]
    with pytest.warns(RuntimeWarning, match="another recording by torch.profiler began"):
        with capture(tmp_path / "t.json", stacks=False, table=0) as p:
            work()
            p.step()
            with torch.profiler.profile() as theirs:
                work()
                torch.relu(torch.ones(3))
            p.step()
    assert p.gave_way and p.steps == 2 and {event.key for event in theirs.key_averages()} >= {"aten::mm", "aten::relu"}
    names = [m.name for m in open_trace(tmp_path / "t.json").markers]
    assert names.count("aten::mm") == 1 and "aten::relu" not in names
    assert starters == [torch.autograd.profiler._prepare_profiler, torch.autograd.profiler._enable_profiler]


def test_the_recording_of_the_program_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(RuntimeWarning, match="another recording"):
        with capture(tmp_path / "run.json", stacks=False, table=0) as outer:
            monkeypatch.setattr(type(outer), "program", outer)
            work()
            with capture(tmp_path / "own.json", stacks=False, table=0):
                work()
    assert all((tmp_path / name).exists() for name in ("run.json", "own.json"))


def test_two_recordings_at_once_are_refused(tmp_path: Path) -> None:
    with torch.profiler.profile(), pytest.raises(ToolError, match="already"), capture(tmp_path / "t.json"):
        pytest.fail("the second recording began")


def test_the_ops_of_every_thread_are_recorded(tmp_path: Path) -> None:
    with capture(tmp_path / "t.json", stacks=False, table=0):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [str(m.call) for m in open_trace(tmp_path / "t.json").markers if m.name == "aten::mm"] == [
        "mm(fp32[2,3], fp32[3,4])"
    ]


def test_where_torch_computes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with capture(tmp_path, stacks=False) as p:
        sum(range(1000))
    assert (tmp_path / "rank0_step0.txt").read_text().startswith("no table: ")
    assert "no table: " in capfd.readouterr().err and len(p.traces) == 1


def test_another_rank_shows_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    with capture(tmp_path, stacks=False):
        work()
    assert " matmul " in (tmp_path / "rank1_step0.txt").read_text() and "Time(ms)" not in capfd.readouterr().err


def test_asking_for_a_gpu_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: asked.append(os.environ.get(name)))
    for before in ("0", None):
        monkeypatch.setenv(name, "0") if before else monkeypatch.delenv(name)
        _cuda_is_there()
        assert os.environ.get(name) == before
    assert asked == ["1", "1"]


def test_each_window_begins_when_the_gpu_has_finished_what_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else kernels would be in the trace whose launches are not."""
    waited: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(recording.steps))
    recording = capture(tmp_path / "net", schedule=schedule(wait=1, warmup=1, active=2, repeat=2), table=0)
    with recording:
        for _ in range(9):
            work()
            recording.step()
    assert waited == [2, 6]


_QUADRANTS = """
import sys
import numpy as np, quadrants as qd, pyprof

qd.init(arch=qd.cpu, cpu_max_num_threads=1, offline_cache=False)

@qd.kernel
def saxpy(x: qd.types.NDArray[qd.f32, 1], y: qd.types.NDArray[qd.f32, 1]):
    for i in range(x.shape[0]):
        y[i] = 2.0 * x[i] + y[i]

def advance(x, y):
    saxpy(x, y)

x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
with pyprof.capture(sys.argv[1], schedule=pyprof.schedule(skip=2, wait=1, warmup=1, active=2), table=0) as capture:
    for _ in range(8):
        advance(x, y)
        capture.step()
assert y[0] == 16 and len(capture.traces) == 1
"""


@pytest.mark.slow
def test_a_program_of_quadrants_by_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It launches nothing by torch: its steps and the host's Python frames are recorded, and no op."""
    pytest.importorskip("quadrants", reason="needs quadrants")
    program = tmp_path / "simulation.py"
    program.write_text(_QUADRANTS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, str(program), str(tmp_path / "out")], env=environment, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    file = tmp_path / "out" / "rank0_step6.json.gz"
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    steps = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "user_annotation"]
    assert [name for name, _, _ in steps] == ["ProfilerStep#4", "ProfilerStep#5"]
    calls = [e for e in events if e.get("cat") == "python_function" and e["name"].endswith(": advance")]
    assert [any(begin <= e["ts"] <= end for _, begin, end in steps) for e in calls] == [True, True]
    assert any("quadrants/lang/kernel.py" in e["name"] for e in events if e.get("cat") == "python_function")
    assert main(["gaps", str(file)]) == 1
    assert "neither GPU activity nor ranges of ops" in (error := capsys.readouterr().err) and "ui.perfetto.dev" in error
