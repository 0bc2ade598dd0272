"""Aligning sequences: against the longest common subsequence by definition, and for examples with an obvious answer."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns.alignment import aligned

CODES = st.lists(st.integers(-2, 3), max_size=14)


def _longest(first: list[int], second: list[int]) -> int:
    row = [0] * (len(second) + 1)
    for a in first:
        before = row[:]
        for j, b in enumerate(second):
            row[j + 1] = before[j] + 1 if a == b else max(before[j + 1], row[j])
    return row[-1]


def _array(values: list[int] | str) -> np.ndarray:
    return np.array([ord(v) if isinstance(v, str) else v for v in values], np.int64)


@given(CODES, CODES)
def test_as_many_pairs_as_the_longest_common_subsequence_in_order_and_equal(first: list[int], second: list[int]) -> None:
    found = aligned(_array(first), _array(second))
    assert found is not None and len(found.own) == len(first)
    pairs = [(i, j) for i, j in enumerate(found.own.tolist()) if j >= 0]
    assert all(first[i] == second[j] for i, j in pairs)
    assert all(a[1] < b[1] for a, b in pairwise(pairs))
    assert len(pairs) == _longest(first, second)


def _best(first: list[int], second: list[int]) -> list[frozenset[tuple[int, int]]]:
    """All longest alignments, by exhaustive search."""
    pairs = [(i, j) for i, a in enumerate(first) for j, b in enumerate(second) if a == b]
    sets = (chosen for chosen in combinations(pairs, _longest(first, second)))
    return [frozenset(chosen) for chosen in sets if all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(chosen))]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_all_best_alignments_together(first: list[int], second: list[int]) -> None:
    found, best = aligned(_array(first), _array(second)), _best(first, second)
    assert found is not None
    pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert pairs == set().union(*best) and len(found.first) == len(pairs)
    assert found.loose.tolist() == [any(x not in dict(one) for one in best) for x in range(len(first))]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abcd", "abcd", [0, 1, 2, 3]),
        ("abcd", "xabcdy", [1, 2, 3, 4]),
        ("abXcd", "abcd", [0, 1, -1, 2, 3]),
        ("abab", "abcab", [0, 1, 3, 4]),
        ("", "abc", []),
        ("abc", "", [-1, -1, -1]),
    ],
)
def test_added_and_removed_elements_have_no_partner(first: str, second: str, expected: list[int]) -> None:
    found = aligned(_array(first), _array(second))
    assert found is not None and found.own.tolist() == expected


def test_more_differences_than_allowed_are_no_alignment() -> None:
    first, second = _array("aaaabbbb"), _array("aaaacccc")
    assert aligned(first, second, most=7) is None
    found = aligned(first, second, most=8)
    assert found is not None and found.own.tolist() == [0, 1, 2, 3, -1, -1, -1, -1]


def test_long_sequences_of_layers_with_a_few_more_on_either_side() -> None:
    layer = list(range(40))
    second = np.array(layer * 2500)
    first = np.delete(second, [7, 50_000, 50_001, 99_990])
    first = np.insert(first, [3, 70_000], 99)
    found = aligned(first, second)
    assert found is not None
    index = found.own
    assert (index < 0).sum() == 2 and (first[index >= 0] == second[index[index >= 0]]).all()
