"""Names, binding of recorded arguments to formulas, and evaluation that never raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec
from pyprof.prof.formulas import (
    Cost,
    Missing,
    Op,
    Piece,
    evaluate,
    evaluate_backward,
    formula,
    is_copy,
    is_structural,
    known,
    lacks,
    matmul_class,
    multiplies,
    names,
    op,
    params,
    registry,
)
from tests.prof.formulas.formula_oracles import call, t


@pytest.fixture
def registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_FORWARD", dict(registry._FORWARD))


def test_flops_are_the_sum_only_of_what_is_known() -> None:
    assert Cost(6, 4).flops == 10
    assert Cost(0, 0).flops == 0
    assert Cost(None, 4).flops is None
    assert Cost(6, None).flops is None


@pytest.mark.usefixtures("registers")
def test_a_user_registers_an_op_and_sees_its_cost() -> None:
    @formula("mymod.scale")
    def scale(x: TensorSpec, factor: float = 2.0) -> Cost:
        return Cost(0, x.numel, x.nbytes)

    assert known("mymod.scale")
    assert evaluate(call("mymod.scale", t(3, 4))).cost == Cost(0, 12, 48)
    assert not matmul_class("mymod.scale")


@pytest.mark.usefixtures("registers")
def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match=r"torch\.mm has a formula already"):
        formula("torch.mm")(lambda input, mat2: Cost())
    with pytest.raises(ValueError, match="no kind 'gemm'"):
        formula("mymod.gemm", kind="gemm")


@pytest.mark.usefixtures("registers")
def test_a_formula_that_fails_gives_a_reason_not_an_exception() -> None:
    @formula("mymod.broken")
    def broken(x: TensorSpec) -> Cost:
        raise ZeroDivisionError("by x")

    @formula("mymod.needs")
    def needs(x: TensorSpec, stride: int) -> Cost:
        if stride is UNKNOWN:
            raise Missing("stride not recorded")
        return Cost(stride * x.numel, 0, 0)

    assert evaluate(call("mymod.broken", t(1))) == (Cost(), "broken: formula failed, ZeroDivisionError: by x")
    assert evaluate(call("mymod.needs", t(1), UNKNOWN)) == (Cost(), "needs: stride not recorded")
    assert evaluate(call("mymod.needs", t(1))).reason == "needs: stride not recorded"
    assert evaluate(call("mymod.unheard_of", t(1))).reason == "no formula for mymod.unheard_of"
    assert evaluate(OpCall("torch", "mm", described=False)).reason == "mm: arguments not recorded"


def test_keywords_are_bound_by_torchs_names_and_their_aliases() -> None:
    expected = evaluate(call("torch.sum", t(4, 5), 1, True)).cost
    assert evaluate(call("torch.sum", t(4, 5), dim=1, keepdim=True)).cost == expected
    assert evaluate(call("torch.sum", input=t(4, 5), axis=1, keepdims=True)).cost == expected
    assert evaluate(call("torch.mm", input=t(2, 3), mat2=t(3, 4))).cost.matmul_flops == 48
    assert "no argument 'frobnicate'" in evaluate(call("torch.mm", t(2, 3), t(3, 4), frobnicate=1)).reason
    assert evaluate(call("torch.mm", t(2, 3), t(3, 4), generator=UNKNOWN)).reason == ""


def test_one_dispatcher_name_serves_all_of_its_overloads() -> None:
    x, y = t(4, 5), t(4, 5)
    # sum(self, dtype) and sum.dim_IntList(self, dim, keepdim, dtype); max(self), max.dim, max.other; add.Tensor, add.Scalar.
    assert evaluate(call("aten::sum", x, None)).cost.bytes == 84
    assert evaluate(call("aten::sum", x, [1], False, None)).cost.bytes == 80 + 16
    assert evaluate(call("aten::max", x)).cost.bytes == 84
    assert evaluate(call("aten::max", x, 1, False)).cost.bytes == 80 + 16 + 32
    assert evaluate(call("aten::max", x, y)).cost.bytes == 240
    assert evaluate(call("aten::add", x, y, 1)).cost == Cost(0, 20, 240)
    assert evaluate(call("aten::add", x, 2.0, 1)).cost == Cost(0, 20, 160)
    assert evaluate(call("aten::add", x, y, 1, t(4, 5))).cost.bytes == 240  # add.out gives its result last
    assert evaluate(call("aten::where", t(4, 5, dtype="bool"))).cost.flops == 20


def test_flat_arguments_collect_lists_of_tensors() -> None:
    # The original's marker of cat([a, b], 0), and emit_nvtx's of the same, which has no dtypes.
    assert evaluate(call("torch.cat", t(2, 3), t(4, 3), 0, flat=True)).cost == Cost(0, 0, 144)
    bare = [TensorSpec((2, 3)), TensorSpec((4, 3))]
    result = evaluate(call("aten::cat", *bare, UNKNOWN, flat=True))
    assert (result.cost.flops, result.cost.bytes, result.reason) == (0, None, "cat: dtype not recorded")


def test_the_originals_number_for_a_0_dimensional_tensor_is_one() -> None:
    assert evaluate(call("torch.exp", 0.5, flat=True)).cost.flops == 1
    assert evaluate(call("torch.ones_like", 0.5, flat=True)).cost.flops == 0


def test_emit_nvtx_has_flops_without_bytes() -> None:
    sizes = [TensorSpec((512,)), TensorSpec((141, 512)), TensorSpec((512, 256))]
    result = evaluate(call("aten::addmm", *sizes, UNKNOWN, UNKNOWN, flat=True))
    assert result.cost.flops == 2 * 141 * 256 * 512
    assert result.cost.bytes is None


def test_options_known_from_elsewhere_can_be_given_by_name() -> None:
    # What a trace lacks and its backward shows: keywords win over arguments that were not recorded.
    sizes = t(32, 64, 56, 56), t(64), t(64), t(64), t(64)
    bare = call("aten::batch_norm", *sizes, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
    assert evaluate(bare).reason == "batch_norm: training not recorded"
    assert evaluate(call("aten::batch_norm", *bare.args, training=True)).cost.flops == 8 * sizes[0].numel
    pool = call("aten::max_pool2d", sizes[0], UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, out=t(32, 64, 28, 28))
    assert (evaluate(pool).cost.flops, evaluate(pool).cost.bytes) == (None, 4 * sizes[0].numel * 5 // 4)


def test_an_argument_that_the_formula_asks_for_and_the_call_lacks() -> None:
    norm = "aten::native_layer_norm_backward"
    full = [t(4, 8), t(4, 8), [8], t(4, 1), t(4, 1), t(8), t(8)]
    assert lacks(call(norm, *full), "output_mask") and lacks(call(norm, *full, UNKNOWN), "output_mask")
    assert not lacks(call(norm, *full, [True, False, True]), "output_mask")
    assert not lacks(call("aten::mm", t(2, 3), t(3, 4)), "output_mask")
    assert not lacks(call("aten::of_nobody"), "output_mask")


@pytest.mark.parametrize("name", ["new_zeros", "new_ones", "new_full", "full"])
def test_filling_a_tensor_of_unknown_size_computes_nothing(name: str) -> None:
    given = (UNKNOWN, 1.0) if "full" in name else (UNKNOWN,)
    result = evaluate(call(f"aten::{name}", *(() if name == "full" else (t(4, 8),)), *given))
    assert (result.cost.flops, result.cost.bytes) == (0, None)


def test_what_is_missing_is_named() -> None:
    conv = call("aten::conv2d", t(2, 3, 8, 8), t(4, 3, 3, 3), None, UNKNOWN, UNKNOWN, UNKNOWN, 1)
    assert evaluate(conv) == (Cost(), "conv2d: stride not recorded")
    inferred = call("aten::conv2d", *conv.args, out=t(2, 4, 6, 6))
    assert evaluate(inferred).cost.flops == 2 * (2 * 4 * 6 * 6) * 27
    assert evaluate(call("aten::matmul", UNKNOWN, t(3, 3))).reason == "matmul: input not recorded"


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.functional.multi_head_attention_forward",
        "torch.utils.checkpoint.checkpoint",
        "Adam.step",
        "TransformerEncoderLayer.forward",
        "MultiheadAttention.forward",
        "torch.nn.functional.normalize",
    ],
)
def test_composites_have_no_formula(name: str) -> None:
    assert not known(name)


def test_kinds() -> None:
    assert all(
        map(
            is_copy,
            ("aten::copy_", "aten::_to_copy", "aten::to", "Tensor.to", "Tensor.half", "Tensor.contiguous", "torch.clone"),
        )
    )
    assert all(map(is_structural, ("aten::view", "aten::t", "torch.empty", "Tensor.expand", "aten::as_strided", "Tensor.size")))
    assert all(map(matmul_class, ("aten::mm", "torch.nn.functional.linear", "torch.conv2d", "torch.lstm", "torch.einsum")))
    assert matmul_class("torch.nn.functional.scaled_dot_product_attention")
    assert not any(f(n) for f in (is_copy, is_structural, matmul_class) for n in ("aten::add", "aten::cat", "no.such_op"))
    assert evaluate(call("aten::view", UNKNOWN, UNKNOWN)).cost == Cost(0, 0, 0)


def test_params_text() -> None:
    linear = call("torch.nn.functional.linear", t(35, 20, 200), t(33278, 200), t(33278))
    assert params(linear) == "M=700,N=33278,K=200,fp32"
    assert params(call("torch.bmm", t(4, 2, 3), t(4, 3, 5))) == "M=2,N=5,K=3,B=4,fp32"
    assert params(call("torch.add", t(35, 20, 200), t(200))) == "[35,20,200]fp32;[200]fp32"
    assert params(call("no.such_op", TensorSpec((2,)), t(3, dtype="bfloat16"))) == "[2];[3]bf16"
    assert params(call("torch.conv2d", t(2, 3, 8, 8), t(4, 3, 3, 3), None, UNKNOWN)) == "[2,3,8,8]fp32;[4,3,3,3]fp32"
    assert params(call("torch.randn", 3)) == "na"
    conv = call("torch.conv2d", t(2, 3, 8, 8), t(4, 3, 3, 3), None, 2, 1)
    assert params(conv) == "N=2,C=3,H=8,W=8,K=4,P=4,Q=4,R=3,S=3,stride=2,pad=1,dil=1,g=1,fp32"


def test_gradients_known_to_be_unwanted_have_no_piece() -> None:
    def pieces(x: bool | None, w: bool | None) -> list[str]:
        arguments = t(8, 4, grad=x), t(6, 4, grad=w), t(6, grad=w)
        return [p.name for p in evaluate_backward(call("torch.nn.functional.linear", *arguments))]

    assert pieces(None, None) == ["dgrad", "wgrad", "bias"]
    assert pieces(None, True) == ["wgrad", "bias"]  # the input was asked too, and wanted none
    assert pieces(True, None) == ["dgrad"]
    assert pieces(False, False) == []
    assert evaluate_backward(call("torch.argmax", t(3))) == ()
    assert evaluate_backward(call("torch.mul", t(3, dtype="int64"), t(3, dtype="int64"))) == ()


ARGUMENT = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-4, 40),
        st.floats(),
        st.sampled_from(["mean", "same", "ij,jk->ik", UNKNOWN]),
        st.builds(
            TensorSpec,
            st.lists(st.integers(0, 5), max_size=5).map(tuple),
            st.sampled_from([None, "float32", "bfloat16", "int64", "bool", "complex64", "no_such_dtype"]),
        ),
    ),
    lambda children: st.lists(children, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(names()), st.lists(ARGUMENT, max_size=8), st.booleans())
def test_nothing_that_a_file_may_hold_makes_evaluation_raise(name: str, args: list[object], flat: bool) -> None:
    subject = call(name, *args, flat=flat)
    result = evaluate(subject)
    whole = result.cost.flops is not None and result.cost.bytes is not None
    assert whole == (result.reason == "")
    assert "\n" not in result.reason
    assert all(p.cost is not None for p in evaluate_backward(subject))
    assert " " not in params(subject) and params(subject)


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (call("torch.mm", t(8, 10), t(11, 3)), "mm: shapes [8, 10] and [11, 3] do not fit: depth 10 and 11"),
        (call("aten::bmm", t(2, 8, 10), t(3, 10, 3)), "bmm: shapes [2, 8, 10] and [3, 10, 3] do not fit"),
        (call("torch.nn.functional.linear", t(5, 3), t(4, 7)), "linear: shapes [5, 3] and [4, 7] do not fit: depth 3 and 7"),
        (call("torch.conv2d", t(1, 3, 9, 9), t(8, 5, 3, 3)), "conv2d: input of 3 channels, weight [8, 5, 3, 3]"),
        (call("torch.conv2d", t(1, 6, 9, 9), t(8, 3, 3, 3)), "conv2d: input of 6 channels, weight [8, 3, 3, 3]"),
        (
            call("torch.conv2d", t(1, 3, 2, 2), t(8, 3, 3, 3)),
            "conv2d: an image of [2, 2] is smaller than the kernel of [3, 3]",
        ),
    ],
)
def test_shapes_that_no_op_can_take_have_a_reason_and_no_cost(subject: OpCall, reason: str) -> None:
    assert evaluate(subject) == (Cost(), reason)
    assert evaluate_backward(subject) == ()


def test_an_alias_does_not_replace_what_is_given_by_position() -> None:
    x, y = t(4, 5), t(4, 5)
    assert evaluate(call("torch.add", x, y, weight=t(2, 4, 5))).cost in (evaluate(call("torch.add", x, y)).cost, Cost())
    assert evaluate(call("torch.add", x, x2=y)).cost == evaluate(call("torch.add", x, y)).cost


@pytest.mark.usefixtures("registers")
def test_a_declaration_names_only_the_arguments_that_it_uses() -> None:
    @op("mymod::gather_rows", order="table indices padding scales[] ...", table="weight")
    @op("mymod.gather_rows", order="indices weight padding")
    def gather_rows(weight: TensorSpec, indices: TensorSpec, scales: object = None, out: object = None) -> Op:
        yield Cost(0, len(scales) if isinstance(scales, list) else 0, weight.nbytes)
        yield Piece("weight", Cost(0, indices.numel, 0))

    w, i = t(8, 4), t(3, dtype="int64")
    assert evaluate(call("mymod.gather_rows", i, w)).cost == evaluate(call("mymod::gather_rows", w, i)).cost == Cost(0, 0, 128)
    assert evaluate(call("mymod::gather_rows", indices=i, table=w, padding=3)).cost == Cost(0, 0, 128)
    assert evaluate(call("mymod::gather_rows", w, i, t(1), t(2), t(2), flat=True)).cost.vector_flops == 2
    assert evaluate_backward(call("mymod::gather_rows", w, i)) == (Piece("weight", Cost(0, 3, 0)),)
    assert evaluate(call("mymod.gather_rows", i)).reason == "gather_rows: weight not recorded"
    assert (
        evaluate(call("mymod.gather_rows", i, w, 1, t(3), t(4))).reason == "gather_rows: 5 arguments where the formula takes 3"
    )
    assert "no argument 'stride'" in evaluate(call("mymod.gather_rows", i, w, stride=1)).reason


def test_the_table_of_arguments_is_sorted_and_used() -> None:
    from pyprof.prof.formulas.binding import _table

    table = _table()
    assert list(table) == sorted(table)
    assert table["aten::embedding"] == "weight indices padding_idx scale_grad_by_freq sparse"
    rows, w, i = 3 * 4 * 4, t(8, 4), t(3, dtype="int64")
    for subject in (call("aten::embedding", w, i), call("torch.nn.functional.embedding", i, w), call("torch.embedding", w, i)):
        assert evaluate(subject).cost.bytes == 24 + 2 * rows


def test_an_op_without_a_formula_of_its_own_may_multiply() -> None:
    names = ("aten::mm", "aten::einsum", "aten::relu", "mylib::sage_fwd", "inductor::triton_poi_0")
    assert [*map(multiplies, names)] == [True, True, False, None, None]
