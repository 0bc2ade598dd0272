"""Formulas held against torch: its own counter, what autograd runs, what is really stored, and the signatures of its ops."""

import inspect
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from pyprof.help import page
from pyprof.model.opcall import OpCall
from pyprof.prof.formulas import evaluate, evaluate_backward, known, matmul_class, registry
from pyprof.prof.formulas.binding import Plan
from tests import examples
from tests.prof.formulas.formula_oracles import call, describe, dispatched

SIZE = st.integers(1, 5)


def _ours(calls: list[OpCall]) -> int:
    """Matrix FLOPs of the dispatcher ops that ran."""
    return sum(evaluate(c).cost.matmul_flops or 0 for c in calls if matmul_class(c.name))


def _theirs(function: Callable[[], Any]) -> int:
    counter = FlopCounterMode(display=False)
    with counter:
        function()
    return int(counter.get_total_flops())


def _call_of(name: str, *args: Any, **kwargs: Any) -> OpCall:
    described = {k: describe(v) for k, v in kwargs.items()}
    return call(name, *map(describe, args), **described)


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_products_agree_with_flop_counter(data: st.DataObject) -> None:
    b, m, n, k = (data.draw(SIZE) for _ in range(4))
    x, y, z = torch.rand(b, m, k), torch.rand(b, k, n), torch.rand(k, n)
    cases: list[tuple[str, tuple[Any, ...], Callable[[], Any]]] = [
        ("torch.mm", (x[0], z), lambda: torch.mm(x[0], z)),
        ("torch.bmm", (x, y), lambda: torch.bmm(x, y)),
        ("torch.matmul", (x, z), lambda: torch.matmul(x, z)),
        ("torch.matmul", (x, y), lambda: torch.matmul(x, y)),
        ("torch.addmm", (torch.rand(n), x[0], z), lambda: torch.addmm(torch.rand(n), x[0], z)),
        ("torch.baddbmm", (torch.rand(b, m, n), x, y), lambda: torch.baddbmm(torch.rand(b, m, n), x, y)),
        ("torch.nn.functional.linear", (x, z.t()), lambda: F.linear(x, z.t())),
        ("torch.einsum", ("bmk,kn->bmn", x, z), lambda: torch.einsum("bmk,kn->bmn", x, z)),
    ]
    for name, args, run in cases:
        assert evaluate(_call_of(name, *args)).cost.matmul_flops == _theirs(run), name


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[int, dict[str, Any], torch.Tensor, torch.Tensor, bool]:
    rank, transposed = draw(st.integers(1, 3)), draw(st.booleans())
    groups = draw(st.sampled_from([1, 2]))
    stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    sizes = tuple(draw(st.integers(5, 7)) for _ in range(rank))
    channels, outputs = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    weight = (channels, outputs // groups, *kernel) if transposed else (outputs, channels // groups, *kernel)
    batch = draw(st.sampled_from([(), (2,)]))
    options = {
        "stride": stride,
        "padding": draw(st.integers(0, 2)) if min(kernel) > 2 else 0,
        "groups": groups,
        "dilation": dilation,
    }
    return rank, options, torch.rand(*batch, channels, *sizes), torch.rand(weight), transposed


@given(convolutions())
@settings(max_examples=examples(60), deadline=None)
def test_convolutions_agree_with_flop_counter(case: tuple[int, dict[str, Any], torch.Tensor, torch.Tensor, bool]) -> None:
    rank, options, x, w, transposed = case
    op = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    run = getattr(F, op)
    result = evaluate(_call_of(f"torch.nn.functional.{op}", x, w, **options))
    assert result.cost.matmul_flops == _theirs(lambda: run(x, w, **options)), result.reason
    assert result.cost.bytes == sum(4 * t.numel() for t in (x, w, run(x, w, **options)))


@given(convolutions())
@settings(max_examples=examples(40), deadline=None)
def test_backward_of_convolutions_is_that_of_the_direct_form(
    case: tuple[int, dict[str, Any], torch.Tensor, torch.Tensor, bool],
) -> None:
    # The counter is no oracle here: it leaves the groups out of the weight gradient (3 times the forward for groups of 2).
    rank, options, x, w, transposed = case
    op = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    forward = _call_of(f"torch.nn.functional.{op}", x, w, **options)
    pieces = evaluate_backward(forward)
    once = evaluate(forward).cost.matmul_flops
    assert [(p.name, p.cost.matmul_flops) for p in pieces] == [("dgrad", once), ("wgrad", once)]
    x.requires_grad_(), w.requires_grad_()
    out = getattr(F, op)(x, w, **options)
    ran = dispatched(lambda: out.sum().backward())
    assert _ours(ran.calls) == 2 * (once or 0)
    if options["groups"] == 1:
        again = getattr(F, op)(x, w, **options)
        assert _theirs(lambda: again.sum().backward()) == 2 * (once or 0)


def test_the_counters_known_faults_are_not_ours() -> None:
    # Nothing for these on a CPU in torch's counter.
    assert evaluate(_call_of("torch.mv", torch.rand(3, 4), torch.rand(4))).cost.matmul_flops == 24
    q = torch.rand(1, 2, 5, 4)
    assert evaluate(_call_of("torch.nn.functional.scaled_dot_product_attention", q, q, q)).cost.matmul_flops == 4 * 2 * 25 * 4
    # The causal half is not halved there.
    causal = _call_of("torch.nn.functional.scaled_dot_product_attention", q, q, q, is_causal=True)
    assert evaluate(causal).cost.matmul_flops == 4 * 2 * 15 * 4


def test_convolution_counts_every_product_of_its_definition() -> None:
    # With ones everywhere, each output element counts its own products; padding contributes zeros that are counted too.
    x, w = torch.ones(2, 4, 9, 7), torch.ones(6, 2, 3, 2)
    out = F.conv2d(x, w, stride=2, dilation=(1, 2), groups=2)
    cost = evaluate(_call_of("torch.conv2d", x, w, None, 2, 0, (1, 2), 2)).cost
    assert cost.matmul_flops == 2 * int(out.sum())
    assert cost.mnk is not None and cost.matmul_flops == 2 * cost.mnk[0] * cost.mnk[1] * cost.mnk[2] * cost.batch


@given(st.integers(1, 9), st.integers(1, 9), st.integers(-1, 4), st.integers(-1, 4))
def test_pairs_of_a_mask_are_those_of_the_mask(queries: int, keys: int, left: int, right: int) -> None:
    from pyprof.prof.formulas.attention import mask_pairs

    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None]
    assert mask_pairs(queries, keys, "top_left") == int((j <= i).sum())
    assert mask_pairs(queries, keys, "bottom_right") == int((j <= i + keys - queries).sum())
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if left >= 0:
        seen &= j >= i + keys - queries - left
    if right >= 0:
        seen &= j <= i + keys - queries + right
    assert mask_pairs(queries, keys, "full", left, right) == int(seen.sum())
    assert mask_pairs(queries, keys, "bottom_right", left, -1) == int((seen & (j <= i + keys - queries)).sum() if right < 0 else
        mask_pairs(queries, keys, "full", left, 0))  # fmt: skip


def _leaf(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, requires_grad=True)


BACKWARD: list[tuple[str, Callable[[], tuple[Any, ...]]]] = [
    ("torch.mm", lambda: (_leaf(3, 4), _leaf(4, 5))),
    ("torch.bmm", lambda: (_leaf(2, 3, 4), _leaf(2, 4, 5))),
    ("torch.matmul", lambda: (_leaf(2, 3, 4), _leaf(4, 5))),
    ("torch.matmul", lambda: (_leaf(2, 1, 3, 4), _leaf(6, 4, 5))),
    ("torch.matmul", lambda: (_leaf(2, 3, 4), torch.rand(2, 4, 5))),
    ("torch.matmul", lambda: (_leaf(3, 4), _leaf(4))),
    ("torch.mv", lambda: (_leaf(3, 4), _leaf(4))),
    ("torch.nn.functional.linear", lambda: (_leaf(3, 4), _leaf(5, 4))),
    ("torch.nn.functional.linear", lambda: (_leaf(2, 3, 4), _leaf(5, 4))),
    ("torch.addmm", lambda: (_leaf(5), _leaf(3, 4), _leaf(4, 5))),
    ("torch.baddbmm", lambda: (_leaf(2, 3, 5), _leaf(2, 3, 4), _leaf(2, 4, 5))),
    ("torch.nn.functional.linear", lambda: (_leaf(2, 3, 4), _leaf(5, 4), _leaf(5))),
    ("torch.nn.functional.linear", lambda: (torch.rand(2, 3, 4), _leaf(5, 4), _leaf(5))),
    ("torch.einsum", lambda: ("bik,bkj->bij", _leaf(2, 3, 4), _leaf(2, 4, 5))),
    ("torch.tensordot", lambda: (_leaf(2, 3, 4), _leaf(3, 4, 5), 2)),
    ("torch.lstm_cell", lambda: (_leaf(2, 3), (_leaf(2, 4), _leaf(2, 4)), _leaf(16, 3), _leaf(16, 4), _leaf(16), _leaf(16))),
    ("torch.nn.functional.conv2d", lambda: (_leaf(2, 3, 8, 8), _leaf(4, 3, 3, 3), _leaf(4))),
    ("torch.nn.functional.conv1d", lambda: (torch.rand(2, 4, 8), _leaf(4, 1, 3), None, 1, 0, 1, 4)),
]


def _function(name: str) -> Callable[..., Any]:
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "make"), BACKWARD)
def test_pieces_are_the_products_that_autograd_runs(name: str, make: Callable[[], tuple[Any, ...]]) -> None:
    args = make()
    out = _function(name)(*args)
    total = sum(o.sum() for o in tree_leaves(out))
    ran = [evaluate(c).cost for c in dispatched(total.backward).calls if matmul_class(c.name)]
    pieces = [p.cost for p in evaluate_backward(_call_of(name, *args)) if p.cost.matmul_flops]
    if "conv" in name:  # one op of the dispatcher for all of them
        assert sum(p.matmul_flops or 0 for p in pieces) == sum(r.matmul_flops or 0 for r in ran)
    else:
        assert [p.matmul_flops for p in pieces] == [r.matmul_flops for r in ran]
    if all(p.mnk for p in pieces) and "conv" not in name:
        # Autograd may compute the transpose: the depth tells the data gradient from the weight's.
        assert [p.mnk and p.mnk[2] for p in pieces] == [r.mnk and r.mnk[2] for r in ran]


POINTWISE: list[tuple[str, Callable[[], tuple[Any, ...]]]] = [
    ("torch.add", lambda: (torch.rand(4, 5), torch.rand(5))),
    ("torch.add", lambda: (torch.rand(4, 5), torch.rand(1, 5).expand(4, 5))),
    ("torch.mul", lambda: (torch.rand(4, 5).half(), torch.rand(4, 5))),
    ("torch.mul", lambda: (torch.ones(4, dtype=torch.int32), 2.5)),
    ("torch.div", lambda: (torch.ones(4, dtype=torch.int32), 2)),
    ("torch.pow", lambda: (torch.ones(4, dtype=torch.int64), 2)),
    ("torch.gt", lambda: (torch.rand(4, 5), 0.5)),
    ("torch.exp", lambda: (torch.ones(4, dtype=torch.int64),)),
    ("torch.where", lambda: (torch.rand(4, 5) > 0.5, torch.rand(5), torch.rand(4, 1))),
    ("torch.sum", lambda: (torch.ones(4, 5, dtype=torch.bool), 1)),
    ("torch.mean", lambda: (torch.rand(4, 5), (0, 1))),
    ("torch.amax", lambda: (torch.rand(4, 5), 0, True)),
    ("torch.softmax", lambda: (torch.rand(4, 5), 1)),
    ("torch.cat", lambda: ([torch.rand(4, 5), torch.rand(2, 5)],)),
    ("torch.bmm", lambda: (torch.rand(1, 3, 4).expand(6, 3, 4), torch.rand(6, 4, 2))),
    ("torch.topk", lambda: (torch.rand(4, 9), 3)),
    ("torch.clone", lambda: (torch.rand(4, 5),)),
]


def _stored(tensors: list[torch.Tensor]) -> int:
    """Bytes of the storage that these occupy, each counted as often as it is given."""
    total = 0
    for tensor in tensors:
        cells = {0}
        for size, step in zip(tensor.shape, tensor.stride(), strict=True):
            cells = {c + i * step for c in cells for i in range(size)}
        total += len(cells) * tensor.element_size()
    return total


@pytest.mark.parametrize(("name", "make"), POINTWISE)
def test_bytes_are_those_of_the_storage_touched(name: str, make: Callable[[], tuple[Any, ...]]) -> None:
    args = make()
    tensors = [t for t in tree_leaves((args, _function(name)(*args))) if isinstance(t, torch.Tensor)]
    assert evaluate(_call_of(name, *args)).cost.bytes == _stored(tensors)


def _database() -> list[Any]:
    """Imported when first asked for: it keeps torch's functions as they are at that moment, and other tests replace them."""
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


# Ops of the database without a formula, and why; beside them the families in `_family`.
_COMPOSITE = "composite of ops that have formulas"
WITHOUT: dict[str, str] = {
    **dict.fromkeys(
        ("gradient pca_lowrank svd_lowrank masked.normalize lu"
         " nn.functional.gaussian_nll_loss nn.functional.linear_cross_entropy nn.functional.max_unpool1d"
         " nn.functional.multi_head_attention_forward nn.functional.multilabel_soft_margin_loss nn.functional.normalize"
         " nn.functional.triplet_margin_with_distance_loss nn.functional.upsample_bilinear nn.functional.upsample_nearest"
         " unravel_index").split(),
        _COMPOSITE,
    ),
    "broadcast_shapes": "computes no tensor",
    "torch.ops.aten._safe_softmax.default": "aten::_safe_softmax, which has one, under a name of the database's own",
}  # fmt: skip


def _family(name: str) -> bool:
    """Windows, composites of ops that have formulas, and jiterator's, kernels that the user writes."""
    return name.startswith("jiterator_") or (name.startswith("signal.windows.") and not name.endswith("exponential"))


def _candidates(name: str, aten: str) -> set[str]:
    flat = name.replace("linalg.", "linalg_").replace("special.", "special_").replace("fft.", "fft_").rpartition(".")[2]
    return {f"torch.{name}", f"Tensor.{name}", f"aten::{flat}", f"aten::{aten}", f"torch.nn.functional.{name.rpartition('.')[2]}",
            f"torch.{name.rpartition('.')[2]}"}  # fmt: skip


def test_every_op_of_the_database_has_a_formula_or_a_reason() -> None:
    lacking = {o.name for o in _database() if not any(map(known, _candidates(o.name, o.aten_name)))}
    assert {name for name in lacking if not _family(name)} == set(WITHOUT)
    assert len([name for name in lacking if _family(name)]) > 10
    total, having = len(_database()), len([o for o in _database() if o.name not in lacking])
    text = " ".join(page("conventions").split())
    if torch.__version__.startswith("2.13"):
        assert f"database {having} of {total} entries have a formula" in text


# The same argument by another name: ours, torch's.
SYNONYMS = {
    ("input", "self"), ("input", "A"), ("input", "x"), ("input", "self_sizes"), ("input", "mat_a"), ("mat2", "mat_b"), ("other", "exponent"),
    ("other", "max"), ("other", "min"), ("other", "n"), ("other", "values"), ("other", "weight"), ("input2", "LU_data"), ("tensor", "other"),
    ("saved", "self"), ("saved", "output"), ("grad_output", "grad"), ("grad_output", "grad_out"), ("grad_output", "self"),
    ("training", "train"), ("train", "generator"), ("mode", "interpolation_mode"), ("mode", "value"), ("momentum", "exponential_average_factor"),
    ("eps", "epsilon"), ("src", "source"), ("src", "value"), ("src", "dst"), ("value", "fill_value"), ("value", "dropout_p"), ("pad", "padding"),
    ("real", "abs"), ("imag", "angle"), ("dx", "dim"), ("state", "hx"), ("state", "cx"), ("save_invstd", "save_var"), ("train", "update"),
    ("return_debug_mask", "scale"), ("scale", "dropout_mask"), ("enable_gqa", "scale"), ("rounding_mode", "rtol"),
    ("output", "output_tensor"), ("input", "input_tensor"), ("output", "tensor_list"), ("input", "tensor"), ("tensor", "tensors"),
    ("output", "output_tensor_list"), ("input", "input_tensor_list"), ("input", "input_list"), ("others", "gather_list"),
    ("others", "scatter_list"), ("input", "primal"), ("input", "inp"), ("input2", "A"), ("input2", "tau"), ("LU", "LD"), ("mode", "some"), ("tensors", "self"), ("value", "val"),
    ("memory_format", "non_blocking"), ("dtype", "out"), ("dim", "indices"), ("index", "dim"), ("output_size", "kernel_size"),
}  # fmt: skip


def _plans() -> Iterator[tuple[str, registry._Declaration, Plan]]:
    """Every name with a formula that works on data, and how its calls are bound."""
    for name, declared in registry._FORWARD.items():
        if declared.kind != "structural" and not name.endswith("*"):
            yield name, declared, registry._plan(name, declared)


def _signatures(name: str) -> list[list[str]]:
    """Argument names of torch's own op or function of that name; empty where there is none, or it does not say."""
    if name.startswith("aten::"):
        packet = getattr(torch.ops.aten, name[6:], None)
        return (
            [[a.name for a in getattr(packet, o)._schema.arguments] for o in packet.overloads()] if packet is not None else []
        )
    if not name.startswith("torch.nn.functional.") and not name.startswith("torch.distributed."):
        return []
    function = getattr(torch.distributed if ".distributed." in name else F, name.rpartition(".")[2], None)
    try:
        found = [list(inspect.signature(function).parameters)] if callable(function) else []
    except ValueError:  # written in C
        return []
    return [f for f in found if "args" not in f]


def test_parameters_are_those_of_torch() -> None:
    wrong: dict[str, list[tuple[str, str]]] = {}
    checked = 0
    for name, declared, how in _plans():
        renamed = {(ours, theirs) for theirs, ours in declared.renamed.items()}
        # The first argument, which pyprof calls input, is self in the dispatcher's schemas.
        same = SYNONYMS | renamed | {(ours, "self") for ours, theirs in renamed if theirs == "input"}
        differences = [
            [
                pair
                for pair in zip(how.order, theirs, strict=False)
                if pair[0] != pair[1] and pair[0] != "out" and pair not in same
            ]
            for theirs in _signatures(name)
        ]
        checked += bool(differences)
        if differences and (best := min(differences, key=len)):
            wrong[name] = best
    assert wrong == {}
    assert checked > 800


def test_each_parameter_of_a_formula_is_an_argument_of_its_op() -> None:
    """A misspelt parameter would never be given: each is an argument of at least one name, required ones of all."""
    given: dict[CodeType, set[str]] = {}
    facts = {"out", "inside", "engine_step"}  # all but the first are no arguments: attribution and inference add them
    facts |= {"windowed", "window", "top_k", "sizes", "padded", "gated"}
    lacking: dict[str, set[str]] = {}
    for name, declared, how in _plans():
        if how.rest or how.any_key:
            continue
        given.setdefault(declared.function.__code__, set(facts)).update(how.order)
        if left := set(how.required).difference(how.order):
            lacking[name] = left
    assert lacking == {}
    # Functions that a loop declares share their code.
    assert {code.co_name for code, names in given.items() if _parameters(code) - names} == set()


def _parameters(code: CodeType) -> set[str]:
    return set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def test_each_formula_has_a_name_that_torch_has() -> None:
    places = {"torch": (torch,), "Tensor": (torch.Tensor,), "torch.nn.functional": (F, torch._C._nn), "torch.linalg": (torch.linalg,),
              "torch.fft": (torch.fft,), "torch.special": (torch.special,), "torch.sparse": (torch.sparse,)}  # fmt: skip
    real: dict[Any, bool] = {}
    for name, entry in registry._FORWARD.items():
        if "::" in name:
            namespace, op = name.split("::", 1)
            exists = namespace != "aten" or hasattr(torch.ops.aten, op)
        else:
            module, _, op = name.rpartition(".")
            exists = any(hasattr(place, op) for place in places.get(module, ())) or module not in places
        real[entry.function] = real.get(entry.function, False) or exists
    old = {"cudnn_convolution_backward", "cudnn_convolution_backward_input", "cudnn_convolution_backward_weight",
           "old_convolution_backward"}  # of releases before 1.11  # fmt: skip
    assert {f.__name__ for f, exists in real.items() if not exists} - old == set()
