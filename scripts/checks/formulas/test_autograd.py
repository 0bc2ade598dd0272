"""Backward formulas held against autograd: the products of the pieces are those that the engine runs, over torch's database.

Each op of the database is called and differentiated; the matrix FLOPs of the dispatcher's ops that the backward runs, by their own
formulas, are those of the pieces of the op's backward formula.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pyprof.model.opcall import OpCall
from pyprof.prof.formulas import evaluate, evaluate_backward, known, registry
from tests.prof.formulas.formula_oracles import Called, Dispatched

# Ops that run products in their backward and have no backward formula of their own: their kernels go by the dispatcher's ops.
WITHOUT = {
    r"cov|corrcoef|linalg\.(multi_dot|matrix_power)": "composites of products, which have formulas",
    r"nn\.functional\.(linear_cross_entropy|multi_head_attention_forward)": "composites without a formula of their own",
    r"(linalg\.)?(lu|lu_factor|lu_factor_ex|lu_solve|eig|svdvals|cond|lstsq|householder_product|tensorinv)"
    r"|linalg\.tensorsolve|triangular_solve|ormqr|pinverse|linalg\.pinv": "several solves and products by the case of the sizes",
}
# Ops whose backward runs other products than the formula counts.
OTHERWISE = {
    r"nn\.functional\.scaled_dot_product_attention": "without a fused kernel every pair is computed, masked ones too",
    r"svd_lowrank|pca_lowrank|linalg\.pinv|norm": "composites: the first call is one of several",
}  # fmt: skip


def _runs(op: Any) -> Iterator[tuple[list[OpCall], list[OpCall]]]:
    """Python-level calls of the forward, and dispatcher's ops of the backward, of the op's first samples."""
    for _, sample in zip(range(3), op.sample_inputs_func(op, torch.device("cpu"), torch.float32, True), strict=False):
        called, ran = Called(), Dispatched()
        try:
            with called:
                out = op(sample.input, *sample.args, **sample.kwargs)
            sums = [x.abs().sum() for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]
            if not sums:
                continue
            with ran:
                torch.stack([s.double() for s in sums]).sum().backward()
        except (AssertionError, RuntimeError, TypeError, NotImplementedError, IndexError, ValueError):
            continue  # samples that need what this build lacks
        yield [c for c in called.calls if known(c.name)], ran.calls


def _products(calls: list[OpCall]) -> int:
    return sum(evaluate(c).cost.matmul_flops or 0 for c in calls)


def test_products_of_pieces_are_those_that_autograd_runs() -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    wrong: dict[str, tuple[int, int]] = {}
    lacking: set[str] = set()
    held: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in op_db:
            if not op.supports_autograd or not op.supports_dtype(torch.float32, "cpu"):
                continue
            for forward, backward in _runs(op):
                ran, first = _products(backward), forward[0] if forward else None
                if first is None or not registry.has_backward(first.name):
                    lacking |= {op.name} if ran else set()
                    continue
                ours = sum(p.cost.matmul_flops or 0 for p in evaluate_backward(first))
                if ours != ran:
                    wrong.setdefault(op.name, (ours, ran))
                elif ran:
                    held.add(op.name)
    assert {name: found for name, found in wrong.items() if not any(re.fullmatch(p, name) for p in OTHERWISE)} == {}
    assert {name for name in lacking - held if not any(re.fullmatch(p, name) for p in WITHOUT)} == set()
    assert len(held) >= 24
    for table, names in ((WITHOUT, lacking), (OTHERWISE, set(wrong))):
        assert [p for p in table if not any(re.fullmatch(p, name) for name in names)] == []
