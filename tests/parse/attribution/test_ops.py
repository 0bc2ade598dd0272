"""The nearest and the outermost of the ranges around a position, against walking up from each."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns.types import Rows
from pyprof.parse.attribution.ops import nearest, outermost
from pyprof.parse.attribution.ranges import Nested


@st.composite
def forests(draw: st.DrawFn) -> tuple[Nested, list[list[bool]]]:
    """Ranges that nest, and three properties of each; one element more, which has none."""
    parent = [draw(st.integers(-1, i - 1)) for i in range(draw(st.integers(0, 12)))]
    depth: list[int] = []
    for above in parent:
        depth.append(0 if above < 0 else depth[above] + 1)
    at_depth = [np.flatnonzero(np.array(depth) == d) for d in range(max(depth, default=-1) + 1)]
    levels = [(level, np.array(parent, np.int64)[level]) for level in at_depth]
    masks = [[*(draw(st.booleans()) for _ in parent), False] for _ in range(3)]
    none = np.empty(0, np.int64)
    return Nested(Rows(none), none, np.array(parent, np.int32), levels, {}), masks


def _around(nested: Nested, position: int) -> list[int]:
    """The range itself and those around it, outwards."""
    return [position, *_around(nested, int(nested.parent[position]))] if position >= 0 else []


@given(forests())
def test_nearest_is_the_first_outwards_with_the_property_up_to_a_reset(drawn: tuple[Nested, list[list[bool]]]) -> None:
    nested, (mask, reset, _) = drawn
    found = nearest(nested, np.array(mask), np.array(reset)).tolist()
    for position in range(len(mask) - 1):
        wanted = -1
        for one in _around(nested, position):
            if mask[one] or reset[one]:
                wanted = one if mask[one] else -1
                break
        assert found[position] == wanted
    assert found[-1] == -1


@given(forests())
def test_outermost_is_the_last_outwards_before_a_reset_and_what_is_apart_counts_by_itself(
    drawn: tuple[Nested, list[list[bool]]],
) -> None:
    nested, (mask, reset, apart) = drawn
    mask = [one or other for one, other in zip(mask, apart, strict=True)]  # what is apart has the property
    found = outermost(nested, np.array(mask), np.array(reset), np.array(apart)).tolist()
    for position in range(len(mask) - 1):
        wanted = -1
        for one in reversed(_around(nested, position)):
            if reset[one]:
                wanted = -1
            elif mask[one] and (wanted < 0 or (apart[one] and not apart[wanted])):
                wanted = one
        assert found[position] == wanted
    assert found[-1] == -1
