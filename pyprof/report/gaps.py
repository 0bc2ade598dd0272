"""Idle time, launches, queue and overlap of each device or stream -> the tables of `pyprof gaps` and of the page.

Window, causes and sums are those of report/time. A stream idles "elsewhere" while its device works on other streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import depth, quantiles, spans, summed, union
from pyprof.columns.types import Bools, Ints
from pyprof.errors import InputError
from pyprof.model.trace import ActivityKind
from pyprof.prof.columns import HEADERS, RecordTable
from pyprof.report.time.causes import CAUSES, MEANINGS
from pyprof.report.time.division import COMMUNICATION, COMPUTE, COPY
from pyprof.report.time.overview import Overview
from pyprof.report.time.places import FUNCTION, HostPlace
from pyprof.report.time.streams import DeviceLines, LineGaps
from pyprof.tables.screen import Cells, joined, listed
from pyprof.tables.table import AnyTable, Fractions, Header, Integers, LazyTable, Table, Texts, Values, coded

SCHEMA = 2
_QUANTILES = (0.5, 0.9, 0.99)
# Columns of causes in order of priority: a narrow screen drops the last ones first.
_COLUMNS = ("launch", "host", "synchronization", "data_loading", "queued", "compilation", "allocation", "profiler",
            "unrecorded", "unknown")  # fmt: skip
_WAITS = (
    Header("call", "Call", "API call in which the host waited", width=10, empty="-"),
    Header("waitop", "CalledBy", "op that made this call", width=8, empty="-", detail=True),
    Header("waitsrc", "CalledAt", "its source line, or else its layers", width=8, empty="-"),
)
_CAUSE = Header("cause", "Cause", "why it idled, what took longest first", empty="-")


class Report:
    """The source of all tables: an overview with its lines. by_stream: in ops and gaps, gaps of streams, not of devices; bins:
    rows of queue. Raises InputError if the records have no times."""

    def __init__(self, overview: Overview, by_stream: bool = False, bins: int = 20) -> None:
        self.overview, self.by_stream, self.bins = overview, by_stream, bins
        self.division = overview.division
        if not self.division.count:
            if overview.chosen is not None and not overview.chosen.any():
                raise InputError("nothing ran in this part of the capture", "choose another one with --step, --range or --time")
            raise InputError("the records do not say when anything ran", "give the capture that they were parsed from")
        self.lines = DeviceLines(self.division)

    @cached_property
    def shown(self) -> LineGaps:
        """Gaps of devices, or of streams."""
        return self.lines.gaps(self.overview.idle, self.by_stream)

    @cached_property
    def named_causes(self) -> Texts:
        """The causes of each of the shown gaps in words, the one that took longest first."""
        causes, count = self.shown.causes, len(self.shown)
        longest, main = np.zeros((2, count), np.int64)
        np.maximum.at(longest, causes.gap, causes.ns)
        which = summed(causes.gap, 1 << causes.cause.astype(np.int64), count)
        most = np.flatnonzero(causes.ns == longest[causes.gap])[::-1]  # of several as long the first, which is written last
        main[causes.gap[most]] = causes.cause[most]
        (main, which), _, code_of = distinct_rows(main, which)
        pool = []
        for first, mask in zip(main.tolist(), which.tolist(), strict=True):
            named = [first, *(at for at in range(len(CAUSES)) if at != first)]
            pool.append(", ".join(CAUSES[at] for at in named if mask >> at & 1))
        return Texts(code_of.astype(np.int32), pool)

    @property
    def json_head(self) -> dict[str, object]:
        """First members of the JSON: `wall_ns` and `idle_ns` of the summary, means over the devices."""
        parts = self.overview.parts
        return {"schema": SCHEMA, "wall_ns": self.division.wall_ns, "idle_ns": {cause: parts[cause] for cause in CAUSES}}

    def where(self, line: Ints, streams: bool = True) -> Cells:
        """Columns that identify lines."""
        lines, division = self.lines, self.division
        pid, device = division.pids[lines.of], division.devices[lines.of]
        cells: Cells = [
            (Header("pid", "PId", "process", detail=True), Integers.from_zero(pid[line])),
            (
                Header("device", "Device", "device ordinal", width=3, detail=division.count == 1),
                Integers.from_zero(device[line]),
            ),
        ]
        return (
            [*cells, _stream_cell(lines.stream[line], "stream; all: the device, busy where any of its streams is")]
            if streams
            else cells
        )

    def of_records(self, keys: tuple[str, ...], rows: Ints) -> Cells:
        """Columns of `pyprof prof` for these records; row -1 is unknown."""
        table, headers = RecordTable(self.overview.frame), {header.key: header for header in HEADERS}
        return [(headers[key], _taken(table.of(key), rows)) for key in keys]

    def waits(self, waited: Ints) -> Cells:
        """Columns: the API call in which the host waited, the op that made it, its source line."""
        waits = self.overview.waits
        texts = [("", "", ""), *([] if waits is None else waits.texts)]
        code = np.zeros(len(waited), np.int32) if waits is None else np.append(waits.text, -1)[waited].astype(np.int32) + 1
        return [(header, Texts(code, [text[part] for text in texts])) for part, header in enumerate(_WAITS)]


def _stream_cell(stream: Ints, help_text: str) -> tuple[Header, Values]:
    used = np.unique(stream)
    pool = ["all" if one == -1 else str(one) for one in used.tolist()]
    codes = np.where(stream == -2, -1, np.searchsorted(used, stream)).astype(np.int32)
    return Header("stream", "Stream", help_text, width=3), Texts(codes, pool)


def _taken(values: Values, rows: Ints) -> Values:
    """The values of some rows; row -1 is unknown."""
    none = rows < 0
    taken = values.take(np.where(none, 0, rows))
    if isinstance(taken, Texts):
        return taken._replace(codes=np.where(none, -1, taken.codes))
    return taken._replace(unknown=taken.unknown | none)


def ns_of(key: str, text: str) -> Header:
    """The header of a time."""
    return Header(key, "".join(map(str.capitalize, key.split("_"))) + "(ns)", text, "ns", 10)


def _share(part: Ints, whole: Ints | int) -> Fractions:
    return Fractions.not_nan(100 * part / np.where(np.asarray(whole) > 0, whole, np.nan), 1)


def _causes(divided: Ints) -> Cells:
    """A column for each cause."""
    return [
        (ns_of(cause, f"idle: {MEANINGS[cause]}")._replace(detail=True), Integers.known(divided[:, CAUSES.index(cause)]))
        for cause in _COLUMNS
    ]


def streams(report: Report) -> Table:
    """Busy and idle time of each line."""
    lines, division = report.lines, report.division
    every, busy = np.arange(len(lines)), lines.busy_ns
    counts = np.bincount(lines.of_activity, minlength=len(lines))
    counts[lines.whole] = np.bincount(division.place, minlength=division.count)
    cells: Cells = [
        *report.where(every),
        (Header("rows", "Rows", "kernels, copies and sets", detail=True), Integers.from_zero(counts)),
        (ns_of("span", "length of the window"), Integers.from_zero(np.full(len(lines), division.wall_ns))),
        (ns_of("busy", "at least one ran"), Integers.from_zero(busy)),
        (Header("share", "Busy(%)", "of the window", "%", share=True), _share(busy, division.wall_ns)),
        (ns_of("elsewhere", "the device worked on other streams"), Integers.known(busy[lines.of_device[lines.of]] - busy)),
        *_causes(report.overview.idle.by_device.T[lines.of]),
    ]
    return joined("streams", cells)


def steps(report: Report) -> Table:
    """Activities that each step launched on each device, and the gaps before them."""
    steps, division, records, idle = report.overview.steps, report.division, report.overview.records, report.overview.idle
    launch = np.where(records["kind"] == ActivityKind.CPU, records["start_ns"], records["launch_ns"]).astype(np.int64)
    step_of = np.full(len(records) + 1, -1, np.int64)
    if steps is not None:
        at = np.searchsorted(steps.begin_ns, launch, "right") - 1
        step_of[:-1] = np.where((at >= 0) & (launch >= 0) & (launch < steps.end_ns[at]), at, -1)
    known = np.flatnonzero(step_of[division.row] >= 0)
    row = division.row[known]
    (device, number), _, group = distinct_rows(division.place[known], step_of[row])
    count = len(device)
    gaps = idle.gaps
    ends = np.where(gaps.after >= 0, gaps.after, gaps.before)  # at the window's end no activity follows
    wanted = gaps.device.astype(np.int64) * (len(step_of) + 1) + step_of[ends]
    keys = device * (len(step_of) + 1) + number
    place = np.minimum(np.searchsorted(keys, wanted), max(count - 1, 0))
    there = (keys[place] == wanted) & (step_of[ends] >= 0) if count else np.zeros(len(gaps), np.bool_)
    mine, divided = np.flatnonzero(there), idle.causes.totals(np.where(there, place, count), count + 1)[:-1]
    delay = np.where(launch[row] >= 0, division.begins[known] - launch[row], np.nan)
    time = summed(group, division.ends[known] - division.begins[known], count)
    longest = spans(place[mine], gaps.time_ns[mine], gaps.time_ns[mine], count)[1]
    numbers = number if steps is None else steps.number[number]
    cells: Cells = [
        *report.where(report.lines.of_device[device], streams=False),
        (Header("step", "Step", "number of the step", width=4), Integers.known(numbers)),
        (
            Header("rows", "Rows", "kernels, copies and sets that it launched", detail=True),
            Integers.known(np.bincount(group, minlength=count)),
        ),
        (ns_of("time", "of these together"), Integers.known(time)),
        (
            ns_of("delay", "median time from the launch to the begin"),
            Fractions.not_nan(quantiles(group, delay, count, 0.5)[0], 0),
        ),
        (ns_of("idle", "of the device before them"), Integers.known(divided.sum(axis=1))),
        (ns_of("longest", "the longest gap of these"), Integers.known(np.maximum(longest, 0))),
        *_causes(divided),
    ]
    return joined("steps", cells)


def ops(report: Report) -> Table:
    """Idle time by cause and by the activity launched next."""
    gaps = report.shown
    item, cause, time = gaps.causes.gap, gaps.causes.cause, gaps.causes.ns
    keys = [
        *report.where(gaps.line[item], report.by_stream),
        (_CAUSE, Texts(cause.astype(np.int32), list(CAUSES))),
        *report.waits(np.where(cause == CAUSES.index("synchronization"), gaps.waited[item], -1)),
        *report.of_records(("op", "layer", "src"), gaps.after[item]),
    ]
    codes = [coded(header.shown(values))[0] for header, values in keys]
    _, first, group = distinct_rows(*codes)
    total, longest = summed(group, time, len(first)), spans(group, time, time, len(first))[1]
    cells: Cells = [
        *((header, values.take(first)) for header, values in keys),
        (Header("gaps", "Gaps", "how many"), Integers.from_zero(np.bincount(group, minlength=len(first)))),
        (ns_of("time", "idle"), Integers.from_zero(total)),
        (Header("share", "Share(%)", "of the window", "%", share=True), _share(total, report.division.wall_ns)),
        (ns_of("longest", "the longest of them"), Integers.from_zero(longest)),
    ]
    return joined("ops", cells).take(np.lexsort((first, -total)))


class _Gaps:
    """Gaps of a report as a source of columns, which describes only those that are asked for."""

    def __init__(self, report: Report, rows: Ints) -> None:
        self.report, self.rows = report, rows

    @property
    def headers(self) -> Sequence[Header]:
        """All columns."""
        return self._table.headers

    def of(self, key: str) -> Values:
        """The values of one column."""
        return self._table.of(key)

    def take(self, rows: Ints) -> _Gaps:
        """These rows only."""
        return _Gaps(self.report, self.rows[rows])

    @cached_property
    def _table(self) -> Table:
        report, gaps, records = self.report, self.report.shown, self.report.overview.records
        rows, after, divided = self.rows, gaps.after[self.rows], gaps.causes.of(self.rows)
        stream = np.where(after >= 0, records["stream"][after], report.lines.stream[gaps.line[rows]])
        (_, ended), (_, ended_op) = report.of_records(("kernel", "op"), gaps.before[rows])
        (short, begun), *more, (launch, launched) = report.of_records(("kernel", "op", "layer", "src", "launch"), after)
        cells: Cells = [
            *report.where(gaps.line[rows], streams=False),
            _stream_cell(np.where(stream < 0, -2, stream), "stream of the activity that ends it"),
            (ns_of("start", "when it ran dry")._replace(moment=True), Integers.known(gaps.start_ns[rows])),
            (ns_of("idle", "how long, less what other streams of the device worked"), Integers.known(gaps.idle_ns[rows])),
            (_CAUSE, report.named_causes.take(rows)),
            *report.waits(gaps.waited[rows]),
            (Header("before", "Before", "what ended last: " + short.help, width=12, detail=True), ended),
            (Header("beforeop", "BeforeOp", "its op", width=8, detail=True), ended_op),
            (Header("next", "Next", "what began next: " + short.help, width=12), begun),
            *more,
            (launch._replace(key="launched", text="Launched(ns)"), launched),
            *_causes(divided),
        ]
        return joined("gaps", cells)


def gaps_table(report: Report) -> LazyTable:
    """Every gap, longest first."""
    gaps = report.shown
    order = np.lexsort((gaps.line, gaps.start_ns, -gaps.idle_ns))
    return LazyTable(_Gaps(report, order[:0]).headers, _Gaps(report, np.arange(len(gaps))), order, "gaps")


def latency(report: Report) -> Table:
    """How long launches take on each line."""
    lines, division, records = report.lines, report.division, report.overview.records
    used, numbers = list[int](), list[tuple[int, ...]]()
    for line in range(len(lines)):
        mine = lines.activities(line)
        row, start, took = division.row[mine], division.begins[mine], division.ends[mine] - division.begins[mine]
        known = (records["launch_ns"][row] >= 0) & (records["kind"][row] != ActivityKind.CPU)
        if known.any():
            used.append(line)
            of_kernels = (records["kind"][row] == ActivityKind.KERNEL)[known]
            launch, call = records["launch_ns"][row[known]], records["launch_dur_ns"][row[known]]
            numbers.append(_latencies(start[known] - launch, call, took[known], of_kernels))
    columns = np.array(numbers, np.int64).reshape(-1, len(_QUANTILES) + 6)
    quantiles = [(f"p{q * 100:g}", "quantile of the time from the launch to the begin") for q in _QUANTILES]
    names = [("least", "shortest time from the launch to the begin"), *quantiles, ("most", "longest")]
    count, *waits, called, short, short_ns = columns.T
    cells: Cells = [
        *report.where(np.array(used, np.int64)),
        (Header("launches", "Launches", "activities with a launch in the capture"), Integers.from_zero(count)),
        *((ns_of(key, text), Integers.known(wait)) for (key, text), wait in zip(names, waits, strict=True)),
        (ns_of("took", "median time of the launching call"), Integers.from_zero(called)),
        (Header("short", "Short", "kernels shorter than the call that launched them"), Integers.from_zero(short)),
        (ns_of("shorttime", "time of these"), Integers.from_zero(short_ns)),
    ]
    return joined("latency", cells)


def _latencies(delay: Ints, call: Ints, took: Ints, kernel: Bools) -> tuple[int, ...]:
    """(number, least, quantiles and most of the times from launch to begin, median launching call (-1 unknown), number and time
    of kernels shorter than their launching call)."""
    delay, calls = np.sort(delay), np.sort(call[call >= 0])
    at = [0, *(min(int(np.ceil(q * len(delay))) - 1, len(delay) - 1) for q in _QUANTILES), -1]
    short = kernel & (call > took)
    middle = int(calls[[(len(calls) - 1) // 2, len(calls) // 2]].mean()) if len(calls) else -1
    return len(delay), *delay[at].tolist(), middle, *((int(short.sum()), int(took[short].sum())) if len(calls) else (-1, -1))


def queue(report: Report) -> Table:
    """Number of activities launched and not finished, and busy share, in equal parts of the time."""
    division, records, gaps = report.division, report.overview.records, report.overview.idle.gaps
    launch = records["launch_ns"][division.row]
    begun = np.where((launch >= 0) & (launch < division.begins), np.maximum(launch, division.begin_ns), division.begins)
    first, last = division.begin_ns, division.end_ns
    edges = np.array([first + (last - first) * part // report.bins for part in range(report.bins + 1)], np.int64)
    edges = np.unique(edges)
    length, parts = np.diff(edges), []
    for device in range(division.count):
        own, idle = division.place == device, gaps.device == device
        mean, most = depth(begun[own], division.ends[own], edges)
        dry = union(np.zeros(int(idle.sum()), np.int64), gaps.start_ns[idle], gaps.end_ns[idle])
        worked = length - np.diff(dry.covered(np.zeros(len(edges), np.int64), edges))
        parts.append((np.full(len(mean), report.lines.of_device[device]), edges[:-1], length, mean, most, worked))
    line, start, length, mean, most, worked = (np.concatenate(column) for column in zip(*parts, strict=True))
    cells: Cells = [
        *report.where(line.astype(np.int64), streams=False),
        (ns_of("start", "begin of the part")._replace(moment=True), Integers.from_zero(start)),
        (ns_of("length", "of the part"), Integers.from_zero(length)),
        (Header("depth", "Depth", "mean number in the queue"), Fractions.not_nan(mean, 2)),
        (Header("most", "Most", "most at once"), Integers.from_zero(most)),
        (Header("busy", "Busy(%)", "of the part", "%", share=True), _share(worked, length)),
    ]
    return joined("queue", cells)


def overlap(report: Report) -> Table:
    """Compute, communication and copies of each device; exposed: no kind earlier in this order runs meanwhile."""
    division, idle = report.division, report.overview.idle.by_device.sum(axis=0)

    def whole(role: int) -> Ints:
        mine = division.role == role
        return union(division.place[mine], division.begins[mine], division.ends[mine]).total(division.count)

    exposed, comm = division.busy_ns[COMMUNICATION], whole(COMMUNICATION)
    cells: Cells = [
        *report.where(report.lines.of_device, streams=False),
        (ns_of("span", "length of the window"), Integers.from_zero(np.full(division.count, division.wall_ns))),
        (ns_of("compute", "a kernel ran that does not communicate"), Integers.from_zero(division.busy_ns[COMPUTE])),
        (ns_of("comm", "a kernel ran that communicates"), Integers.from_zero(comm)),
        (Header("exposed", "CommExposed(ns)", "communication while nothing computes", "ns"), Integers.from_zero(exposed)),
        (Header("hidden", "Hidden(%)", "of communication, behind compute", "%"), _share(comm - exposed, comm)),
        (ns_of("copy", "a copy or set of memory ran"), Integers.from_zero(whole(COPY))),
        (Header("copyexposed", "CopyExposed(ns)", "while nothing else ran", "ns"), Integers.from_zero(division.busy_ns[COPY])),
        (ns_of("idle", "nothing ran"), Integers.from_zero(idle)),
    ]
    return joined("overlap", cells)


def what_if(report: Report) -> Table:
    """Time that the window would lose if all of one thing were free."""
    saved, wall = report.overview.replay.what_if(), report.division.wall_ns
    saves = np.array([*saved.values()], np.int64)
    steps = 0 if report.overview.steps is None else len(report.overview.steps)
    cells: Cells = [
        (Header("if", "If", "what is free"), Texts(np.arange(len(saved), dtype=np.int32), [*saved])),
        (ns_of("saves", "by which the window gets shorter, by a replay of it (pyprof help advice)"), Integers.known(saves)),
        (Header("share", "Share(%)", "of the window", "%", share=True), _share(saves, wall)),
        (ns_of("step", "saves, a step"), Integers.from_zero(saves // steps if steps else np.full(len(saves), -1))),
    ]
    return joined("what-if", cells)


def host(report: Report) -> Table:
    """Where launching threads were while devices idled, by cause: self time of functions, ranges, ops and API calls."""
    overview, found = report.overview, list[tuple[str, HostPlace, int]]()
    for cause in CAUSES:
        if (places := overview.host_places(cause)) is None or not places.total_ns:
            continue
        rest = places.total_ns - places.placed_ns
        some = [one for one in places.by_name() if one.own_ns]
        found += [(cause, one, one.own_ns) for one in [*some, HostPlace("", "", rest, rest, 0)] if one.own_ns]
    found.sort(key=lambda one: -one[2])
    named = [FUNCTION.fullmatch(one.name) if one.kind == "function" else None for _, one, _ in found]
    names = [one.name or None if match is None else match["name"] for (_, one, _), match in zip(found, named, strict=True)]
    lines = [None if match is None else f"{match['file']}:{match['line']}" for match in named]
    own, whole, number = (
        np.array([getattr(one, key) for _, one, _ in found], np.int64) for key in ("own_ns", "whole_ns", "number")
    )
    cells: Cells = [
        (_CAUSE._replace(help="why the device idled meanwhile"), listed(cause for cause, *_ in found)),
        (
            Header("kind", "Kind", "function, range, op or API call", empty="-"),
            listed(one.kind or None for _, one, _ in found),
        ),
        (Header("name", "Name", "where the host was; numbers at a range's end left out", width=12, empty="-"), listed(names)),
        (Header("src", "Src", "file and line of the function", width=12, empty="-"), listed(lines)),
        (ns_of("self", "in it and in nothing inside of it, over all devices"), Integers.from_zero(own)),
        (ns_of("whole", "with what is inside of it"), Integers.from_zero(whole)),
        (Header("number", "Number", "how often it was open"), Integers.from_zero(number)),
        (
            Header("share", "Share(%)", "self, of the window", "%", share=True),
            _share(own, report.division.wall_ns * report.division.count),
        ),
    ]
    return joined("host", cells)


TABLES: dict[str, Callable[[Report], AnyTable]] = {
    "streams": streams, "steps": steps, "ops": ops, "gaps": gaps_table, "latency": latency, "queue": queue, "overlap": overlap,
    "what-if": what_if,
    "host": host,
}  # fmt: skip
