"""The gaps of a division of time and what the host did in them -> the causes of each, in ns that add up to its length.

MEANINGS holds the causes; what an expert would name first comes before what is left over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.intervals import Segments, summed, union
from pyprof.arrays.joining import rows_where
from pyprof.arrays.spool import computed, pieces
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.sources.trace import ActivityKind, Trace
from pyprof.report.calls import Calls
from pyprof.report.division import DeviceGaps, Division
from pyprof.report.hostwork import HostWork
from pyprof.report.steps import Steps
from pyprof.report.waits import blamed_calls, fall_into, idling_waits, last_wait, relieved, silences

# unrecorded: more than 1 ms before an activity whose launch had returned more than 1 ms before; inside of a graph's replay, or
# behind one most of whose kernels are missing. host: for more than 2 ms, at the window's end, or all of it without a device.
MEANINGS = {
    "data_loading": "the host prepared inputs: in a DataLoader, or otherwise before the first launch of a step",
    "synchronization": "the host had waited for the device (.item(), a blocking copy), which so ran dry",
    "compilation": "the host compiled, loaded modules or recorded a graph",
    "allocation": "the host allocated or freed memory of the device",
    "profiler": "estimated: what recording itself added between launches",
    "launch": "the host launched one after another, and too slowly",
    "host": "the host did something else, or nothing that is recorded",
    "queued": "what a device takes between two activities that were both launched in time",
    "unrecorded": "work was launched before the recording began, or was lost",
    "unknown": "nothing is known that it waited for, or the records do not show what the host did",
}
CAUSES = tuple(MEANINGS)
_UNRECORDED_NS = 1_000_000
_QUEUED_NS = 20_000
_PAUSE_NS = 2_000_000  # without a call: more than it takes to launch the next; half of it before a copy of inputs
_REPLAY = 8  # activities of one launch
_TIMES = 3  # as many activities of a replay as kernels: most of them are missing
_WORTH = 0.03  # of the window: from here on it is worth knowing what recording took of the time that launches came too late
_TO_DEVICE = 1  # CUDA's number of a copy from the host to a device
_OFTEN = 3  # pauses before copies to the device that make them a habit where no steps are marked


@dataclass(frozen=True)
class Idle:
    """cause: of each gap that is one cause's the place in CAUSES, -1 else; late: the others, in which a device waited for the
    host; divided: of each of these how long it is for each cause; waited: the row of Calls of the call whose wait it is for, -1
    none."""

    gaps: DeviceGaps
    cause: Ints
    late: Ints
    divided: Ints
    waited: Ints

    def rows_of(self, cause: str) -> tuple[Ints, Ints]:
        """(the gaps that have time for a cause, ascending; how long it is)."""
        code = CAUSES.index(cause)
        whole = rows_where(len(self.cause), lambda part: (self.cause[part] == code) & (self.gaps.time_ns[part] > 0))
        time = computed(len(whole), np.int64, lambda part: self.gaps.time_ns[whole[part]])
        some = np.flatnonzero(self.divided[:, code])
        if not len(some):
            return whole, time
        rows, time = np.concatenate([whole, self.late[some]]), np.concatenate([time, self.divided[some, code]])
        order = np.argsort(rows, kind="stable")
        return rows[order], time[order].astype(np.int64)

    def of(self, cause: str) -> Ints:
        """The time of each gap for one cause."""
        result = np.zeros(len(self.gaps), np.int64)
        rows, time = self.rows_of(cause)
        result[rows] = time
        return result

    @cached_property
    def by_device(self) -> Ints:
        """(CAUSES, devices): ns."""
        count = max(int(self.gaps.device.max(initial=-1)) + 1, self.gaps.devices)
        result = np.zeros(len(CAUSES) * count, np.int64)
        for part in pieces(len(self.cause)):
            mine = self.cause[part] >= 0
            group = self.cause[part][mine].astype(np.int64) * count + self.gaps.device[part][mine]
            result += summed(group, self.gaps.time_ns[part][mine], len(result))
        device = self.gaps.device[self.late]
        for code in range(len(CAUSES)):
            result[code * count : (code + 1) * count] += summed(device, self.divided[:, code], count)
        return result.reshape(len(CAUSES), count)

    def causes_of(self, gap: int) -> list[tuple[int, str]]:
        """(ns, cause) of each cause of one gap."""
        if self.cause[gap] >= 0:
            return [(int(self.gaps.time_ns[gap]), CAUSES[self.cause[gap]])]
        times = self.divided[np.searchsorted(self.late, gap)].tolist()
        return [(ns, cause) for ns, cause in zip(times, CAUSES, strict=True) if ns]

    def waits(self, rows: Ints) -> Ints:
        """For each of these gaps the row of Calls of the call whose wait it is for, -1 none."""
        if not len(self.late):
            return np.full(len(rows), -1, np.int64)
        at = np.minimum(np.searchsorted(self.late, rows), len(self.late) - 1)
        return np.where(self.late[at] == rows, self.waited[at], -1)


def idle_causes(division: Division, trace: Trace | None, calls: Calls | None, steps: Steps | None) -> Idle:
    """The causes of each gap of each device. calls: of the trace, None without one."""
    gaps = division.gaps
    if not division.on_gpu:
        rows = np.arange(len(gaps))
        result, left = _Late(division, trace, calls, steps, rows).known()
        result[:, CAUSES.index("host")] += left
        return Idle(gaps, np.full(len(gaps), -1, np.int8), rows, result, np.full(len(gaps), -1, np.int64))
    late = division.waits_for_host.copy()

    def causes(part: slice) -> Ints:
        after = gaps.after[part]
        found = np.where((gaps.time_ns[part] <= _QUEUED_NS) & (after >= 0), CAUSES.index("queued"), CAUSES.index("unknown"))
        found[after < 0] = CAUSES.index("host")
        return found

    cause = computed(len(gaps), np.int8, causes)
    for lost in (unrecorded(division), _in_replays(division)):
        late[lost] = False
        cause[lost] = CAUSES.index("unrecorded")
    rows, divided, waited = np.flatnonzero(late), np.zeros((0, len(CAUSES)), np.int64), np.empty(0, np.int64)
    if len(rows):
        cause[rows] = -1
        divided, waited = _Late(division, trace, calls, steps, rows).divided()
    return Idle(gaps, cause, rows, divided, waited)


def unrecorded(division: Division) -> Ints:
    """The gaps whose next activity had been launched long before the device began it, although it had nothing else to do."""
    gaps, records = division.gaps, division.records
    rows = rows_where(len(gaps), lambda part: gaps.time_ns[part] > _UNRECORDED_NS)
    after, end = gaps.after[rows], gaps.ends(rows)
    launch = records["launch_ns"][after]
    returned = launch + np.maximum(records["launch_dur_ns"][after], 0)
    return rows[(after >= 0) & (launch >= 0) & (returned < end - _UNRECORDED_NS)]


def _in_replays(division: Division) -> Ints:
    """The gaps inside of the replay of a graph, which runs one node after another, and those behind a replay of which next to
    nothing but sets and copies of memory was recorded."""
    gaps, records = division.gaps, division.records
    long = rows_where(len(gaps), lambda part: gaps.time_ns[part] > _QUEUED_NS)
    before, after = gaps.before[long], gaps.after[long]
    known = np.flatnonzero((before >= 0) & (after >= 0))
    one, other = ({name: records.of_rows(name, rows[known]) for name in ("corr", "pid")} for rows in (before, after))
    same = np.zeros(len(long), np.bool_)
    same[known] = (one["corr"] == other["corr"]) & (other["corr"] >= 0) & (one["pid"] == other["pid"])
    if not same.any():
        return np.empty(0, np.int64)
    rows = np.flatnonzero(records["corr"] >= 0)
    replay = distinct_rows(records["pid"][rows], records["corr"][rows]).inverse
    kernels = np.isin(records["kind"][rows], (ActivityKind.KERNEL, ActivityKind.GRAPH))
    total = np.bincount(replay)
    broken = np.zeros(len(records) + 1, np.bool_)
    broken[rows] = ((total >= _REPLAY) & (np.bincount(replay, kernels) * _TIMES < total))[replay]
    return long[same | broken[before]]


class _Late:
    """The gaps in which a device waited for the host."""

    def __init__(self, division: Division, trace: Trace | None, calls: Calls | None, steps: Steps | None, rows: Ints) -> None:
        """rows: of the division's gaps."""
        gaps = division.gaps
        self.division, self.calls, self.steps, self.rows = division, calls, steps, rows
        self.begin, self.end, self.after = gaps.starts(rows), gaps.ends(rows), gaps.after[rows]
        self.trace = trace
        self.work = HostWork(trace, calls) if trace is not None and calls is not None else None
        pids = trace.processes["pid"].astype(np.int64) if trace is not None else np.empty(0, np.int64)
        mine = division.pids[gaps.device[rows]]
        order = np.argsort(pids, kind="stable")
        at = np.searchsorted(pids[order], mine)
        self.process = order[np.minimum(at, len(order) - 1)] if len(order) else np.full(len(rows), -1)

    def known(self) -> tuple[Ints, Ints]:
        """(gaps, CAUSES) of what the host is known to have done by name, and what is left of each gap, in ns."""
        left = self.end - self.begin
        result = np.zeros((len(left), len(CAUSES)), np.int64)
        for cause, time in self._known():
            result[:, CAUSES.index(cause)] = time
            left = left - time
        return result, left

    def divided(self) -> tuple[Ints, Ints]:
        """(gaps, CAUSES) in ns, and the call that the host had been waiting in."""
        result, left = self.known()
        recorded = np.minimum(self._recording(left), left)
        result[:, CAUSES.index("profiler")] = recorded
        left = left - recorded
        for cause, time in self._pauses(left):
            result[:, CAUSES.index(cause)] += time
            left = left - time
        waited, call = blamed_calls(self.division, self.calls, self.rows)
        if self.calls is None:
            silent = silences(self.division)
            gone = np.where(fall_into(self.division, silent, self.rows), left, relieved(self.division, silent, self.rows))
            result[:, CAUSES.index("unknown")] = np.where(waited, 0, np.minimum(gone, left))
            left = left - result[:, CAUSES.index("unknown")]
            drained = np.where(waited, left, 0)
        else:
            waits, waiting = idling_waits(self.division, self.calls)
            drained = np.where(waited, left, np.minimum(relieved(self.division, waiting, self.rows), left))
            last = last_wait(self.division, self.calls, waits, self.rows)
            call = np.where((call < 0) & (drained > 0), last, call)
        result[:, CAUSES.index("synchronization")] = drained
        # Before the first activity of a window nothing was launched that this launch comes after.
        rest, first = left - drained, self.division.gaps.before[self.rows] < 0
        result[:, CAUSES.index("launch")] = np.where(first, 0, rest)
        result[:, CAUSES.index("host")] += np.where(first, rest, 0)
        return result, call

    def _known(self) -> list[tuple[str, Ints]]:
        """The time of each gap in which the host is known to have done something else than launch, one cause before another."""
        if self.work is None:
            return [("compilation", self._covered(self._first_launches()))]
        loading, compilation = self.work.loading, _joined(self.work.compilation, self._first_launches())
        if len(self.work.preparation.start):
            loading = _joined(loading, self._prepared())
        found, before = [], loading
        for cause, segments in (
            ("data_loading", loading), ("compilation", compilation), ("allocation", self.work.allocation),
        ):  # fmt: skip
            both = _joined(before, segments)
            earlier = self._covered(before) if cause != "data_loading" else np.int64(0)
            found.append((cause, self._covered(both) - earlier))
            before = both
        return found

    def _covered(self, segments: Segments) -> Ints:
        return segments.covered(self.process, self.end) - segments.covered(self.process, self.begin)

    def _recording(self, left: Ints) -> Ints:
        """How much of each gap recording Python's frames took of the launching thread."""
        division = self.division
        if self.work is None or self.trace is None or not len(self.trace.frames["name"]):
            return np.zeros_like(left)
        if left.sum() < _WORTH * division.wall_ns * division.count:
            return np.zeros_like(left)
        threads, records = self.trace.threads, division.records
        pid = np.concatenate([self.trace.processes["pid"][threads["process"]], records["pid"][self.after]])
        code = distinct_rows(pid, np.concatenate([threads["tid"], records["tid"][self.after]])).inverse
        known, wanted = np.split(code, [len(threads["tid"])])
        row = np.full(int(code.max()) + 1, -1, np.int64)
        row[known] = np.arange(len(known))
        segments = self.work.recording
        return segments.covered(row[wanted], self.end) - segments.covered(row[wanted], self.begin)

    def _prepared(self) -> Segments:
        """When libraries made inputs: in gaps before a copy to the device, or before the first launch of a step."""
        assert self.work is not None
        rows = np.flatnonzero(self._begins_a_step() | self._copies_to_device())
        spans = self.work.preparation
        inside = union(self.process[rows], self.begin[rows], self.end[rows])
        # What lies in both: all edges of either, kept where both cover.
        group = np.concatenate([spans.group, spans.group, inside.group, inside.group])
        edge = np.concatenate([spans.start, spans.end, inside.start, inside.end])
        order = np.lexsort((edge, group))
        group, edge = group[order], edge[order]
        same = group[1:] == group[:-1]
        both = same & (np.diff(spans.covered(group, edge)) > 0) & (np.diff(inside.covered(group, edge)) > 0)
        return union(group[:-1][both], edge[:-1][both], edge[1:][both])

    def _first_launches(self) -> Segments:
        """Launching calls of at least 1 ms of a kernel that had not run before: its module is loaded."""
        records, after = self.division.records, self.after
        took = records["launch_dur_ns"][after]
        rows = np.flatnonzero((took >= _UNRECORDED_NS) & (records["kind"][after] == ActivityKind.KERNEL))
        first = [not (records["name"][:row] == records["name"][row]).any() for row in after[rows].tolist()]
        rows = rows[np.array(first, np.bool_)]
        begin = records["launch_ns"][after[rows]]
        return union(self.process[rows], begin, begin + took[rows])

    def _pauses(self, left: Ints) -> list[tuple[str, Ints]]:
        """How much of what is left of each gap the host spent in pauses, without calls of the API (or, but before copies of
        inputs, ops that launch nothing): those before the loading of a module are compilation, those before copies loading."""
        compiled, result = np.zeros_like(left), np.zeros_like(left)
        copies = self._copies_to_device()
        least = np.where(copies, _PAUSE_NS // 2, _PAUSE_NS)
        for row in np.flatnonzero(left > least).tolist():
            begin, end = int(self.begin[row]), int(self.end[row])
            if self.work is None:
                launch = int(self.division.records["launch_ns"][self.after[row]])
                result[row] = max(min(launch, end) - begin, 0)
                continue
            process = int(self.process[row])
            known = [self.work.loading, self.work.compilation, self.work.allocation, self.work.long_calls]
            edges = np.concatenate([[begin], self.work.moments(process, begin, end, ops=not copies[row]), [end]])
            group = np.full(len(edges), process)
            busy = sum(np.diff(segments.covered(group, edges)) for segments in known)
            length = np.diff(edges)
            pause = (length > least[row]) & (busy * 2 < length)
            to_module = pause & np.isin(edges[1:], self.work.compilation.start)
            compiled[row], result[row] = length[to_module].sum(), length[pause & ~to_module].sum()
        compiled = np.minimum(compiled, left)
        result = np.minimum(result, left - compiled)
        loads = self._loads((result > 0) & copies)
        return [("compilation", compiled), ("data_loading", np.where(loads, result, 0)), ("host", np.where(loads, 0, result))]

    def _loads(self, found: Bools) -> Bools:
        """In which of these pauses before copies to the device the host prepared inputs: those before a step's first launch, or
        where no steps are marked those that come again and again."""
        if self.steps is not None and self.steps.kind == "engine":  # what its scheduler does between steps is no data loading
            return np.zeros_like(found)
        if self.steps is not None and len(self.steps):
            return found & self._begins_a_step()
        records = self.division.records
        _, _, kind = distinct_rows(records["call"][self.after], records["inner"][self.after])
        count = np.bincount(kind[found], minlength=int(kind.max(initial=0)) + 1)
        return np.asarray(found & (count[kind] >= _OFTEN))

    def _copies_to_device(self) -> Bools:
        """Which gaps are followed by a copy from the host."""
        of = self.division.records.of_rows

        def copied(part: slice) -> Bools:
            rows = self.after[part]
            return np.asarray((of("kind", rows) == ActivityKind.MEMCPY) & (of("copykind", rows) == _TO_DEVICE))

        return computed(len(self.after), np.bool_, copied)

    def _begins_a_step(self) -> Bools:
        """Which gaps are followed by what a step launches up to its first kernel."""
        if self.steps is None or not len(self.steps):
            return np.zeros(len(self.rows), np.bool_)
        records, row, begins = self.division.records, self.division.row, self.steps.begin_ns
        first = np.full(len(begins), np.iinfo(np.int64).max)
        for part in pieces(len(row)):
            launches = records["launch_ns"][row[part]][records["kind"][row[part]] == ActivityKind.KERNEL]
            step = np.searchsorted(begins, launches, "right") - 1
            np.minimum.at(first, step[step >= 0], launches[step >= 0])
        first = np.minimum.accumulate(first[::-1])[::-1]
        launch = records["launch_ns"][self.after]
        step = np.searchsorted(self.steps.begin_ns, launch, "right") - 1
        return np.asarray((step >= 0) & (launch <= first[np.maximum(step, 0)]))


def _joined(one: Segments, other: Segments) -> Segments:
    parts = zip((one.group, one.start, one.end), (other.group, other.start, other.end), strict=True)
    return union(*map(np.concatenate, parts))
