"""Counter events of a torch.profiler trace -> measured launches, and samples of the whole device.

Torch up to CUDA 12.6 wrote a `cuda_profiler_range` for each launch, in order of launch, with invented times; newer versions
write `hardware_counters`: the counts of a device since the sample before. Knows nothing of what metrics mean.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pyprof.model.trace import Samples, integer
from pyprof.parse.sources.kineto.events import Event, nanoseconds

if TYPE_CHECKING:
    from pyprof.parse.sources.measured.launches import Launch, Measured

_NO_NAME = "__missing__"


class CounterEvents:
    """Collects both kinds, block by block."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, Launch, dict[str, float]]] = []
        self._samples: list[tuple[int, int, str, float]] = []

    def add_ranges(self, events: list[Event]) -> None:
        """`cuda_profiler_range` events; the device is their pid."""
        from pyprof.parse.sources.measured.launches import Launch  # few traces have counters

        moments = nanoseconds([event.ts for event in events]).tolist()
        for event, when in zip(events, moments, strict=True):
            name = "" if event.name == _NO_NAME else event.name
            self._ranges.append((when, Launch(name, device=_ordinal(event.pid)), _numbers(event)))

    def add_samples(self, events: list[Event]) -> None:
        """Events of phase C; only hardware counters count."""
        events = [event for event in events if event.cat == "hardware_counters"]
        for event, when in zip(events, nanoseconds([event.ts for event in events]).tolist(), strict=True):
            self._samples += [(when, _ordinal(event.pid), event.name, value) for value in _numbers(event).values()]

    def measured(self, gpus: dict[int, str]) -> Measured | None:
        """The launches in order of time; None if none was measured. gpus: names of devices."""
        if not self._ranges:
            return None
        from pyprof.parse.sources.measured.launches import Builder

        builder = Builder()
        for _, launch, values in sorted(self._ranges, key=lambda one: one[0]):
            row = builder.launch(launch)
            for metric, value in values.items():
                builder.put(row, metric, value)
        return builder.built("torch.profiler", gpus)

    def samples(self) -> Samples | None:
        """All samples; None if there are none."""
        if not self._samples:
            return None
        times, devices, names, values = zip(*sorted(self._samples), strict=True)
        code = {name: number for number, name in enumerate(dict.fromkeys(names))}
        metric = np.array([code[name] for name in names], np.int64)
        return Samples(np.array(times, np.int64), np.array(devices, np.int64), metric, np.array(values), list(code))


def _ordinal(pid: int | str) -> int:
    """The device in `GPU 0 Counters`, or in a number; -1 unknown."""
    found = re.search(r"\d+", pid) if isinstance(pid, str) else None
    return pid if isinstance(pid, int) else integer(found[0]) if found else -1


def _numbers(event: Event) -> dict[str, float]:
    """The values of an event by name; the only name of a sample is empty."""
    try:
        found = msgspec.json.decode(bytes(event.args), type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return {
        key: float(value) for key, value in found.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
