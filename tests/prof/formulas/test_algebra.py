"""Promotion, broadcasting and stored sizes, held against torch."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import broadcast, dims, nbytes, pair, promote
from pyprof.prof.formulas.registry import Missing
from tests.prof.formulas.formula_oracles import describe

DTYPES = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex32 complex64 complex128".split()
SHAPES = ((), (1,))
# torch warns of complex32 once in a process, in whichever test comes first.
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")


def _like(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, name), device="meta")


@pytest.mark.parametrize("first", DTYPES)
def test_promotion_of_tensors_is_torchs(first: str) -> None:
    for second, a, b in itertools.product(DTYPES, SHAPES, SHAPES):
        try:
            expected = torch.result_type(_like(first, a), _like(second, b))
        except RuntimeError:  # torch has no answer for some pairs with uint16, uint32 and uint64
            continue
        assert promote(TensorSpec(a, first), TensorSpec(b, second)) == str(expected).removeprefix("torch."), (a, second, b)


@pytest.mark.parametrize("number", [True, 3, 2.5, 1j])
def test_promotion_with_numbers_is_torchs(number: complex) -> None:
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        expected = str(torch.result_type(_like(dtype, shape), number)).removeprefix("torch.")
        assert promote(TensorSpec(shape, dtype), number) == expected, (dtype, shape)
        assert promote(number, TensorSpec(shape, dtype)) == expected, (dtype, shape)


def test_promotion_of_what_is_not_recorded() -> None:
    assert promote(TensorSpec((2,), "bfloat16"), UNKNOWN) == "bfloat16"
    assert promote(TensorSpec((2,), "int64"), UNKNOWN) is None
    assert promote(TensorSpec((2,), None), 2.0) is None
    assert promote(TensorSpec((2,), "int64"), to_float=True) == "float32"
    assert promote(None) is None


@given(st.lists(st.lists(st.sampled_from([1, 1, 2, 3]), max_size=4).map(tuple), min_size=1, max_size=3))
def test_broadcasting_is_numpys(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(Missing):
            broadcast(*shapes)
    else:
        assert broadcast(*shapes) == expected


def test_a_dimension_of_stride_0_is_stored_once() -> None:
    assert nbytes(describe(torch.zeros(1, 768).expand(197, 768))) == 768 * 4
    assert nbytes(describe(torch.zeros(4, 3).t()), [None, 2.0, describe(torch.zeros(2, dtype=torch.bool))]) == 48 + 2
    assert nbytes(TensorSpec((3,))) is None
    assert nbytes(describe(torch.zeros(0, 5).expand(0, 5))) == 0


def test_options_of_one_or_several_dimensions() -> None:
    assert pair(3, 2, "stride") == (3, 3)
    assert pair([3], 2, "stride") == (3, 3)
    assert pair((1, 2), 2, "stride") == (1, 2)
    with pytest.raises(Missing, match="stride not recorded"):
        pair(UNKNOWN, 2, "stride")
    with pytest.raises(Missing, match="not understood"):
        pair([1, 2, 3], 2, "stride")
    assert dims(None, 3) == (0, 1, 2)
    assert dims((-1, 0), 3) == (0, 2)
