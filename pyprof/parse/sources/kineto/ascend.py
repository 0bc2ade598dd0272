"""Tasks of an Ascend NPU in the trace_view.json of torch_npu.profiler -> `activities`, and `launches` from its arrows.

A task has no category; its args have `Task Type` and `Stream Id`, and it lies on a process of its own. An arrow `async_npu`
leads from the op that launched it to its begin; without one (msprof alone) its launch is unknown. Waits and marks of the
device's scheduler (EVENT_WAIT, NOTIFY_RECORD ...) do no work and are no activities.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from pyprof.columns.types import Ints
from pyprof.model.trace import ActivityKind, Strings, Table, concatenated, make_table
from pyprof.parse.sources.kineto.events import Event, Int, decode_args, nanoseconds

ARROWS = "async_npu"
_MARKED = b"Task Type"
_IDLE = r"EVENT|NOTIFY|WAIT|RECORD|PLACE_HOLDER|PROFILER|MODEL_|STREAM|LABEL|FLIP|MAINTENANCE"
_COPIES = r"MEMCPY|SDMA|PCIE_DMA"


class _TaskArgs(msgspec.Struct, gc=False):
    type: str = msgspec.field(default="", name="Task Type")
    stream: Int = msgspec.field(default=-1, name="Stream Id")


class AscendTasks:
    """The tasks and arrows so far."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._parts: list[Table] = []
        self._places: list[tuple[int | str, int | str, int]] = []  # pid, tid and begin of each task
        self._from: dict[int | str, tuple[int, int]] = {}  # by id of the arrow: row of `threads`, ns
        self._to: dict[tuple[int | str, int | str, int], int | str] = {}  # by place: id

    def add(self, events: list[Event]) -> None:
        """Add the tasks among some events without a category."""
        events = [event for event in events if _MARKED in bytes(event.args)]
        args = decode_args(_TaskArgs, events)
        work = [
            (event, one) for event, one in zip(events, args, strict=True) if one.type and not re.search(_IDLE, one.type.upper())
        ]
        if not work:
            return
        events, args = [event for event, _ in work], [one for _, one in work]
        start = nanoseconds([event.ts for event in events])
        end = start + np.maximum(nanoseconds([event.dur for event in events]), 0)
        copy = np.array([re.search(_COPIES, one.type.upper()) is not None for one in args])
        self._places += [(event.pid, event.tid, begin) for event, begin in zip(events, start.tolist(), strict=True)]
        columns = {
            "kind": np.where(copy, ActivityKind.MEMCPY, ActivityKind.KERNEL),
            "start_ns": start,
            "end_ns": end,
            "device": np.zeros(len(events), np.int64),  # a trace is of one device, whose number it does not say
            "stream": np.array([one.stream for one in args], np.int64),
            "name": np.array([self._strings.code(event.name) for event in events], np.int64),
        }
        self._parts.append(make_table("activities", columns))

    def add_arrows(self, events: list[Event], threads: Ints) -> None:
        """Add begins and ends of arrows; threads: of each begin, in order."""
        moments = nanoseconds([event.ts for event in events]).tolist()
        rows = iter(threads.tolist())
        for event, when in zip(events, moments, strict=True):
            if event.ph == "s":
                self._from[event.id or ""] = next(rows), when
            else:
                self._to[event.pid, event.tid, when] = event.id or ""

    def tables(self, corr: int) -> tuple[Table, Table]:
        """(activities, launches); corr: the first free correlation id."""
        activities = concatenated(self._parts or [make_table("activities")])
        origins = [self._from.get(self._to.get(place, " "), (-1, -1)) for place in self._places]
        thread, when = np.array(origins, np.int64).reshape(-1, 2).T
        known = np.flatnonzero(thread >= 0)
        activities["corr"] = np.where(thread >= 0, corr + np.arange(len(thread)), -1)
        columns = {
            "start_ns": when[known],
            "end_ns": when[known],
            "thread": thread[known],
            "corr": activities["corr"][known],
            "name": np.full(len(known), self._strings.code("torch_to_npu") if len(known) else -1),
        }
        return activities, make_table("launches", columns)
