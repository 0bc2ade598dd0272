"""The instrumenter while other threads switch it, across forks, near the limit of recursion. All at once: scripts/checks/run
stress."""

import multiprocessing
import os
import sys
import threading

import pytest
import torch
from nvtx_recording import Recorder

from pyprof import nvtx as instrumenter
from pyprof.nvtx import api
from pyprof.nvtx.state import STATE


class Switching(Recorder):
    """Hands over to another recorder while a range of its own is being made, as another thread may do at any moment."""

    def __init__(self, other: Recorder) -> None:
        super().__init__()
        self.other = other

    def prepare(self, text: str) -> str:
        if "Tensor.mul" in text or "mul(" in text:
            instrumenter.init(backend=self.other)
        return super().prepare(text)


def test_a_range_is_opened_and_closed_by_the_recorder_that_made_it(recorder: Recorder) -> None:
    first = Switching(recorder)
    instrumenter.init(backend=first)
    recorder.clear()
    x = torch.ones(3)
    for _ in range(3):
        x.mul(2)
    assert first.open == recorder.open == 0
    assert len([text for text in first.texts if "mul(" in text]) == 1  # the one under way; the next are the other's
    assert recorder.ops() == ["Tensor.mul"] * 2


def test_a_recorder_that_is_changed_inside_an_op_leaves_no_range_open(recorder: Recorder) -> None:
    inner = Recorder()

    class Changing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            instrumenter.init(backend=inner)
            return x + 1

    recorder.clear()
    Changing()(torch.ones(2))
    assert recorder.open == inner.open == 0
    assert len(recorder.layers()) == 1 and inner.ops() == ["Tensor.__add__"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_forked_while_another_thread_switches_can_switch_too(recorder: Recorder) -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with api._lock, STATE._lock:
            held.set()
            over.wait()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    process = multiprocessing.get_context("fork").Process(target=_switch)
    process.start()
    process.join(60)
    over.set()
    other.join()
    code = process.exitcode
    process.kill()
    assert code == 0


def _switch() -> None:
    instrumenter.shutdown()
    instrumenter.init(backend=Recorder())
    torch.ones(3).mul(7)


@pytest.mark.filterwarnings("ignore:pyprof could not describe:RuntimeWarning")
def test_near_the_limit_of_recursion_a_call_gives_its_result_or_that_error(recorder: Recorder) -> None:
    x, depth, frame = torch.ones(3), 0, sys._getframe()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]

    def down(frames: int) -> torch.Tensor:
        return down(frames - 1) if frames else torch.add(x, 1)

    for left in range(60):
        try:
            result = down(sys.getrecursionlimit() - depth - left)
        except RecursionError:
            assert left < 40
        else:
            assert result.tolist() == [2, 2, 2]
    assert recorder.open == 0
    STATE.errors = 0  # calls that could not be described in what depth was left
