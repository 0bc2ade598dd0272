"""The ledger of steps on a GPU against what else is known there: `python -m scripts.gpu_check.ledger`, half a minute.

Checks of one program in this process: time on the device by events against torch.profiler's kernels, memory against torch's own
statistics, a graph captured in the middle, the cost of a step, and that no step waits for the device. Exit code 1 if one fails.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from pyprof.errors import ToolError
from pyprof.model.ledger import Ledger, read
from pyprof.recording.ledger import LedgerWriter

_STEPS = 200
_PROFILED = slice(100, 120)
_FLUSHED = 8  # steps after which the host waits for the device
_CAPTURED = (60, 61)  # a graph is captured from the middle of one step to that of the other


class Program:
    """A step is a chain of products that takes the device about a millisecond."""

    def __init__(self) -> None:
        self.left = torch.randn(2048, 2048, device="cuda")
        self.right = torch.randn(2048, 2048, device="cuda")

    def step(self) -> torch.Tensor:
        """Launch a step."""
        found = self.left
        for _ in range(8):
            found = found @ self.right
        return found


def run(path: Path, program: Program) -> tuple[Ledger, list[float]]:
    """A run with a ledger; (the ledger, [ns of all kernels of the profiled steps])."""
    writer = LedgerWriter(lambda: str(path), str, lambda text: sys.exit(text))
    kernels: list[float] = []
    graph = torch.cuda.CUDAGraph()
    profiler = profile(activities=[ProfilerActivity.CUDA])

    def between(number: int) -> None:
        if number not in (_PROFILED.start, _PROFILED.stop):
            return
        torch.cuda.synchronize()
        if number == _PROFILED.start:
            profiler.__enter__()
            return
        profiler.__exit__(None, None, None)
        events = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        kernels.append(sum(event.device_time_total for event in events) * 1e3)

    for number in range(_STEPS + 1):
        writer.mark("step", number, between=between)
        if number % _FLUSHED == 0:  # as a program that looks at its loss
            torch.cuda.synchronize()
        if number == _CAPTURED[0]:
            with torch.cuda.graph(graph):
                made = program.step()
                writer.mark("step", number + 1)
                made += 1
            graph.replay()
        elif number != _CAPTURED[1]:
            program.step()
    torch.cuda.synchronize()
    writer.end()
    found = read(path)
    assert found is not None
    return found, kernels


def checks(folder: Path) -> Iterator[tuple[bool, str]]:
    """(whether it holds, what was compared) of each check."""
    program = Program()
    program.step()
    torch.cuda.synchronize()
    found, (kernel_ns,) = run(folder / "net.steps.jsonl", program)
    device = found.device_ns[_PROFILED]
    known = device[device > 0]
    share = known.mean() * len(device) / kernel_ns
    good = len(known) >= len(device) / 10 and 0.98 < share < 1.1
    yield good, f"device time by events is {share:.3f} of torch.profiler's kernels"
    known_steps = int((found.device_ns >= 0).sum())
    captured = found.device_ns[list(_CAPTURED)].tolist()
    yield known_steps > _STEPS / 10 and max(captured) < 0, f"time on the device is known of {known_steps} of {len(found)} steps"
    peak, most = int(found.peak.max()), torch.cuda.max_memory_allocated()
    yield peak == most, f"memory at most: {peak:,} in the ledger, {most:,} by torch.cuda.max_memory_allocated"
    read_steps = int((found.allocated >= 0).sum())
    yield read_steps > _STEPS / 20, f"memory was read at {read_steps} of {len(found)} steps"
    yield from _cost(folder)


def _cost(folder: Path) -> Iterator[tuple[bool, str]]:
    """What a step costs the host, and whether it waits for a device that is far behind."""
    writer = LedgerWriter(lambda: str(folder / "cost.steps.jsonl"), str, lambda text: sys.exit(text))
    spent = []
    for number in range(3000):
        begin = time.perf_counter_ns()
        writer.mark("step", number)
        spent.append(time.perf_counter_ns() - begin)
    cost_us = float(np.mean(spent[100:])) / 1e3
    yield cost_us < 20, f"a step costs {cost_us:.1f} us, median {np.median(spent[100:]) / 1e3:.1f} us"
    torch.cuda.synchronize()
    torch.cuda._sleep(500_000_000)
    begin = time.perf_counter_ns()
    for number in range(3000, 3010):
        writer.mark("step", number)
    waited_ms = (time.perf_counter_ns() - begin) / 1e6
    yield waited_ms < 20, f"ten steps ahead of a busy device took {waited_ms:.2f} ms"
    torch.cuda.synchronize()
    writer.end()


def main() -> int:
    """Returns the exit code."""
    if not torch.cuda.is_available():
        raise ToolError("torch finds no GPU here", "tests/recording/test_ledger_writer.py needs none")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        outcomes = [*checks(Path(folder))]
    for holds, text in outcomes:
        print(f"{'pass' if holds else 'fail'}  {text}")
    return 0 if all(holds for holds, _ in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
