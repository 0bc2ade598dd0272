"""Trace -> Records: kernel -> launch -> range stack -> op instance, and backward joined to forward.

The rules are those of the README's "How a kernel finds its op". Numpy over all rows; Python only over distinct stacks. No file
formats, no formulas: what must be known of ops is asked through `OpRules`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.errors import EmptyCapture
from pyprof.markers import Kind
from pyprof.parse.assemble import Assembly, take
from pyprof.parse.cpu import cpu_rows
from pyprof.parse.pairing import Side, pair
from pyprof.parse.records import Records
from pyprof.parse.stacks import Facts, Nested, OpRules, nest_all, top_down
from pyprof.parse.trace import ActivityKind, Trace

__all__ = ["attribute"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def attribute(trace: Trace, rules: OpRules) -> Records:
    """Give every activity of a capture its launch, stack, op and phase; without GPU activity, every op its time on the CPU.

    Raises EmptyCapture where there are neither activities nor op ranges.
    """
    return Attribution(trace, rules).records()


class Attribution:
    """One run over one Trace; positions are those of Nested, rows those of the table named."""

    def __init__(self, trace: Trace, rules: OpRules) -> None:
        self.trace = trace
        self.counts: dict[str, int] = {}
        self.facts = Facts.of(trace.markers, rules)
        self.nested: Nested = nest_all(trace, self.facts)
        self.label: Ints = trace.ranges["label"][self.nested.row].astype(np.int64)
        self.seq: Ints = trace.ranges["seq"][self.nested.row]
        self.thread: Ints = trace.ranges["thread"][self.nested.row].astype(np.int64)
        self.start: Ints = trace.ranges["start_ns"][self.nested.row]
        self._walk_down()

    def _walk_down(self) -> None:
        """For each range, what the ranges around it make of a kernel launched inside it."""
        facts, label = self.facts, self.label
        here = np.arange(len(label))
        copy, backward = facts.copy[label], facts.backward[label]
        kind = facts.kind[label]
        boundary = np.isin(kind, (Kind.BACKWARD, Kind.ENGINE))

        def root(own: Ints, inherited: Ints) -> Ints:
            of_copy = (inherited >= 0) & copy[np.maximum(inherited, 0)]
            keep = (inherited >= 0) & ~(copy[own] & ~of_copy)
            found = np.where(keep, inherited, np.where(facts.candidate[label[own]] | copy[own], own, -1))
            return np.where(boundary[own], -1, found)

        def nearest(mask: Bools, reset: Bools | None = None) -> Ints:
            def takes(own: Ints, inherited: Ints) -> Ints:
                kept = inherited if reset is None else np.where(reset[own], -1, inherited)
                return np.where(mask[own], own, kept)

            return top_down(self.nested, here, takes)

        self.formula_root = top_down(self.nested, here, root)
        self.last_op = nearest(facts.is_op[label])
        self.backward = nearest(backward, (kind == Kind.BACKWARD) & ~backward)
        self.engine = nearest(kind == Kind.ENGINE)
        self.inner = nearest(facts.inner[label])
        self.optimizer = nearest(kind == Kind.OPTIMIZER)
        self.step_range = nearest(kind == Kind.STEP)

    # ------------------------------------------------------------------ rows: GPU activities, or ops on the CPU

    def records(self) -> Records:
        activities = self.trace.activities
        if len(activities["kind"]):
            rows = self._gpu_rows()
        else:
            if not self.facts.is_op[self.label].any():
                raise EmptyCapture(
                    "the capture holds neither GPU activity nor ranges of ops",
                    "call pyprof.nvtx.init() in the program before its model is built, or run it inside "
                    "torch.autograd.profiler.emit_nvtx(), and record with `nsys profile -t cuda,nvtx`",
                )
            rows = cpu_rows(self.trace, self.nested, self.facts, self.formula_root)
        return Assembly(self, rows).records()

    def _gpu_rows(self) -> dict[str, Any]:
        trace, activities = self.trace, self.trace.activities
        launch = self._launch_of_activity()
        has = launch >= 0
        launch_ns = np.where(has, take(trace.launches["start_ns"], launch), -1)
        thread = np.where(has, take(trace.launches["thread"], launch), -1).astype(np.int64)
        when, who = self._recorded_in_graph(launch_ns, thread)
        at = np.full(len(has), -1, np.int64)
        at[has] = self.nested.innermost(who[has], when[has])
        by_time = self._by_time(at, when, who, has)
        self.counts["kernels without a launch in the capture"] = int((~has & (activities["kind"] == ActivityKind.KERNEL)).sum())
        return {
            "activity": np.arange(len(has)),
            "at": at,
            "by_time": by_time,
            "launch_ns": launch_ns,
            "launch_thread": thread,
            "when": when,
            "dur_ns": activities["end_ns"] - activities["start_ns"],
        }

    def _launch_of_activity(self) -> Ints:
        """The launch with an activity's (process, correlation id); of a driver call within a runtime call the outer."""
        activities, launches = self.trace.activities, self.trace.launches
        process = take(self.trace.threads["process"], launches["thread"])
        usable = np.flatnonzero(launches["corr"] >= 0)
        order = usable[np.lexsort((launches["start_ns"][usable], launches["corr"][usable], process[usable]))]
        keys = np.stack(
            [
                np.concatenate([process[order], activities["process"]]).astype(np.int64),
                np.concatenate([launches["corr"][order], activities["corr"]]),
            ]
        )
        code = _pair_codes(keys)
        known, wanted = code[: len(order)], code[len(order) :]
        position = np.searchsorted(known, wanted, "left")
        inside = np.minimum(position, max(len(known) - 1, 0))
        good = (activities["corr"] >= 0) & (position < len(known))
        if len(known):
            good &= known[inside] == wanted
        return np.where(good, order[inside] if len(order) else -1, -1)

    def _recorded_in_graph(self, when: Ints, thread: Ints) -> tuple[Ints, Ints]:
        """Kernels of a CUDA graph take the stack of the moment at which their node was recorded, where the capture has it."""
        nodes = self.trace.graph_nodes
        in_graph = np.flatnonzero(self.trace.activities["graph_node"] >= 0)
        if not len(in_graph):
            return when, thread
        self.counts["kernels of CUDA graphs"] = len(in_graph)
        if not len(nodes["node"]):
            return when, thread
        row_of = {int(node): row for row, node in enumerate(nodes["node"].tolist())}
        origin = nodes["origin"].tolist()
        when, thread = when.copy(), thread.copy()
        for activity in in_graph.tolist():
            row = row_of.get(int(self.trace.activities["graph_node"][activity]))
            if row is not None and origin[row] in row_of:  # nodes are cloned when the graph is instantiated
                row = row_of[origin[row]]
            if row is not None:
                when[activity], thread[activity] = nodes["start_ns"][row], nodes["thread"][row]
        return when, thread

    def _by_time(self, at: Ints, when: Ints, thread: Ints, has: Bools) -> Bools:
        """Launches on a thread without ranges take those of the user's that are open on the process's main thread."""
        threads = self.trace.threads
        bare = np.flatnonzero(has & (at < 0))
        result = np.zeros(len(at), np.bool_)
        if not len(bare):
            return result
        mains = np.flatnonzero(threads["main"] == 1)
        main_of = {int(threads["process"][row]): int(row) for row in mains[::-1]}
        process = threads["process"][thread[bare]]
        main = np.array([main_of.get(int(p), -1) for p in process.tolist()], np.int64)
        other = (main >= 0) & (main != thread[bare])
        bare, main = bare[other], main[other]
        found = self.nested.innermost(main, when[bare])
        context = top_down(
            self.nested,
            np.arange(len(self.label)),
            lambda own, inherited: np.where(self.facts.context[self.label[own]], own, inherited),
        )
        found = np.where(found >= 0, context[found] if len(context) else -1, -1)
        at[bare], result[bare] = found, found >= 0
        return result

    # ------------------------------------------------------------------ what a thread is for

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
        own = (kind == Kind.DISPATCH) & (self.seq >= 0)
        np.minimum.at(low, self.thread[own], self.seq[own])
        np.maximum.at(high, self.thread[own], self.seq[own])
        return np.asarray(runs & ~main & ~python & (low >= high))

    def forward_of(self, backward: Ints, engine_threads: Bools) -> Ints:
        """For each position of a backward range the position of its forward range, -1 none."""
        kind = self.facts.kind[self.label]
        candidates = np.flatnonzero((kind == Kind.DISPATCH) & (self.seq >= 0) & ~engine_threads[self.thread])
        process = self.trace.threads["process"].astype(np.int64)
        names = [m.call.op if m.call is not None else m.name for m in self.trace.markers]
        numbered = self.seq[backward] >= 0
        asked = backward[numbered]
        sides = [
            Side(
                process[self.thread[p]], self.thread[p], self.seq[p], self.start[p], [names[i] for i in self.label[p].tolist()]
            )
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
        return np.where(position >= 0, found, -1)


def _pair_codes(keys: Ints) -> Ints:
    """One code for each distinct column of a two-row table, ordered as (first row, second row)."""
    low = int(keys[1].min()) if keys.shape[1] else 0
    width = int(keys[1].max()) - low + 1 if keys.shape[1] else 1
    if width < 1 << 40:
        code: Ints = (keys[0] + 1) * width + (keys[1] - low)
        return code
    return np.unique(keys, axis=1, return_inverse=True)[1].ravel()
