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

import numpy as np

from pyprof.arrays.columns import Growing, distinct_rows, narrowest
from pyprof.arrays.intervals import depth, quantiles, spans, summed
from pyprof.arrays.joining import mapped, rows_where
from pyprof.arrays.spool import columns_on_disk, computed, full, pieces, taken
from pyprof.arrays.types import Bools, Floats, Ints
from pyprof.errors import UsageError
from pyprof.loading import load_with_trace
from pyprof.parse.records.selection import add_graphs, add_window, first_ns, in_window, window_given
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.frame import Frame
from pyprof.prof.nearby import needed_for
from pyprof.report.activities import Activities, overlapping
from pyprof.report.gapcolumns import LongestFirst, Report, ns_of
from pyprof.report.idle import REASONS, Gaps, idle_devices
from pyprof.tables.output import on_terminal, write
from pyprof.tables.screen import Cells, add_tables, joined, require_table, selected
from pyprof.tables.table import AnyTable, Fractions, Header, Integers, LazyTable, Table, coded
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
    since, chosen = first_ns(records), None
    if window_given(options):
        chosen = in_window(records, options)
        if (needed := needed_for(records, overlapping(records, chosen))) is not None:
            records, chosen = records.near(needed), chosen[needed]
    report = Report(Frame(records), trace, chosen, options.stream, options.bins)
    if trace is None:
        tell(
            "note: records hold no API calls: where the host waited for the device it counts as host; give the capture itself",
        )
    if options.table:
        write(selected(TABLES[options.table](report), options)._replace(since=since), options)
        return 0
    write([_on_screen(make(report), options)._replace(since=since) for make in TABLES.values()], options)
    if options.output is None and options.format in (None, "table"):
        print()
    return 0


def _on_screen(table: AnyTable, options: argparse.Namespace) -> AnyTable:
    """The first rows of a table under its name; JSON has all of them."""
    limit = _SCREEN if table.name in ("steps", "ops", "gaps") and options.format != "json" else None
    if on_terminal(options):  # which says itself what it does not show
        return (table if options.top is None else table.first(options.top))._replace(most=limit or 0)
    most = options.top if options.top is not None else limit
    shown = table if most is None else table.first(most)
    count = "" if len(shown.rows) == len(table.rows) else f" ({len(shown.rows)} of {len(table.rows)})"
    return shown._replace(title=table.name + count)


def _share(part: Ints, whole: Ints) -> Fractions:
    return Fractions.not_nan(100 * part / np.where(whole > 0, whole, np.nan), 1)


def streams(report: Report) -> Table:
    """Busy and idle time of each line."""
    gaps, lines = report.gaps, np.arange(len(report.lines))
    span = report.last - report.first
    busy = span - summed(gaps.line, gaps.time, len(lines))
    parts = dict(zip(REASONS, _by_reason(gaps, slice(0, len(gaps)), gaps.line, len(lines)), strict=True))
    parts["elsewhere"] = summed(gaps.line, gaps.elsewhere, len(lines))
    cells: Cells = [
        *report.where(lines),
        (Header("rows", "Rows", "kernels, copies and sets", detail=True), Integers.from_zero(report.activities.counts)),
        (ns_of("span", "from the first begin to the last end"), Integers.from_zero(span)),
        (ns_of("busy", "at least one ran"), Integers.from_zero(busy)),
        (Header("share", "Busy(%)", "of the span", "%", share=True), _share(busy, span)),
    ]
    return joined(
        "streams", cells + [(ns_of(name, "idle for this reason"), Integers.from_zero(parts[name])) for name in _PARTS]
    )


def _by_reason(gaps: Gaps, rows: Ints | slice, group: Ints, groups: int) -> Ints:
    """The time of some gaps for each reason, (reasons, groups). group: of each of them."""
    reason, own = gaps.reason[rows], gaps.own[rows]
    both = computed(len(own), np.int32, lambda part: reason[part].astype(np.int32) * groups + group[part])
    return summed(both, own, len(REASONS) * groups).reshape(len(REASONS), -1)


def steps(report: Report) -> Table:
    """What each step launched on each device, and the gaps before it."""
    activities, gaps, record = report.activities, report.gaps, report.activities.record
    number = activities.records["step"]
    known = rows_where(len(activities), lambda part: number[record[part]] >= 0)
    (device, number), first, step = distinct_rows(taken(activities.device, known), taken(number, taken(record, known)))
    count = len(first)
    step_of = full(len(activities.records), -1, np.int32)
    for part in pieces(len(known)):
        step_of[record[known[part]]] = step[part]
    mine = rows_where(gaps.of_devices, lambda part: step_of[gaps.after[part]] >= 0)
    of, own = mapped(step_of, taken(gaps.after, mine)), taken(gaps.own, mine)

    def delays(part: slice) -> Floats:
        launch = activities.column("launch_ns", known[part])
        return np.where(launch >= 0, activities.start[known[part]] - launch, np.nan)

    def times(part: slice) -> Ints:
        return np.asarray(activities.end[known[part]] - activities.start[known[part]])

    delay = quantiles(step, computed(len(known), np.float64, delays), count, 0.5)[0]
    cells: Cells = [
        *report.where(device, stream=False),
        (Header("step", "Step", "number of the step", width=4), Integers.known(number)),
        (
            Header("rows", "Rows", "kernels, copies and sets that it launched", detail=True),
            Integers.known(summed(step, np.broadcast_to(np.int64(1), len(step)), count)),
        ),
        (ns_of("time", "of these together"), Integers.known(summed(step, computed(len(known), np.int64, times), count))),
        (ns_of("delay", "median time from the launch to the begin"), Fractions.not_nan(delay, 0)),
        (ns_of("idle", "of the device before them"), Integers.known(summed(of, own, count))),
        (ns_of("longest", "the longest gap of these"), Integers.known(np.maximum(spans(of, own, own, count)[1], 0))),
    ]
    parts = _by_reason(gaps, mine, of, count)
    return joined(
        "steps", cells + [(ns_of(REASONS[code], "idle for this reason"), Integers.known(parts[code])) for code in _SHOWN]
    )


def ops(report: Report) -> Table:
    """Idle time by reason and by what was launched next."""
    rows, (count, time, longest) = _alike(report)
    gaps = report.gaps
    keys = (
        report.where(gaps.line[rows], report.by_stream) + report.why(rows) + report.of_records("op,layer,src", gaps.after[rows])
    )
    codes = [coded(header.shown(values))[0] for header, values in keys]
    _, first, group = distinct_rows(*codes) if len(rows) else (None, rows, rows)
    total = summed(group, time, len(first))
    span = (report.last - report.first)[gaps.line[rows[first]]]
    cells: Cells = [
        *((header, values.take(first)) for header, values in keys),
        (Header("gaps", "Gaps", "how many"), Integers.from_zero(summed(group, count, len(first)))),
        (ns_of("time", "idle"), Integers.from_zero(total)),
        (Header("share", "Share(%)", "of the span", "%", share=True), _share(total, span)),
        (ns_of("longest", "the longest of them"), Integers.from_zero(longest[first])),
    ]
    return joined("ops", cells).take(np.lexsort((first, -total)))


def _alike(report: Report) -> tuple[Ints, Ints]:
    """The gaps that are shown by what `ops` tells apart: the longest of each kind, longest first, and of each (how many, their
    time, the time of the longest)."""
    gaps, shown, records = report.gaps, report.shown, report.frame.records
    after, own = gaps.after[shown], gaps.own[shown]
    keys = [
        gaps.line[shown],
        gaps.reason[shown],
        gaps.call[shown],
        *(mapped(records[name], after) for name in ("call", "scope")),
    ]
    found, _, kind = distinct_rows(*(key for key in keys if key.strides != (0,)))
    kinds = found.shape[1]
    longest, first = spans(kind, own, own, kinds)[1], np.full(kinds, len(own))
    for part in pieces(len(own)):
        rows = part.start + np.flatnonzero(own[part] == longest[kind[part]])
        np.minimum.at(first, kind[rows], rows)
    rows = first + shown.start
    order = np.lexsort((gaps.line[rows], gaps.start[rows], -longest))
    count = summed(kind, np.broadcast_to(np.int64(1), len(kind)), kinds)
    return rows[order], np.stack([count, summed(kind, own, kinds), longest])[:, order]


def gaps_table(report: Report) -> LazyTable:
    """Every gap."""
    source = LongestFirst(report)
    return LazyTable(source.headers, source, np.arange(report.shown.stop - report.shown.start), "gaps")


def latency(report: Report) -> Table:
    """How long launches take, for each line."""
    lines, used, rows = report.lines, list[int](), list[tuple[int, ...]]()
    for line in range(len(lines)):
        if lines.whole[line] or lines.shared[line]:
            found = _latencies(report.activities, line)
        if found is not None:  # the only stream of a device has the activities of the device
            used.append(line)
            rows.append(found)
    numbers = np.array(rows, np.int64).reshape(-1, len(_QUANTILES) + 6)
    quantiles = [(f"p{q * 100:g}", "quantile of the time from the launch to the begin") for q in _QUANTILES]
    names = [("least", "shortest time from the launch to the begin"), *quantiles, ("most", "longest")]
    count, *waits, took, short, short_ns = numbers.T
    cells: Cells = [
        *report.where(np.array(used, np.int64)),
        (Header("launches", "Launches", "activities with a launch in the capture"), Integers.from_zero(count)),
        *((ns_of(key, text), Integers.known(wait)) for (key, text), wait in zip(names, waits, strict=True)),
        (ns_of("took", "median time of the launching call"), Integers.from_zero(took)),
        (Header("short", "Short", "kernels shorter than the call that launched them"), Integers.from_zero(short)),
        (ns_of("shorttime", "time of these"), Integers.from_zero(short_ns)),
    ]
    return joined("latency", cells)


def _latencies(activities: Activities, line: int) -> tuple[int, ...] | None:
    """Of a line how many activities have a launch, the least, the quantiles and the most of the times from it, the median of
    the launching calls, how many kernels are shorter than theirs and their time; None where none has one."""
    delays, calls, short, short_ns = Growing(np.int32), Growing(np.int32), 0, 0
    for some in activities.at(line):
        launch, took = activities.column("launch_ns", some), activities.column("launch_dur_ns", some)
        start, known = activities.start[some], launch >= 0
        delays.append(narrowest((start - launch)[known]))
        known &= took >= 0
        calls.append(narrowest(took[known]))
        duration = activities.end[some] - start
        known &= (activities.column("kind", some) == ActivityKind.KERNEL) & (took > duration)
        short, short_ns = short + int(known.sum()), short_ns + int(duration[known].sum())
    delay, call = delays.whole(), calls.whole()
    if not len(delay):
        return None
    delay.sort()
    call.sort()
    at = [0, *(min(int(np.ceil(q * len(delay))) - 1, len(delay) - 1) for q in _QUANTILES), -1]
    middle = call[[(len(call) - 1) // 2, len(call) // 2]] if len(call) else np.array([-1])
    return len(delay), *delay[at].tolist(), int(middle.mean()), *((short, short_ns) if len(call) else (-1, -1))


def queue(report: Report) -> Table:
    """How many activities are launched and not finished, and how busy the device is, in equal parts of the time."""
    activities, parts, idle = report.activities, [], idle_devices(report.gaps)

    def begins(part: slice) -> Ints:
        launch, start = activities.column("launch_ns", part), activities.start[part]
        return np.where((launch >= 0) & (launch < start), launch, start)

    begun = computed(len(activities), np.int64, begins)
    for line in report.devices.tolist():
        first, last = int(report.first[line]), int(report.last[line])
        edges = np.unique(first + (last - first) * np.arange(report.bins + 1, dtype=object) // report.bins).astype(np.int64)
        mine = activities.of_device(line)
        mean, most = depth(begun[mine], activities.end[mine], edges)
        worked = np.diff(edges - idle.covered(np.full(len(edges), line), edges))
        parts.append((np.full(len(mean), line), edges[:-1], np.diff(edges), mean, most, worked))
    line, start, length, mean, most, worked = (np.concatenate(column) for column in zip(*parts, strict=True))
    cells: Cells = [
        *report.where(line.astype(np.int64), stream=False),
        (ns_of("start", "begin of the part")._replace(moment=True), Integers.from_zero(start)),
        (ns_of("length", "of the part"), Integers.from_zero(length)),
        (Header("depth", "Depth", "mean number in the queue"), Fractions.not_nan(mean, 2)),
        (Header("most", "Most", "most at once"), Integers.from_zero(most)),
        (Header("busy", "Busy(%)", "of the part", "%", share=True), _share(worked, length)),
    ]
    return joined("queue", cells)


def overlap(report: Report) -> Table:
    """Compute, communication and copies of each device: exposed is what nothing before it in that order hides."""
    activities, devices = report.activities, report.devices

    def total(which: Callable[[slice], Bools]) -> Ints:
        found: Ints = activities.busy_ns(which)[devices]
        return found

    alone = total(activities.communicates)
    work = total(lambda part: ~activities.communicates(part) & ~activities.copies(part))
    both = total(lambda part: activities.communicates(part) | ~activities.copies(part))
    copy = total(lambda part: ~activities.communicates(part) & activities.copies(part))
    span, idle = (report.last - report.first)[devices], summed(report.gaps.line, report.gaps.time, len(report.lines))[devices]
    cells: Cells = [
        *report.where(devices, stream=False),
        (ns_of("span", "from the first begin to the last end"), Integers.from_zero(span)),
        (ns_of("compute", "a kernel ran that does not communicate"), Integers.from_zero(work)),
        (ns_of("comm", "a kernel ran that communicates"), Integers.from_zero(alone)),
        (Header("exposed", "CommExposed(ns)", "communication while nothing computes", "ns"), Integers.from_zero(both - work)),
        (Header("hidden", "Hidden(%)", "of communication, behind compute", "%"), _share(alone - (both - work), alone)),
        (ns_of("copy", "a copy or set of memory ran"), Integers.from_zero(copy)),
        (Header("copyexposed", "CopyExposed(ns)", "while nothing else ran", "ns"), Integers.from_zero(span - idle - both)),
        (ns_of("idle", "nothing ran"), Integers.from_zero(idle)),
    ]
    return joined("overlap", cells)


TABLES: dict[str, Callable[[Report], AnyTable]] = {
    "streams": streams, "steps": steps, "ops": ops, "gaps": gaps_table, "latency": latency, "queue": queue, "overlap": overlap,
}  # fmt: skip
