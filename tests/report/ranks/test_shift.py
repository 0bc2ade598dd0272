"""Which collectives of two ranks are the same one, told by the times between their ends."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.report.ranks.collective_calls import pair_up


def ends_of(count: int, seed: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.cumsum(np.random.default_rng(seed).integers(900_000, 1_100_000, count))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(-(10**12), 10**12), st.integers(0, 99))
def test_a_rank_that_began_later_or_earlier(late: int, early: int, offset: int, seed: int) -> None:
    ends = ends_of(120, seed)
    rng = np.random.default_rng(seed)
    own = (ends + offset + rng.integers(-500, 501, 120))[late : 120 - early]
    shift, fits = pair_up(ends, own)
    assert shift == late and fits.all()
    shift, fits = pair_up(own, ends)
    assert shift == -late and fits.all()


def test_one_that_is_missing_in_the_middle_spoils_only_what_cannot_be_told() -> None:
    ends = ends_of(100, 1)
    shift, fits = pair_up(ends, np.delete(ends, 70) + 12_345)
    assert shift == 0 and fits.tolist() == [True] * 70 + [False] * 29


def test_clocks_may_drift_and_steady_steps_are_counted_from_the_first() -> None:
    ends = np.arange(1, 2001) * 1_000_000
    shift, fits = pair_up(ends, ends + (ends * 20e-6).astype(np.int64) + 7)
    assert shift == 0 and fits.all()


def test_others_that_never_end_together_do_not_fit_and_few_are_only_counted() -> None:
    _, fits = pair_up(np.cumsum(np.full(60, 1_000_000)), np.cumsum(np.full(60, 3_300_000)))
    assert not fits.any()
    found = [pair_up(ends_of(a, 0), ends_of(b, 5))[1].tolist() for a, b in ((3, 3), (3, 2), (0, 0))]
    assert found == [[True] * 3, [False] * 2, []]
