"""Times of repeated steps before and after -> the difference of their medians and its interval, by resampling.

The 95 % interval comes from the bootstrap (B. Efron, Bootstrap methods: another look at the jackknife, 1979): steps are drawn
with replacement, the same for all ops, and the medians of the draws subtracted. Few steps give too narrow an interval, so it is
widened as much as Student's t is wider than the normal distribution. Every run draws the same.

Of a whole run there are hundreds of steps, and what disturbs them lasts for many: so blocks of them are drawn (H. Kuensch, The
jackknife and the bootstrap for general stationary observations, 1989), of the fastest steps where medians are too uncertain:
what else a machine does makes steps longer, never shorter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.columns.types import Bools, Floats

LEAST_STEPS = 3  # on each side, for a verdict
LEAST_CHANGE = 0.01  # of the median before: less counts as noise, since clocks drift
_DRAWS = 1000
_NORMAL = 1.959964  # the 97.5 % quantile of the normal distribution
_DRAWN_TIMES = 1 << 22  # in memory at a time
LEAST_RUN = 20  # steps of a run on each side, for a verdict on it
LEAST_RUN_CHANGE = 0.02  # of the time before: less counts as noise, since a program is as fast as its process's memory allows
_BLOCKS, _IN_RUN = 20, 4000  # blocks that a run is divided into, and the most steps in all of them
_WIDE = 4  # times the difference: a wider interval says nothing of it
_STEADY = 0.01  # of a median: a wider interval is too uncertain to judge by
_UNLIKE = 1.2  # medians over the fastest steps: if they differ by more, one of the runs was disturbed all the time
LEVELS = (0.5, 0.1, 0.02)  # quantiles that are compared: the median, else the fastest steps


class Differences(NamedTuple):
    """Per group: medians before and after and the interval of their difference, in ns; NaN without enough steps."""

    before: Floats
    after: Floats
    low: Floats
    high: Floats

    @property
    def beyond_noise(self) -> Bools:
        """Which differences are more than noise."""
        large = np.abs(self.after - self.before) > LEAST_CHANGE * self.before
        return np.asarray(large & ((self.low > 0) | (self.high < 0)))


def differences(before: Floats, after: Floats) -> Differences:
    """Compare the times of a capture's steps per group: (groups, steps before) with (groups, steps after)."""
    groups, enough = len(before), min(before.shape[1], after.shape[1]) >= LEAST_STEPS
    first, second = (np.median(times, axis=1) if times.shape[1] else np.full(groups, np.nan) for times in (before, after))
    if not enough:
        unknown = np.full(groups, np.nan)
        return Differences(first, second, unknown, unknown)
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, times.shape[1], (_DRAWS, times.shape[1])) for times in (before, after)]
    low, high = np.empty(groups), np.empty(groups)
    some = max(_DRAWN_TIMES // max(draw.size for draw in drawn), 1)
    for at in range(0, groups, some):
        rows = slice(at, at + some)
        one, other = (np.median(times[rows][:, draw], axis=2) for times, draw in zip((before, after), drawn, strict=True))
        low[rows], high[rows] = np.quantile(other - one, (0.025, 0.975), axis=1)
    middle = second - first
    wider = _student(min(before.shape[1], after.shape[1]) - 1) / _NORMAL
    return Differences(first, second, middle - wider * (middle - low), middle + wider * (high - middle))


class RunDifference(NamedTuple):
    """Times of a step at a quantile of two runs, and the 95 % interval of their difference, in ns."""

    level: float
    before: float
    after: float
    low: float
    high: float

    @property
    def beyond_noise(self) -> bool:
        """Whether the difference is more than noise."""
        change = abs(self.after - self.before)
        sure = (self.low > 0 or self.high < 0) and self.high - self.low < _WIDE * change
        return sure and change > LEAST_RUN_CHANGE * self.before


def run_difference(before: Floats, after: Floats) -> RunDifference:
    """Compare the steps of two runs, at least LEAST_RUN of each, in order."""
    found: list[RunDifference] = []
    spreads = [float(np.quantile(times, 0.5) / max(np.quantile(times, LEVELS[-1]), 1)) for times in (before, after)]
    alike = max(spreads) < _UNLIKE * min(spreads)
    for level in LEVELS[not alike :]:
        rng = np.random.default_rng(0)
        one, other = (_drawn(times, level, rng) for times in (before, after))
        low, high = np.quantile(other - one, (0.025, 0.975)).tolist()
        first, second = (float(np.quantile(times, level)) for times in (before, after))
        found.append(RunDifference(level, first, second, low, high))
        if high - low < 2 * _STEADY * first:
            return found[-1]
    return min(found, key=lambda one: (one.high - one.low) / (one.before or 1))


def _drawn(times: Floats, level: float, rng: np.random.Generator) -> Floats:
    """A quantile of each of many draws of blocks of these times."""
    count = min(_BLOCKS, len(times) // 5)
    length = len(times) // count
    blocks = times[: count * length].reshape(count, length)[:, :: -(-count * length // _IN_RUN)]
    some = blocks[rng.integers(0, count, (_DRAWS, count))]
    return np.asarray(np.quantile(some.reshape(_DRAWS, -1), level, axis=1))


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5)."""
    z = _NORMAL
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))
