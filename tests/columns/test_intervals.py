"""Unions, gaps and depths against counting every nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns.intervals import count_before, depth, latest, quantiles, union

END = 40
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, END - 9), st.integers(0, 9)), max_size=12)


def columns(drawn: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(sorted((g, s, s + d) for g, s, d in drawn), np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def is_open(drawn: list[tuple[int, int, int]], group: int, t: int) -> int:
    return sum(g == group and s <= t < s + d for g, s, d in drawn)


@given(rows)
def test_union_and_what_it_covers(drawn: list[tuple[int, int, int]]) -> None:
    segments = union(*columns(drawn))
    counted = [[is_open(drawn, group, t) > 0 for t in range(END)] for group in range(3)]
    assert segments.total(3).tolist() == [sum(line) for line in counted]
    for group in range(4):
        times = np.arange(-2, END + 3)
        line = counted[group] if group < 3 else []
        assert segments.covered(np.full(len(times), group), times).tolist() == [sum(line[: max(t, 0)]) for t in times]


@given(rows)
def test_latest(drawn: list[tuple[int, int, int]]) -> None:
    group, _, end = columns(drawn)
    for row, found in enumerate(latest(group, end).tolist()):
        mine = [r for r in range(row + 1) if group[r] == group[row]]
        assert found == min(r for r in mine if end[r] == max(end[q] for q in mine))


@given(rows, st.integers(0, 3), st.integers(-1, END))
def test_count_before(drawn: list[tuple[int, int, int]], group: int, time: int) -> None:
    groups, start, _ = columns(drawn)
    for inclusive in (False, True):
        found = count_before(groups, start, np.array([group]), np.array([time]), inclusive=inclusive)
        assert found == sum((g, s) < (group, time) or (inclusive and (g, s) == (group, time)) for g, s, _ in drawn)


@given(rows, st.lists(st.integers(0, END), min_size=1, max_size=6, unique=True).map(sorted))
def test_depth(drawn: list[tuple[int, int, int]], edges: list[int]) -> None:
    _, start, end = columns(drawn)
    mean, most = depth(start, end, np.array(edges, np.int64))
    at = [sum(is_open(drawn, group, t) for group in range(3)) for t in range(END)]
    for a, b, m, top in zip(edges[:-1], edges[1:], mean.tolist(), most.tolist(), strict=True):
        assert m * (b - a) == sum(at[a:b]) or abs(m * (b - a) - sum(at[a:b])) < 1e-9
        assert top == max(at[a:b])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1000, 1000)), max_size=60), st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_quantiles_are_numpys(pairs: list[tuple[int, int]], share: float) -> None:
    group, values = (np.array(column, np.int64) for column in (zip(*pairs, strict=True) if pairs else ([], [])))
    _, found = quantiles(group, values, 4, 0.25, share)
    for number in range(4):
        mine = values[group == number]
        assert np.isnan(found[number]) if not len(mine) else np.isclose(found[number], np.quantile(mine, share))
