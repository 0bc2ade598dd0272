"""Measured launches and a capture of the same program -> one table of counters with ops, times and needed FLOPs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyprof.counters.match import NONE, match, unmatched
from pyprof.counters.ops_around import ops_of_ranges, ops_of_records, with_kernels
from pyprof.counters.table import CounterTable, LaunchOps
from pyprof.hardware.devices import Gpu
from pyprof.loading.formats import op_rules
from pyprof.loading.load import attributed, load_with_trace
from pyprof.model.trace import Trace
from pyprof.parse.records.selection import choose_kinds
from pyprof.parse.sources.measured.launches import Measured, joined
from pyprof.prof.columns import RecordTable
from pyprof.prof.frame import Frame


def counter_table(
    loaded: Sequence[tuple[Measured, Trace | None]], capture: str | None = None, gpu: Gpu | None = None
) -> CounterTable:
    """Measured launches with their ops. loaded: each file's launches, and the trace that holds them, if it is one; capture:
    name of a timeline of the same program; gpu: what the user says that the device is. Raises as `load` does.
    """
    measured, rows = joined([found for found, _ in loaded])
    if capture is not None:
        records, timeline = load_with_trace(capture)
        shown = choose_kinds(records, "kernel")
        found = match(measured.launches, shown)
        ops = LaunchOps(ops_of_records(shown, timeline, op_rules(), found), found, RecordTable(Frame(shown, gpu, records)))
        return CounterTable(measured, ops, gpu)
    if all(trace is None for _, trace in loaded):
        return CounterTable(measured, LaunchOps(), gpu)
    if len(loaded) == 1 and (of_trace := _ops_of_trace(loaded[0][1], gpu)) is not None:
        return CounterTable(measured, of_trace, gpu)
    stacks: list[tuple[str, ...] | None] = [None] * len(measured)
    how = np.full(len(measured), NONE)
    for (_, trace), places in zip(loaded, rows, strict=True):
        if trace is not None and trace.measured is not None:
            own, fit = ops_of_ranges(trace, op_rules())
            how[places] = fit.how
            for place, stack in zip(places.tolist(), own, strict=True):
                stacks[place] = stack
    return CounterTable(measured, LaunchOps(stacks, unmatched(len(measured))._replace(how=how)), gpu)


def _ops_of_trace(trace: Trace | None, gpu: Gpu | None) -> LaunchOps | None:
    """The ops of the launches that a trace measured, with the FLOPs that they need; None if a launch may be of several."""
    assert trace is not None
    stacks, found = ops_of_ranges(trace, op_rules())
    whole = with_kernels(trace, found)
    if whole is None:
        return None
    records = choose_kinds(attributed(whole, trace.source), "kernel")
    if len(records) != len(stacks):
        return None
    place = np.argsort(records["corr"])
    found = found._replace(pool=place, begin=np.arange(len(place)), end=np.arange(len(place)) + 1)
    return LaunchOps(stacks, found, RecordTable(Frame(records, gpu)), has_times=False)
