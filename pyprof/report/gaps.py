"""Report where each GPU idles and why, how long launches take, how full the queue is, and what communication is exposed.

    pyprof gaps FILE                     the tables one after another
    pyprof gaps FILE --table ops --csv   one of them

streams   a row for each device (stream all) and each stream: busy, and its idle time by reason; they add up to the span
steps     each step of the program: what it launched, how long that waited, and the idle time before it by reason
ops       idle time of each device by reason and by the op, layer and source line that was launched next
gaps      each gap of each device (of each stream with --stream), longest first
latency   from the begin of the launch to the begin on the device; kernels that are shorter than their launch
queue     launched and not finished: how many, over time
overlap   compute, communication and copies: what hides behind compute and what is exposed

Reasons: sync, the host waited for the device when it ran dry; host, it launched too late; launch, the launching call was still
running; queued, launched before and at most 5 us; copy, kernel: launched before and begun within 10 us of the end of a copy or
kernel on another stream; elsewhere, not launched and other streams were at work; unknown, the capture does not show it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cached_property

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.intervals import depth, quantiles, spans, summed
from pyprof.arrays.spool import columns_on_disk
from pyprof.arrays.types import Bools, Ints
from pyprof.errors import InputError, UsageError
from pyprof.formats import op_rules
from pyprof.loading import load_with_trace
from pyprof.parse.records.selection import add_graphs, add_window, first_ns, in_window, window_given
from pyprof.parse.sources.trace import ActivityKind, Trace
from pyprof.prof.columns import HEADERS, RecordTable
from pyprof.prof.frame import Frame
from pyprof.report.calls import Calls, calls_of, origins
from pyprof.report.idle import REASONS, Activities, Gaps, find_gaps
from pyprof.tables.output import on_terminal, write
from pyprof.tables.screen import Cells, add_tables, joined, require_table, selected
from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, choose, coded
from pyprof.visible import tell

_SCREEN = 10  # rows of steps, ops and gaps on the screen
_QUANTILES = (0.5, 0.9, 0.99)
# What the streams table shows of an idle line: what needs no change first.
_PARTS = ("elsewhere", "copy", "kernel", "queued", "launch", "host", "sync", "unknown")
_SHOWN = [REASONS.index(name) for name in _PARTS[1:]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof gaps`."""
    parser.add_argument("file", metavar="FILE", help="a capture; records hold everything but waits for the device")
    add_tables(parser, TABLES)
    parser.add_argument("--stream", action="store_true", help="gaps of each stream, not of the devices, in ops and gaps")
    parser.add_argument("--bins", metavar="N", type=int, default=20, help="parts of the time in table queue (20)")
    add_window(parser)
    add_graphs(parser)


@columns_on_disk()
def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    require_table(options, TABLES)
    if options.bins < 1:
        raise UsageError(f"--bins takes a number from 1, not {options.bins}", "for example --bins 50")
    records, trace = load_with_trace(options.file)
    chosen = in_window(records, options) if window_given(options) else None
    report = Report(Frame(records), trace, chosen, options.stream, options.bins)
    if trace is None:
        tell(
            "note: records hold no API calls: where the host waited for the device it counts as host; give the capture itself",
        )
    if options.table:
        write(selected(TABLES[options.table](report), options)._replace(since=first_ns(records)), options)
        return 0
    write([_on_screen(make(report), options)._replace(since=first_ns(records)) for make in TABLES.values()], options)
    if options.output is None and options.format in (None, "table"):
        print()
    return 0


def _on_screen(table: Table, options: argparse.Namespace) -> Table:
    """The first rows of a table under its name; JSON has all of them."""
    limit = _SCREEN if table.name in ("steps", "ops", "gaps") and options.format != "json" else None
    if on_terminal(options):  # which says itself what it does not show
        return table.take(slice(options.top))._replace(most=limit or 0)
    shown = table.take(slice(options.top if options.top is not None else limit))
    count = "" if len(shown.rows) == len(table.rows) else f" ({len(shown.rows)} of {len(table.rows)})"
    return shown._replace(title=table.name + count)


class Report:
    """What the tables are made from."""

    def __init__(
        self, frame: Frame, trace: Trace | None, chosen: Bools | None = None, by_stream: bool = False, bins: int = 20
    ) -> None:
        """trace: the capture of the records, None unknown; chosen: the records of a window; by_stream: gaps of streams, not of
        devices, in ops and gaps; bins: of queue.

        Raises InputError where nothing ran on a GPU.
        """
        self.frame, self.trace, self.by_stream, self.bins = frame, trace, by_stream, bins
        self.calls: Calls | None = None if trace is None else calls_of(trace)
        self.activities = Activities(frame.records, chosen)
        if not len(self.activities):
            raise InputError(
                "nothing ran on a GPU in it, so no GPU idled", "`pyprof prof` shows the ops of a capture on the CPU"
            )
        self.gaps: Gaps = find_gaps(self.activities, self.calls)
        self.first, self.last = self.activities.span()
        self.lines = self.activities.lines
        self.devices: Ints = np.flatnonzero(self.lines.whole)

    def why(self, rows: Ints) -> Cells:
        """The reason of these gaps, and the API call that the host waited in, the op that made it and its source line."""
        codes, pools = self._waits
        waits = zip(_WAITS, (Texts(codes[rows], pool) for pool in pools), strict=True)
        return [(_REASON, Texts(self.gaps.reason[rows], REASONS)), *waits]

    @cached_property
    def _waits(self) -> tuple[Ints, list[list[str]]]:
        """For each gap a code into the distinct calls, and the texts of these."""
        used, codes = np.unique(self.gaps.call, return_inverse=True)
        known = used[used >= 0]
        texts: dict[int, tuple[str, str, str]] = {-1: ("", "", "")}
        if self.trace is not None and self.calls is not None and len(known):
            origin = origins(self.trace, op_rules(), self.calls, known)
            names = [self.trace.strings[code] for code in self.calls.name[known].tolist()]
            texts |= {row: (name, *of) for row, name, of in zip(known.tolist(), names, origin, strict=True)}
        return codes.ravel(), [[texts[row][part] for row in used.tolist()] for part in range(3)]

    def where(self, line: Ints, stream: bool = True) -> Cells:
        """Columns that identify the line."""
        lines = self.lines
        cells: Cells = [
            (Header("pid", "PId", "process", detail=True), Integers.from_zero(lines.pid[line])),
            (
                Header("device", "Device", "device ordinal", width=3, detail=len(self.devices) == 1),
                Integers.from_zero(lines.device[line]),
            ),
        ]
        if stream:
            pool = ["all", *(str(n) for n in np.unique(lines.stream).tolist())]
            names = np.where(lines.whole, 0, 1 + np.searchsorted(np.unique(lines.stream), lines.stream))
            names = np.where(lines.stream == -2, -1, names)
            header = Header("stream", "Stream", "stream; all: the device, busy where any of its streams is", width=3)
            cells.append((header, Texts(names[line], pool)))
        return cells

    def of_records(self, keys: str, rows: Ints) -> Cells:
        """Columns of `pyprof prof` for these records."""
        table = RecordTable(self.frame)
        return [(header, table.of(header.key).take(rows)) for header in choose(keys, HEADERS)]

    def shown_gaps(self) -> Ints:
        """The gaps of whole devices, or of streams, longest first."""
        gaps = self.gaps
        rows = np.flatnonzero(self.lines.whole[gaps.line] != self.by_stream)
        return rows[np.lexsort((gaps.line[rows], gaps.start[rows], -gaps.own[rows]))]


_REASON = Header("reason", "Reason", "why it idled")
_WAITS = (
    Header("call", "Call", "API call in which the host waited", width=10, empty="-"),
    Header("waitop", "CalledBy", "op that made this call", width=8, empty="-", detail=True),
    Header("waitsrc", "CalledAt", "its source line, or else its layers", width=8, empty="-"),
)


def _ns(key: str, text: str) -> Header:
    return Header(key, f"{key.capitalize()}(ns)", text, "ns", 10)


def _share(part: Ints, whole: Ints) -> Fractions:
    return Fractions.not_nan(100 * part / np.where(whole > 0, whole, np.nan), 1)


def streams(report: Report) -> Table:
    """Busy and idle time of each line."""
    gaps, lines = report.gaps, np.arange(len(report.lines))
    span = report.last - report.first
    busy = report.activities.busy().total(len(lines))
    both = np.concatenate([report.activities.stream, report.activities.device])
    parts = {n: summed(gaps.line, np.where(gaps.reason == at, gaps.own, 0), len(lines)) for at, n in enumerate(REASONS)}
    parts["elsewhere"] = summed(gaps.line, gaps.elsewhere, len(lines))
    cells: Cells = [
        *report.where(lines),
        (
            Header("rows", "Rows", "kernels, copies and sets", detail=True),
            Integers.from_zero(np.bincount(both, minlength=len(lines))),
        ),
        (_ns("span", "from the first begin to the last end"), Integers.from_zero(span)),
        (_ns("busy", "at least one ran"), Integers.from_zero(busy)),
        (Header("share", "Busy(%)", "of the span", "%", share=True), _share(busy, span)),
    ]
    return joined("streams", cells + [(_ns(name, "idle for this reason"), Integers.from_zero(parts[name])) for name in _PARTS])


def steps(report: Report) -> Table:
    """What each step launched on each device, and the gaps before it."""
    activities, gaps, lines = report.activities, report.gaps, report.lines
    known = np.flatnonzero(activities.column("step") >= 0)
    launch, row = activities.column("launch_ns")[known], activities.record[known]
    (device, number), first, step = distinct_rows(activities.device[known], activities.column("step")[known])
    step_of = np.full(len(activities.records), -1, np.int64)
    step_of[row] = step
    mine = np.flatnonzero(lines.whole[gaps.line] & (step_of[gaps.after] >= 0))
    own, reason, of, count = gaps.own[mine], gaps.reason[mine], step_of[gaps.after[mine]], len(first)
    delay = np.where(launch >= 0, activities.start[known] - launch, np.nan)
    cells: Cells = [
        *report.where(device, stream=False),
        (Header("step", "Step", "number of the step", width=4), Integers.known(number)),
        (
            Header("rows", "Rows", "kernels, copies and sets that it launched", detail=True),
            Integers.known(np.bincount(step, minlength=count)),
        ),
        (_ns("time", "of these together"), Integers.known(summed(step, (activities.end - activities.start)[known], count))),
        (_ns("delay", "median time from the launch to the begin"), Fractions.not_nan(quantiles(step, delay, count, 0.5)[0], 0)),
        (_ns("idle", "of the device before them"), Integers.known(summed(of, own, count))),
        (_ns("longest", "the longest gap of these"), Integers.known(np.maximum(spans(of, own, own, count)[1], 0))),
    ]
    parts = [summed(of, np.where(reason == code, own, 0), count) for code in range(len(REASONS))]
    return joined(
        "steps", cells + [(_ns(REASONS[code], "idle for this reason"), Integers.known(parts[code])) for code in _SHOWN]
    )


def ops(report: Report) -> Table:
    """Idle time by reason and by what was launched next."""
    gaps, rows = report.gaps, report.shown_gaps()
    keys = (
        report.where(gaps.line[rows], report.by_stream) + report.why(rows) + report.of_records("op,layer,src", gaps.after[rows])
    )
    codes = [coded(header.shown(values))[0] for header, values in keys]
    _, first, group = distinct_rows(*codes) if len(rows) else (None, rows, rows)
    own = gaps.own[rows]
    time, (_, longest) = summed(group, own, len(first)), spans(group, own, own, len(first))
    span = (report.last - report.first)[gaps.line[rows][first]]
    cells: Cells = [
        *((header, values.take(first)) for header, values in keys),
        (Header("gaps", "Gaps", "how many"), Integers.from_zero(np.bincount(group, minlength=len(first)))),
        (_ns("time", "idle"), Integers.from_zero(time)),
        (Header("share", "Share(%)", "of the span", "%", share=True), _share(time, span)),
        (_ns("longest", "the longest of them"), Integers.from_zero(longest)),
    ]
    return joined("ops", cells).take(np.lexsort((first, -time)))


def gaps_table(report: Report) -> Table:
    """Every gap."""
    gaps, rows = report.gaps, report.shown_gaps()
    ((short, before),) = report.of_records("kernel", gaps.before[rows])
    (_, after), *more = report.of_records("kernel,op,layer,src,launch", gaps.after[rows])
    cells: Cells = [
        *report.where(gaps.line[rows], report.by_stream),
        (_ns("start", "when it ran dry")._replace(moment=True), Integers.from_zero(gaps.start[rows])),
        (_ns("idle", "how long, less what other streams of the device worked"), Integers.from_zero(gaps.own[rows])),
        *report.why(rows),
        (Header("before", "Before", "what ended last: " + short.help, width=12, detail=True), before),
        (Header("next", "Next", "what began next: " + short.help, width=12), after),
        *more,
    ]
    return joined("gaps", cells)


def latency(report: Report) -> Table:
    """How long launches take, for each line."""
    activities, lines = report.activities, report.lines
    launch, took = activities.column("launch_ns"), activities.column("launch_dur_ns")
    duration = activities.end - activities.start
    kernel = activities.column("kind") == ActivityKind.KERNEL
    used, delays, calls = [], [], []
    for line in range(len(lines)):
        mine = (activities.device if lines.whole[line] else activities.stream) == line
        known = np.flatnonzero(mine & (launch >= 0))
        if not len(known):
            continue
        used.append(line)
        delay = np.sort(activities.start[known] - launch[known])
        at = [min(int(np.ceil(q * len(delay))) - 1, len(delay) - 1) for q in _QUANTILES]
        delays.append([delay[0], *delay[at], delay[-1]])
        timed = known[took[known] >= 0]
        short = timed[kernel[timed] & (took[timed] > duration[timed])]
        row = [int(np.median(took[timed])), len(short), int(duration[short].sum())] if len(timed) else [-1, -1, -1]
        calls.append([len(known), *row])
    waits, counts = np.array(delays, np.int64).reshape(-1, len(_QUANTILES) + 2), np.array(calls, np.int64).reshape(-1, 4)
    quantiles = [(f"p{q * 100:g}", "quantile of the time from the launch to the begin") for q in _QUANTILES]
    names = [("least", "shortest time from the launch to the begin"), *quantiles, ("most", "longest")]
    cells: Cells = [
        *report.where(np.array(used, np.int64)),
        (Header("launches", "Launches", "activities with a launch in the capture"), Integers.from_zero(counts[:, 0])),
        *((_ns(key, text), Integers.known(waits[:, at])) for at, (key, text) in enumerate(names)),
        (_ns("took", "median time of the launching call"), Integers.from_zero(counts[:, 1])),
        (Header("short", "Short", "kernels shorter than the call that launched them"), Integers.from_zero(counts[:, 2])),
        (_ns("shorttime", "time of these"), Integers.from_zero(counts[:, 3])),
    ]
    return joined("latency", cells)


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
    cells: Cells = [
        *report.where(line.astype(np.int64), stream=False),
        (_ns("start", "begin of the part")._replace(moment=True), Integers.from_zero(start)),
        (_ns("length", "of the part"), Integers.from_zero(length)),
        (Header("depth", "Depth", "mean number in the queue"), Fractions.not_nan(mean, 2)),
        (Header("most", "Most", "most at once"), Integers.from_zero(most)),
        (Header("busy", "Busy(%)", "of the part", "%", share=True), _share(worked, length)),
    ]
    return joined("queue", cells)


def overlap(report: Report) -> Table:
    """Compute, communication and copies of each device: exposed is what nothing before it in that order hides."""
    activities, devices = report.activities, report.devices
    comm, copy = activities.communication, activities.copy & ~activities.communication
    compute = ~comm & ~copy

    def total(which: Bools) -> Ints:
        return activities.busy(which).total(len(report.lines))[devices]

    alone, work, both = total(comm), total(compute), total(compute | comm)
    span = (report.last - report.first)[devices]
    busy = total(np.ones(len(activities), np.bool_))
    cells: Cells = [
        *report.where(devices, stream=False),
        (_ns("span", "from the first begin to the last end"), Integers.from_zero(span)),
        (_ns("compute", "a kernel ran that does not communicate"), Integers.from_zero(work)),
        (_ns("comm", "a kernel ran that communicates"), Integers.from_zero(alone)),
        (Header("exposed", "CommExposed(ns)", "communication while nothing computes", "ns"), Integers.from_zero(both - work)),
        (Header("hidden", "Hidden(%)", "of communication, behind compute", "%"), _share(alone - (both - work), alone)),
        (_ns("copy", "a copy or set of memory ran"), Integers.from_zero(total(copy))),
        (Header("copyexposed", "CopyExposed(ns)", "while nothing else ran", "ns"), Integers.from_zero(busy - both)),
        (_ns("idle", "nothing ran"), Integers.from_zero(span - busy)),
    ]
    return joined("overlap", cells)


TABLES: dict[str, Callable[[Report], Table]] = {
    "streams": streams, "steps": steps, "ops": ops, "gaps": gaps_table, "latency": latency, "queue": queue, "overlap": overlap,
}  # fmt: skip
