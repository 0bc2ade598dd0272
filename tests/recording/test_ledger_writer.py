"""The writer of the ledger: which marks end a step, what a device adds and when nothing is asked of it."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pyprof.model import ledger as model
from pyprof.recording import frames
from pyprof.recording import ledger as recording
from pyprof.recording.ledger import LedgerWriter
from pyprof.recording.marks import OtherMarks


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.steps.jsonl"


def _writer(path: Path, states: str = "") -> LedgerWriter:
    left = iter(states.split(","))
    return LedgerWriter(lambda: str(path), lambda: next(left, ""), pytest.fail)


def _read(path: Path) -> model.Ledger:
    found = model.read(path)
    assert found is not None
    return found


def test_a_line_a_step_with_what_is_known_of_it(path: Path) -> None:
    writer = _writer(path, "traced,recorded,")
    writer.mark("optimizer", 0)
    for number in (1, 2, 3):
        writer.mark("optimizer", number, number * 10)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 1, 2]  # there at once
    writer.end()
    found = _read(path)
    assert found.step.tolist() == [0, 1, 2] and found.ended.all()  # what follows the last optimizer's step is none
    assert found.traced.tolist() == [True, False, False] and found.recorded.tolist() == [False, True, False]
    assert found.tokens.tolist() == [-1, 10, 20]
    assert (found.begin_ns[1:] >= (found.begin_ns + found.wall_ns)[:-1]).all()


def test_our_own_work_between_two_steps_is_in_none_of_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 10))
    monkeypatch.setattr(recording, "perf_counter_ns", lambda: next(clock))
    writer = _writer(path)
    for number in range(4):
        writer.mark("step", number, between=lambda number: [next(clock) for _ in range(100 * (number == 2))])
    writer.end()
    found = _read(path)
    assert found.wall_ns.tolist() == [10, 10, 10, 10] and found.ended.tolist() == [True, True, True, False]
    assert (found.begin_ns[1:] - found.begin_ns[:-1]).tolist() == [20, 1020, 20]


def test_a_mark_of_a_higher_kind_takes_over(path: Path) -> None:
    writer = _writer(path)
    writer.mark("optimizer", 0)  # counting starts
    writer.next("loader")
    writer.next("loader")
    writer.mark("optimizer", 1)
    writer.next("loader")
    writer.mark("optimizer", 2)
    found = _read(path)
    assert found.by == "optimizer" and found.step.tolist() == [0, 1] and found.begin_ns[0] == 0


@pytest.mark.parametrize(("compiles", "trains"), [(False, False), (True, False), (False, True)])
def test_calls_of_the_model_are_steps_where_nothing_else_is(
    compiles: bool, trains: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is what is called twice from outside of any module; an error in it has no frame of ours."""
    monkeypatch.setattr(frames, "at_first_use", [])
    model, other, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Linear(4, 4), torch.ones(2, 4)
    plain, writer = nn.Module._call_impl, _writer(path)
    marks = OtherMarks(writer)
    marks.start()
    writer.mark("optimizer", 0)
    for number in range(1, 6):
        model(other(x) if number == 1 else x)
        if compiles and number == 3:
            frames.at_first_use[0]()
        if trains:
            writer.mark("optimizer", number)
        if number > 1:
            assert nn.Module._call_impl is plain and ("_call_impl" in vars(nn.Sequential)) != (
                trains or (compiles and number > 2)
            )
    with pytest.raises(RuntimeError) as raised:
        model(torch.ones(3))
    assert "marks.py" not in str([entry.path for entry in raised.traceback])
    marks.stop()
    writer.end()
    found = _read(path)
    assert "_call_impl" not in vars(nn.Sequential) and nn.Module._call_impl is plain
    assert found.by == "optimizer" if trains else found.by == "module"
    assert found.step.tolist() == ([0, 1, 2, 3, 4] if trains else [1, 2] if compiles else [1, 2, 3, 4, 5])


def test_an_exhausted_loader_begins_no_step(path: Path) -> None:
    writer = _writer(path)
    for _ in range(3):
        writer.next("loader")
    writer.exhausted()
    writer.end()
    assert _read(path).step.tolist() == [0, 1]


def test_only_the_thread_that_marks_steps_counts(path: Path) -> None:
    writer = _writer(path)
    writer.mark("step", 0)
    thread = threading.Thread(target=writer.mark, args=("step", 1))
    thread.start()
    thread.join()
    assert not path.exists()
    writer.mark("step", 1)
    assert _read(path).step.tolist() == [0]


def test_a_file_that_the_program_closed_is_not_written_to(path: Path, tmp_path: Path) -> None:
    said: list[str] = []
    writer = LedgerWriter(lambda: str(path), lambda: "", said.append)
    for number in range(3):
        writer.mark("step", number)
    os.close(writer._file)
    other = os.open(tmp_path / "of the program", os.O_WRONLY | os.O_CREAT)
    assert other == writer._file
    for number in range(3, 6):
        writer.mark("step", number)
    os.close(other)
    assert said == ["the ledger of steps ends at step 2: its file was closed"]
    assert not (tmp_path / "of the program").read_bytes() and _read(path).step.tolist() == [0, 1]


class _Cuda:
    """A device that finishes each step `late` steps after the host; every event lies 1 ms after the one before."""

    def __init__(self, late: int) -> None:
        self.marks, self.late, self.capturing = 0, late, False
        self.stats = {name: {"all": {"current": 5, "peak": 9}} for name in ("allocated_bytes", "reserved_bytes")}
        self.memory = self
        cuda = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                assert not cuda.capturing
                cuda.marks += 1
                self.at = cuda.marks

            def query(self) -> bool:
                assert not cuda.capturing
                return self.at + cuda.late <= cuda.marks

            def elapsed_time(self, end: Any) -> float:
                assert self.query() and end.query()
                return float(end.at - self.at)

        self.Event = Event

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def current_device(self) -> int:
        return 0

    def memory_stats_as_nested_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        return self.stats


@pytest.mark.parametrize(("late", "known"), [(0, 29), (3, 26), (15, 14), (16, 13), (40, 0)])
def test_a_time_on_the_device_is_read_when_it_is_there(
    path: Path, monkeypatch: pytest.MonkeyPatch, late: int, known: int
) -> None:
    device = recording._Device(_Cuda(late))
    for name in ("_EVENTS_NS", "_OWN_NS"):
        monkeypatch.setattr(recording, name, 10**12)
    monkeypatch.setattr(recording._Device, "found", staticmethod(lambda: device))
    writer = _writer(path)
    for number in range(30):
        writer.mark("step", number)
    times = _read(path).device_ns.tolist()
    assert times == [1_000_000] * known + [-1] * (29 - known)
    lines = path.read_text().splitlines()
    assert len(lines) == 29 + known and len({json.loads(line)["step"] for line in lines}) == 29


def test_events_that_take_long_are_those_of_some_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = recording._Device(_Cuda(0))
    monkeypatch.setattr(recording._Device, "found", staticmethod(lambda: device))
    turns = iter([0, 0, 3, 0, 0, 0, 0, 0])  # after its third step events are said to take three times too long
    turn = device.turn

    def told() -> bool:
        device._marking_ns = next(turns) * recording._EVENTS_NS
        return turn()

    monkeypatch.setattr(device, "turn", told)
    writer = _writer(path)
    for number in range(8):
        writer.mark("step", number)
    assert [time > 0 for time in _read(path).device_ns.tolist()] == [True, True, True, False, False, True, True]


def test_nothing_is_asked_of_cuda_while_a_stream_is_captured(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = _Cuda(0)
    device = recording._Device(cuda)
    monkeypatch.setattr(recording._Device, "found", staticmethod(lambda: device))
    monkeypatch.setattr(recording, "_READING_NS", 10**12)
    monkeypatch.setattr(recording, "_EVENTS_NS", 10**12)
    writer = _writer(path)
    for number in range(6):
        cuda.capturing = number in (2, 3)
        if number == 4:
            cuda.stats["allocated_bytes"]["all"]["peak"] = 7  # the program has reset it
        writer.mark("step", number)
    found = _read(path)
    assert found.device_ns.tolist() == [1_000_000, -1, -1, -1, 1_000_000]
    assert found.peak.tolist() == [9] * 5 and found.allocated.tolist() == [5] * 5
