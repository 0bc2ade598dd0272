"""A division of time and the waits of its host -> what each host call and each activity of the window waited for.

Events are not recorded, so what waited for what is concluded from times: `replay.py` says by which rules.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyprof.columns.distinct import distinct_rows, narrowest, row_type
from pyprof.columns.intervals import latest, order_of
from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.trace import ActivityKind
from pyprof.report.time.division import Division
from pyprof.report.time.waits import Waits

BEFORE, NEVER = -1, -2  # as calls: before the window; there is none
_NEAR_NS = 20_000  # an activity that begins so soon after one of another stream waited for it
_CLEAR_NS = 5_000  # if its own stream was free and its launch had come so long before that
_LATENCY_NS = 5_000  # from a launch to its begin, at the most where nothing else is waited for
_SKEW_NS = 2_000  # of the clocks of host and device: a wait may return so long before the end that it waited for
_HELD_NS = 100_000  # a launch that takes longer, with many ahead of it, waits for room in the queue
_DEEP = 256  # launches of a stream that have not run: with less its queue is not full
_QUEUE = 1024  # launches that the queue of a stream holds
_EVERY = 64  # launches: how often a replay looks at the room in the queue
_TURN = 4  # calls of another thread in a row while this one makes none: they take turns
_WAITING_NS = 10_000  # what a waiting call takes of the host where there is nothing to wait for
_STEPS = 8  # activities, from the last to have ended, among which the one is that a call waited for


class HostCalls:
    """Launching and waiting calls in the window, in order of process, thread and begin.

    wait: row of Waits, -1 none; rank: of each by begin, over all threads; pred: the call after which it comes, -1 the window's
    begin; turn: whether that is another thread's; own_ns: the host's time from that one's end to its own.
    """

    def __init__(self, division: Division, waits: Waits | None) -> None:
        records, since = division.records, division.begin_ns
        launched = division.row[records["launch_ns"][division.row] >= since] if division.on_gpu else division.row[:0]
        at = np.empty(0, np.int64)
        if waits is not None and division.on_gpu:
            at = np.flatnonzero(waits.launching & (waits.start_ns >= since) & (waits.start_ns < division.end_ns))

        def both(name: str, of_waits: Callable[[Waits], Ints]) -> Array:
            own = records[name][launched]
            return np.append(own, of_waits(waits)[at]) if waits is not None and len(at) else own

        threads = distinct_rows(both("pid", lambda waits: waits.pid), both("tid", lambda waits: waits.tid))
        self._pids = threads.columns[0]
        thread = threads.inverse.astype(np.min_scalar_type(-max(len(self._pids), 1)))
        del threads
        begin, narrow = both("launch_ns", lambda waits: waits.start_ns), row_type(len(thread))
        took = narrowest(np.maximum(both("launch_dur_ns", lambda waits: waits.end_ns - waits.start_ns), 0))
        if (order := order_of(thread, begin)) is not None:
            order = order.astype(narrow)
            thread, begin, took = thread[order], begin[order], took[order]
        new: Bools = np.ones((2, len(begin)), np.bool_)  # thread, begin: launches of one call differ in neither
        for differs, column in zip(new, (thread, begin), strict=True):
            differs[1:] = column[1:] != column[:-1]
        heads = np.flatnonzero(new[0] | new[1]).astype(narrow)
        code = np.repeat(np.arange(len(heads), dtype=narrow), np.diff(np.append(heads, len(begin))))
        if order is not None:
            in_order, code = code, np.empty(len(begin), narrow)
            code[order] = in_order
            del in_order, order
        self.of, self.launched, self.wait = code[: len(launched)], launched, np.full(len(heads), -1, np.int32)
        np.maximum.at(self.wait, code[len(launched) :], at)
        self.first: Bools = new[0][heads]
        self._thread, self.begin = thread[heads], begin[heads]
        end = np.add(begin, took, out=begin)
        self.end = np.maximum(np.maximum.reduceat(end, heads) if len(heads) else end, since)
        del begin, took, end, new, thread, heads
        self.rank = np.empty(len(self), narrow)
        order = order_of(self.begin, self._thread)
        self.rank[slice(None) if order is None else order] = np.arange(len(self), dtype=narrow)
        self.pred, self.turn = self._predecessors()
        reach = self.end[latest(self._thread, self.end)]
        reach = np.where(self.pred >= 0, reach[self.pred], since)
        self.own_ns = narrowest(np.maximum(np.subtract(self.end, reach, out=reach), 0, out=reach))

    def __len__(self) -> int:
        return len(self._thread)

    @property
    def pid(self) -> Ints:
        pids: Ints = self._pids[self._thread]
        return pids

    def _predecessors(self) -> tuple[Array, Bools]:
        """The call before each on its thread, or the last of another thread that made several meanwhile; whether it is that."""
        narrow, count = self.rank.dtype, len(self)
        pred = np.arange(-1, count - 1, dtype=narrow)
        pred[self.first] = -1
        turn = np.zeros(count, np.bool_)
        if len(self._pids) < 2:
            return pred, turn
        pids, place = self.pid, np.arange(count, dtype=narrow)
        order = np.lexsort((self.rank, pids)).astype(narrow)
        same = np.append(False, np.diff(self._thread[order]) == 0)[:count]
        run = place - np.maximum.accumulate(np.where(same, narrow.type(0), place)) + narrow.type(1)
        run = np.append(narrow.type(0), run)[:-1]  # of one thread, up to the one before
        before = np.append(narrow.type(-1), order)[:-1]
        takes = ~same & (before >= 0) & (pids[before] == pids[order]) & ((run >= _TURN) | self.first[order])
        turn[order[takes]] = True
        pred[order[takes]] = before[takes]
        return pred, turn


class Work:
    """Activities of the window, in order of stream and begin.

    stream: number of each one's; first: whether it is its stream's first; own_ns: the most that it can get shorter;
    pause_ns: how long its stream was free before it; call: that launched it, BEFORE or NEVER; after: the activity of another
    stream for which it waited, -1 none; free_ns, late_ns, after_ns: how long before its begin its stream was free, its
    launch had come, `after` had ended, beyond what that usually takes; 0 for what it waited for longest. last: the last of each
    stream; reach: when all of that stream had ended. Row numbers are as narrow as they can be: there are millions.
    """

    def __init__(self, division: Division, calls: HostCalls) -> None:
        records, since = division.records, division.begin_ns
        stream = records["stream"][division.row] if division.on_gpu else np.zeros(len(division.row), np.int64)
        (_, _), _, stream = distinct_rows(division.place, stream)
        columns: list[Array] = [division.row, division.place, narrowest(stream), division.begins, division.ends]
        if (order := order_of(columns[2], division.begins, division.ends)) is not None:
            columns = [one[order] for one in columns]
        self.row, self.place, self.stream, self.begin, self.end = columns
        del columns, order, stream
        self._pids = division.pids.astype(np.int64)
        self.first: Bools = np.append(True, np.diff(self.stream) != 0)[: len(self)]
        self.last = np.flatnonzero(np.append(self.first[1:], True)[: len(self)])
        reach = self.end[latest(self.stream, self.end)]  # end of it and all before it
        self.reach = reach[self.last]
        before = np.append(since, reach)[:-1]
        before[self.first] = since
        # On a CPU an op holds those inside it, which have no time of their own beside it.
        own = self._own(division.exclusive_ns, before) if division.on_gpu else division.exclusive_ns[self.row]
        self.own_ns = narrowest(own)
        self.pause_ns = narrowest(np.maximum(np.subtract(self.begin, before, out=before), 0, out=before))
        del before, reach, own
        self.call, self.late_ns = self._launches(division, calls)
        # Up to which call it and all before it in its stream were launched.
        of_stream = self.stream.astype(np.int64) * (len(calls) + 2)
        rank = np.append(calls.rank, [-1, -1])[self.call] + of_stream
        self.rank = (np.maximum.accumulate(rank, out=rank) - of_stream).astype(self.call.dtype)
        del rank, of_stream
        short = self.pause_ns[(self.pause_ns < _CLEAR_NS) & (self.late_ns > self.pause_ns) & ~self.first]
        usual = int(np.median(short)) if len(short) else 0
        self.free_ns = np.maximum(self.pause_ns - usual, 0)
        self.after, self.after_ns = self._others()
        known = (self.call != NEVER) & ((self.late_ns <= self.free_ns) | self.first)
        by_other = self.after >= 0  # what it waited for longest: that, else its launch, else its stream
        for waited, slack in (
            (by_other, self.after_ns), (~by_other & known, self.late_ns), (~by_other & ~known, self.free_ns),
        ):  # fmt: skip
            slack[waited] = 0

    def __len__(self) -> int:
        return len(self.row)

    @property
    def pid(self) -> Ints:
        pids: Ints = self._pids[self.place]
        return pids

    def _own(self, exclusive_ns: Ints, before: Ints) -> Ints:
        """How long each takes; where others of its stream run at the same time, until the next begins, and at most what it
        holds the device. before: when all before it in its stream had ended."""
        then = np.append(self.begin[1:], self.end[-1:])
        np.minimum(then, self.end, out=then)
        then[self.last] = self.end[self.last]
        over = (then < self.end) | (self.begin < before)
        own = np.where(over, np.minimum(then - self.begin, exclusive_ns[self.row]), self.end - self.begin)
        result: Ints = np.maximum(own, 0)
        return result

    def _launches(self, division: Division, calls: HostCalls) -> tuple[Array, Ints]:
        """The call that launched each, and from its begin to the activity's beyond the shortest time of its kind."""
        records = division.records
        launch = records["launch_ns"][self.row]
        known = (launch >= 0) & (records["kind"][self.row] != ActivityKind.CPU)
        of_row = np.full(len(records), NEVER, row_type(len(records) + len(calls)))
        of_row[self.row[known]] = BEFORE
        of_row[calls.launched] = calls.of
        latency = np.maximum(self.begin - launch, division.begin_ns - self.begin)
        kind = distinct_rows(self.pid, records["kind"][self.row]).inverse
        least = np.full(int(kind.max(initial=0)) + 1, _LATENCY_NS)
        np.minimum.at(least, kind[known], (self.begin - launch)[known])
        return of_row[self.row], narrowest(np.where(known, np.maximum(latency - least[kind], 0), 0))

    def _others(self) -> tuple[Array, Array]:
        """For each the activity of another stream of its process that had just ended as it began, although its stream was free
        and its launch had come: -1 none; and how long before."""
        after, slack = np.full(len(self), -1, self.row.dtype), np.zeros(len(self), np.int32)  # at most _NEAR_NS
        ready = np.flatnonzero((self.free_ns > _CLEAR_NS) & ((self.late_ns > _CLEAR_NS) | (self.call == NEVER)))
        pids = self.pid
        for pid in np.unique(pids[ready]).tolist():
            mine, own = ready[pids[ready] == pid], np.flatnonzero(pids == pid)
            ended = own[np.argsort(self.end[own], kind="stable")]
            last = ended[np.maximum(np.searchsorted(self.end[ended], self.begin[mine], "right") - 1, 0)]
            gone = self.begin[mine] - self.end[last]
            earlier = (self.rank[last] < self.rank[mine]) | (
                (self.rank[last] == self.rank[mine]) & (self.begin[last] < self.begin[mine])
            )
            late = np.where(self.call[mine] == NEVER, gone + 2 * _CLEAR_NS, self.late_ns[mine])
            good = (gone >= 0) & (gone <= _NEAR_NS) & (np.minimum(self.free_ns[mine], late) > gone + _CLEAR_NS)
            good &= (self.stream[last] != self.stream[mine]) & earlier
            after[mine[good]], slack[mine[good]] = last[good], gone[good]
        return after, slack


class Waited:
    """Calls that wait for an activity. call, work: rows of both; slack_ns: how long before the call's end the activity ended;
    short_ns: how much shorter the call would be if it had ended long before."""

    def __init__(self, calls: HostCalls, work: Work) -> None:
        found = [self._waits(calls, work), *self._full_queues(calls, work)]
        self.call, self.work, self.slack_ns, self.short_ns = (np.concatenate(column) for column in zip(*found, strict=True))
        # A replay goes through calls in their order: what was launched later is known only later.
        keep = work.rank[self.work] <= calls.rank[self.call]
        columns = (self.call, self.work, self.slack_ns, self.short_ns)
        self.call, self.work, self.slack_ns, self.short_ns = (column[keep] for column in columns)

    @staticmethod
    def _waits(calls: HostCalls, work: Work) -> tuple[Ints, Ints, Ints, Ints]:
        """HostCalls that wait by their name: for the last to end of what had been launched when they began."""
        rows = np.flatnonzero(calls.wait >= 0)
        target = np.full(len(rows), -1)
        for pid in np.unique(calls.pid[rows]).tolist():
            mine, own = np.flatnonzero(calls.pid[rows] == pid), np.flatnonzero(work.pid == pid)
            ended = own[np.argsort(work.end[own], kind="stable")]
            if not len(ended):
                continue
            call = rows[mine]
            at = np.searchsorted(work.end[ended], calls.end[call] + _SKEW_NS, "right") - 1
            for _ in range(_STEPS):
                one = ended[np.maximum(at, 0)]
                good = (at >= 0) & (work.end[one] > calls.begin[call]) & (work.rank[one] <= calls.rank[call])
                target[mine] = np.where((target[mine] < 0) & good, one, target[mine])
                at = at - 1
        rows, target = rows[target >= 0], target[target >= 0]
        short = np.maximum(np.minimum(calls.end[rows] - calls.begin[rows] - _WAITING_NS, calls.own_ns[rows]), 0)
        return rows, target, np.zeros(len(rows), np.int64), short

    @staticmethod
    def _full_queues(calls: HostCalls, work: Work) -> list[tuple[Ints, Ints, Ints, Ints]]:
        """Launches that took long while many others had not run, and a few of those that could find the queue full if the host
        were faster."""
        found = [(np.empty(0, np.int64),) * 4]
        took = calls.end - calls.begin
        usual = int(np.median(took[calls.wait < 0])) if (calls.wait < 0).any() else 0
        for stream in np.unique(work.stream).tolist():
            own = np.flatnonzero((work.stream == stream) & (work.call >= 0))
            own = own[np.append(True, np.diff(work.call[own]) != 0)[: len(own)]]  # one of each launch
            own = own[np.argsort(calls.rank[work.call[own]], kind="stable")]
            call, reach = work.call[own], np.maximum.accumulate(work.end[own])
            ahead = np.arange(len(own)) - np.searchsorted(reach, calls.begin[call], "right")
            room = max(_QUEUE, int(ahead.max(initial=0)) + 1)
            held = np.flatnonzero((took[call] > _HELD_NS) & (ahead >= _DEEP) & (calls.wait[call] < 0))
            ended = np.searchsorted(reach, calls.end[call[held]] + _SKEW_NS, "right") - 1
            good = ended >= 0
            held, ended = held[good], ended[good]
            short = np.minimum(took[call[held]] - usual, calls.own_ns[call[held]])
            found.append((call[held], own[ended], np.zeros(len(held), np.int64), np.maximum(short, 0)))
            later = np.arange(room, len(own), _EVERY)
            slack = calls.end[call[later]] - work.end[own[later - room]]
            later, slack = later[slack >= 0], slack[slack >= 0]
            found.append((call[later], own[later - room], slack, np.zeros(len(later), np.int64)))
        return found
