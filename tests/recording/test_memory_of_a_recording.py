"""The allocator's history of a recording: what torch is asked for on a GPU, with a stand-in for torch.cuda."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pyprof.recording.memory import _History


@pytest.fixture
def observers(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """The observers that are attached to an allocator, which writes b"snapshot"."""
    found: list[Callable[..., Any]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **_: None)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: Path(path).write_bytes(b"snapshot"))
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", found.append, raising=False)
    return found


def test_a_snapshot_is_written_the_first_time_that_memory_runs_out(
    tmp_path: Path, observers: list[Callable[..., Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    history, trace = _History(), tmp_path / "net.json.gz"
    history.record(trace)
    history.record(trace)
    (ran_out,) = observers
    ran_out(0, 1 << 30, 1 << 34, 1 << 20)
    oom = tmp_path / "net.oom.pickle"
    assert oom.read_bytes() == b"snapshot" and f"memory ran out: pyprof memory {oom}" in capsys.readouterr().err
    oom.unlink()
    ran_out(0, 1 << 30, 1 << 34, 1 << 20)
    assert not oom.exists()
    assert history.dump(trace) == tmp_path / "net.memory.pickle"


def test_what_runs_out_after_the_recording_or_cannot_be_written_changes_nothing(
    tmp_path: Path, observers: list[Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = _History()
    history.record(tmp_path)
    history.dump(tmp_path / "step.json")
    observers[0](0, 1, 1, 0)
    assert [one.name for one in tmp_path.iterdir()] == ["step.memory.pickle"]
    history.record(tmp_path / "gone" / "net.json")
    observers[0](0, 1, 1, 0)  # there is no such folder
    monkeypatch.delattr(torch._C, "_cuda_attach_out_of_memory_observer")
    _History().record(tmp_path)  # a torch without it
