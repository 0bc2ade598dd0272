"""The whole of torch's dispatcher: every op that takes a tensor has a formula, or stands in a group here with its reason.

A new release of torch shows here what it brings: an op without a formula, or a group that has become empty.
"""

import re
from functools import cache
from typing import Any

import pytest
import torch

from pyprof.help import page
from pyprof.model.opcall import OpCall
from pyprof.prof.formulas import evaluate, is_structural, known
from tests.prof.formulas.formula_oracles import Called, Dispatched, call, t

# Ops without a formula: a pattern of whole names, and why.
WITHOUT = {
    r"_test_\w+|_foobar": "torch's own tests",
    r"_validate_\w+": "questions about the sanity of indices, asked on the host",
    r"Bool|Complex|ComplexImplicit|Float|FloatImplicit|Int|IntImplicit|ScalarImplicit|_tensor_to_list": "TorchScript: a tensor as a number",
    r"Delete|__contains__|__getitem__|_set_item|clear|count|dict|get|items|keys|len|pop|popitem|remove|setdefault|sorted|update":
        "TorchScript: lists and dictionaries that hold tensors",
    r"__upsample_(bilinear|nearest)": "TorchScript: composites of upsample ops, which have formulas",
    r"_backward|backward|dist_backward|grad": "starts autograd, whose ops have formulas",
    r"gradient": "composite of subtractions and divisions, which have formulas",
    r"\w*_?mps\w*|_propagate_xla_data": "backends that no capture is of",
    r"_resize_output|resize|resize_as|set": "shadows of metadata ops, made by functionalisation and removed again",
    r"_cslt_sparse_mm_search": "tries an unknown number of algorithms",
    r"from_file": "maps a file into memory",
}  # fmt: skip


@cache
def _ops() -> tuple[str, ...]:
    """Names of aten ops with a tensor among their arguments."""
    schemas = torch._C._jit_get_all_schemas()
    with_tensor = (s for s in schemas if s.name.startswith("aten::") and any("Tensor" in str(a.type) for a in s.arguments))
    return tuple(sorted({s.name.removeprefix("aten::") for s in with_tensor}))


def test_every_op_of_the_dispatcher_has_a_formula_or_a_reason() -> None:
    lacking = [op for op in _ops() if not known(f"aten::{op}")]
    assert [op for op in lacking if not any(re.fullmatch(pattern, op) for pattern in WITHOUT)] == []
    assert [pattern for pattern in WITHOUT if not any(re.fullmatch(pattern, op) for op in lacking)] == []
    text = " ".join(page("conventions").split())
    if torch.__version__.startswith("2.13"):
        assert f"of the aten ops that take a tensor {len(_ops()) - len(lacking)} of {len(_ops())}" in text


def test_reasons_do_not_hide_what_has_a_formula() -> None:
    # The one pattern that is open on both sides hides nothing else.
    assert {op for op in _ops() if "mps" in op and known(f"aten::{op}")} == set()


# Python-level ops whose one dispatcher op costs another thing, and why.
APART = {
    r"inv|cholesky|ldl_factor|lu_factor|tensorinv": "the op behind returns an error code too",
    r"det|slogdet|solve|solve_ex|tensorsolve": "the op behind returns the factors too",
    r"eigvals|eigvalsh|svdvals": "the CPU's op behind computes vectors that are thrown away",
    r"msort|argsort|multilabel_margin_loss|(?:adaptive_|fractional_)?max_pool[123]d": "the op behind returns more than the op itself",
    r"diff": "the two operands are views of one tensor",
    r"sum_to_size|batch_norm|ravel|isreal": "the op behind does what these sizes or types do not need, or is a copy of its own",
    r"selu": "elu with a scale folded into its factors",
}


def _pair(op: Any, sample: Any) -> tuple[OpCall, OpCall] | None:
    """The Python-level call and the dispatcher's op, where there is one of each that is no view."""
    called, ran = Called(), Dispatched()
    for recorder in (called, ran):
        try:
            with recorder:
                op(sample.input, *sample.args, **sample.kwargs)
        except (AssertionError, RuntimeError, TypeError, NotImplementedError, IndexError, ValueError):
            return None
    inner = [c for c in ran.calls if not is_structural(c.name)]
    names = [c.name for c in (*called.calls, *ran.calls)]
    return (called.calls[0], inner[0]) if len(called.calls) == len(inner) == 1 and all(map(known, names)) else None


@pytest.mark.filterwarnings("ignore")
def test_an_op_costs_the_same_by_its_name_in_python_and_in_the_dispatcher() -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    apart: dict[str, str] = {}
    same = 0
    for op in op_db:
        dtype = torch.float32 if op.supports_dtype(torch.float32, "cpu") else torch.int64
        if not op.supports_dtype(dtype, "cpu"):
            continue
        for _, sample in zip(range(3), op.sample_inputs_func(op, torch.device("cpu"), dtype, False), strict=False):
            found = _pair(op, sample)
            if found is None:
                continue
            ours, theirs = (evaluate(c).cost for c in found)
            if (ours.flops, ours.bytes) == (theirs.flops, theirs.bytes):
                same += 1
            else:
                apart.setdefault(found[0].op, f"{found[0]} {ours.flops} {ours.bytes}, {found[1]} {theirs.flops} {theirs.bytes}")
    assert {op: text for op, text in apart.items() if not any(re.fullmatch(p, op) for p in APART)} == {}
    assert [p for p in APART if not any(re.fullmatch(p, op) for op in apart)] == []
    assert same > 1200


def test_what_asks_about_a_tensor_costs_nothing() -> None:
    questions = [
        op
        for op in _ops()
        if re.fullmatch(r"is_\w+|q_\w+|size|stride|dim|numel|storage_offset|_nested_get_(?!values_copy)\w+", op)
    ]
    assert [op for op in questions if not is_structural(f"aten::{op}")] == []
    assert evaluate(call("aten::q_scale", t(4))).cost.bytes == 0
