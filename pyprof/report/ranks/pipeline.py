"""Records of ranks -> the bubble of a pipeline: how long each rank waits for other stages, step by step.

The bubble of a rank's step is the time in which nothing runs on it but a send or receive that ends before the next activity
begins. One that is still open then held nothing up, so that a rank whose host is late has no bubble; nor does a rank that
waits in a collective. Transfers are part of it. A step lasts as in `busy`. gloo's sends and receives last until the host has
waited for them, NCCL's until their kernel has ended; records of a CPU without the capture have no ends, so no bubble.

Microbatches are known by ranges (`model.pipeline`). It is a pipeline if such ranges were open on all ranks, or if in each step
some ranks begin with a send and the others with a receive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import union
from pyprof.columns.types import Array, Bools, Floats, Ints
from pyprof.model.pipeline import FORWARD, OVERLAPPED, WEIGHT, StageAction, action_of
from pyprof.model.records import PHASES, Records
from pyprof.report.ranks.busy import Busy, windows

_EVEN = 1.1  # stages whose longest microbatch exceeds the mean by no more are even


class Stages(NamedTuple):
    """The part of one unit in a pipeline.

    span, bubble: ns by step; ends: whether the bubble is known; parts: ns by step and part of an action; begins: how each step
    begins, with a `send` or a `recv`, "" unknown; orders: the actions of each step in order of begin; forwards: sends and
    receives launched in forward actions, for each of these.
    """

    span: Ints
    bubble: Ints
    ends: bool
    parts: Ints
    begins: list[str]
    orders: list[list[StageAction]]
    forwards: float


class Pipeline(NamedTuple):
    """A row a rank that is part of it, ns a step: span and bubble (NaN unknown), parts (as `StageAction.part`, NaN unknown),
    microbatch: computing of one microbatch through all stages of the rank (NaN unknown).

    rank: number of each; steps: of the fewest that a rank has; stages: of each rank, as written; microbatches: of a step, None
    unknown; depth: stages in all, None unknown; schedule: `GPipe` or `1F1B` if the order of the actions proves it; saves: what
    stages that all take as long as the mean would save a step, None unknown.
    """

    rank: list[int]
    steps: int
    span: Floats
    bubble: Floats
    parts: Floats
    microbatch: Floats
    stages: list[list[int]]
    microbatches: int | None
    depth: int | None
    schedule: str | None
    saves: float | None

    @property
    def ideal(self) -> float | None:
        """The share of a step that equal stages idle in GPipe and 1F1B (Narayanan et al. 2021, 2.2.1)."""
        if self.schedule is None or self.microbatches is None or self.depth is None:
            return None
        return (self.depth - 1) / (self.microbatches + self.depth - 1)

    @property
    def share(self) -> float:
        """The bubble's share of all ranks' steps, NaN unknown."""
        return float(self.bubble.sum() / self.span.sum())

    @property
    def bubble_ns(self) -> int:
        """The bubble of all steps, mean over the ranks; 0 where it is unknown."""
        return int(np.nan_to_num(self.bubble).mean() * self.steps)

    @property
    def longest(self) -> int | None:
        """The row whose microbatch takes longest, None if stages are even or unknown."""
        mean = self.microbatch.mean()
        return int(self.microbatch.argmax()) if len(self.rank) > 1 and self.microbatch.max() > _EVEN * mean else None


def of_records(records: Records, rows: Ints, directions: Sequence[str], times: Busy, ends: bool) -> Stages | None:
    """One unit; None without sends and receives. rows: of these; directions: `send`, `recv` or "" of each."""
    if not len(rows):
        return None
    start = records["start_ns"].astype(np.int64)
    end = start + np.maximum(records["dur_ns"], 0)
    between = np.zeros(len(start), np.bool_)
    between[rows] = True
    steps, cuts = windows(start, end, records["step"])
    actions, of_row = _actions(records, start)
    part = np.array([action.part for action in actions] + [-1], np.int8)[of_row]
    computes = (part >= 0) & (records["phase"] != PHASES.index("communication"))
    parts = [_covered(start, end, computes & (part == one), cuts) for one in range(4)]
    orders = _orders(records["step"], start, np.flatnonzero(computes), of_row, actions, steps)
    first = dict[int, str]()
    for step, _, direction in sorted(zip(records["step"][rows].tolist(), start[rows].tolist(), directions, strict=True)):
        first.setdefault(step, direction)
    forwards = sum(len({one for one in order if one.part == FORWARD}) for order in orders)
    inside = int((between & (part == FORWARD)).sum())
    return Stages(
        np.diff(cuts), _bubble(start, end, between, cuts), ends, np.stack(parts, axis=1),
        [first.get(step, "") for step in times.steps.tolist()], orders, inside / max(forwards, 1),
    )  # fmt: skip


def _covered(start: Ints, end: Ints, chosen: Bools, cuts: Ints) -> Ints:
    """How long, between every two cuts, at least one of these is open."""
    segments = union(np.zeros(np.count_nonzero(chosen), np.int64), start[chosen], end[chosen])
    found: Ints = np.diff(segments.covered(np.zeros_like(cuts), cuts))
    return found


def _bubble(start: Ints, end: Ints, between: Bools, cuts: Ints) -> Ints:
    """The bubble of each step. between: which rows are sends and receives."""
    busy = union(np.zeros(np.count_nonzero(~between), np.int64), start[~between], end[~between])
    begun, over = start[between], end[between]
    # Of each, the time since the last activity that began before its end: if that goes on, none is left.
    last = np.append(begun.min(), busy.end)[np.searchsorted(busy.start, over, "left")]
    begun = np.maximum(begun, last)
    return _covered(begun, over, begun < over, cuts)


def _actions(records: Records, start: Ints) -> tuple[list[StageAction], Array]:
    """The distinct actions, and the one in which the host launched each row, -1 none. By time: what autograd's own thread
    launches belongs to the action that waits for it. start: of a row without a launch."""
    codes: dict[StageAction, int] = {}
    at = np.where(records["launch_ns"] >= 0, records["launch_ns"], start)
    found = np.full(len(at), -1)
    for one in [] if records.host is None else records.host.actions:
        actions = [action for text in one.texts if (action := action_of(text)) is not None]
        code = [codes.setdefault(action, len(codes)) for action in actions]
        begin, end = np.array(one.begin_ns, np.int64), np.array(one.end_ns, np.int64)
        place = np.searchsorted(begin, at, "right") - 1
        inside = (place >= 0) & (at < end[place]) & (records["pid"] == one.pid)
        found[inside] = np.array(code, np.int64)[place[inside]]
    return [*codes], found


def _orders(
    step: Array, start: Ints, rows: Ints, of_row: Array, actions: Sequence[StageAction], steps: Ints
) -> list[list[StageAction]]:
    """The actions of each of `steps` in order of begin; rows: what they compute."""
    rows = rows[np.argsort(start[rows], kind="stable")]
    distinct = distinct_rows(step[rows], of_row[rows])
    found = dict[int, list[StageAction]]()
    for at in np.argsort(distinct.first, kind="stable").tolist():
        number, code = distinct.columns[:, at].tolist()
        found.setdefault(number, []).append(actions[code])
    return [found.get(number, []) for number in steps.tolist()]


NO_PIPELINE = Pipeline([], 0, np.zeros(0), np.zeros(0), np.zeros((0, 4)), np.zeros(0), [], None, None, None, None)


def pipeline_of(units: Sequence[Stages | None], numbers: Sequence[int], ranks: int) -> Pipeline | None:
    """All units of a job; None if it is no pipeline. numbers: of each one's rank; ranks: how many the job has, so far as
    known."""
    rows = [(number, one) for number, one in zip(numbers, units, strict=True) if one is not None]
    written = [any(one.orders) for _, one in rows]
    if len(rows) < 2 or not (all(written) or _begins_tell([one for _, one in rows])):
        return None
    each = [one for _, one in rows]
    steps = [len(one.span) for one in each]
    parts = np.array([one.parts.mean(axis=0) for one in each])
    overlapped = parts[:, OVERLAPPED] > 0
    known = np.array(written)
    counts = {len({action.microbatch for action in order} - {-1}) for one in each for order in one.orders} - {0}
    microbatches = next(iter(counts)) if len(counts) == 1 else None
    computed = np.where(known, parts.sum(axis=1), np.nan)
    parts[~known | overlapped] = np.nan
    stages = [sorted({act.stage for order in one.orders for act in order if act.stage >= 0}) for one in each]
    depth = _depth(each, stages)
    whole = len(each) == ranks
    schedule = _schedule(each, stages, microbatches, depth) if whole and microbatches and depth else None
    span = np.array([one.span.mean() for one in each])
    found = Pipeline(
        [number for number, _ in rows], min(steps), span,
        np.array([one.bubble.mean() if one.ends else np.nan for one in each]), parts,
        computed / microbatches if microbatches else np.full(len(each), np.nan), stages, microbatches, depth, schedule, None,
    )  # fmt: skip
    return found._replace(saves=_saves(found)) if schedule and len(set(steps)) == 1 else found


def _begins_tell(units: Sequence[Stages]) -> bool:
    """Whether in each step some ranks begin with a send, at most half of them, and the others with a receive."""
    if len({len(one.begins) for one in units}) != 1:
        return False
    each = [Counter(step) for step in zip(*(one.begins for one in units), strict=True)]
    return all(0 < one["send"] <= one["recv"] and one["send"] + one["recv"] == len(units) for one in each)


def _depth(each: Sequence[Stages], stages: Sequence[Sequence[int]]) -> int | None:
    """Number of stages: by their own numbers, else by how many ranks only send or only receive in a forward. Those are the
    first stage and the last one; the others do both."""
    if all(stages):
        known = {stage for some in stages for stage in some}
        return len(known) if known == set(range(len(known))) else None
    once, twice = (sum(one.forwards == times for one in each) for times in (1, 2))
    if once + twice < len(each) or once % 2 or not once or len(each) % (once // 2):
        return None
    return len(each) // (once // 2)


def _schedule(each: Sequence[Stages], stages: Sequence[Sequence[int]], microbatches: int, depth: int) -> str | None:
    """GPipe: all forwards, then all backwards. 1F1B: one stage a rank and its forwards ahead of its backwards by exactly as
    many stages as follow. With one microbatch they are the same."""
    orders = [[(one.kind, one.microbatch) for one in order] for unit in each for order in unit.orders]
    if microbatches < 2 or any(len(some) > 1 for some in stages):
        return None
    forward = [("F", number) for number in range(microbatches)]
    if all(order[:microbatches] == forward and sorted(order[microbatches:]) == _backward(forward) for order in orders):
        return "GPipe"
    for unit, own in zip(each, stages, strict=True):
        expected = _1f1b(forward, depth - own[0]) if own else []
        if any([(one.kind, one.microbatch) for one in order] != expected for order in unit.orders):
            return None
    return "1F1B"


def _backward(forward: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return [("B", number) for _, number in forward]


def _1f1b(forward: Sequence[tuple[str, int]], ahead: int) -> list[tuple[str, int]]:
    ahead, backward = min(ahead, len(forward)), _backward(forward)
    steady = [one for pair in zip(backward, forward[ahead:], strict=False) for one in pair]
    return [*forward[:ahead], *steady, *backward[len(forward) - ahead :]]


def _saves(found: Pipeline) -> float | None:
    """Time that a step takes less with even stages, at most what it has above their ideal."""
    if found.longest is None or found.microbatches is None or found.depth is None or found.depth != len(found.rank):
        return None
    times = found.parts[:, :WEIGHT] / found.microbatches
    if found.schedule == "1F1B":  # GPipe takes as long in any order of the stages
        times = times[np.argsort([own[0] for own in found.stages])]
    even = np.broadcast_to(times.mean(axis=0), times.shape)
    saved = lasts(found.schedule, times, found.microbatches) - lasts(found.schedule, even, found.microbatches)
    ideal = (found.microbatches + found.depth - 1) * float(found.microbatch.mean())
    return max(min(saved, float(found.span.mean()) - ideal), 0.0)


def lasts(schedule: str | None, times: Floats, microbatches: int) -> float:
    """How long a schedule lasts without transfers. times: of a forward and a backward of each stage."""
    forward = [("F", number) for number in range(microbatches)]
    depth = len(times)
    left = [
        iter(_1f1b(forward, depth - stage) if schedule == "1F1B" else [*forward, *_backward(forward)]) for stage in range(depth)
    ]
    following = [next(order, None) for order in left]
    now, done = [0.0] * depth, dict[tuple[str, int, int], float]()
    while any(following):
        for stage in range(depth):
            while (one := following[stage]) is not None:
                kind, number = one
                before = kind, stage + (-1 if kind == "F" else 1), number
                if 0 <= before[1] < depth and before not in done:
                    break
                now[stage] = max(now[stage], done.get(before, 0.0)) + float(times[stage, "FB".index(kind)])
                done[kind, stage, number], following[stage] = now[stage], next(left[stage], None)
    return max(now)


def lines(found: Pipeline) -> list[str]:
    """The bubble in words, a line each; none where it is less than LEAST_SHARE of the steps or unknown."""
    if not found.share >= LEAST_SHARE:
        return []
    most = int((found.bubble / found.span).argmax())
    own = f"rank {found.rank[most]} most, {100 * found.bubble[most] / found.span[most]:.0f} %"
    said = [
        f"pipeline: ranks wait for other stages {100 * found.share:.0f} % of their steps, {found.bubble.mean() / 1e6:.3f} of "
        f"{found.span.mean() / 1e6:.3f} ms a step ({own})"
    ]
    if found.ideal is not None:
        schedule = f"{found.schedule}, {found.depth} stages, {found.microbatches} microbatches"
        said.append(f"    {schedule}: {100 * found.ideal:.0f} % with even stages and no time for transfers")
    if found.longest is not None:
        said.append(f"    {uneven(found)}")
    return said


def uneven(found: Pipeline) -> str:
    """Which rank's microbatch takes longest."""
    row = found.longest or 0
    others = np.delete(found.microbatch, row).mean()
    own = f"rank {found.rank[row]} computes {found.microbatch[row] / 1e6:.3f} ms a microbatch"
    text = f"{own}, the others {others / 1e6:.3f} (mean)"
    return f"{text}: even stages save {found.saves / 1e6:.3f} ms a step" if found.saves else text


LEAST_SHARE = 0.05  # of the steps: a smaller bubble is not worth a line
