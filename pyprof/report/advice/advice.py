"""One advice, and what all kinds of advice need to find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from pyprof.arrays.intervals import summed
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.frame import Frame

__all__ = ["Advice", "kernels_of", "most", "where"]

T = TypeVar("T")


class Advice(NamedTuple):
    """title: what was found; change: what to do; evidence: kernels or ops, sizes and counts; time_ns: their time; saves_ns: the
    most that the change can save."""

    title: str
    change: str
    evidence: str
    time_ns: int
    saves_ns: int


def where(test: Callable[[T], bool], pool: Sequence[T], codes: Ints) -> Bools:
    """Which codes are of an entry of the pool that passes the test; -1 is of none."""
    return np.array([test(entry) for entry in pool] + [False], np.bool_)[codes]


def kernels_of(frame: Frame, rows: Ints) -> Ints:
    """Those of the rows that are kernels."""
    chosen: Ints = rows[frame.records["kind"][rows] == ActivityKind.KERNEL]
    return chosen


def most(codes: Ints, weight: Ints, pool: Sequence[str], count: int = 3) -> str:
    """The texts of most weight, each with how often it occurs: `12 x a, 3 x b`."""
    named = codes >= 0
    used, inverse = np.unique(codes[named], return_inverse=True)
    weights, counts = summed(inverse.ravel(), weight[named], len(used)), np.bincount(inverse.ravel(), minlength=len(used))
    found: dict[str, tuple[int, int]] = {}
    for code, heavy, often in zip(used.tolist(), weights.tolist(), counts.tolist(), strict=True):
        before = found.get(pool[code], (0, 0))
        found[pool[code]] = before[0] + heavy, before[1] + often
    first = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:count]
    return ", ".join(f"{number} x {text}" for text, (_, number) in first)
