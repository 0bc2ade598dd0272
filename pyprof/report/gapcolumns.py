"""A report of idle time -> columns that describe gaps: where they are, why, what ran before and after; all, or the longest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pyprof.arrays.columns import distinct_values, largest
from pyprof.arrays.intervals import order_of
from pyprof.arrays.joining import mapped, rows_where
from pyprof.arrays.spool import computed, kept, pieces, row_type, taken, touched
from pyprof.arrays.types import Bools, Ints
from pyprof.errors import InputError
from pyprof.formats import op_rules
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import Trace
from pyprof.prof.columns import HEADERS, RecordTable
from pyprof.prof.frame import Frame, Part
from pyprof.report.activities import Activities
from pyprof.report.calls import Calls, calls_of, origins
from pyprof.report.idle import REASONS, Gaps, find_gaps
from pyprof.tables.screen import Cells, joined
from pyprof.tables.table import Header, Integers, Table, Texts, Values, choose

_FEW = 1 << 10  # gaps that are found and described without the others
_OF_RECORDS = ("name", "call", "scope", "launch_ns")


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

    @property
    def shown(self) -> slice:
        """The gaps of whole devices, or of streams, in order of line and begin."""
        return slice(self.gaps.of_devices, len(self.gaps)) if self.by_stream else slice(0, self.gaps.of_devices)

    def why(self, rows: Ints) -> Cells:
        """The reason of these gaps, and the API call that the host waited in, the op that made it and its source line."""
        used, pools = self._waits
        codes = computed(len(rows), np.int32, lambda part: np.searchsorted(used, self.gaps.call[rows[part]]))
        return [
            (_REASON, Texts(taken(self.gaps.reason, rows), REASONS)),
            *((header, Texts(codes, pool)) for header, pool in zip(_WAITS, pools, strict=True)),
        ]

    @cached_property
    def _waits(self) -> tuple[Ints, list[list[str]]]:
        """The distinct calls that the host waited in, ascending behind -1, and the texts of each."""
        call = self.gaps.call
        known = distinct_values(taken(call, rows_where(len(call), lambda part: call[part] >= 0))).astype(np.int64)
        found = [("", "", "")]
        if self.trace is not None and self.calls is not None and len(known):
            names = [self.trace.strings[code] for code in self.calls.name[known].tolist()]
            origin = origins(self.trace, op_rules(), self.calls, known)
            found += [(name, *of) for name, of in zip(names, origin, strict=True)]
        return np.append(-1, known), [[texts[part] for texts in found] for part in range(3)]

    def where(self, line: Ints, stream: bool = True) -> Cells:
        """Columns that identify the line."""
        lines = self.lines
        cells: Cells = [
            (Header("pid", "PId", "process", detail=True), Integers.from_zero(mapped(lines.pid, line))),
            (
                Header("device", "Device", "device ordinal", width=3, detail=len(self.devices) == 1),
                Integers.from_zero(mapped(lines.device, line)),
            ),
        ]
        if stream:
            pool = ["all", *(str(n) for n in np.unique(lines.stream).tolist())]
            names = np.where(lines.whole, 0, 1 + np.searchsorted(np.unique(lines.stream), lines.stream))
            names = np.where(lines.stream == -2, -1, names).astype(np.int32)
            header = Header("stream", "Stream", "stream; all: the device, busy where any of its streams is", width=3)
            cells.append((header, Texts(mapped(names, line), pool)))
        return cells

    def of_records(self, keys: str, rows: Ints) -> Cells:
        """Columns of `pyprof prof` for these records, of those that _OF_RECORDS suffices for."""
        of = self.frame.records
        columns = {name: taken(of[name], rows) for name in _OF_RECORDS}
        pools = of.strings, of.stacks, of.calls, of.gpus, of.engine_steps
        table = RecordTable(Part(self.frame, rows, Records(columns, *pools, np.zeros(len(rows) + 1, np.int64))))
        found = [(header, table.of(header.key)) for header in choose(keys, HEADERS)]
        return [(header, v._replace(codes=kept(v.codes)) if isinstance(v, Texts) else v) for header, v in found]

    def longest(self, count: int) -> Ints:
        """The longest of the gaps that are shown, longest first, equal ones by begin and line."""
        gaps, shown = self.gaps, self.shown
        found: Ints = np.asarray(largest(gaps.own[shown], count, gaps.start[shown], gaps.line[shown]) + shown.start)
        return found

    @cached_property
    def by_length(self) -> Ints:
        """All that are shown, in that order."""
        gaps, shown = self.gaps, self.shown
        order = order_of(gaps.start[shown], gaps.line[shown])
        own = gaps.own[shown] if order is None else taken(gaps.own[shown], order)
        found = np.argsort(np.negative(own), kind="stable")
        found = kept((found if order is None else order[found]).astype(row_type(shown.stop)))
        for part in pieces(len(found)):
            found[part] += shown.start
        return found


_REASON = Header("reason", "Reason", "why it idled")
_WAITS = (
    Header("call", "Call", "API call in which the host waited", width=10, empty="-"),
    Header("waitop", "CalledBy", "op that made this call", width=8, empty="-", detail=True),
    Header("waitsrc", "CalledAt", "its source line, or else its layers", width=8, empty="-"),
)


def ns_of(key: str, text: str) -> Header:
    """The header of a time."""
    return Header(key, f"{key.capitalize()}(ns)", text, "ns", 10)


class LongestFirst:
    """The gaps that are shown, of which those that are asked for are described: the first few, or all."""

    def __init__(self, report: Report) -> None:
        self._report = report

    @cached_property
    def headers(self) -> Sequence[Header]:
        """Of every column."""
        return _described(self._report, np.empty(0, np.int64)).headers

    def of(self, key: str) -> Values:
        """The values of one column."""
        return self._all.of(key)

    def take(self, rows: Ints) -> Table:
        """These rows only."""
        touched()
        count = int(rows.max(initial=-1)) + 1
        if count > _FEW:
            return self._all.take(rows)
        return _described(self._report, self._report.longest(count)[rows])

    @cached_property
    def _all(self) -> Table:
        return _described(self._report, self._report.by_length)


def _described(report: Report, rows: Ints) -> Table:
    """Some gaps."""
    gaps = report.gaps
    ((short, before),) = report.of_records("kernel", taken(gaps.before, rows))
    (_, after), *more = report.of_records("kernel,op,layer,src,launch", taken(gaps.after, rows))
    cells: Cells = [
        *report.where(taken(gaps.line, rows), report.by_stream),
        (ns_of("start", "when it ran dry")._replace(moment=True), Integers.known(taken(gaps.start, rows))),
        (ns_of("idle", "how long, less what other streams of the device worked"), Integers.known(taken(gaps.own, rows))),
        *report.why(rows),
        (Header("before", "Before", "what ended last: " + short.help, width=12, detail=True), before),
        (Header("next", "Next", "what began next: " + short.help, width=12), after),
        *more,
    ]
    return joined("gaps", cells)
