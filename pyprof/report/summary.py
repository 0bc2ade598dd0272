"""Print the one screen that says what to fix first: time by phase, op and family, Tensor Cores, time lost, coverage, advice.

FILE is a capture, or records that `pyprof parse` wrote. With --table or --format the time and the advice are tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from pyprof.arrays.types import Bools, Floats
from pyprof.hardware import cpus, gpus
from pyprof.parse.records.selection import add_window, in_window, window_given
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.columns import RecordTable
from pyprof.prof.frame import Frame, Part
from pyprof.prof.group import LEAST_KNOWN
from pyprof.report.old_advice import advise
from pyprof.tables.output import write
from pyprof.tables.screen import Cells, add_tables, joined, listed, require_table, selected
from pyprof.tables.table import Fractions, Header, Integers, Table, coded

_LONGEST = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof summary`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="records or captures, one after another")
    parser.add_argument("--gpu", metavar="NAME|FILE", help="hold rates against this device")
    add_window(parser)
    add_tables(parser, TABLES)


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    from pyprof.loading import load
    from pyprof.parse.records.records import concatenate

    require_table(options, TABLES)
    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    records = concatenate([load(name) for name in options.file])
    frame = Frame(records, gpu)
    if window_given(options):
        frame = Part(frame, np.flatnonzero(in_window(records, options)))
    if options.table:
        write(selected(TABLES[options.table](frame), options), options)
    elif options.format or options.output or options.width is not None:
        write([make(frame).take(slice(options.top)) for make in TABLES.values()], options)
    else:
        print("\n".join(lines(frame)))
    return 0


def _timed(frame: Frame) -> tuple[Bools, Floats, tuple[str, ...]]:
    """(kernels, or ops where there is no GPU; time of each record, 0 for others; the columns by which time is shown)."""
    records = frame.records
    timed = np.isin(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU))
    time = np.where(timed, np.maximum(records["dur_ns"], 0), 0).astype(np.float64)
    on_cpu = bool((records["kind"][timed] == ActivityKind.CPU).all())
    return timed, time, ("phase", "op") if on_cpu else ("phase", "op", "family")


def lines(frame: Frame) -> Iterator[str]:
    """The screen, line by line. Shares are of the time of all kernels (of all ops, where there is no GPU)."""
    records, costs = frame.records, frame.costs
    timed, time, keys = _timed(frame)
    total = float(time.sum())
    on_cpu = "family" not in keys
    yield f"{int(timed.sum())} {'ops on the CPU' if on_cpu else 'kernels'}, {total / 1e6:.3f} ms"
    if not total:
        return
    for key in keys:
        longest = _longest(frame, key, time)[:_LONGEST]
        yield f"{key + ':':10}" + ", ".join(f"{name or 'na'} {100 * spent / total:.1f} %" for name, spent in longest)
    if not on_cpu:
        codes, verdicts = frame.verdicts
        used, unused = (time[np.array([v.tc == t for v in verdicts])[codes]].sum() for t in "10")
        products = f"{100 * used / (used + unused):.1f} %" if used + unused else "na"
        yield f"Tensor Cores: {products} of the {(used + unused) / 1e6:.3f} ms of products that have a path there"
    again = timed & (records["recomputed"] == 1)
    if again.any():
        known = again & (costs.flops >= 0)
        enough = time[known].sum() > LEAST_KNOWN * time[again].sum()
        flops = f"{costs.flops[known].sum() / 1e9:.3f}" if enough else "na"
        yield (
            f"recomputed: {time[again].sum() / 1e6:.3f} ms ({100 * time[again].sum() / total:.1f} %) in forward ops that run "
            f"again in backward, {flops} GFLOP (--where recomputed=1)"
        )
    lost = frame.roofline.lost_ns
    known = (lost >= 0) & timed
    if on_cpu and cpus.peak() is None:
        yield "above the roofline: not known, since this CPU was not measured (pyprof doctor --calibrate)"
    else:
        least = "" if time[known].sum() > LEAST_KNOWN * total else "at least "
        share = 100 * time[known].sum() / total
        yield f"above the roofline: {least}{lost[known].sum() / 1e6:.3f} ms, known for {share:.1f} % of the time"
    shares = [100 * time[mask].sum() / total for mask in (records["call"] >= 0, costs.flops >= 0, costs.bytes >= 0)]
    yield f"coverage: op {shares[0]:.1f} %, FLOPs {shares[1]:.1f} %, bytes {shares[2]:.1f} % of the time"
    for one in advise(frame)[:_LONGEST]:
        yield f"advice: {one.title}: {one.change}; saves at most {one.saves_ns / 1e6:.3f} of {one.time_ns / 1e6:.3f} ms"
        yield f"        {one.evidence}"


def _longest(frame: Frame, key: str, time: Floats) -> list[tuple[str | None, float]]:
    """The texts of a column (None: unknown) and their time, the longest first; each distinct text is looked at once."""
    codes, pool = coded(RecordTable(frame).of(key))
    spent = np.bincount(codes, time, len(pool) + 1).tolist()
    found = [pair for pair in zip([*pool, None], spent, strict=True) if pair[1]]
    return sorted(found, key=lambda pair: (-pair[1], pair[0] or "na"))


def _time(frame: Frame) -> Table:
    """Time by each column of the screen."""
    _, time, keys = _timed(frame)
    rows = [(key, *pair) for key in keys for pair in _longest(frame, key, time)]
    spent = np.array([row[2] for row in rows], np.float64)
    cells: Cells = [
        (Header("by", "By", "column of pyprof prof", width=6), listed(row[0] for row in rows)),
        (Header("name", "Name", "its text", width=0, grow=True), listed(row[1] for row in rows)),
        (Header("time", "Time(ns)", "of kernels, or of ops on a CPU", "ns", 10), Integers.known(spent.astype(np.int64))),
        (Header("share", "Share(%)", "of all time", "%"), Fractions.not_nan(100 * spent / (time.sum() or np.nan), 1)),
    ]
    return joined("time", cells)


def _advice(frame: Frame) -> Table:
    """All advice, what can save most first."""
    found = advise(frame)
    times = np.array([(one.time_ns, one.saves_ns) for one in found], np.int64).reshape(-1, 2)
    cells: Cells = [
        (Header("title", "Title", "what was found", grow=True), listed(one.title for one in found)),
        (Header("change", "Change", "what to do", grow=True), listed(one.change for one in found)),
        (Header("evidence", "Evidence", "kernels or ops, sizes and counts", grow=True), listed(one.evidence for one in found)),
        (Header("time_ns", "Time(ns)", "their time", "ns", 10), Integers.known(times[:, 0])),
        (Header("saves_ns", "Saves(ns)", "the most that the change can save", "ns", 10), Integers.known(times[:, 1])),
    ]
    return joined("advice", cells)


TABLES = {"time": _time, "advice": _advice}
