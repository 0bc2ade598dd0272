"""Times of repeated steps before and after -> the difference of their medians and its interval, by resampling.

The 95 % interval comes from the bootstrap (B. Efron, Bootstrap methods: another look at the jackknife, 1979): steps are drawn
with replacement, the same for all ops, and the medians of the draws subtracted. Few steps give too narrow an interval, so it is
widened as much as Student's t is wider than the normal distribution. Every run draws the same.
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
