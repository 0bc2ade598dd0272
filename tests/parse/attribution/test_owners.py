"""Rule 4: what owns a backward function where several forward ranges show its number."""

from pathlib import Path
from typing import Any

import pytest

from pyprof.loading.load import load_capture
from tests.parse.sources.kineto.test_kineto import PID, SIDE, kernel, launch, op, write

LOOKUP = "fbgemm::split_embedding_codegen_lookup_sgd_function"


def typed(name: str, ts: float, dur: float, seq: int, *tensors: tuple[list[int], str], **more: Any) -> dict[str, Any]:
    """An op with these inputs."""
    return op(name, ts, dur, Sequence_number=seq, Input_Dims=[shape for shape, _ in tensors],
              Input_type=[dtype for _, dtype in tensors], **more)  # fmt: skip


def owner(tmp_path: Path, *inside: dict[str, Any], around: bool = True) -> str | None:
    """The forward op of the kernel of a backward function with number 5; inside: what runs in forward, within a look-up."""
    floats, integers = ([100, 8], "float"), ([40], "long int")
    events = [
        *[typed(LOOKUP, 10, 50, 5, floats, integers)] * around, *inside,
        launch(1, 55), kernel(1, 100),
        typed("torch::autograd::CppNode<SplitLookupFunction_sgd_Op>", 80, 15, 5, ([4, 8], "float"), tid=SIDE, Fwd_thread_id=1),
        launch(2, 85, tid=SIDE), kernel(2, 110),
        {"ph": "s", "cat": "fwdbwd", "id": 1, "name": "fwdbwd", "pid": PID, "tid": PID, "ts": 10},
        {"ph": "f", "cat": "fwdbwd", "id": 1, "name": "fwdbwd", "pid": PID, "tid": SIDE, "ts": 80},
    ]  # fmt: skip
    records = load_capture(write(tmp_path, events))
    code = int(records["call"][1])
    return records.calls[code].name if records["fwd_instance"][1] >= 0 else None


@pytest.mark.parametrize("dtype", ["long int", "int", "bool", "unsigned char"])
def test_a_cast_of_integers_owns_no_backward(tmp_path: Path, dtype: str) -> None:
    cast = typed("aten::to", 20, 5, 5, ([40], dtype), ([], ""), ([], "Scalar"))
    assert owner(tmp_path, cast) == LOOKUP


def test_nor_does_an_op_that_makes_a_tensor(tmp_path: Path) -> None:
    assert owner(tmp_path, typed("aten::zeros", 20, 5, 5, ([], "ScalarList"))) == LOOKUP


def test_an_op_with_a_gradient_inside_leads_to_its_instance(tmp_path: Path) -> None:
    inner = typed("aten::embedding", 20, 5, 5, ([100, 8], "float"), ([40], "long int"))
    assert owner(tmp_path, inner) == LOOKUP
    assert owner(tmp_path, inner, around=False) == "aten::embedding"


def test_an_op_without_a_number_behind_the_cast_is_the_owner(tmp_path: Path) -> None:
    """FBGEMM's look-ups show no number: the casts of their indices before them do, and so does a check of these."""
    floats, integers = ([100, 8], "float"), ([40], "long int")
    cast, zero = typed("aten::to", 20, 5, 5, integers), typed("aten::zero_", 27, 2, 5, integers)
    check = op("fbgemm::bounds_check_indices", 26, 4, Input_Dims=[[40]], Input_type=["long int"])
    look_up = op(
        "fbgemm::dense_embedding_codegen_lookup_function", 40, 8, Input_Dims=[[100, 8], [40]], Input_type=["float", "long int"]
    )
    inner = op("aten::empty", 41, 2)
    after = typed("aten::view", 50, 2, 6, floats)
    found = owner(tmp_path, cast, check, zero, look_up, inner, after, around=False)
    assert found == "fbgemm::dense_embedding_codegen_lookup_function"
    # One that begins after the next number was shown cannot be it, nor one of integers.
    late = typed("aten::view", 35, 2, 6, floats)
    assert owner(tmp_path, cast, check, zero, late, look_up, around=False) is None
    assert owner(tmp_path, cast, check, zero, after, around=False) is None


def test_types_that_are_not_recorded_exclude_nothing(tmp_path: Path) -> None:
    untyped = op("aten::to", 20, 5, Sequence_number=5, Input_Dims=[[40]], Input_type=[""])
    assert owner(tmp_path, untyped, around=False) == "aten::to"
    # A function of a library may hold its weights elsewhere than in its arguments.
    assert owner(tmp_path, typed("mylib::lookup", 20, 5, 5, ([40], "long int")), around=False) == "mylib::lookup"
