"""Texts of NVTX ranges: every grammar that is understood, and texts that only look like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.model.markers import (
    Kind,
    decode,
    encode_layer,
    encode_op,
    encode_optimizer,
    encode_step,
    is_backward_name,
    split_ids,
)
from pyprof.model.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec


def test_our_own_op_marker_reads_well_and_reads_back() -> None:
    weight = TensorSpec((10, 64), "float32", (1, 10), True)
    call = OpCall("torch.nn.functional", "linear", (TensorSpec((2, 64), "bfloat16", (64, 1)), weight, None), (("dim", -1),))
    text = encode_op(call, ("net.py:42",))
    assert text == 'linear(bf16[2,64], fp32[10,64]{1,10}^, None, dim=-1) #pyprof{"mod":"torch.nn.functional","src":"net.py:42"}'
    marker = decode(text)
    assert marker.kind == Kind.OP and marker.call == call and marker.src == ("net.py:42",) and marker.own
    assert decode(encode_op(call, ("a.py:1", "b.py:2"))).src == ("a.py:1", "b.py:2")


def test_values_of_every_kind_read_back() -> None:
    args = (
        [TensorSpec((), "int64", ())],
        (),
        (1,),
        "s(,[",
        1.5,
        float("inf"),
        2 - 3j,
        True,
        DTypeArg("float8_e4m3fn"),
        (slice(None), slice(1, -2, 3), Ellipsis, None),
    )
    call = OpCall("Tensor", "__getitem__", args)
    assert decode(encode_op(call)).call == call
    hidden = decode(encode_op(OpCall("torch", "f", (object(),))))
    assert hidden.call is not None and hidden.call.args == (UNKNOWN,)
    assert decode(encode_op(OpCall("torch", "f", described=False))).call == OpCall("torch", "f", described=False)


def test_layers_steps_and_optimizers() -> None:
    layer = decode(encode_layer("encoder.layers.3", "TransformerEncoderLayer"))
    assert (layer.kind, layer.name, layer.scope) == (Kind.LAYER, "encoder.layers.3", "module")
    assert decode(encode_step(12)).step == 12 and decode(encode_step(12)).kind == Kind.STEP
    assert decode(encode_optimizer("AdamW")).kind == Kind.OPTIMIZER
    user = decode("layer:attention:head")
    assert (user.kind, user.name, user.scope) == (Kind.LAYER, "attention:head", "user")


LINEAR = "{'mod': 'torch.nn.functional', 'op': 'linear', 'args': [{'name': '', 'type': 'tensor', 'shape': (35, 20), 'dtype': 'float32'}, {'name': 'bias', 'type': 'NoneType', 'value': None}]%s}"


@pytest.mark.parametrize("extra", ["", ", 'callid': 3, 'input_callids': [1, 2]", ", 'funcStack': 'a/b'"])
def test_the_originals_markers(extra: str) -> None:
    marker = decode(LINEAR % extra)
    assert marker.kind == Kind.OP and marker.call is not None and marker.call.flat
    assert marker.call.args == (TensorSpec((35, 20), "float32"),) and marker.call.kwargs == (("bias", None),)
    trace = decode("{'traceMarker': ['a.py:1', '/x/torch/nn/modules/linear.py:2'], 'funcStack': 'f/g'}")
    assert trace.kind == Kind.TRACE and trace.src == ("a.py:1", "/x/torch/nn/modules/linear.py:2")
    assert decode("{'mod': 'Linear', 'strRepr': 'in_features=2'}").kind == Kind.REPR
    assert decode("{'mod': 'torch', 'op': 'zeros', 'args': []}").kind == Kind.OP


def test_infinities_that_the_original_wrote_bare() -> None:
    marker = decode(
        "{'mod': 'torch', 'op': 'clamp', 'args': [{'name': '', 'type': 'list', 'value': [inf, 1.0]}, {'name': '', 'type': 'float', 'value': '-inf'}]}"
    )
    assert marker.call is not None and marker.call.args == ([float("inf"), 1.0], float("-inf"))


@pytest.mark.parametrize(
    ("text", "bare", "seq", "op_id"),
    [
        ("mul, seq = 66", "mul", 66, -1),
        ("aten::mul, seq = 3, op_id = 7", "aten::mul", 3, 7),
        ("aten::empty, op_id = 5, sizes = [[], []], input_op_ids = [(0,-1), (3,0)]", "aten::empty, sizes = [[], []]", -1, 5),
        (
            "aten::mm, seq = 1, op_id = 2, sizes = [[2, 3], [3, 4]], input_op_ids = [(0,-1), (0,-1)]",
            "aten::mm, sizes = [[2, 3], [3, 4]]",
            1,
            2,
        ),
        ("void f<int, float>(int, char), seq = 4", "void f<int, float>(int, char)", 4, -1),
        ("torch::autograd::AccumulateGrad, seq = 18446744073709551615, op_id = 3", "torch::autograd::AccumulateGrad", -1, 3),
        ("weights, seq = best", "weights, seq = best", -1, -1),
        ("f, seq = 1, more, seq = 2", "f, seq = 1, more", 2, -1),
    ],
)
def test_emit_nvtx_ids_are_taken_off(text: str, bare: str, seq: int, op_id: int) -> None:
    assert split_ids(text)[:3] == (bare, seq, op_id)
    assert split_ids(text)[3] == (bare != text)


def _of(text: str) -> tuple[Kind, str, str]:
    bare, seq, _, keyed = split_ids(text)
    marker = decode(bare, keyed=keyed, numbered=seq >= 0)
    return marker.kind, marker.name, marker.call.name if marker.call else ""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("aten::conv2d, seq = 0, op_id = 1", (Kind.DISPATCH, "aten::conv2d", "aten::conv2d")),
        ("aten::add.Tensor, seq = 0", (Kind.DISPATCH, "aten::add.Tensor", "aten::add")),
        ("mul, seq = 66", (Kind.DISPATCH, "mul", "aten::mul")),
        (
            "AddmmBackward0, seq = 5, op_id = 65, sizes = [[2, 5]]",
            (Kind.BACKWARD, "AddmmBackward0", "autograd::AddmmBackward0"),
        ),
        ("MulBackward1, seq = 5", (Kind.BACKWARD, "MulBackward1", "autograd::MulBackward1")),
        ("MmBackward, seq = 72", (Kind.BACKWARD, "MmBackward", "autograd::MmBackward")),
        (
            "torch::autograd::AccumulateGrad, op_id = 86",
            (Kind.BACKWARD, "torch::autograd::AccumulateGrad", "autograd::AccumulateGrad"),
        ),
        ("torch::autograd::AccumulateGrad", (Kind.BACKWARD, "torch::autograd::AccumulateGrad", "autograd::AccumulateGrad")),
        ("autograd::engine::evaluate_function: AddmmBackward0, op_id = 64", (Kind.ENGINE, "AddmmBackward0", "")),
        (
            "RegisterPostBackwardFunction, seq = 9, op_id = 4",
            (Kind.DISPATCH, "RegisterPostBackwardFunction", "autograd::RegisterPostBackwardFunction"),
        ),
        ("Backward", (Kind.USER, "Backward", "")),
        ("my Backward0 pass", (Kind.USER, "my Backward0 pass", "")),
        ("my_range, op_id = 41", (Kind.USER, "my_range", "")),
        ("detach, op_id = 88", (Kind.DISPATCH, "detach", "aten::detach")),
        ("Optimizer.step#AdamW.step", (Kind.OPTIMIZER, "AdamW.step", "")),
        ("ProfilerStep#7", (Kind.STEP, "ProfilerStep#7", "")),
        ("plain user text", (Kind.USER, "plain user text", "")),
        ("{'not': 'ours'}", (Kind.USER, "{'not': 'ours'}", "")),
        ("{'mod': broken", (Kind.USER, "{'mod': broken", "")),
        ('f(oops #pyprof{"mod":"torch"}', (Kind.USER, 'f(oops #pyprof{"mod":"torch"}', "")),
        ("record_param_comms, op_id = 3", (Kind.INTERNAL, "record_param_comms", "")),
    ],
)
def test_what_a_text_means(text: str, wanted: tuple[Kind, str, str]) -> None:
    assert _of(text) == wanted


def test_ids_that_repeat_without_end_are_read_in_one_pass() -> None:
    ids = ", seq = 5, op_id = 4, sizes = [[4, 2]], input_op_ids = [(3,0)]"
    assert split_ids(f"f{ids * 100_000}x") == (f"f{ids * 100_000}x", -1, -1, False)
    assert split_ids(f"f{ids * 2}") == ("f, sizes = [[4, 2]]", 5, 4, True)


def test_sizes_become_shapes_without_dtypes() -> None:
    bare, seq, _, keyed = split_ids("aten::cat, seq = 6, op_id = 36, sizes = [[2, 5], [2, 5], []], input_op_ids = [(26,0)]")
    call = decode(bare, keyed=keyed, numbered=seq >= 0).call
    assert call is not None and call.flat and call.args == (TensorSpec((2, 5)), TensorSpec((2, 5)), UNKNOWN)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("AddmmBackward0", True),
        ("CompiledFunctionBackward", True),
        ("Backward", False),
        ("RegisterPostBackwardFunction", False),
        ("aten::mm_backward", False),
    ],
)
def test_names_of_autograd_functions(name: str, wanted: bool) -> None:
    assert is_backward_name(name) is wanted


@given(st.text(max_size=200))
def test_no_text_raises(text: str) -> None:
    bare, seq, _, keyed = split_ids(text)
    assert decode(bare, keyed=keyed, numbered=seq >= 0).text == bare


@given(
    st.sampled_from(["{'mod': ", "f(fp32[1", "aten::mm, sizes = [[", '#pyprof{"mod":', "(" * 3000, "{" * 3000]),
    st.text(max_size=40),
)
def test_no_beginning_of_a_marker_raises(begin: str, rest: str) -> None:
    for text in (begin + rest, begin + rest + ' #pyprof{"mod":"torch"}'):
        assert decode(text).text == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{'Module': 'model.layers.0.mlp', 'Inputs': [[32, 4096]], 'TrainableParams': 5}", "model.layers.0.mlp"),
        ("{'Module': 'lm_head', 'Inputs': [[32, 4096], [1]], 'StaticParams': {'bias': False}}", "lm_head"),
        ("model.layers.0.self_attn in=[[32, 4096], [32]]", "model.layers.0.self_attn"),
        ("model.norm in=[32x4096]", "model.norm"),
    ],
)
def test_layerwise_ranges_of_engines_are_layers_with_their_shapes_and_never_ops(text: str, name: str) -> None:
    marker = decode(text)
    assert (marker.kind, marker.name, marker.call, marker.text) == (Kind.LAYER, name, None, text)


@pytest.mark.parametrize("text", ["{'Module': 3}", "{'Module': ''}", "what comes in=[a program]", "'Module': 'x'"])
def test_texts_that_only_look_layerwise_are_ranges_of_the_user(text: str) -> None:
    assert decode(text).kind == Kind.USER
