"""Whole layers and models: recurrent layers against what they are made of, optimizers as torch runs them, peers' tables, ResNet-50."""

import ast
import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec
from pyprof.prof.formulas import evaluate, evaluate_backward, matmul_class
from tests.prof.formulas.formula_oracles import Called, call, dispatched, t


def _products(calls: list[OpCall]) -> int:
    return sum(evaluate(c).cost.matmul_flops or 0 for c in calls if matmul_class(c.name))


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_are_the_products_of_their_steps(kind: str, layers: int, bidirectional: bool) -> None:
    module = getattr(torch.nn, kind)(3, 5, layers, bidirectional=bidirectional)
    x = torch.rand(4, 2, 3, requires_grad=True)
    # A state that wants its gradient: without, the first step's product is spared here, though not in cuDNN.
    cells = layers * (1 + bidirectional)
    state = tuple(torch.rand(cells, 2, 5, requires_grad=True) for _ in range(2 if kind == "LSTM" else 1))
    hidden = state if kind == "LSTM" else state[0]
    with torch.backends.mkldnn.flags(enabled=False):  # else one op without parts
        with Called() as python:
            module(x, hidden)
        (subject,) = [c for c in python.calls if c.op in ("lstm", "gru", "rnn_tanh")]
        forward = dispatched(lambda: module(x, hidden))
        out, _ = module(x, hidden)
        ran = dispatched(out.sum().backward)
    result = evaluate(subject)
    assert result.cost.matmul_flops == _products(forward.calls), result.reason
    assert sum(p.cost.matmul_flops or 0 for p in evaluate_backward(subject)) == _products(ran.calls)
    parameters = sum(p.numel() for p in module.parameters())
    kept = 2 * sum(s.numel() for s in state)
    assert result.cost.bytes == 4 * (x.numel() + parameters + kept + out.numel())


def test_fused_optimizers_read_and_write_their_state() -> None:
    weight = torch.rand(30, 40, requires_grad=True)
    weight.grad = torch.rand(30, 40)
    expected = {torch.optim.Adam: (12, 28), torch.optim.AdamW: (14, 28), torch.optim.SGD: (2, 12), torch.optim.Adagrad: (6, 20)}
    for optimizer, (operations, size) in expected.items():
        ran = dispatched(optimizer([weight], fused=True).step)
        (subject,) = [c for c in ran.calls if c.op.startswith("_fused")]
        cost = evaluate(subject).cost
        assert (cost.flops, cost.bytes) == (operations * 1200, size * 1200), optimizer


def test_foreach_optimizers_have_a_cost_for_every_op() -> None:
    weights = [torch.rand(30, 40, requires_grad=True), torch.rand(7, requires_grad=True)]
    for weight in weights:
        weight.grad = torch.rand_like(weight)
    for optimizer in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
        ran = dispatched(optimizer(weights, foreach=True).step)
        foreach = [c for c in ran.calls if c.op.startswith("_foreach")]
        assert foreach
        assert [str(c) for c in foreach if evaluate(c).reason] == []


def test_a_transformer_layer_is_the_sum_of_its_parts() -> None:
    # (2, 7, 8): projections 4·E², attention 2·S·E, feed forward 2·E·F a row, times 2 a multiply-add.
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    weights = list(layer.parameters())
    args = (torch.rand(2, 7, 8), 8, 2, *weights[:4], False, False, 1e-5, *weights[8:12], *weights[4:8])
    with torch.no_grad():
        whole = evaluate(
            call("torch._transformer_encoder_layer_fwd", *(t(*a.shape) if isinstance(a, torch.Tensor) else a for a in args))
        )
    assert whole.cost.matmul_flops == 2 * 14 * (4 * 64 + 2 * 7 * 8 + 2 * 8 * 16), whole.reason
    assert whole.cost.bytes == 4 * (2 * 112 + sum(w.numel() for w in weights))


def _concrete(text: str) -> Any:
    if text == "":
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return UNKNOWN


def _subject(row: dict[str, str]) -> OpCall:
    """The call of one row of a peer's table, which keeps Kineto's own fields."""
    fields = [ast.literal_eval(row[f"{f}_first"]) for f in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")]
    args: list[Any] = []
    for dims, kind, strides, concrete in zip(*fields, strict=True):
        tensor = kind not in ("", "Scalar", "ScalarList")
        args.append(TensorSpec(tuple(dims), kind, tuple(strides)) if tensor else _concrete(concrete))
    return call(row["name"], *args)


def _rows(captures: Path, table: str) -> list[tuple[OpCall, dict[str, str]]]:
    found = []
    for path in sorted((captures / "peer_tables").glob(f"*/{table}.csv")):
        with path.open(newline="", encoding="utf-8") as stream:
            found += [(_subject(row), row) for row in csv.DictReader(stream)]
    assert found
    return found


@pytest.mark.parametrize("table", ["GEMM", "CONV_fwd", "SDPA_fwd"])
def test_flops_agree_with_the_peers_tables(captures: Path, table: str) -> None:
    for subject, row in _rows(captures, table):
        cost = evaluate(subject).cost
        theirs = round(float(row["GFLOPS_first"]) * 1e9)
        if table == "GEMM" and row["param: bias"] == "True":  # it counts the bias
            theirs -= int(row["param: M"]) * int(row["param: N"])
        assert cost.matmul_flops == theirs, subject
        if table == "GEMM":
            assert cost.mnk == tuple(int(row[f"param: {c}"]) for c in "MNK")


@pytest.mark.parametrize("table", ["GEMM", "CONV_fwd", "BinaryElementwise"])
def test_bytes_agree_with_the_peers_tables(captures: Path, table: str) -> None:
    for subject, row in _rows(captures, table):
        assert evaluate(subject).cost.bytes == pytest.approx(float(row["Data Moved (MB)_first"]) * 2**20, rel=0.002), subject
