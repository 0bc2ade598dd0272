"""pyprof.parse.sources.kineto.ops: recorded inputs as arguments."""

import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec
from pyprof.model.trace import Labels
from pyprof.parse.sources.kineto.events import Codes, Event, decode_args
from pyprof.parse.sources.kineto.ops import OpArgs, OpLabels, op_codes, parse_concrete


def codes_of(labels: OpLabels, name: str, *args: str) -> list[int]:
    """The codes of ops of one name, of each the text of its args."""
    some, no = [Event(name=name, args=msgspec.Raw(a.encode())) for a in args], np.zeros(len(args), np.bool_)
    return [*op_codes(some, decode_args(OpArgs, some), False, no, no, Codes(labels.code)).tolist()]


def call_of(name: str, **args: Any) -> OpCall:
    labels = Labels()
    code = codes_of(OpLabels(labels), name, json.dumps({key.replace("_", " "): value for key, value in args.items()}))[0]
    call = labels.markers[code].call
    assert call is not None
    return call


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-1", -1), ("9223372036854775807", 2**63 - 1), ("0.", 0.0), ("9.9999999999999998e-13", 1e-12),
        ("True", True), ("False", False), ("None", None), ("[]", []), ("[16, 16]", [16, 16]), ("[2., 2.]", [2.0, 2.0]),
        ("[False, True, False]", [False, True, False]), ("[[1, 2], [3]]", [[1, 2], [3]]), ("inf", math.inf), ("-inf", -math.inf),
        ("1.-2.5j", 1 - 2.5j), ("0.+1.j", 1j), ("(1,2)", 1 + 2j), ("bilinear", "bilinear"), ("[1, 2", UNKNOWN), ("[a b]", UNKNOWN),
        ("__import__('os')", "__import__('os')"), ("ij,jk->ik", "ij,jk->ik"), ("[1] + [2]", UNKNOWN),
    ],
)  # fmt: skip
def test_concrete_inputs(text: str, value: Any) -> None:
    found = parse_concrete(text)
    assert found == value and type(found) is type(value)


def test_not_a_number() -> None:
    assert math.isnan(parse_concrete("nan"))


@given(st.text())
def test_any_text_is_read_without_error(text: str) -> None:
    assert parse_concrete(text) is not ...


@given(
    st.integers() | st.floats(allow_nan=False) | st.booleans() | st.lists(st.integers()) | st.lists(st.floats(allow_nan=False))
)
def test_what_python_prints_is_read_back(value: Any) -> None:
    assert parse_concrete(repr(value)) == value


def test_strings_and_lists_that_kineto_does_not_record_are_unknown_and_not_none() -> None:
    recorded: dict[str, Any] = {"Input_Dims": [[3, 4], []], "Input_type": ["float", ""], "Concrete_Inputs": ["", ""]}
    assert call_of("aten::gelu", **recorded).args == (TensorSpec((3, 4), "float32"), UNKNOWN)
    assert call_of("aten::relu", **recorded).args == (TensorSpec((3, 4), "float32"), None)


def test_without_concrete_inputs_scalars_are_unknown() -> None:
    call = call_of("aten::add", Input_Dims=[[3], [], []], Input_type=["c10::Half", "double", "Scalar"])
    assert call.args == (TensorSpec((3,), "float16"), TensorSpec((), "float64"), UNKNOWN) and call.described
    assert not call_of("aten::add").described


def test_lists_of_tensors_stay_lists() -> None:
    call = call_of(
        "aten::cat", Input_Dims=[[[2, 5], [2, 5]], []], Input_type=["TensorList", "Scalar"],
        Input_Strides=[[[5, 1], [1, 2]], []], Concrete_Inputs=["", "1"],
    )  # fmt: skip
    assert call.args == ([TensorSpec((2, 5), None, (5, 1)), TensorSpec((2, 5), None, (1, 2))], 1)
    assert call_of("aten::cat", Input_Dims=[[], []], Input_type=["TensorList", "Scalar"]).args == (UNKNOWN, UNKNOWN)


def test_a_dtype_given_as_an_argument_stays_torchs_number() -> None:
    call = call_of("aten::to", Input_Dims=[[2], []], Input_type=["float", "Scalar"], Concrete_Inputs=["", "15"])
    assert call.args[1] == 15


def test_uneven_and_odd_lists() -> None:
    call = call_of("aten::mm", Input_Dims=[[2, 3], ["x"], [4]], Input_type=["float"], Input_Strides=[[3]])
    assert call.args == (TensorSpec((2, 3), "float32"), UNKNOWN, TensorSpec((4,)))


def test_equal_calls_are_one_marker() -> None:
    labels = Labels()
    ops = OpLabels(labels)
    texts = ('{"Input Dims": [[2,3]], "Input type": ["float"]}', '{"Input type":["float"],"Input Dims":[[2, 3]]}')
    codes = {*codes_of(ops, "aten::relu", *texts)}
    assert codes == {0} and len(labels.markers) == 1 and ops.shapes
