"""The parts that all kinds of advice share: the advice, its places, the budget of time that can still be saved, idle time.

A kind is a module with one function, `find(overview, budget) -> Advice | None`. Savings never overlap: a kind claims the time
that its change would save from the budget, and no other kind gets it. Idle time needs no budget: each cause is one kind's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.intervals import summed
from pyprof.columns.types import Bools, Floats, Ints
from pyprof.model.records import Stack
from pyprof.model.trace import ActivityKind
from pyprof.prof.frame import params
from pyprof.report.time.division import Division
from pyprof.report.time.overview import Overview

_PARTS, _LONGEST = 3, 80  # of a layer, and characters of a shape, in a sentence
_SEVERAL = 3  # steps needed to tell what is usual
LEAST_SHARE = 0.005  # of the wall time: advice that saves less is not worth a line


_OP = attrgetter("op")
IN_PART = re.compile(r"(?:(?<=_)|^)\d+(?=:|$)")
"""A number of a part that may hold names with `:` between them: of a layer in a list (`3`), or called after its class
(`Linear_12`)."""
AT_END = re.compile(r"(?:(?<=_)|^)\d+$")
"""The same of a part that is one name."""


class Place(NamedTuple):
    """Where: layer, op, its shapes and source line (None unknown); number: of kernels or gaps there, on all devices; time_ns:
    theirs, mean over the devices."""

    layer: str | None
    op: str | None
    shape: str | None
    src: str | None
    number: int
    time_ns: int


class Advice(NamedTuple):
    """One piece of advice.

    kind: name of the module; saves_ns: the most wall time that it can save, None for advice about the capture itself; time_ns:
    time of the kernels or gaps concerned; evidence: one sentence with numbers; do: the line to write; places: where.
    """

    kind: str
    saves_ns: int | None
    time_ns: int | None
    evidence: str
    do: str
    places: tuple[Place, ...] = ()


class Budget:
    """The busy time that can still be saved, and the gaps that no kind of advice has claimed yet.

    A record saves at most its exclusive time. A burst (the records between two gaps in which the device waited for the host)
    saves at most the time by which it outlasts its launches, which take as long without kernels.
    """

    def __init__(self, division: Division) -> None:
        self._division = division
        self._left, self._slack = division.held_ns.copy(), division.slack_ns.copy()
        if not division.on_gpu:  # ops of a CPU are no launches
            self._slack[:] = np.iinfo(np.int64).max
        self.free_gaps = np.ones(len(division.gaps), np.bool_)

    def left_ns(self, rows: Ints) -> Ints:
        """Time that each of these records can still save, without regard to its burst."""
        return self._left[rows]

    def take(self, rows: Ints, wish_ns: Ints | Floats, awaited: bool = False) -> Ints:
        """Claim up to this much of each record (each named once). Returns the ns that were granted.

        awaited: the host waits for them, as for a collective or a copy from pageable memory, so their launches do not bound
        what they save.
        """
        bursts = self._division.burst[rows]
        wish = np.where(
            bursts >= 0, np.clip(np.nan_to_num(wish_ns), 0, self._left[rows]), 0
        )  # outside of the window is nothing
        if awaited:
            granted = wish.astype(np.int64)
        else:
            wanted = np.zeros(len(self._slack) + 1)  # by burst; the last is of records in none
            np.add.at(wanted, bursts, wish)
            slack = np.maximum(np.append(self._slack, 0), 0)
            share = np.minimum(1, np.divide(slack, wanted, out=np.ones(len(wanted)), where=wanted > 0))
            granted = np.floor(wish * share[bursts]).astype(np.int64)
            bounded = (bursts >= 0) & (np.append(self._slack, 0)[bursts] < np.iinfo(np.int64).max)
            np.subtract.at(self._slack, bursts[bounded], granted[bounded])
        self._left[rows] -= granted
        return granted

    def drop_launches(self, rows: Ints) -> None:
        """These records go with a change that was claimed: their bursts no longer wait for their launches."""
        division = self._division
        gone = division.launched[np.isin(division.launched, rows)]
        freed = np.bincount(division.burst[gone], minlength=len(self._slack)) * division.pace_ns
        self._slack += np.where(self._slack < np.iinfo(np.int64).max, freed.astype(np.int64), 0)

    def wall_ns(self, granted: Ints) -> int:
        """The wall time that claims stand for: their sum, mean over the devices."""
        return int(granted.sum(dtype=np.int64)) // max(self._division.count, 1)


def is_worth(overview: Overview, saves_ns: int, least: float = LEAST_SHARE) -> bool:
    """Whether so much of the window is worth a line; least: the share of it that is."""
    return saves_ns > least * overview.division.wall_ns


def places(overview: Overview, rows: Ints, time_ns: Ints, count: int = 3) -> tuple[Place, ...]:
    """The layers and ops of these records with most of the given time.

    Layers that differ in their numbers alone are one place: `blocks.*.attn`.
    """
    classes, frame = overview.frame.classes, overview.frame.of_classes
    code = classes.code[rows]
    of_class, number = summed(code, time_ns, len(classes)), np.bincount(code, minlength=len(classes))
    there = np.flatnonzero(number)
    texts = frame.of_stack(_layer), frame.of_call("call", _OP), frame.of_call("call", params), frame.of_stack(_source)
    distinct, _, code = distinct_rows(*(text.codes[there] for text in texts))
    spent, often = (summed(code, each[there], distinct.shape[1]) for each in (of_class, number))
    found: dict[tuple[str | None, ...], Place] = {}
    for codes, number, time in zip(distinct.T.tolist(), often.tolist(), spent.tolist(), strict=True):
        layer, op, shape, src = (text.pool[one] if one >= 0 else None for text, one in zip(texts, codes, strict=True))
        alike = without_numbers(layer, AT_END) if layer is not None else None
        one = found.setdefault((alike, op, shape), Place(layer, op, shape, src, 0, 0))
        layer, src = layer if layer == one.layer else alike, src if src == one.src else None
        found[alike, op, shape] = Place(layer, op, shape, src, one.number + number, one.time_ns + time)
    most = sorted(found.values(), key=lambda one: -one.time_ns)[:count]
    return tuple(one._replace(time_ns=one.time_ns // max(overview.division.count, 1)) for one in most)


def _layer(stack: Stack) -> str | None:
    return ".".join(stack.layer) or None


def _source(stack: Stack) -> str | None:
    return stack.trace[-1] if stack.trace else None


def without_numbers(path: str, number: re.Pattern[str]) -> str:
    """The path with `*` in place of such numbers of its parts, which stand between dots."""
    return ".".join([_part(part, number) for part in path.split(".")])


@lru_cache(maxsize=1 << 14)
def _part(part: str, number: re.Pattern[str]) -> str:
    return number.sub("*", part)


def named(found: Sequence[Place]) -> str:
    """Places in words: `3 x linear (M=512,N=384,K=128) in blocks.0`."""
    texts = []
    for one in found:
        shape = f" ({one.shape if len(one.shape) <= _LONGEST else one.shape[:_LONGEST] + '…'})" if one.shape else ""
        layer = f" in {'.'.join(one.layer.split('.')[-_PARTS:])}" if one.layer else ""
        texts.append(f"{one.number} x {one.op or 'kernels without an op'}{shape}{layer}")
    return ", ".join(texts)


# ---------------------------------------------------------------------- idle time


class IdleTime(NamedTuple):
    """Idle time of one cause. time_ns: mean over the devices; saves_ns: the same without what occurs only in the first
    step; rows: the gaps concerned, largest share first; own_ns: time of this cause in each of them."""

    time_ns: int
    saves_ns: int
    rows: Ints
    own_ns: Ints


def idle_time(overview: Overview, cause: str, budget: Budget | None = None) -> IdleTime:
    """The idle time of a window for one cause; budget: without gaps that other kinds have claimed."""
    rows, own = overview.idle.rows_of(cause)
    gaps, devices = overview.division.gaps, max(overview.division.count, 1)
    claimed = 0
    if budget is not None:
        free = budget.free_gaps[rows]
        claimed = int(own[~free].sum()) // devices
        rows, own = rows[free], own[free]
    order = np.argsort(-own, kind="stable")
    rows, own = rows[order], own[order]
    total, steps = overview.parts[cause] - claimed, overview.steps
    once = 0
    if steps is not None and len(steps) >= _SEVERAL:
        step = np.maximum(np.searchsorted(steps.begin_ns, gaps.end_ns[rows], "left") - 1, 0)
        by_step = summed(step, own, len(steps)) // devices
        usual = int(by_step[1:].max())
        once = int(by_step[0]) - usual if by_step[0] > 2 * usual else 0
    return IdleTime(total, total - once, rows, own)


def ms(time_ns: float) -> str:
    """A time in ms: 285, 6.3 or 0.07."""
    value = time_ns / 1e6
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value:.2g} ms"


def counted(number: int, what: str) -> str:
    """`1 gap`, `5 gaps`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def uses_torch(overview: Overview) -> bool:
    """Whether PyTorch made any of the kernels or ops, so that its words are the program's."""
    records = overview.records
    if any(call.module.partition(".")[0] in ("torch", "aten", "prims") for call in records.calls):
        return True
    return any("at::native" in text or text.startswith("aten::") for text in records.strings.values)


# ---------------------------------------------------------------------- what a capture lacks


def kernels(overview: Overview) -> Ints:
    """The rows of the window's kernels and whole graphs."""
    return np.flatnonzero(overview.inside & among(overview.records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH)))


def share(overview: Overview, rows: Ints, which: Bools) -> float:
    """Share of these kernels' time that the chosen ones have; 0 without kernels."""
    time_ns = overview.records["dur_ns"][rows]
    return float(time_ns[which].sum() / max(time_ns.sum(), 1))


def replayed(overview: Overview, rows: Ints) -> Bools:
    """Which ran in the replay of a graph."""
    records, host = overview.records, overview.host
    launches = np.array([] if host is None else host.graph_launch_ns, np.int64)
    found = (records["kind"][rows] == ActivityKind.GRAPH) | (records["graph_node"][rows] >= 0)
    return np.asarray(found | among(records["launch_ns"][rows], launches))
