"""Vector FLOPs held against brute force: functions of elements, rows and windows in plain loops over counting numbers.

What is computed once a row, not once an element (a mean, an epsilon, the weights of an interpolation), is not counted, as in the
formulas. Ops that move chosen elements run over a memory that counts what it is asked for.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.prof.formulas.counting_numbers import Number, cost_of, counted, numbers, places, sigmoid, total, value_of

X = torch.tensor([-2.5, -0.4, 0.3, 1.7])
exp, log, tanh, erf = math.exp, math.log, math.tanh, math.erf


def _by_element(function: Callable[..., Number], *operands: torch.Tensor) -> Any:
    return np.array([function(*row) for row in zip(*map(numbers, operands), strict=True)], dtype=object)


def _softplus(x: Number) -> Number:
    return (x.of(exp) + 1).of(log)


ACTIVATIONS: dict[str, Callable[[Number], Number]] = {
    "relu": lambda x: x.larger(0),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * 0.5 * ((x * math.sqrt(0.5)).of(erf) + 1),
    "mish": lambda x: x * _softplus(x).of(tanh),
    "softplus": _softplus,
    "softsign": lambda x: x / (x.of(abs) + 1),
    "tanhshrink": lambda x: x - x.of(tanh),
    "logsigmoid": lambda x: -((-x).of(exp) + 1).of(log),
    "hardswish": lambda x: x * (x + 3).larger(0).smaller(6) / 6,
    "tanh": lambda x: x.of(tanh),
    "logit": lambda x: (x / (1 - x)).of(log),
    "square": lambda x: x * x,
    "rsqrt": lambda x: Number(1.0) / x.of(math.sqrt),
}


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_functions_of_one_element(op: str) -> None:
    x = torch.tensor([0.2, 0.6, 0.9]) if op in ("logit", "rsqrt") else X
    place = F if hasattr(F, op) else torch
    name = f"torch.nn.functional.{op}" if place is F else f"torch.{op}"
    assert cost_of(name, x).vector_flops == counted(lambda: _by_element(ACTIVATIONS[op], x), getattr(place, op)(x))


SLOPES: dict[str, Callable[[Number, Number], Number]] = {  # of the gradient and what the forward saved
    "sigmoid_backward": lambda g, s: g * s * (1 - s),
    "tanh_backward": lambda g, t: g * (1 - t * t),
    "silu_backward": lambda g, x: _silu_slope(x) * g,
    "gelu_backward": lambda g, x: _gelu_slope(x) * g,
}


def _silu_slope(x: Number) -> Number:
    s = sigmoid(x)
    return s * (1 + x * (1 - s))


def _gelu_slope(x: Number) -> Number:
    return ((x * math.sqrt(0.5)).of(erf) + 1) * 0.5 + x * ((x * x * -0.5).of(exp) * (1 / math.sqrt(2 * math.pi)))


@pytest.mark.parametrize("op", SLOPES)
def test_slopes(op: str) -> None:
    grad, saved = torch.rand(4), torch.rand(4)
    expected = getattr(torch.ops.aten, op)(grad, saved)
    assert cost_of(f"aten::{op}", grad, saved).vector_flops == counted(lambda: _by_element(SLOPES[op], grad, saved), expected)


LOSSES: dict[str, Callable[[Number, Number], Number]] = {
    "mse_loss": lambda x, y: (x - y).of(lambda d: d * d),
    "l1_loss": lambda x, y: (x - y).of(abs),
    "binary_cross_entropy": lambda x, y: (y - 1) * (-x).of(math.log1p) - y * x.of(log),
    "kl_div": lambda x, y: y * y.of(log) - y * x,
    "soft_margin_loss": lambda x, y: ((-y * x).of(exp) + 1).of(log),
    "binary_cross_entropy_with_logits": lambda x, y: x.larger(0) - x * y + ((-x.of(abs)).of(exp) + 1).of(log),
    "poisson_nll_loss": lambda x, y: x.of(exp) - y * x,
}


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("op", LOSSES)
def test_losses_are_a_term_of_each_element_and_their_sum(op: str) -> None:
    x, y = torch.rand(5), torch.rand(5)
    expected = getattr(F, op)(x, y, reduction="sum")
    count = counted(lambda: np.array([total(_by_element(LOSSES[op], x, y))], dtype=object)[0], expected)
    assert cost_of(f"torch.nn.functional.{op}", x, y, reduction="sum").vector_flops == count


def _softmax(row: Any) -> list[Number]:
    most = Number(-math.inf)
    for x in row:
        most = most.larger(x)
    each = [(x - most).of(exp) for x in row]
    whole = total(each)
    return [e / whole for e in each]


def _normalised(row: Any, weight: Any, bias: Any) -> list[Number]:
    mean = total(row).value / len(row)
    squares = total(d * d for d in (x - mean for x in row))
    scale = 1 / math.sqrt(squares.value / len(row) + 1e-5)
    return [(x - mean) * scale * w + b for x, w, b in zip(row, weight, bias, strict=True)]


def _rms(row: Any, weight: Any) -> list[Number]:
    scale = 1 / math.sqrt(total(x * x for x in row).value / len(row) + 1e-5)
    return [x * scale * w for x, w in zip(row, weight, strict=True)]


def test_softmax_and_norms() -> None:
    x, w, b = torch.rand(3, 5), torch.rand(5), torch.rand(5)
    rows, weight, bias = numbers(x), numbers(w), numbers(b)

    def each(function: Callable[[Any], list[Number]]) -> Callable[[], Any]:
        return lambda: np.array([function(row) for row in rows], dtype=object)

    assert cost_of("torch.softmax", x, 1).vector_flops == counted(each(_softmax), torch.softmax(x, 1))
    norm = counted(each(lambda row: _normalised(row, weight, bias)), F.layer_norm(x, [5], w, b))
    assert cost_of("torch.nn.functional.layer_norm", x, [5], w, b).vector_flops == norm
    rms = counted(each(lambda row: _rms(row, weight)), F.rms_norm(x, [5], w, 1e-5))
    assert cost_of("torch.nn.functional.rms_norm", x, [5], w).vector_flops == rms


def test_batch_norm() -> None:
    x, mean, var, w, b = torch.rand(4, 3), *(torch.rand(3) for _ in range(4))
    columns, weight, bias = numbers(x.t()), numbers(w), numbers(b)

    def training() -> Any:
        made = [_normalised(c, [weight[k]] * 4, [bias[k]] * 4) for k, c in enumerate(columns)]
        return np.array(made, dtype=object).T

    def evaluating() -> Any:
        made = [
            [(x - float(mean[k])) * float((var[k] + 1e-5) ** -0.5) * weight[k] + bias[k] for x in c]
            for k, c in enumerate(columns)
        ]
        return np.array(made, dtype=object).T

    for function, train in ((training, True), (evaluating, False)):
        expected = F.batch_norm(x, mean.clone(), var.clone(), w, b, train)
        assert cost_of("torch.nn.functional.batch_norm", x, mean, var, w, b, train).vector_flops == counted(function, expected)


def _log_add(a: Number, b: Number) -> Number:
    # The greater and log(1 + exp(less - greater)); log1p is one function.
    least, most = sorted((a, b), key=value_of)
    return Number(most.value).larger(least) + (least - most).of(exp).of(math.log1p)


SCANS: dict[str, Callable[[Number, Number], Number]] = {
    "cumsum": lambda total_, x: total_ + x,
    "cumprod": lambda total_, x: total_ * x,
    "logcumsumexp": _log_add,
}


@pytest.mark.parametrize("op", SCANS)
def test_scans(op: str) -> None:
    x = torch.rand(3, 4)

    def scan() -> Any:
        start = Number({"cumsum": 0.0, "cumprod": 1.0, "logcumsumexp": -1e9}[op])
        return np.array([list(itertools.accumulate(row, SCANS[op], initial=start))[1:] for row in numbers(x)], dtype=object)

    assert cost_of(f"torch.{op}", x, 1).vector_flops == counted(scan, getattr(torch, op)(x, 1))


def _windows(
    x: Any, out: torch.Tensor, kernel: tuple[int, ...], stride: int, pad: int
) -> Iterable[tuple[tuple[int, ...], list[Any]]]:
    """Each output's place, and the elements of its window, None for those outside of the input."""
    for place in places(*out.shape):
        found = []
        for tap in places(*kernel):
            source = [a * stride + t - pad for a, t in zip(place[2:], tap, strict=True)]
            inside = all(0 <= i < n for i, n in zip(source, x.shape[2:], strict=True))
            found.append(x[(*place[:2], *source)] if inside else None)
        yield place, found


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("rank", "stride", "pad"), [(1, 2, 1), (2, 2, 1), (2, 1, 0), (2, 3, 0), (3, 2, 0)])
def test_pooling(rank: int, stride: int, pad: int, ceil: bool) -> None:
    x, kernel = torch.rand(1, 2, *(5, 6, 4)[:rank]), (2, 3, 2)[:rank]
    for kind in ("max", "avg"):
        options = {"ceil_mode": ceil} | ({"count_include_pad": False} if kind == "avg" else {})
        expected = getattr(F, f"{kind}_pool{rank}d")(x, kernel, stride, pad, **options)

        def pool(kind: str = kind, out: torch.Tensor = expected) -> Any:
            made = np.empty(tuple(out.shape), dtype=object)
            for place, window in _windows(numbers(x), out, kernel, stride, pad):
                if kind == "avg":
                    inside = sum(v is not None for v in window)
                    made[place] = Number(total(v or Number(0.0) for v in window).value / inside)
                else:
                    most = Number(-math.inf)
                    for v in window:
                        most = most.larger(Number(-math.inf) if v is None else v)
                    made[place] = most
            return made

        cost = cost_of(f"torch.nn.functional.{kind}_pool{rank}d", x, kernel, stride, pad, **options)
        assert cost.vector_flops == counted(pool, expected)


@pytest.mark.parametrize("sizes", [(3,), (2, 5), (4, 3, 2)])
def test_adaptive_pooling_and_area(sizes: tuple[int, ...]) -> None:
    rank = len(sizes)
    x = torch.rand(1, 2, *(5, 7, 4)[:rank])
    expected = getattr(F, f"adaptive_avg_pool{rank}d")(x, sizes)

    def pool() -> Any:
        given, made = numbers(x), np.empty(tuple(expected.shape), dtype=object)
        for place in places(*made.shape):
            spans = [
                range(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(place[2:], x.shape[2:], made.shape[2:], strict=True)
            ]
            window = [given[(*place[:2], *at)] for at in itertools.product(*spans)]
            made[place] = Number(total(window).value / len(window))
        return made

    count = counted(pool, expected)
    assert cost_of(f"torch.nn.functional.adaptive_avg_pool{rank}d", x, sizes).vector_flops == count
    assert cost_of(f"torch.nn.functional.adaptive_max_pool{rank}d", x, sizes).vector_flops == count
    assert cost_of("torch.nn.functional.interpolate", x, sizes, mode="area").vector_flops == count


@pytest.mark.parametrize(
    ("mode", "sizes"),
    [("nearest", (7,)), ("nearest", (3, 8)), ("linear", (7,)), ("bilinear", (7, 3)), ("trilinear", (5, 3, 4))],
)
def test_interpolation(mode: str, sizes: tuple[int, ...]) -> None:
    x = torch.rand(1, 2, *(4, 5, 3)[: len(sizes)])
    expected = F.interpolate(x, sizes, mode=mode)

    def taps(at: int, n: int, m: int) -> list[tuple[int, float]]:
        if mode == "nearest":
            return [(at * n // m, 1.0)]
        place = max((at + 0.5) * n / m - 0.5, 0.0)
        first = min(int(place), n - 1)
        return [(first, 1 - (place - first)), (min(first + 1, n - 1), place - first)]

    def interpolated() -> Any:
        given, made = numbers(x), np.empty(tuple(expected.shape), dtype=object)
        for place in places(*made.shape):
            lines = [taps(i, n, m) for i, n, m in zip(place[2:], x.shape[2:], sizes, strict=True)]
            around = [(tuple(i for i, _ in tap), math.prod(w for _, w in tap)) for tap in itertools.product(*lines)]
            values = [(given[(*place[:2], *at)], weight) for at, weight in around]
            made[place] = values[0][0] if mode == "nearest" else total(v * w for v, w in values)
        return made

    assert cost_of("torch.nn.functional.interpolate", x, sizes, mode=mode).vector_flops == counted(interpolated, expected)


class Memory:
    """Elements that count what is read of them and written to them, in bytes, and what is added."""

    moved = 0
    added = 0

    def __init__(self, tensor: torch.Tensor) -> None:
        self.size = tensor.element_size()
        self.cells = {place: tensor[place].item() for place in places(*tensor.shape)}

    def read(self, place: tuple[int, ...]) -> Any:
        Memory.moved += self.size
        return self.cells[place]

    def write(self, place: tuple[int, ...], value: Any) -> None:
        Memory.moved += self.size
        self.cells[place] = value

    def add(self, place: tuple[int, ...], value: Any) -> None:
        Memory.added += 1
        self.write(place, self.read(place) + value)


def _scatter(memory: Memory, index: Memory, source: Memory, adds: bool) -> None:
    """Along the first dimension, element by element."""
    for place in index.cells:
        target = (index.read(place), *place[1:])
        (memory.add if adds else memory.write)(target, source.read(place))


def _rows(memory: Memory, index: Memory, source: Memory, adds: bool) -> None:
    """Along the first dimension, row by row: an index is read once for its row."""
    for (row,) in index.cells:
        at = index.read((row,))
        for place in source.cells:
            if place[0] == row:
                (memory.add if adds else memory.write)((at, *place[1:]), source.read(place))


@pytest.mark.parametrize(
    ("op", "by_rows", "adds"),
    [("scatter_", False, False), ("scatter_add_", False, True), ("index_add_", True, True), ("index_copy_", True, False)],
)
def test_writing_chosen_elements(op: str, by_rows: bool, adds: bool) -> None:
    x, source = torch.zeros(6, 3), torch.rand(4, 3)
    index = torch.tensor([1, 5, 0, 2]) if by_rows else torch.tensor([[1, 2, 3], [0, 5, 5], [2, 1, 0], [4, 4, 4]])
    memory = Memory(x)
    Memory.moved = Memory.added = 0
    (_rows if by_rows else _scatter)(memory, Memory(index), Memory(source), adds)
    cost = cost_of(f"Tensor.{op}", x, 0, index, source)
    assert (cost.bytes, cost.vector_flops) == (Memory.moved, Memory.added)
    expected = getattr(x, op)(0, index, source)
    assert all(math.isclose(memory.cells[place], float(expected[place]), rel_tol=1e-6) for place in memory.cells)


@pytest.mark.parametrize("op", ["index_select", "embedding"])
def test_reading_chosen_rows(op: str) -> None:
    x, index = torch.rand(6, 3), torch.tensor([1, 5, 1, 2])
    table, places_of, made = Memory(x), Memory(index), Memory(torch.zeros(4, 3))
    Memory.moved = 0
    for row in range(4):
        at = places_of.read((row,))
        for column in range(3):
            made.write((row, column), table.read((at, column)))
    cost = (
        cost_of("torch.index_select", x, 0, index)
        if op == "index_select"
        else cost_of("torch.nn.functional.embedding", index, x)
    )
    assert (cost.bytes, cost.flops) == (Memory.moved, 0)
    assert all(math.isclose(value_of(made.cells[r, c]), float(x[index[r], c]), rel_tol=1e-6) for r, c in made.cells)
