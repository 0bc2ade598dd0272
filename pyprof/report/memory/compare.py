"""Two memory reports -> where their peaks differ: bytes of each kind, layer, op, line and phase, before and after."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.report.memory.device import BY
from pyprof.report.memory.report import MemoryReport
from pyprof.tables.screen import joined, listed
from pyprof.tables.table import Header, Integers, Table
from pyprof.tables.units import mib


def head(before: MemoryReport, after: MemoryReport) -> Iterator[str]:
    """Lines about the peaks of both."""
    yield f"{before.file} -> {after.file}"
    for one, other in zip(before.devices, after.devices, strict=False):
        peaks = [mib(each.total) for each in (one, other)]
        change = (other.total or 0) - (one.total or 0)
        yield f"{one.name}: peak {peaks[0]} -> {peaks[1]} ({'+' if change >= 0 else '-'}{mib(abs(change))})"


def difference(before: MemoryReport, after: MemoryReport) -> Table:
    """In use at the peak by kind, layer, op, line and phase, the largest change first."""
    rows: dict[tuple[str, str, str | None], list[int]] = {}
    for at, report in enumerate((before, after)):
        for device in report.devices:
            for what in BY:
                for group in device.by(what):
                    rows.setdefault((device.name, what, group.name), [0, 0])[at] += group.bytes
    keys = sorted(rows, key=lambda key: (BY.index(key[1]), -abs(rows[key][1] - rows[key][0]), key[0], key[2] or ""))
    sizes = np.array([rows[key] for key in keys], np.int64).reshape(-1, 2)
    return joined("memory", [
        (Header("device", "Device", "GPU and its ordinal, or CPU", width=6), listed(key[0] for key in keys)),
        (Header("by", "By", "kind, layer, op, line or phase", width=5), listed(key[1] for key in keys)),
        (Header("name", "Name", "which", width=12, grow=True), listed(key[2] for key in keys)),
        (Header("before", "Before(B)", "in use at the peak of the first", "B", 10), Integers.known(sizes[:, 0])),
        (Header("after", "After(B)", "in use at the peak of the second", "B", 10), Integers.known(sizes[:, 1])),
        (Header("change", "Change(B)", "after less before", "B", 10), Integers.known(sizes[:, 1] - sizes[:, 0])),
    ])  # fmt: skip
