"""Report where each GPU idles and why, how long launches take, how full the queue is, and what communication is exposed.

    pyprof gaps FILE                     the tables one after another
    pyprof gaps FILE --table ops --csv   one of them

streams   a line for each device (stream all) and each stream: busy, and its idle time by reason; they add up to the span
ops       idle time of each device by reason and by the op, layer and source line that was launched next
gaps      each gap of each device (of each stream with --stream), longest first
latency   from the begin of the launch to the begin on the device; kernels that are shorter than their launch
queue     launched and not finished: how many, over time
overlap   compute, communication and copies: what hides behind compute and what is exposed

Reasons: sync, the host waited for the device when it ran dry; host, it launched too late; launch, the launching call was still
running; queued, launched before and at most 5 us; copy, kernel: launched before and begun within 10 us of the end of a copy or
kernel on another stream; elsewhere, not launched and other streams were at work; unknown, the capture does not tell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import cached_property
from typing import TextIO

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.arrays.intervals import depth
from pyprof.errors import InputError, UsageError
from pyprof.loading import load_with_trace, op_rules
from pyprof.parse.records.selection import add_window, in_window, window_given
from pyprof.parse.sources.trace import ActivityKind, Trace
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame
from pyprof.report.calls import Calls, calls_of, origins
from pyprof.report.idle import REASONS, Activities, Gaps, Lines, find_gaps
from pyprof.tables.formats import write_aligned, write_csv, write_jsonl, write_plain
from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, Values, choose, coded

__all__ = ["TABLES", "Report", "add_arguments", "run"]

Ints = npt.NDArray[np.int64]
_Writer = Callable[[Table, TextIO], None]
_WRITERS: dict[str, _Writer] = {"table": write_aligned, "plain": write_plain, "csv": write_csv, "jsonl": write_jsonl}
_SCREEN = 10  # rows of ops and of gaps on the screen
_QUANTILES = (0.5, 0.9, 0.99)
# What the streams table shows of an idle line: what needs no change first.
_PARTS = ("elsewhere", "copy", "kernel", "queued", "launch", "host", "sync", "unknown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof gaps`."""
    parser.add_argument("file", metavar="FILE", help="a capture; records tell all but waits for the device")
    parser.add_argument("--table", choices=TABLES, help="this table alone, with all its rows")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated (RFC 4180); needs --table")
    form.add_argument(
        "--format", choices=_WRITERS, help="table: aligned; plain: space-separated; jsonl: JSON lines; need --table"
    )
    parser.add_argument("--top", metavar="N", type=int, help=f"only the first N rows of each table (screen: {_SCREEN})")
    parser.add_argument("--stream", action="store_true", help="gaps of each stream, not of the devices, in ops and gaps")
    parser.add_argument("--bins", metavar="N", type=int, default=20, help="parts of the time in table queue (20)")
    add_window(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    if (options.csv or options.format) and not options.table:
        raise UsageError("--csv and --format write one table", f"name it: --table {'|'.join(TABLES)}")
    if options.bins < 1:
        raise UsageError(f"--bins takes a number from 1, not {options.bins}", "for example --bins 50")
    if options.top is not None and options.top < 0:
        raise UsageError(f"--top takes a number of rows, not {options.top}", "for example --top 10")
    records, trace = load_with_trace(options.file)
    chosen = in_window(records, options) if window_given(options) else None
    report = Report(Frame(records), trace, chosen, options.stream, options.bins)
    if trace is None:
        print(
            "note: records hold no API calls: where the host waited for the device it counts as host; give the capture itself",
            file=sys.stderr,
        )
    if options.table:
        table = TABLES[options.table](report)
        write = _WRITERS["csv" if options.csv else options.format or "table"]
        write(_top(table, options.top), sys.stdout)
        return 0
    for name, make in TABLES.items():
        table = make(report)
        rows = len(table.rows)
        top = options.top if options.top is not None else _SCREEN if name in ("ops", "gaps") else None
        shown = _top(table, top)
        of = f" ({len(shown.rows)} of {rows})" if len(shown.rows) < rows else ""
        print(f"{name}{of}")
        write_aligned(shown, sys.stdout)
        print()
    return 0


def _top(table: Table, top: int | None) -> Table:
    return table.take(table.rows[:top])


class Report:
    """What the tables are made from."""

    def __init__(
        self,
        frame: Frame,
        trace: Trace | None,
        chosen: npt.NDArray[np.bool_] | None = None,
        by_stream: bool = False,
        bins: int = 20,
    ) -> None:
        """trace: the capture that the records are of, None where only they are known; chosen: the records that a window chose;
        by_stream: look at gaps of streams in ops and gaps; bins: of queue.

        Raises InputError where nothing ran on a GPU.
        """
        self.frame, self.trace, self.by_stream, self.bins = frame, trace, by_stream, bins
        calls: Calls | None = None if trace is None else calls_of(trace)
        self.activities = Activities(frame.records, chosen)
        if not len(self.activities):
            raise InputError(
                "nothing in it ran on a GPU, so that no GPU idled", "`pyprof prof` shows the ops of a capture on the CPU"
            )
        self.calls = calls
        self.gaps: Gaps = find_gaps(self.activities, calls)
        self.first, self.last = self.activities.span()

    def waits(self, rows: Ints) -> list[Values]:
        """For these gaps the API call that the host waited in, the op that made it and its source line."""
        codes, told = self._waited
        return [Texts(codes[rows], texts) for texts in told]

    @cached_property
    def _waited(self) -> tuple[Ints, list[list[str]]]:
        """For each gap a code into the distinct calls, and what is told of those."""
        used, codes = np.unique(self.gaps.call, return_inverse=True)
        known = used[used >= 0]
        told: dict[int, tuple[str, str, str]] = {-1: ("-", "-", "-")}
        if self.trace is not None and self.calls is not None and len(known):
            origin = origins(self.trace, op_rules(), self.calls, known)
            names = [self.trace.strings[code] for code in self.calls.name[known].tolist()]
            told |= {row: (name, *of) for row, name, of in zip(known.tolist(), names, origin, strict=True)}
        return codes.ravel(), [[told[row][part] for row in used.tolist()] for part in range(3)]

    @property
    def lines(self) -> Lines:
        """The streams, and the devices as a whole."""
        return self.activities.lines

    @property
    def devices(self) -> Ints:
        """The lines that are whole devices."""
        return np.flatnonzero(self.lines.whole)

    def sums(self, line: Ints, values: Ints) -> Ints:
        """Values added up for each line."""
        result = np.zeros(len(self.lines), np.int64)
        np.add.at(result, line, values)
        return result

    def where(self, line: Ints, stream: bool = True) -> tuple[list[Header], list[Values]]:
        """Columns that say which line."""
        lines = self.lines
        pool = ["all", *(str(n) for n in np.unique(lines.stream).tolist())]
        names = np.where(lines.whole, 0, 1 + np.searchsorted(np.unique(lines.stream), lines.stream))
        names = np.where(lines.stream == -2, -1, names)
        columns = [_column("pid", "PId", "process"), _column("device", "Device", "device ordinal", 3)]
        values: list[Values] = [Integers.from_zero(lines.pid[line]), Integers.from_zero(lines.device[line])]
        if stream:
            columns.append(_column("stream", "Stream", "stream; all: the device, busy where any of its streams is", 3))
            values.append(Texts(names[line], pool))
        return columns, values


def _column(key: str, header: str, text: str, width: int = 7, *, grow: bool = False) -> Header:
    return Header(key, header, text, "", width, grow)


def _ns(key: str, text: str) -> Header:
    return _column(key, f"{key.capitalize()}(ns)", text, 10)


def _share(part: Ints, whole: Ints) -> Fractions:
    return Fractions.not_nan(100 * part / np.where(whole > 0, whole, np.nan), 1)


def streams(report: Report) -> Table:
    """Busy and idle time of each line."""
    gaps, lines = report.gaps, np.arange(len(report.lines))
    columns, values = report.where(lines)
    span = report.last - report.first
    busy = report.activities.busy().total(len(lines))
    both = np.concatenate([report.activities.stream, report.activities.device])
    count = np.bincount(both, minlength=len(lines))
    parts = {name: report.sums(gaps.line, np.where(gaps.reason == REASONS.index(name), gaps.own, 0)) for name in REASONS}
    parts["elsewhere"] = report.sums(gaps.line, gaps.elsewhere)
    columns += [_column("rows", "Rows", "kernels, copies and sets"), _ns("span", "from the first begin to the last end")]
    columns += [_ns("busy", "at least one ran"), _column("share", "Busy(%)", "of the span", 7)]
    columns += [_ns(name, "idle for this reason") for name in _PARTS]
    values += [
        Integers.from_zero(count),
        Integers.from_zero(span),
        Integers.from_zero(busy),
        _share(busy, span),
        *(Integers.from_zero(parts[name]) for name in _PARTS),
    ]
    return Table(columns, values)


def _shown_gaps(report: Report) -> Ints:
    """The gaps of whole devices or of streams, longest first."""
    gaps = report.gaps
    rows = np.flatnonzero(report.lines.whole[gaps.line] != report.by_stream)
    return rows[np.lexsort((gaps.line[rows], gaps.start[rows], -gaps.own[rows]))]


def _reason(report: Report, rows: Ints) -> list[Values]:
    """The reason, and where the host waited."""
    return [Texts(report.gaps.reason[rows], REASONS), *report.waits(rows)]


_WHY = [
    _column("reason", "Reason", "why it idled", 7),
    _column("call", "Call", "API call in which the host waited", 10),
    _column("waitop", "CalledBy", "op that made this call", 8),
    _column("waitsrc", "CalledAt", "its source line, or else its layers", 8),
]


def _of_records(report: Report, keys: str, rows: Ints) -> tuple[list[Header], list[Values]]:
    """Columns of `pyprof prof` for these records."""
    columns = choose(keys, COLUMNS)
    return [column.header for column in columns], [column.compute(report.frame).take(rows) for column in columns]


def ops(report: Report) -> Table:
    """Idle time by reason and by what was launched next."""
    gaps, rows = report.gaps, _shown_gaps(report)
    where, line = report.where(gaps.line[rows], report.by_stream)
    columns, values = _of_records(report, "op,layer,src", gaps.after[rows])
    keys = [*line, *_reason(report, rows), *values]
    _, first, group = distinct_rows(*(coded(key)[0] for key in keys))
    own = gaps.own[rows]
    time, longest = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    np.add.at(time, group, own)
    np.maximum.at(longest, group, own)
    span = (report.last - report.first)[gaps.line[rows][first]]
    columns = [*where, *_WHY, *columns, _column("gaps", "Gaps", "how many"), _ns("time", "idle"),
               _column("share", "Share(%)", "of the span"), _ns("longest", "the longest of them")]  # fmt: skip
    count = Integers.from_zero(np.bincount(group, minlength=len(first)))
    table = Table(
        columns,
        [*(key.take(first) for key in keys), count, Integers.from_zero(time), _share(time, span), Integers.from_zero(longest)],
    )
    return table.take(np.lexsort((first, -time)))


def gaps_table(report: Report) -> Table:
    """Every gap."""
    gaps, rows = report.gaps, _shown_gaps(report)
    columns, values = report.where(gaps.line[rows], report.by_stream)
    columns += [_ns("start", "when it ran dry"), _ns("idle", "how long, less what other streams of the device worked"), *_WHY]
    values += [Integers.from_zero(gaps.start[rows]), Integers.from_zero(gaps.own[rows]), *_reason(report, rows)]
    (short,), before = _of_records(report, "kernel", gaps.before[rows])
    columns.append(_column("before", "Before", "what ended last: " + short.help, 12))
    more, after = _of_records(report, "kernel,op,layer,src,launch", gaps.after[rows])
    columns += [_column("next", "Next", "what began next: " + short.help, 12), *more[1:]]
    return Table(columns, [*values, *before, *after])


def latency(report: Report) -> Table:
    """How long launches take, for each line."""
    activities, lines = report.activities, report.lines
    launch, took = activities.column("launch_ns"), activities.column("launch_dur_ns")
    duration = activities.end - activities.start
    kernel = np.isin(activities.column("kind"), (ActivityKind.KERNEL,))
    names = [f"p{quantile * 100:g}" for quantile in _QUANTILES]
    cells: dict[str, list[float]] = {key: [] for key in ("launches", "least", *names, "most", "took", "short", "shorttime")}
    used = []
    for line in range(len(lines)):
        mine = (activities.device if lines.whole[line] else activities.stream) == line
        known = np.flatnonzero(mine & (launch >= 0))
        if not len(known):
            continue
        used.append(line)
        delay = np.sort(activities.start[known] - launch[known])
        calls = known[took[known] >= 0]
        short = known[kernel[known] & (took[known] > duration[known])]
        at = [min(int(np.ceil(q * len(delay))) - 1, len(delay) - 1) for q in _QUANTILES]
        row = [len(known), delay[0], *delay[at], delay[-1], np.median(took[calls]) if len(calls) else -1]
        for key, value in zip(
            cells, [*row, len(short) if len(calls) else -1, duration[short].sum() if len(calls) else -1], strict=True
        ):
            cells[key].append(value)
    columns, values = report.where(np.array(used, np.int64))
    told = {
        "launches": "activities with a launch in the capture", "least": "shortest time from the launch to the begin",
        "most": "longest", "took": "median time of the launching call",
        "short": "kernels shorter than the call that launched them", "shorttime": "time of these",
    }  # fmt: skip
    for key in cells:
        text = told.get(key, "quantile of the time from the launch to the begin")
        columns.append(_column(key, key.capitalize(), text) if key in ("launches", "short") else _ns(key, text))
    return Table(columns, [*values, *(Integers.from_zero(np.array(cell, np.int64)) for cell in cells.values())])


def queue(report: Report) -> Table:
    """How many activities are launched and not finished, and how busy the device is, in equal parts of the time."""
    activities, parts = report.activities, []
    busy = activities.busy()
    launch = activities.column("launch_ns")
    begun = np.where((launch >= 0) & (launch < activities.start), launch, activities.start)
    for line in report.devices.tolist():
        first, last = int(report.first[line]), int(report.last[line])
        edges = np.unique(first + (last - first) * np.arange(report.bins + 1, dtype=object) // report.bins).astype(np.int64)
        mine = activities.device == line
        mean, most = depth(begun[mine], activities.end[mine], edges)
        worked = np.diff(busy.covered(np.full(len(edges), line), edges))
        parts.append((np.full(len(mean), line), edges[:-1], np.diff(edges), mean, most, worked))
    line, start, length, mean, most, worked = (np.concatenate(column) for column in zip(*parts, strict=True))
    columns, values = report.where(line.astype(np.int64), stream=False)
    columns += [
        _ns("start", "begin of the part"),
        _ns("length", "of the part"),
        _column("depth", "Depth", "mean number in the queue"),
    ]
    columns += [_column("most", "Most", "most at once"), _column("busy", "Busy(%)", "of the part")]
    return Table(
        columns,
        [
            *values,
            Integers.from_zero(start),
            Integers.from_zero(length),
            Fractions.not_nan(mean, 2),
            Integers.from_zero(most),
            _share(worked, length),
        ],
    )


def overlap(report: Report) -> Table:
    """Compute, communication and copies of each device: exposed is what nothing before it in that order hides."""
    activities, devices = report.activities, report.devices
    comm, copy = activities.communication, activities.copy & ~activities.communication
    compute = ~comm & ~copy

    def total(which: npt.NDArray[np.bool_]) -> Ints:
        return activities.busy(which).total(len(report.lines))[devices]

    alone, work = total(comm), total(compute)
    shown = total(compute | comm) - work
    span = (report.last - report.first)[devices]
    busy = total(np.ones(len(activities), np.bool_))
    columns, values = report.where(devices, stream=False)
    cells: list[tuple[Header, Values]] = [
        (_ns("span", "from the first begin to the last end"), Integers.from_zero(span)),
        (_ns("compute", "a kernel ran that does not communicate"), Integers.from_zero(work)),
        (_ns("comm", "a kernel ran that communicates"), Integers.from_zero(alone)),
        (_column("exposed", "CommExposed(ns)", "communication while nothing computes"), Integers.from_zero(shown)),
        (_column("hidden", "Hidden(%)", "of communication, behind compute"), _share(alone - shown, alone)),
        (_ns("copy", "a copy or set of memory ran"), Integers.from_zero(total(copy))),
        (_column("copyexposed", "CopyExposed(ns)", "while nothing else ran"), Integers.from_zero(busy - total(compute | comm))),
        (_ns("idle", "nothing ran"), Integers.from_zero(span - busy)),
    ]
    return Table([*columns, *(c for c, _ in cells)], [*values, *(v for _, v in cells)])


TABLES: dict[str, Callable[[Report], Table]] = {
    "streams": streams, "ops": ops, "gaps": gaps_table, "latency": latency, "queue": queue, "overlap": overlap,
}  # fmt: skip
