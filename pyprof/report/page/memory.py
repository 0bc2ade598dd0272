"""Devices of a memory report -> the page's chart of memory over time by kind, phase, layer and line, and the blocks behind it.

A column stands for the moment of most memory in its part of the recording; sizes are bytes, by requested size where it is
known. The number of columns and blocks does not grow with the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, largest
from pyprof.columns.types import Ints
from pyprof.model.allocations import Action, AllocationSite
from pyprof.report.memory.advice import MemoryAdvice, advice_of, short
from pyprof.report.memory.device import DeviceMemory
from pyprof.report.memory.kinds import KINDS
from pyprof.report.memory.report import MemoryReport
from pyprof.report.memory.screen import sentence
from pyprof.report.summary.styled import plain
from pyprof.tables.names import text_of
from pyprof.tables.units import mib

_COLUMNS, _BLOCKS, _NAMED, _DEVICES = 600, 5_000, 7, 8
_BY = ("kind", "phase", "layer", "line")


class MemorySection(NamedTuple):
    """A memory report. charts, sentences, advice: one for each device; end: memory held at the end."""

    file: str
    charts: tuple[dict[str, Any], ...]
    sentences: tuple[str, ...]
    advice: tuple[Sequence[MemoryAdvice], ...]

    @property
    def devices(self) -> list[dict[str, Any]]:
        """The devices for the template."""
        return [
            {"name": chart["device"], "sentence": said,
             "advice": [{"kind": one.kind.replace("_", " ").capitalize(), "evidence": text_of(one.evidence), "do": one.do,
                         "saves": mib(one.bytes), "share": "", "places": []} for one in found]}
            for chart, said, found in zip(self.charts, self.sentences, self.advice, strict=True)
        ]  # fmt: skip


def memory_section(report: MemoryReport) -> MemorySection:
    """The section of a memory report; the CPU's memory only where no GPU has any."""
    shown = ([one for one in report.devices if one.trace.device >= 0] or report.devices)[:_DEVICES]
    shown = [one for one in shown if len(one.trace)] or shown
    said = ["; ".join(plain([line]).strip() for line in sentence(one, 10_000)) + "." for one in shown]
    return MemorySection(report.file, tuple(map(_chart, shown)), tuple(map(text_of, said)), tuple(map(advice_of, shown)))


def _chart(device: DeviceMemory) -> dict[str, Any]:
    replay, trace = device.replay, device.trace
    time = trace.time_ns
    timed = len(time) > 0 and bool((time >= 0).all())
    x = time - time[0] if timed else np.arange(len(trace))
    moments = _moments(x, replay.counted, replay.peak) if len(trace) else np.array([-1])
    states = [replay.at(moment) for moment in moments.tolist()]
    total = np.array([next((one for one in state if one is not None), 0) for state in states], np.int64)
    lives, stacks = _blocks(device, moments)
    at = [int(x[moment]) if moment >= 0 else 0 for moment in moments.tolist()]
    return {
        "device": device.name, "timed": timed, "at": at, "peak": int(total.argmax()), "span": int(x[-1]) if len(x) else 0,
        "requested": [state[0] for state in states], "allocated": [state[1] for state in states],
        "reserved": [state[2] for state in states], "total": total.tolist(), "relative": replay.relative,
        "phase": [device.site(moment).phase for moment in moments.tolist()],
        "step": [int(trace.step[moment]) if moment >= 0 and trace.step[moment] >= 0 else None for moment in moments.tolist()],
        "oom": x[trace.action == Action.OOM].tolist()[:50],
        "by": {what: _stacked(what, *stack, total) for what, stack in stacks.items()}, "blocks": lives,
    }  # fmt: skip


def _moments(x: Ints, counted: Ints, peak: int) -> Ints:
    """One event for each column, in order: that with most memory in it, and among them the peak."""
    count = min(_COLUMNS, len(x))
    column = np.minimum(x * count // max(int(x[-1]) + 1, 1), count - 1)
    first = np.flatnonzero(np.append(True, column[1:] != column[:-1]))
    ends = np.append(first[1:], len(x))
    most = [begin + int(counted[begin:end].argmax()) for begin, end in zip(first.tolist(), ends.tolist(), strict=True)]
    return np.unique([*most, *([peak] if peak >= 0 else []), len(x) - 1])


def _blocks(device: DeviceMemory, moments: Ints) -> tuple[dict[str, Any], dict[str, tuple[list[str], Ints]]]:
    """(the largest blocks as columns, equal ones together; by kind, phase, layer and line: the names, and for each name (last:
    unknown) the bytes in each column of the chart)."""
    lives, sites = device.replay.lives, device.trace.places
    first, last = np.searchsorted(moments, lives.alloc), np.searchsorted(moments, lives.free) - 1
    seen = np.flatnonzero(first <= last) if device.trace.addressed else np.zeros(0, np.int64)
    keys, _, group = distinct_rows(first[seen], last[seen], device.kind[seen], lives.place[seen])
    begin, end, kind, place = keys
    size, number = np.zeros((2, len(begin)), np.int64)
    np.add.at(size, group, lives.size[seen])
    np.add.at(number, group, 1)
    stacks = {}
    for what in _BY if device.trace.addressed else ():
        known = dict.fromkeys(KINDS if what == "kind" else (getattr(site, what) for site in sites))
        names = [name for name in known if name is not None]
        code_of = {name: code for code, name in enumerate(names)}
        of_place = np.array([*(code_of.get(getattr(site, what), -1) for site in sites), -1] if what != "kind" else [], np.int64)
        code = kind if what == "kind" else of_place[place]
        change = np.zeros((len(names) + 1, len(moments) + 1), np.int64)
        np.add.at(change, (code, begin), size)
        np.subtract.at(change, (code, end + 1), size)
        stacks[what] = ([one if what in ("kind", "phase") else short(one) for one in names], np.cumsum(change, axis=1)[:, :-1])
    kept = largest(size, _BLOCKS)
    used, site = np.unique(place[kept], return_inverse=True)
    places = [sites[code] if code >= 0 else AllocationSite() for code in used.tolist()]
    columns = {"first": begin, "last": end, "bytes": size, "number": number, "kind": kind}
    return {
        **{name: values[kept].tolist() for name, values in columns.items()}, "site": site.tolist(), "kinds": [*KINDS],
        "sites": [[text_of(text) if text else None for text in (one.phase, one.layer, one.op, one.line and short(one.line))]
                  for one in places],
    }, stacks  # fmt: skip


def _stacked(what: str, names: list[str], sizes: Ints, total: Ints) -> dict[str, Any]:
    """The largest names, the others together and the unknown: bytes in each column. What no block accounts for is older."""
    missing = np.maximum(total - sizes.sum(axis=0), 0)
    if what == "kind":
        sizes[KINDS.index("older")] += missing
    else:
        sizes[-1] += missing
    order = np.argsort(-sizes[:-1].max(axis=1), kind="stable")
    shown = [code for code in order[:_NAMED].tolist() if sizes[code].any()]
    rest = sizes[order[_NAMED:]].sum(axis=0)
    rows = [("not known", sizes[-1]), *((text_of(names[code]), sizes[code]) for code in shown)]
    rows = [(name, row) for name, row in [*rows, (f"{len(order) - _NAMED} others", rest)] if row.any()]
    return {"names": [name for name, _ in rows], "bytes": [row.tolist() for _, row in rows]}
