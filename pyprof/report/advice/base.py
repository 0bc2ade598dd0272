"""The parts that all kinds of advice share: the advice, its places, times, idle time.

A kind is a module with one function, `find(overview) -> Advice | None`, which states what its advice would change as if it were
alone. `kinds.py` replays the timeline with these changes: that says what each saves, alone and beside the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.intervals import summed
from pyprof.columns.types import Bools, Floats, Ints
from pyprof.model.records import Stack
from pyprof.model.trace import ActivityKind
from pyprof.prof.frame import params
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_PARTS, _LONGEST = 3, 80  # of a layer, and characters of a shape, in a sentence
_SEVERAL = 3  # steps needed to tell what is usual
_ALIKE = 0.2  # of the larger of two savings that differ little
BETWEEN_OPS_NS = 200_000  # on a CPU: the longest pause that Python and dispatch alone explain, from one op to the next
LEAST_SHARE = 0.005  # of the wall time: advice that saves less is not worth a line


_OP = attrgetter("op")
IN_PART = re.compile(r"(?:(?<=_)|^)\d+(?=:|$)")
"""A number of a part that may hold names with `:` between them: of a layer in a list (`3`), or called after its class
(`Linear_12`)."""
IN_NAME = re.compile(r"(?:(?<=_)|^)\d+(?=_|$)")
"""The same of a part that is one name, as of a range `layer_3_token_7`."""


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

    kind: name of the module; change: what it changes, None for advice about the capture itself; time_ns: time of the kernels or
    gaps concerned; evidence: one sentence with numbers; do: the line to write; places: where. By a replay with the change,
    None for advice about the capture: saves_ns, the wall time that goes when it is added to the advice before it; alone_ns,
    when nothing else is done; after: the kind that it needs, where it saves next to nothing alone. peak_bytes: by how much it
    lowers the peak of memory at most, None unknown.
    """

    kind: str
    change: Change | None
    time_ns: int | None
    evidence: str
    do: str
    places: tuple[Place, ...] = ()
    saves_ns: int | None = None
    alone_ns: int | None = None
    after: str | None = None
    peak_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Its members in JSON."""
        names = ("kind", "saves_ns", "alone_ns", "after", "time_ns", "peak_bytes", "evidence", "do")
        return {**{name: getattr(self, name) for name in names}, "places": [place._asdict() for place in self.places]}


def differs_alone(one: Advice) -> int | None:
    """Its saving alone, where that is much more or less than what it adds to the advice above it; None elsewhere."""
    saves, alone = one.saves_ns, one.alone_ns
    if saves is None or alone is None or one.after is not None or abs(alone - saves) <= _ALIKE * max(alone, saves):
        return None
    return alone


def cut_ns(overview: Overview, rows: Ints, wish_ns: Ints | Floats) -> Ints:
    """By how much each record can get shorter of what is wished: 0 outside of the window and where a wish is NaN."""
    return np.clip(np.nan_to_num(wish_ns), 0, overview.division.exclusive_ns[rows]).astype(np.int64)


def mean_ns(overview: Overview, time_ns: Ints) -> int:
    """The sum of times, mean over the devices."""
    return int(time_ns.sum(dtype=np.int64)) // max(overview.division.count, 1)


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
        alike = without_numbers(layer, IN_NAME) if layer is not None else None
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
    step; rows: the gaps concerned, largest share first; own_ns: time of this cause in each of them; usual_ns: the same without
    what occurs only in the first step."""

    cause: str
    time_ns: int
    saves_ns: int
    rows: Ints
    own_ns: Ints
    usual_ns: Ints

    @property
    def change(self) -> Change:
        """The host's time that goes with the cause."""
        return Change(gaps=self.rows, gap_ns=self.usual_ns, cause=self.cause)


def idle_time(overview: Overview, cause: str) -> IdleTime:
    """The idle time of a window for one cause."""
    rows, own = overview.idle.rows_of(cause)
    gaps, devices = overview.division.gaps, max(overview.division.count, 1)
    order = np.argsort(-own, kind="stable")
    rows, own = rows[order], own[order]
    total, steps = overview.parts[cause], overview.steps
    once, lasting = 0, own
    if steps is not None and len(steps) >= _SEVERAL:
        step = np.maximum(np.searchsorted(steps.begin_ns, gaps.end_ns[rows], "left") - 1, 0)
        by_step = summed(step, own, len(steps)) // devices
        usual = int(by_step[1:].max())
        if by_step[0] > 2 * usual:
            once = int(by_step[0]) - usual
            lasting = np.where(step == 0, own * (usual / int(by_step[0])), own).astype(np.int64)
    return IdleTime(cause, total, total - once, rows, own, lasting)


def told(time_ns: float) -> str:
    """A time with its unit: `285 ms`, `6.32 ms`, `71.0 us`."""
    return human(time_ns, "ns")


def counted(number: int, what: str) -> str:
    """`1 gap`, `5 gaps`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def together(overview: Overview) -> str:
    """Behind an amount that is a sum over several devices, beside times that are means over them."""
    return f" on {overview.division.count} devices together" if overview.division.count > 1 else ""


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
