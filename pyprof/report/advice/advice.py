"""One piece of advice: what was found, what to do, its evidence and the most that it can save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.frame import Frame

__all__ = ["Advice", "kernels_of", "most"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Advice:
    """title: what was found; change: what to do; evidence: kernels or ops, sizes and counts; time_ns: what these took;
    saves_ns: the most that the change can save."""

    title: str
    change: str
    evidence: str
    time_ns: int
    saves_ns: int


def kernels_of(frame: Frame, rows: Ints) -> Ints:
    """Those of the rows that are kernels."""
    chosen: Ints = rows[frame.records["kind"][rows] == ActivityKind.KERNEL]
    return chosen


def most(codes: Ints, weight: Ints, pool: Sequence[str], count: int = 3) -> str:
    """The texts of most weight, each with how often it occurs: `12 x a, 3 x b`."""
    named = codes >= 0
    used, inverse = np.unique(codes[named], return_inverse=True)
    weights, counts = np.zeros(len(used), np.int64), np.bincount(inverse.ravel(), minlength=len(used))
    np.add.at(weights, inverse.ravel(), weight[named])
    times: dict[str, list[int]] = {}
    for code, heavy, often in zip(used.tolist(), weights.tolist(), counts.tolist(), strict=True):
        entry = times.setdefault(pool[code], [0, 0])
        entry[0] += heavy
        entry[1] += often
    first = sorted(times.items(), key=lambda item: (-item[1][0], item[0]))[:count]
    return ", ".join(f"{number} x {text}" for text, (_, number) in first)
