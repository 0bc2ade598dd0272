"""Trace -> Records: kernel -> launch -> range stack -> op instance, and backward joined to forward.

The rules are those of the README's "How a kernel finds its op". Numpy over all rows; Python only over distinct stacks. No file
formats, no formulas: what must be known of ops is asked through `OpRules`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.errors import EmptyCapture
from pyprof.markers import Kind
from pyprof.parse.assemble import Assembly
from pyprof.parse.cpu import cpu_rows
from pyprof.parse.launches import launch_of_activity, recorded_in_graph, replays, take
from pyprof.parse.pairing import Side, pair
from pyprof.parse.recompute import recomputed
from pyprof.parse.records import Records
from pyprof.parse.stacks import Facts, Nested, OpRules, nest_all, top_down
from pyprof.parse.trace import ActivityKind, Trace

__all__ = ["attribute"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


def attribute(trace: Trace, rules: OpRules) -> Records:
    """Give every activity of a capture its launch, stack, op and phase; without GPU activity, every op its time on the CPU.

    Raises EmptyCapture where there are neither activities nor op ranges.
    """
    run = Attribution(trace, rules)
    del trace  # columns are given up on the way, where the caller keeps none
    return run.records()


class Attribution:
    """One run over one Trace; positions are those of Nested, rows those of the table named."""

    def __init__(self, trace: Trace, rules: OpRules) -> None:
        # Tables of its own, of which columns are given up as soon as they are not needed: there are millions of rows.
        tables = [dict(table) for table in (trace.activities, trace.launches, trace.ranges)]
        self.trace = replace(trace, activities=tables[0], launches=tables[1], ranges=tables[2])
        self.rules = rules
        self.counts: dict[str, int] = {}
        self.facts = Facts.of(trace.markers, rules)
        self.nested: Nested = nest_all(trace, self.facts)
        self.label: Array = trace.ranges["label"][self.nested.row]
        self.seq: Ints = trace.ranges["seq"][self.nested.row]
        del self.trace.ranges["seq"], self.trace.ranges["op_id"]
        self.thread: Array = trace.ranges["thread"][self.nested.row]
        self.start = self.nested.start
        self.recomputed = recomputed(self.nested, self.facts, trace.markers, self.label, self.seq, self.thread)
        self._walk_down()

    def _walk_down(self) -> None:
        """For each range, what the ranges around it make of a kernel launched inside it."""
        facts, label = self.facts, self.label
        here = np.arange(len(label), dtype=np.int32)  # narrow: there are many, and several columns of them
        copy, backward = facts.copy[label], facts.backward[label]
        kind = facts.kind[label]
        boundary = np.isin(kind, (Kind.BACKWARD, Kind.ENGINE))

        none = np.int32(-1)

        def root(own: Array, inherited: Array) -> Array:
            of_copy = (inherited >= 0) & copy[np.maximum(inherited, 0)]
            keep = (inherited >= 0) & ~(copy[own] & ~of_copy)
            found = np.where(keep, inherited, np.where(facts.candidate[label[own]] | copy[own], own, none))
            return np.where(boundary[own], none, found)

        def nearest(mask: Bools, reset: Bools | None = None) -> Array:
            def takes(own: Array, inherited: Array) -> Array:
                kept = inherited if reset is None else np.where(reset[own], none, inherited)
                return np.where(mask[own], own, kept)

            if not mask.any():
                return np.broadcast_to(none, len(mask))
            return top_down(self.nested, here, takes)

        self.formula_root = top_down(self.nested, here, root)
        self.last_op = nearest(facts.is_op[label])
        self.backward = nearest(backward, boundary & ~backward)
        self.engine = nearest(kind == Kind.ENGINE)
        self.function = self._functions(nearest(boundary), backward)
        self.inner = nearest(facts.inner[label])
        self.optimizer = nearest(kind == Kind.OPTIMIZER)
        self.step_range = nearest(kind == Kind.STEP)

    def _functions(self, edge: Array, backward: Bools) -> Array:
        """For each range the autograd function that a kernel launched in it serves.

        The engine sums a gradient to the size of what was broadcast (a bias) and adds gradients up after the function has
        returned, still within its own range around it: that is work of the function too. edge: the innermost of both.
        """
        ran = np.full(len(edge) + 1, -1, np.int32)
        functions = np.flatnonzero(backward)[::-1]  # of several within one range of the engine the first
        ran[self.nested.parent[functions]] = functions
        ran[-1] = -1
        outside = (self.backward < 0) & (edge >= 0) & (self.engine == edge)
        return np.where(outside, ran[edge], self.backward)

    # ------------------------------------------------------------------ rows: GPU activities, or ops on the CPU

    def records(self) -> Records:
        activities = self.trace.activities
        if len(activities["kind"]):
            rows = self.gpu_rows()
        else:
            if not self.facts.is_op[self.label].any():
                raise EmptyCapture(
                    "the capture holds neither GPU activity nor ranges of ops",
                    "call pyprof.nvtx.init() in the program before its model is built, or run it inside "
                    "torch.autograd.profiler.emit_nvtx(), and record with `nsys profile -t cuda,nvtx`",
                )
            rows = cpu_rows(self.trace, self.nested, self.facts, self.formula_root, self.rules.moves)
        return Assembly(self, rows).records()

    def gpu_rows(self) -> dict[str, Any]:
        """For each activity its launch, and the range that it was launched in (`at`, -1 none)."""
        trace, activities = self.trace, self.trace.activities
        launch = launch_of_activity(trace)
        has = launch >= 0
        launch_ns = np.where(has, take(trace.launches["start_ns"], launch), -1)
        thread = np.where(has, take(trace.launches["thread"], launch), -1)
        recorded, when, in_graph = recorded_in_graph(trace, launch_ns, thread)
        at = np.full(len(has), -1, np.int64)
        placed = recorded >= 0
        at[placed] = self.nested.innermost(recorded[placed], when[placed])
        by_time, who = self._by_time(at, when, recorded)
        replay, replay_ns = replays(trace, launch, in_graph)
        launch_dur_ns = np.where(has, take(trace.launches["end_ns"], launch) - launch_ns, -1)
        trace.launches.clear()
        del trace.ranges["end_ns"]
        self.counts["kernels without a launch in the capture"] = int((~has & (activities["kind"] == ActivityKind.KERNEL)).sum())
        self.counts["kernels of CUDA graphs"] = int(in_graph.sum())
        return {
            "activity": np.arange(len(has)),
            "at": at,
            "by_time": by_time,
            "launched": has,
            "launch_ns": launch_ns,
            "launch_dur_ns": launch_dur_ns,
            "launch_thread": thread,
            "when": when,
            "range_thread": recorded,
            "stack_thread": who,
            "replay": replay,
            "replay_ns": replay_ns,
            "dur_ns": activities["end_ns"] - activities["start_ns"],
        }

    def _by_time(self, at: Ints, when: Ints, thread: Ints) -> tuple[Bools, Ints]:
        """Launches on a thread without ranges take those of the user's that are open on the process's main thread.

        Gives which rows do, and for each row the thread whose ranges it has; `at` is changed in place.
        """
        by_time, thread = np.zeros(len(at), np.bool_), thread.copy()
        bare = np.flatnonzero((thread >= 0) & (at < 0))
        bare = bare[~self.nested.loose_open(self.trace, thread[bare], when[bare])]
        main = self.main_thread(take(self.trace.threads["process"], thread[bare]))
        other = (main >= 0) & (main != thread[bare])
        bare, main = bare[other], main[other]
        if not len(bare):
            return by_time, thread
        found = self.nested.innermost(main, when[bare])
        context = top_down(
            self.nested,
            np.arange(len(self.label), dtype=np.int32),
            lambda own, inherited: np.where(self.facts.context[self.label[own]], own, inherited),
        )
        found = np.where(found >= 0, take(context, found), -1)
        taken = (found >= 0) | self.nested.loose_open(self.trace, main, when[bare])
        at[bare], by_time[bare] = found, taken
        thread[bare[taken]] = main[taken]
        return by_time, thread

    # ------------------------------------------------------------------ what a thread is for

    def main_thread(self, process: Ints) -> Ints:
        """The main thread of each process, -1 where it is not known."""
        threads = self.trace.threads
        mains = np.flatnonzero(threads["main"] == 1)
        mains = mains[np.argsort(-threads["tid"][mains], kind="stable")]  # of several the one with the lowest id
        main_of = np.full(max(len(self.trace.processes["pid"]), int(threads["process"].max(initial=-1)) + 1) + 1, -1, np.int64)
        main_of[threads["process"][mains]] = mains
        main_of[-1] = -1
        return main_of[process]

    def step_thread(self, process: Ints) -> Ints:
        """The thread whose steps are those of its process: the main one, or the only one that marks any; -1 none."""
        ranges = self.trace.ranges
        aside = self.nested.loose[self.facts.kind[ranges["label"][self.nested.loose]] == Kind.STEP]
        marking = np.unique([*self.thread[self.facts.kind[self.label] == Kind.STEP], *ranges["thread"][aside]]).astype(np.int64)
        owner = self.trace.threads["process"][marking]
        main = self.main_thread(process)
        result = np.where(np.isin(main, marking), main, -1)
        for one in np.unique(process[(result < 0) & (process >= 0)]).tolist():
            mine = marking[owner == one]
            if len(mine) == 1:
                result[process == one] = mine[0]
        return result

    def aside(self, kind: Kind, thread: Ints, when: Ints, *, leaks: bool = True) -> Ints:
        """Of the ranges that nest with nothing the row of the one of a kind open then on the thread, -1 none.

        The next range of the kind ends one that was never closed: the last step of a capture lasts to the end, a step that an
        exception left does not. leaks: whether those count at all.
        """
        nested, ranges = self.nested, self.trace.ranges
        result = np.full(len(thread), -1, np.int64)
        of_kind = self.facts.kind[ranges["label"][nested.loose]] == kind
        if not leaks:
            of_kind &= nested.loose_ends < np.iinfo(np.int64).max
        rows, ends = nested.loose[of_kind], nested.loose_ends[of_kind]
        inside = self.facts.kind[self.label] == kind
        for number in np.unique(ranges["thread"][rows]).tolist():
            own, mine = ranges["thread"][rows] == number, np.flatnonzero(thread == number)
            begun = np.append(ranges["start_ns"][rows[own]], np.iinfo(np.int64).min)
            last = np.searchsorted(begun[:-1], when[mine], "right") - 1  # -1 reads the element put behind
            nests = np.append(np.sort(self.start[inside & (self.thread == number)]), np.iinfo(np.int64).min)
            later = nests[np.searchsorted(nests[:-1], when[mine], "right") - 1] > begun[last]
            still = (last >= 0) & ~later & (np.append(ends[own], 0)[last] > when[mine])
            result[mine[still]] = rows[own][last[still]]
        return result

    def autograd_threads(self) -> Bools:
        """Threads of the autograd engine: never the main one, they run backward functions, no Python-level range of theirs lies
        outside of those, and their own sequence counter stands still (it moves where a checkpoint runs forward again)."""
        threads = len(self.trace.threads["tid"])
        main = self.trace.threads["main"] == 1
        outside = (self.backward < 0) & (self.engine < 0)
        kind = self.facts.kind[self.label]
        runs = np.zeros(threads, np.bool_)
        runs[self.thread[self.facts.backward[self.label]]] = True
        python = np.zeros(threads, np.bool_)
        python[self.thread[outside & np.isin(kind, (Kind.OP, Kind.TRACE, Kind.LAYER))]] = True
        python[self.thread[(kind == Kind.BACKWARD) & ~self.facts.backward[self.label]]] = True
        low = np.full(threads, np.iinfo(np.int64).max)
        high = np.full(threads, -1, np.int64)
        own = (kind == Kind.DISPATCH) & (self.seq >= 0) & ~self._discarded()
        np.minimum.at(low, self.thread[own], self.seq[own])
        np.maximum.at(high, self.thread[own], self.seq[own])
        return np.asarray(runs & ~main & ~python & (low >= high))

    def _discarded(self) -> Bools:
        """Ops run again only for the tensors that they keep: no backward function is theirs."""
        return np.asarray((self.recomputed.state == 1) & ~self.recomputed.reentrant)

    def forward_of(self, backward: Ints, engine_threads: Bools) -> Ints:
        """For each position of a backward range the position of its forward range, -1 none."""
        kind = self.facts.kind[self.label]
        forward = (kind == Kind.DISPATCH) & (self.seq >= 0) & ~engine_threads[self.thread] & ~self._discarded()
        candidates = np.flatnonzero(forward)
        process = self.trace.threads["process"].astype(np.int64)
        names = [m.call.op if m.call is not None else m.name for m in self.trace.markers]
        numbered = self.seq[backward] >= 0
        asked = backward[numbered]
        sides = [
            Side(process[self.thread[p]], self.thread[p], self.seq[p], self.start[p], names, self.label[p])
            for p in (candidates, asked)
        ]
        hints = self.trace.ranges["fwd_thread"][self.nested.row[asked]].astype(np.int64)
        found = pair(sides[0], sides[1], hints)
        self.counts["backward functions whose forward thread cannot be told"] = found.ties
        self.counts["backward functions whose forward op is not in the capture"] = found.missing
        owner = np.full(len(backward), -1, np.int64)
        owner[numbered] = np.where(found.owner >= 0, candidates[found.owner] if len(candidates) else -1, -1)
        return owner

    def root(self, position: Ints) -> Ints:
        """The op instance (its outermost range) of kernels launched directly inside these ranges."""
        if not len(self.label):
            return np.full(len(position), -1, np.int64)
        inside = np.maximum(position, 0)
        found = np.where(self.formula_root[inside] >= 0, self.formula_root[inside], self.last_op[inside])
        return np.where(position >= 0, found, -1).astype(np.int64)
