"""A process for what a capture names: what it crashes over, or does for ever, ends that process alone."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")

from pyprof.errors import PyprofError, ToolError, UsageError
from pyprof.model.opcall import UNKNOWN, OpCall, parse_call
from pyprof.timers.isolated import Isolated, TimingJob
from pyprof.timers.replay import OptimizerStep


class Crash:
    """Work that ends its process when it is looked at."""

    def __iter__(self) -> Iterator[OpCall]:
        os.kill(os.getpid(), signal.SIGSEGV)
        yield from ()


class Hang:
    """Work that never begins."""

    def __iter__(self) -> Iterator[OpCall]:
        time.sleep(1_000)
        yield from ()


def _job(work: Any) -> TimingJob:
    return TimingJob(work, "cpu", 0.001, False)


def _call(text: str) -> tuple[OpCall, ...]:
    return (parse_call(text, "aten", dispatcher=True),)


def test_a_process_measures_jobs_and_outlives_what_fails() -> None:
    with Isolated() as isolated:
        found = isolated.time(_job(_call("mm(fp32[4,5], fp32[5,6])")))
        assert found.device == "cpu" and len(found.times_s) >= 10 and found.launched == {"aten::mm": 1}
        assert isolated.time(_job(_call("sum(fp32[8,8], dim=[0])") + _call("relu(fp32[8])"))).launches == 2
        with pytest.raises(ToolError, match="cannot be run here"):
            isolated.time(_job(_call("mm(fp32[4,5], fp32[6,7])")))
        with pytest.raises(UsageError, match="cannot be run alone"):
            isolated.time(_job(_call('from_file("x")')))
        with pytest.raises(ToolError):  # 160 GB of result
            isolated.time(_job(_call("mm(fp32[200000,1], fp32[1,200000])")))
        parameters = _call("add(fp32[4,5], fp32[3])")[0].tensors
        for name, how in (("AdamW", "for-loop"), ("AdamW", "foreach"), ("AdamW", "fused"), ("SGD", "fused")):
            assert isolated.time(_job(OptimizerStep(name, how, tuple(parameters), 0.9 if name == "SGD" else 0.0))).times_s


@pytest.mark.slow
def test_a_crash_and_a_hang_end_the_process_alone() -> None:
    with Isolated() as isolated:
        with pytest.raises(ToolError, match="torch ended its process: SIGSEGV"):
            isolated.time(_job(Crash()))
        isolated.limit_s = 0.1
        with pytest.raises(ToolError, match="stopped after 0 s"):
            isolated.time(_job(Hang()))
        isolated.limit_s = 60
        assert isolated.time(_job(_call("gelu(fp32[8,8], ?)"))).times_s


def test_what_was_not_recorded_is_the_same_in_another_process() -> None:
    import pickle

    assert pickle.loads(pickle.dumps(_call("gelu(fp32[8,8], ?)")))[0].args[1] is UNKNOWN
    error = pickle.loads(pickle.dumps(ToolError("what", "hint")))
    assert isinstance(error, PyprofError) and (str(error), error.hint) == ("what", "hint")
