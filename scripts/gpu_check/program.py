"""One network of the check in a process of its own: `python -m scripts.gpu_check.program NETWORK WAY FACTS [CAPTURE]`.

Runs STEPS steps, of which those of WINDOW are recorded, and writes what it measured without a profiler's help as JSON to FACTS:
the time of each step by CUDA events (on the CPU by its clock). WAY: measure (no recording: FLOPs by torch's counter, the device
and the step's time alone), plain (the tool outside records: `pyprof run`), capture, profile, emit_nvtx. Reads no capture.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import pyprof
from scripts.gpu_check.networks import NETWORKS, Network
from scripts.gpu_check.ways import STEPS, WINDOW

_SLEEP_CYCLES = 200_000_000  # about a tenth of a second, in which the host launches a whole step


class Clock:
    """The time of each step, on the device by events, on a CPU by its clock."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        """The begin or the end of a step."""
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())

    def steps_ns(self) -> list[int]:
        """Of each pair of marks."""
        pairs = zip(self._marks[::2], self._marks[1::2], strict=True)
        if not self._on_gpu:
            return [end - begin for begin, end in pairs]
        torch.cuda.synchronize()
        return [round(begin.elapsed_time(end) * 1e6) for begin, end in pairs]


def run(network: Network, device: str, recording: Any) -> dict[str, object]:
    """Make the network and run its steps, recorded; recording gives a function to call as a step begins."""
    clock = Clock(device)
    with recording as begins:
        work = network.make(device)
        for number in range(STEPS):
            begins(number)
            clock.mark()
            work.step()
            clock.mark()
    return {"steps_ns": clock.steps_ns()}


@contextmanager
def plain() -> Iterator[Callable[[int], object]]:
    """Whoever started this process records."""
    yield pyprof.step


@contextmanager
def capture(path: str, whole: bool) -> Iterator[Callable[[int], object]]:
    """`with pyprof.capture`: torch.profiler."""
    schedule = None if whole else pyprof.schedule(wait=WINDOW[0] - 1, warmup=1, active=WINDOW[1] - WINDOW[0])
    with pyprof.capture(path, schedule=schedule, table=0) as recorder:
        yield lambda number: recorder.step() if number else None


@contextmanager
def profile(whole: bool) -> Iterator[Callable[[int], object]]:
    """`with pyprof.profile`, under nsys or ncu."""
    with pyprof.profile(None if whole else WINDOW):
        yield pyprof.step


@contextmanager
def emit_nvtx(whole: bool) -> Iterator[Callable[[int], object]]:
    """pyprof's ranges and torch's, switched on by hand as the help says, under nsys."""
    pyprof.init()
    emit = torch.autograd.profiler.emit_nvtx(record_shapes=True)

    def begin() -> None:
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        emit.__enter__()

    def end() -> None:
        emit.__exit__(None, None, None)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()

    def begins(number: int) -> None:
        if not whole and number in WINDOW:
            (begin if number == WINDOW[0] else end)()
        pyprof.step(number)

    if whole:
        begin()
    yield begins
    if whole:
        end()
    pyprof.shutdown()


def measure(network: Network, device: str) -> dict[str, object]:
    """FLOPs of a step by torch's counter, times of steps that nothing records, and the device."""
    work, clock = network.make(device), Clock(device)
    for _ in range(WINDOW[0]):
        work.step()
    for _ in range(STEPS):
        clock.mark()
        work.step()
        clock.mark()
    found: dict[str, object] = {"steps_ns": clock.steps_ns(), "torch": torch.__version__, "gpu": "", "cc": None}
    if device == "cuda":
        hip = torch.version.hip is not None
        found |= {"queued_ns": queued_ns(work.step), "gpu": torch.cuda.get_device_name(), "hip": hip}
        found["cc"] = None if hip else torch.cuda.get_device_capability()
    with FlopCounterMode(display=False) as counter:
        work.eager()
    return {**found, "flops": counter.get_total_flops() - network.masked_flops}


def queued_ns(step: Callable[[], object]) -> int:
    """A step's time on a GPU that finds all its kernels in the queue: launches cost nothing in it."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(_SLEEP_CYCLES)
    begin.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return int(begin.elapsed_time(end) * 1e6)


def main() -> None:
    """Run one network in one way."""
    name, way, facts, *path = sys.argv[1:]
    network, device = NETWORKS[name], "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on a CPU the ops are so small that threads would only wait for each other
    whole = network.runs_before > 0
    if way == "measure":
        found = measure(network, device)
    elif way == "capture":
        found = run(network, device, capture(path[0], whole))
    else:
        recording = plain() if way == "plain" else profile(whole) if way == "profile" else emit_nvtx(whole)
        found = run(network, device, recording)
    Path(facts).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
