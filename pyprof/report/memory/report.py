"""A recording of allocations -> the report of `pyprof memory`: figures as JSON, the screen as text."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyprof.model.allocations import CPU, AllocationTrace
from pyprof.report.memory.advice import advice_of
from pyprof.report.memory.device import BY, DeviceMemory
from pyprof.report.memory.screen import lines
from pyprof.report.summary.styled import Line, plain

SCHEMA = 1


class MemoryReport:
    """The memory of one recording and what holds it: printed it is the screen, `.json()` is everything."""

    def __init__(self, file: str, trace: AllocationTrace, at: str = "peak") -> None:
        self.file, self.source = file, trace.source
        self.devices: Sequence[DeviceMemory] = [DeviceMemory(one, at) for one in trace.devices]

    def to_dict(self) -> dict[str, object]:
        """All figures: `{"schema": 1, "file", "devices": [...]}`; bytes by requested size, None where unknown."""
        return {"schema": SCHEMA, "file": self.file, "devices": [*map(_figures, self.devices)]}

    def json(self) -> str:
        """As `to_dict`, as a text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)

    def lines(self, width: int = 100, command: str = "") -> list[Line]:
        """The screen. command: lists the blocks behind it."""
        return lines(self.file, self.source, self.devices, width, command)

    def __str__(self) -> str:
        return plain(self.lines())

    __repr__ = __str__


def _figures(device: DeviceMemory) -> dict[str, object]:
    largest = {"max_allocated_bytes": device.replay.largest(1), "max_reserved_bytes": device.replay.largest(2)}
    known = len(device.trace) > 0
    peak = device.state(device.replay.peak if known else -1) | (largest if known else dict.fromkeys(largest))
    return {
        "device": "cpu" if device.trace.device == CPU else device.trace.device,
        "pid": device.trace.pid if device.trace.pid >= 0 else None,
        "events": len(device.trace),
        "relative": device.replay.relative,
        "peak": peak,
        "at": device.state(device.moment),
        "end": device.end,
        "by": {what: [one._asdict() for one in device.by(what)] for what in BY},
        "oom": [one._asdict() for one in device.oom],
        "steps": [one._asdict() for one in device.steps],
        "advice": [one._asdict() for one in advice_of(device)],
        "notes": device.notes,
    }
