"""What an instrumented op tells, and that the op itself is untouched."""

import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nvtx_recording import Recorder

from pyprof import nvtx as instrumenter
from pyprof.model import markers
from pyprof.model.opcall import UNKNOWN, DTypeArg, TensorSpec, parse_call
from pyprof.nvtx.describe import describe_call, describe_value
from pyprof.nvtx.wrapper import MAX_MARKER_BYTES
from tests import examples


def test_linear_is_told_with_shapes_dtypes_strides_gradient_and_line(recorder: Recorder) -> None:
    x, w = torch.randn(4, 8), torch.randn(8, 16, requires_grad=True)
    recorder.clear()
    F.linear(x, w.t())
    transpose, linear = recorder.markers
    assert transpose.call is not None and linear.call is not None
    assert transpose.call.name == "Tensor.t"
    assert linear.call.name == "torch.nn.functional.linear"
    assert linear.call.args == (TensorSpec((4, 8), "float32", (8, 1)), TensorSpec((16, 8), "float32", (1, 16), True))
    file, _, line = linear.src[0].rpartition(":")
    assert file.endswith("test_wrapper.py")
    assert int(line) == test_linear_is_told_with_shapes_dtypes_strides_gradient_and_line.__code__.co_firstlineno + 3


CALLS = [
    (lambda x: torch.cat([x, x], 1), ["cat([fp32[2,3], fp32[2,3]], 1)"]),
    (lambda x: x[0:1, ..., None], ["__getitem__(fp32[2,3], (0:1, .., None))"]),
    (lambda x: x[torch.tensor([1, 0])], ["tensor([1, 0])", "__getitem__(fp32[2,3], int64[2])"]),
    (lambda x: x + 1.5, ["__add__(fp32[2,3], 1.5)"]),
    (lambda x: 2 - x, ["rsub(fp32[2,3], 2)"]),
    (lambda x: x**2, ["__pow__(fp32[2,3], 2)"]),
    (lambda x: x.to(torch.bfloat16), ["to(fp32[2,3], bf16)"]),
    (lambda x: x.clamp(min=float("-inf")), ["clamp(fp32[2,3], min=-inf)"]),
    (lambda x: torch.sum(x, dim=(0, 1), keepdim=True), ["sum(fp32[2,3], dim=(0, 1), keepdim=True)"]),
    (lambda x: torch.zeros((2,), dtype=torch.int32, device="cpu"), ['zeros((2,), dtype=int32, device="cpu")']),
    (lambda x: torch.linalg.vector_norm(x, float("inf")), ["vector_norm(fp32[2,3], inf)"]),
    (lambda x: torch.fft.fft(x), ["fft(fp32[2,3])"]),
    (lambda x: torch.special.expm1(x), ["expm1(fp32[2,3])"]),
    (lambda x: torch.einsum("ij,kj->ik", x, x), ['einsum("ij,kj->ik", (fp32[2,3], fp32[2,3]))']),
    (lambda x: F.relu(x), ["relu(fp32[2,3])"]),
    (lambda x: F.gelu(x), ["gelu(fp32[2,3])"]),
    (lambda x: torch._foreach_add([x, x], 1), ["_foreach_add([fp32[2,3], fp32[2,3]], 1)"]),
    (lambda x: F.layer_norm(x, (3,)), ["layer_norm(fp32[2,3], (3,), None, None, 1e-05)"]),
    (lambda x: F.one_hot(torch.arange(3), 4), ["arange(3)", "one_hot(int64[3], 4)"]),
    (
        lambda x: F.cross_entropy(x, torch.zeros(2, dtype=torch.long), label_smoothing=0.1),
        [
            "zeros(2, dtype=int64)",
            "cross_entropy(fp32[2,3], int64[2], weight=None, reduction=1, ignore_index=-100, label_smoothing=0.1)",
        ],
    ),
]


@pytest.mark.parametrize(("run", "told"), CALLS, ids=[told[-1] for _, told in CALLS])
def test_calls_are_told_as_users_write_them(recorder: Recorder, run: object, told: list[str]) -> None:
    x = torch.randn(2, 3)
    recorder.clear()
    run(x)  # type: ignore[operator]
    found = recorder.calls()
    assert found[: len(told) - 1] + found[-1:] == told


def test_equal_numbers_of_different_types_are_told_apart(recorder: Recorder) -> None:
    x = torch.ones(2)
    recorder.clear()
    for _ in range(2):
        for value in (1, 1.0, True, 0.0, -0.0, float("nan")):
            x.eq(value)
    seen = [call.partition(", ")[2] for call in recorder.calls()]
    assert seen == ["1)", "1.0)", "True)", "0.0)", "-0.0)", "nan)"] * 2


def test_exceptions_pass_through_and_close_the_range(recorder: Recorder) -> None:
    with pytest.raises(RuntimeError) as instrumented:
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    instrumenter.pause()
    with pytest.raises(RuntimeError) as plain:
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert str(instrumented.value) == str(plain.value)
    assert recorder.open == 0


def test_no_reference_to_a_tensor_is_kept(recorder: Recorder) -> None:
    x = torch.randn(7, 5)
    (x + x, torch.cat([x, x]), x[0])
    gone = weakref.ref(x)
    del x
    assert gone() is None


def test_data_is_never_looked_at(recorder: Recorder) -> None:
    x = torch.ones((), device="meta")  # a look at its value would raise
    torch.add(x, x)
    assert "add(fp32[], fp32[])" in recorder.calls()


def test_threads_are_all_served(recorder: Recorder) -> None:
    x = torch.ones(3)
    recorder.clear()
    threads = [threading.Thread(target=lambda: [x.mul(2) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.ops() == ["Tensor.mul"] * 200


def test_whole_stacks_are_told_outermost_first(recorder: Recorder) -> None:
    instrumenter.init(backend=recorder, stack=True)
    recorder.clear()

    def inner() -> None:
        torch.ones(2)

    inner()
    src = recorder.markers[0].src
    first = test_whole_stacks_are_told_outermost_first.__code__.co_firstlineno
    assert [int(line.rpartition(":")[2]) - first for line in src if "test_wrapper" in line][-2:] == [7, 5]


def test_a_line_within_torch_is_told_as_the_users_line_that_led_to_it(recorder: Recorder) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(2, 2))
    recorder.clear()
    layer(torch.ones(1, 2))
    (linear,) = recorder.of("torch.nn.functional.linear")
    assert "test_wrapper.py" in linear.src[0]


def test_an_error_of_ours_costs_a_markers_arguments_and_is_counted(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyprof.nvtx import wrapper

    def broken(*_: object) -> None:
        raise LookupError("ours")

    x = torch.ones(11)
    recorder.clear()
    with monkeypatch.context() as patched, pytest.warns(RuntimeWarning, match="not affected"):
        patched.setattr(wrapper, "describe_call", broken)
        assert x.mul(5).sum().item() == 55
    assert recorder.calls() == ["mul(...)", "sum(...)", "item(...)"]
    assert instrumenter.stats().errors == 3
    instrumenter.shutdown()
    instrumenter.init(backend=recorder)  # counts begin anew


def test_a_marker_that_nsys_would_drop_is_cut(recorder: Recorder) -> None:
    many = [torch.ones(2, 3) for _ in range(3000)]
    short = [torch.ones(2, 3) for _ in range(300)]
    recorder.clear()
    torch._foreach_add(many, 1)
    torch._foreach_add(many * 2, 1)
    torch._foreach_add(short, 1)
    calls = [m.call for m in recorder.markers]
    assert [c is not None and c.described for c in calls] == [True, True, True]
    assert [len(t.encode()) < MAX_MARKER_BYTES for t in recorder.texts] == [True] * 3
    wide = [torch.ones(1, 2, 3, 4, 5, 6, 7).transpose(1, 2) for _ in range(2000)]
    recorder.clear()
    torch._foreach_add(wide, 1)
    (cut,) = recorder.markers
    assert cut.call is not None and not cut.call.described
    assert len(recorder.texts[0]) < 200


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=20),
    st.just(...),
)
_values = st.recursive(
    st.one_of(_scalars, st.builds(slice, st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9))),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)


@settings(deadline=None, max_examples=examples(80))
@given(st.lists(_values, max_size=4))
@example([-0.0, float("nan"), float("-inf"), complex(-0.0, 1), True, 1, -1, "'\\\n,(", [(), []], slice(None, -1, 2), ..., None])
def test_described_arguments_survive_the_text(values: list[object]) -> None:
    call = describe_call("torch", "op", (), tuple(values), {})
    assert repr(parse_call(str(call), "torch").args) == repr(call.args)
    assert repr(call.args) == repr(tuple(values))


def test_what_cannot_be_described_is_unknown() -> None:
    assert describe_value(object()) is UNKNOWN
    assert describe_value(list(range(1000))) is UNKNOWN
    assert describe_value("x" * 1000) is UNKNOWN
    assert describe_value(torch.int8) == DTypeArg("int8")


def test_a_marker_that_changes_its_numbers_for_ever_keeps_its_shapes(recorder: Recorder) -> None:
    x = torch.ones(3)
    recorder.clear()
    for number in range(1000):
        x.mul(number / 7)
    assert len(set(recorder.texts)) < 200
    last = markers.decode(recorder.texts[-1])
    assert last.call is not None
    assert last.call.args == (TensorSpec((3,), "float32", (1,)), UNKNOWN)
