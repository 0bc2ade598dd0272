"""The timeline of a window, played again with changes -> by how much it gets shorter.

A small model of streams and host calls. A launch or a waiting call comes as long after the one before it on its thread as
recorded; where a thread made no call while another made several, as autograd's thread and the main one in turn, after the last
of the other. A call that waited, or that a full launch queue held up, ends when the activity that it waited for has ended. An
activity begins when its stream is free, its launch has come (and the shortest latency seen has passed), and that activity of
another stream has ended after whose end it began although its own stream and launch were ready. Activities without a launch are
queued work.

A kind of advice states its whole change, whatever other kinds say: of several changes of one thing the largest counts (of a
collective their sum: waiting for a late rank and sending are two parts of it).

All is told in shifts: how much later than recorded something ends, below 0 for earlier. A shift is the largest that what came
before demands, each less the slack that was recorded between the two; so without a change all shifts are 0. Between two places
where streams and host meet (a wait, a change of thread, an edge between streams) demands are running sums and maxima.
What is left is a graph of few nodes, which is walked in order: stretches of a thread (the host's time that is gone up to a call
is taken from a node's value) and stretches of a stream (likewise the time that is gone up to an activity).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among, narrowest, row_type
from pyprof.columns.intervals import order_of
from pyprof.columns.types import Bools, Floats, Ints
from pyprof.model.records import PHASES
from pyprof.report.time.dependencies import NEVER, HostCalls, Waited, Work
from pyprof.report.time.division import Division
from pyprof.report.time.waits import Waits

REPLAYED = frozenset("pid tid device stream kind phase instance start_ns dur_ns launch_ns launch_dur_ns".split())
"""Columns of records that a replay needs."""
_NO_DEMAND = -(1 << 60)
_OP = 10
"""Percentile of the time before the first launch of an op that is taken for the op's own: more is the program's between its
ops. Eleven traces of torch.profiler say when ops of one launch begin and end. Of the host's time that they take 0.79 is told
so (geometric mean; 0.50 to 1.06), with the 25th percentile 0.91, the median 1.21, the mean 1.53; but of pointwise ops, which
changes remove and which are the shortest, 1.35, 1.50, 1.78 and 2.05."""
_BACK = 8  # calls before a launch that may have filled the gap before it
_PAUSE_NS = 2_000_000  # between two launches: more is no launching


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Change:
    """rows, cut_ns: records that get shorter, and by how much (NaN and negative times are 0; at most their whole time goes).
    removed: records that are not launched any more: their time, their launch call and the host's time before it (that of their
    op) go; a launch with several activities goes with all of them. merged: records that run in the launch of one before them,
    as when kernels are fused: launch call and host's time go, and of their own time what cut_ns says. waits: rows of
    `Overview.waits`, calls in which the host no longer waits for the device. gaps, gap_ns: rows of `Division.gaps`, and the
    host's time in each that goes, as loading of data: the launch that ends the gap comes so much earlier (`base.IdleTime` has
    this change). before, before_ns: records, and the host's time before the launch of each that goes, its device idle or not.
    cause: of that time; what several changes say of one gap adds up where their causes differ. graphed: launches
    take the host no time, as those of a CUDA graph, but in these gaps so much, which is no launching (gaps, ns); pauses and
    waits stay.
    """

    rows: Ints = field(default_factory=_none)
    cut_ns: Ints | Floats = field(default_factory=_none)
    removed: Ints = field(default_factory=_none)
    merged: Ints = field(default_factory=_none)
    waits: Ints = field(default_factory=_none)
    gaps: Ints = field(default_factory=_none)
    gap_ns: Ints = field(default_factory=_none)
    before: Ints = field(default_factory=_none)
    before_ns: Ints = field(default_factory=_none)
    cause: str = ""
    graphed: tuple[Ints, Ints] | None = None


class _Gone(NamedTuple):
    """Time and waits that changes take away. work_ns: of each activity; removed: activities that are not launched; merged: that
    run in another's launch; call_ns: of the host's time up to each call's end; wait: calls that no longer wait; rest_ns: of the
    host's time after the last activity of each device."""

    work_ns: Ints
    removed: Bools
    merged: Bools
    call_ns: Ints
    wait: Bools
    rest_ns: Ints


class TimelineReplay:
    """The window of a division with what its calls and activities waited for. host_end_ns: until when the host belongs to the
    window, as the end of a step; None: until its last call."""

    def __init__(self, division: Division, waits: Waits | None, host_end_ns: int | None = None) -> None:
        self._division, self._host_end = division, host_end_ns
        self._calls = calls = HostCalls(division, waits)
        self._work = work = Work(division, calls)
        self._waited = Waited(calls, work)
        self._at = np.full(len(division.records), -1, work.row.dtype)  # of each record's activity
        self._at[work.row] = np.arange(len(work), dtype=work.row.dtype)
        self._stretch()
        self._edges()
        self._took_ns = narrowest(calls.end - calls.begin)
        ends = np.flatnonzero(np.append(calls.first[1:], True)[: len(calls)])  # the last call of each thread
        self._threads = ends, calls.pid[ends], np.minimum(calls.end[ends], division.end_ns)
        # All that follows is in shifts.
        del work.begin, work.end, work.stream, work.rank, calls.begin, calls.end, calls.of, calls.launched, calls.rank

    # -------------------------------------------------------------------------------------------- nodes and edges

    def _stretch(self) -> None:
        """Number the stretches: node 0 is the window's begin, then those of threads, then those of streams."""
        calls, work, waited = self._calls, self._work, self._waited
        ends = np.zeros(len(calls), np.bool_)  # whether a new stretch begins with the end of a call
        ends[waited.call] = True
        begins = calls.first | calls.turn
        narrow = row_type(len(calls) + len(work) + len(waited.call) + 1)
        number = np.cumsum(begins, dtype=narrow) + np.cumsum(np.append(0, ends)[:-1], dtype=narrow)
        self._begun, self._ended = number, number + ends  # the node of each call's begin, and of its end
        threads = int(self._ended[-1]) if len(calls) else 0
        sources = np.zeros(len(work), np.bool_)
        sources[waited.work] = True
        sources[work.after[work.after >= 0]] = True
        new = work.first | np.append(False, sources)[:-1]
        self._run = np.cumsum(new, dtype=narrow) + narrow(threads)
        self._last = np.flatnonzero(np.append(new[1:], True)[: len(work)])  # activity of each run
        self._count = 1 + threads + len(self._last)
        # Nodes in the order in which calls were made; of one call what begins with it, what it launched, what follows its end.
        rank, part, begin = (np.zeros(self._count, np.int64) for _ in range(3))
        rank[0] = -2
        for nodes, at, of in ((number[begins], calls.rank[begins], 0), (self._ended[ends], calls.rank[ends], 2)):
            rank[nodes], part[nodes] = at, of
        rank[threads + 1 :], part[threads + 1 :] = work.rank[self._last], 1
        begin[threads + 1 :] = work.begin[self._last]
        order = np.lexsort((begin, part, rank))
        self._place = np.empty(self._count, np.int64)
        self._place[order] = np.arange(self._count)

    def _edges(self) -> None:
        """Which node demands something of which. The order is that of `_weights`."""
        calls, work, waited = self._calls, self._work, self._waited
        self._turned = np.flatnonzero(calls.first | calls.turn)
        self._held, self._short = np.unique(waited.call, return_inverse=True)
        self._head = np.flatnonzero(work.first)
        # Demands of launches: the largest for each run and stretch of a thread.
        with_launch = np.flatnonzero((work.call != NEVER) | work.first).astype(self._run.dtype)
        by = np.append(self._begun, self._begun.dtype.type(0))[np.maximum(work.call[with_launch], -1)]
        run = self._run[with_launch]
        if (order := order_of(run, by)) is not None:
            with_launch, by, run = with_launch[order], by[order], run[order]
        self._launched = with_launch
        self._groups = np.flatnonzero(np.append(True, (np.diff(by) != 0) | (np.diff(run) != 0))[: len(by)])
        self._crossing = np.flatnonzero(work.after >= 0)
        follows = ~work.first[np.append(0, self._last[:-1] + 1)[: len(self._last)]]  # runs that go on in their stream
        going_on = self._run[self._last[follows]]
        pred = calls.pred[self._turned]
        source = (np.where(pred >= 0, np.append(self._ended, 0)[pred], 0), self._begun[self._held], self._run[waited.work],
                  going_on - 1, by[self._groups], self._run[work.after[self._crossing]])  # fmt: skip
        target = (self._begun[self._turned], self._ended[self._held], self._ended[waited.call],
                  going_on, run[self._groups], self._run[self._crossing])  # fmt: skip
        sources, targets = np.concatenate(source), np.concatenate(target)
        self._order = np.argsort(self._place[targets], kind="stable")
        self._source, self._target = sources[self._order].tolist(), targets[self._order].tolist()

    def _weights(self, gone: _Gone) -> tuple[Ints, Ints, Ints]:
        """(demand of each edge, host's time gone up to the end of each call, time gone up to the end of each activity)."""
        calls, work, waited = self._calls, self._work, self._waited
        hosts = np.zeros(len(calls) + 1, np.int64)  # the last: before the window
        np.cumsum(gone.call_ns, out=hosts[:-1])
        works: Ints = work.free_ns.astype(np.int64)
        if self._division.on_gpu:  # between ops on a CPU there is only the program
            works = np.where(gone.removed | gone.merged, work.pause_ns, works)
        works += gone.work_ns
        np.cumsum(works, out=works)
        short = np.zeros(len(self._held), np.int64)
        np.maximum.at(short, self._short, waited.short_ns)
        short = np.where(gone.wait[self._held], np.maximum(short, self._took_ns[self._held] - gone.call_ns[self._held]), short)
        short = np.clip(np.minimum(short, calls.own_ns[self._held] - gone.call_ns[self._held]), 0, None)
        first, pred = self._turned, calls.pred[self._turned]
        some = self._launched
        late = hosts[np.maximum(work.call[some], -1)]
        late += work.late_ns[some]
        late += gone.work_ns[some]
        np.subtract(works[some], late, out=late)
        late[gone.removed[some]] = _NO_DEMAND
        cross, after = self._crossing, work.after[self._crossing]
        edges = (
            hosts[first] - hosts[pred] - gone.call_ns[first],
            -short,
            np.where(gone.wait[waited.call], _NO_DEMAND, hosts[waited.call] - works[waited.work] - waited.slack_ns),
            np.zeros(
                len(self._order) - len(first) - len(self._held) - len(waited.call) - len(self._groups) - len(cross), np.int64
            ),
            np.maximum.reduceat(late, self._groups) if len(self._groups) else late,
            np.where(gone.removed[cross], _NO_DEMAND, works[cross] - gone.work_ns[cross] - work.after_ns[cross] - works[after]),
        )
        return np.concatenate(edges)[self._order], hosts, works

    # -------------------------------------------------------------------------------------------- changes

    def _gone(self, changes: Iterable[Change]) -> _Gone:
        """All that several changes take away together."""
        changes = list(changes)
        calls, work, at = self._calls, self._work, self._at
        work_ns, pauses_of = np.zeros(len(work), np.int64), dict[str, Ints]()
        removed, merged = np.zeros((2, len(work)), np.bool_)
        # Of a collective two parts may go: waiting for a late rank, and sending.
        talks = self._division.records["phase"][work.row] == PHASES.index("communication")
        rests_of = dict[str, Ints]()
        wait = np.zeros(len(calls), np.bool_)
        for change in changes:
            rows, cut = at[change.rows], np.asarray(change.cut_ns)
            if cut.dtype.kind == "f":
                cut = np.nan_to_num(cut).clip(0, 1 << 62).astype(np.int64)
            both = (rows >= 0) & talks[rows]
            some = np.flatnonzero((rows >= 0) & ~both)
            np.maximum.at(work_ns, rows[some], cut[some])
            if both.any():
                own = np.zeros(len(work), np.int64)
                np.maximum.at(own, rows[both], cut[both])
                work_ns += own
            for mask, rows in ((removed, change.removed), (merged, change.merged)):
                mask[at[rows][at[rows] >= 0]] = True
            wait[among(calls.wait, change.waits)] = True
            after = self._division.gaps.after[change.gaps]
            ends = np.where(after >= 0, at[after], -1)
            known, time = ends >= 0, np.asarray(change.gap_ns, np.int64)
            pauses = pauses_of.setdefault(change.cause, np.zeros(len(work), np.int64))
            np.maximum.at(pauses, ends[known], time[known])
            ends = at[change.before]
            np.maximum.at(pauses, ends[ends >= 0], change.before_ns[ends >= 0])
            last = self._division.gaps.end_ns[change.gaps] == self._division.end_ns
            rests = rests_of.setdefault(change.cause, np.zeros(self._division.count, np.int64))
            np.maximum.at(rests, self._division.gaps.device[change.gaps[last]], time[last])
        pauses = sum(pauses_of.values(), start=np.zeros(len(work), np.int64))
        rest_ns = sum(rests_of.values(), np.zeros(self._division.count, np.int64))
        if not self._division.on_gpu:  # without launches: the time before an op itself
            work_ns += np.minimum(pauses, work.pause_ns)
        call_ns = self._before_launches(pauses)
        some = np.flatnonzero((removed | merged) & (work.call >= 0))
        unlaunched = np.flatnonzero(np.bincount(work.call[some], minlength=len(calls)) == self._launches) if len(some) else some
        unlaunched = unlaunched[self._launches[unlaunched] > 0]
        call_ns[unlaunched] = np.maximum(call_ns[unlaunched], self._op_ns(unlaunched))
        if (graphed := next((change.graphed for change in changes if change.graphed is not None), None)) is not None:
            after, kept = self._division.gaps.after[graphed[0]], np.zeros(len(work), np.int64)
            ends = np.where(after >= 0, at[after], -1)
            kept[ends[ends >= 0]] = graphed[1][ends >= 0]
            kept -= pauses - pauses_of.get("launch", 0)
            launching = (calls.wait < 0) & (calls.own_ns - self._took_ns <= _PAUSE_NS)
            call_ns = np.where(launching, calls.own_ns - self._before_launches(np.maximum(kept, 0)), call_ns)
        np.minimum(call_ns, calls.own_ns, out=call_ns)
        work_ns[removed] = work.own_ns[removed]
        np.minimum(work_ns, work.own_ns, out=work_ns) if self._division.on_gpu else None
        return _Gone(work_ns, removed, merged, call_ns, wait, rest_ns)

    def _before_launches(self, pauses: Ints) -> Ints:
        """Times before activities as parts of the host's time up to the end of each call."""
        calls, work, call_ns = self._calls, self._work, np.zeros(len(self._calls), np.int64)
        some = np.flatnonzero((pauses > 0) & (work.call >= 0))
        np.add.at(call_ns, work.call[some], pauses[some])
        for _ in range(_BACK):  # what a launch did not take was in the calls before it
            if not len(some := np.flatnonzero(call_ns > calls.own_ns)):
                break
            over, before = call_ns[some] - calls.own_ns[some], calls.pred[some]
            call_ns[some] = calls.own_ns[some]
            np.add.at(call_ns, before[before >= 0], over[before >= 0])
        return np.minimum(call_ns, calls.own_ns)

    @cached_property
    def _launches(self) -> Ints:
        """How many activities each call launched."""
        return np.bincount(self._work.call[self._work.call >= 0], minlength=len(self._calls))

    def _op_ns(self, rows: Ints) -> Ints:
        """The host's time for the op that makes each of these calls: the call itself, and what an op takes before it."""
        calls = self._calls
        took = self._took_ns[rows]
        before = np.minimum(np.maximum(calls.own_ns[rows] - took, 0), self._usual_ns)
        result: Ints = np.where(calls.wait[rows] < 0, took, 0) + before
        return result

    @cached_property
    def _usual_ns(self) -> int:
        """The host's time before a call that is an op's own, of calls that are the first of their op."""
        calls, work = self._calls, self._work
        op = np.full(len(calls) + 1, -1)
        launched = np.flatnonzero(work.call >= 0)
        op[work.call[launched]] = self._division.records["instance"][work.row[launched]]
        first = (calls.wait < 0) & ((op[:-1] < 0) | (op[:-1] != op[calls.pred]))  # a pred of -1 is the last, of no op
        before = np.maximum(calls.own_ns - self._took_ns, 0)[first]
        return int(np.percentile(before, _OP)) if len(before) else 0

    # -------------------------------------------------------------------------------------------- answers

    def saves_ns(self, *changes: Change) -> int:
        """By how much these changes together shorten the window, mean over its devices."""
        return self._loses(self._gone(changes))

    def _loses(self, gone: _Gone) -> int:
        division, work = self._division, self._work
        if not len(work):
            return 0
        weights, hosts, works = self._weights(gone)
        values = [_NO_DEMAND] * self._count
        values[0] = 0
        for target, source, weight in zip(self._target, self._source, weights.tolist(), strict=True):
            demand = values[source] + weight
            if demand > values[target]:
                values[target] = demand
        value = np.array(values, np.int64)
        ends = work.last
        finish, was = np.full(division.count, division.begin_ns), np.full(division.count, division.begin_ns)
        np.maximum.at(was, work.place[ends], work.reach)
        np.maximum.at(finish, work.place[ends], work.reach + value[self._run[ends]] - works[ends])
        last, pids, end = self._threads
        shift = value[self._ended[last]] - hosts[last]
        for place, pid in enumerate(division.pids.tolist()):
            mine = np.flatnonzero(pids == pid)
            if len(mine):
                until, rest = end[mine].copy(), 0
                if self._host_end is not None:
                    rest = max(min(self._host_end, division.end_ns) - int(until.max()), 0)
                    until[np.argmax(until)] += rest
                was[place] = max(was[place], int(until.max()))
                until[np.argmax(until)] -= min(rest, int(gone.rest_ns[place]))
                finish[place] = max(finish[place], int((until + shift[mine]).max()))
        return min(int((was - finish).clip(0).sum()) // division.count, division.wall_ns)

    def what_if(self) -> dict[str, int]:
        """Time that the window would lose if all of one thing were free."""
        division, calls, work = self._division, self._calls, self._work
        talks = work.row[division.records["phase"][work.row] == PHASES.index("communication")]
        durations = division.records["dur_ns"]
        waits = calls.wait[calls.wait >= 0].astype(np.int64)
        return {
            "every launch free": self.saves_ns(Change(graphed=(none := np.empty(0, np.int64), none))),
            "no waits": self.saves_ns(Change(waits=waits)),
            "communication hidden": self.saves_ns(Change(rows=talks, cut_ns=durations[talks])),
            "device infinitely fast": self.saves_ns(Change(rows=work.row, cut_ns=durations[work.row])),
        }
