"""Readings -> a timeline as Chrome JSON, one track a lane, alone or inside a trace of torch.profiler. Prints nothing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.columns.types import Floats
from pyprof.errors import InputError, UsageError
from pyprof.tables.files import whole_text_file
from pyprof.timers.readings import Readings


def begins(readings: Readings) -> Floats:
    """When each reading began, in ns; where that was not recorded, one after another in its lane."""
    if not np.isnan(readings.start_ns).any():
        return readings.start_ns
    ends = np.cumsum(readings.ns)
    first = np.flatnonzero(np.diff(readings.lane, prepend=-1))
    before = np.append(0.0, ends)[first]
    start: Floats = ends - readings.ns - np.repeat(before, np.diff(first, append=len(ends)))
    return start


def notes(readings: Readings) -> list[str]:
    """Notes for a reader of the timeline."""
    if np.isnan(readings.start_ns).any():
        return ["the begins of blocks were not recorded: in each lane they are drawn one after another"]
    return [] if readings.together else ["each lane has a clock of its own: only blocks of one lane can be compared"]


def events(readings: Readings, origin_us: float = 0.0) -> Iterator[dict[str, object]]:
    """Complete events in us from `origin_us`. Raises UsageError if the clock is not calibrated."""
    if np.isnan(readings.ns).any():
        raise UsageError("a timeline needs times, and the clock is not calibrated", "give --hz, ticks a second")
    columns = (readings.block, readings.iteration, readings.lane, readings.ticks, readings.ns, begins(readings))
    for block, iteration, lane, ticks, ns, start in zip(*(column.tolist() for column in columns), strict=True):
        process, thread = readings.lanes[lane]
        kernel, name = readings.names[block]
        args = {"iteration": iteration, "ticks": ticks}
        place = {"pid": process, "tid": thread, "ts": origin_us + start / 1e3, "dur": ns / 1e3}
        yield {"ph": "X", "cat": "block_timer", "name": name, **place, "args": {**args, "kernel": kernel} if kernel else args}


def write(readings: Readings, output: Path, into: Path | None = None) -> None:
    """Write the timeline; into: a trace of torch.profiler whose events come first.

    There it begins with the first launch of the timed kernel. Raises InputError if the trace cannot be read,
    UsageError if it has no such kernel.
    """
    trace: dict[str, Any] = {"displayTimeUnit": "ns", "traceEvents": []} if into is None else _read(into)
    origin_us = 0.0
    if into is not None:
        kernels = {kernel for kernel, _ in readings.names if kernel}
        launched = [one for one in trace["traceEvents"] if isinstance(one, dict) and one.get("cat") == "kernel" and "ts" in one]
        begins_us = [float(one["ts"]) for one in launched if one.get("name") in kernels]
        if not begins_us:
            named = ", ".join(sorted(kernels)) or "a kernel of unknown name"
            raise UsageError(f"{into}: has no launch of {named}", "name the kernel as the trace does: --kernel NAME")
        origin_us = min(begins_us)
    trace["traceEvents"] += events(readings, origin_us)
    with whole_text_file(output, [into] if into is not None else []) as stream:
        json.dump(trace, stream)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        trace = json.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as a trace: {error}", "give a trace of torch.profiler (.json, .json.gz)"
        ) from error
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise InputError(f"{path}: holds no trace events", "give a trace of torch.profiler (.json, .json.gz)")
    return trace
