"""Samples of a device's counters through time, and the records that ran meanwhile -> a table by step, layer and op.

A sample is the mean since the one before. A kernel's share of a sample is the time that both have in common, so a figure is the
mean over the time in which an op's kernels ran; nothing is said of one kernel. Reads no file.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Floats, Ints
from pyprof.errors import InputError
from pyprof.parse.sources.kineto.counters import Samples
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.columns import RecordTable
from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, Values, coded

_GROUPED = ("step", "layer", "op")


def sample_table(samples: Samples, records: RecordTable) -> Table:
    """One row a step, layer and op: its kernels, their time, and the mean of each metric meanwhile; most time first.

    Raises InputError where nothing ran on a device.
    """
    of = records.frame.records
    rows = np.flatnonzero(np.isin(of["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH)))
    if not len(rows):
        raise InputError(
            "nothing ran on a GPU in it, so its samples belong to no op", "record with ProfilerActivity.CUDA as well"
        )
    keys = [records.of(key).take(rows) for key in _GROUPED]
    groups = distinct_rows(*map(_codes, keys))
    count = len(groups.first)
    start, end = of["start_ns"][rows], of["start_ns"][rows] + of["dur_ns"][rows]
    time = np.bincount(groups.inverse, end - start, count)
    values: list[Values] = [key.take(groups.first) for key in keys]
    values += [Integers.known(np.bincount(groups.inverse, minlength=count)), Integers.known(time.astype(np.int64))]
    headers = [header for header in records.headers if header.key in _GROUPED]
    headers.sort(key=lambda header: _GROUPED.index(header.key))
    headers += [
        Header("kernels", "Kernels", "kernels of the op"),
        Header("time", "Time(ns)", "sum of their times", "ns", 10),
    ]
    for metric, name in enumerate(samples.metrics):
        weighted, covered = np.zeros(count), np.zeros(count)
        for device in np.unique(samples.device).tolist():
            mine = np.flatnonzero((of["device"][rows] == device) | (device < 0))
            chosen = (samples.metric == metric) & (samples.device == device)
            parts = _overlap(samples.time_ns[chosen], samples.value[chosen], start[mine], end[mine])
            weighted += np.bincount(groups.inverse[mine], parts[0], count)
            covered += np.bincount(groups.inverse[mine], parts[1], count)
        with np.errstate(invalid="ignore"):
            values.append(Fractions.not_nan(weighted / covered, 2))
        headers.append(Header(name.lower(), name, "mean while the op's kernels ran"))
    return Table(headers, values, "samples").take(np.argsort(-time, kind="stable"))


def _codes(values: Values) -> Ints:
    if isinstance(values, Texts):
        return coded(values)[0]
    return np.where(values.unknown, -1, values.values.astype(np.int64))


def _overlap(times: Ints, values: Floats, start: Ints, end: Ints) -> tuple[Floats, Floats]:
    """For each interval (the value times the time, the time) that samples cover; the first sample covers nothing before it."""
    if len(times) < 2:
        return np.zeros(len(start)), np.zeros(len(start))
    edges = times - times[0]
    area = np.concatenate([[0.0], np.cumsum(values[1:] * np.diff(edges))])
    begin, until = (np.clip(moment - times[0], 0, edges[-1]) for moment in (start, end))
    return np.interp(until, edges, area) - np.interp(begin, edges, area), (until - begin).astype(np.float64)
