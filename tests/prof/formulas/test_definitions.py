"""FLOPs held against brute force: the definition of an op in plain loops, over numbers that count their own operations.

Each definition is first held to be that of the op, by its values; then its multiplications, additions and functions are those that
the formula says. A sum of n terms counts n additions, as it begins at zero: so a multiply-add is 2.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.model.opcall import UNKNOWN
from pyprof.prof.formulas import evaluate, evaluate_backward
from tests.prof.formulas.counting_numbers import Number, cost_of, counted, numbers, places, sigmoid, total
from tests.prof.formulas.formula_oracles import call, describe, t


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 3))
    each = st.integers(1, 2)
    return {
        "rank": rank,
        "groups": draw(each),
        "kernel": tuple(draw(each) for _ in range(rank)),
        "sizes": tuple(draw(st.integers(3, 4 if rank < 3 else 3)) for _ in range(rank)),
        "stride": tuple(draw(each) for _ in range(rank)),
        "padding": tuple(draw(st.integers(0, 1)) for _ in range(rank)),
        "dilation": tuple(draw(each) for _ in range(rank)),
    }


def _convolution(x: Any, w: Any, shape: tuple[int, ...], p: dict[str, Any]) -> Any:
    """Each output element: a sum of (C/g)·R·S products, with zeros where the window lies in the padding."""
    out = np.empty(shape, dtype=object)
    outputs, channels, kernel = shape[1] // p["groups"], w.shape[1], w.shape[2:]
    for place in places(*shape):
        n, k, at = place[0], place[1], place[2:]
        first = k // outputs * channels
        terms = []
        for c, *tap in places(channels, *kernel):
            source = [
                a * s + t * d - o for a, s, t, d, o in zip(at, p["stride"], tap, p["dilation"], p["padding"], strict=True)
            ]
            inside = all(0 <= i < size for i, size in zip(source, x.shape[2:], strict=True))
            terms.append((x[(n, first + c, *source)] if inside else Number(0.0)) * w[(k, c, *tap)])
        out[place] = total(terms)
    return out


@given(problems())
@settings(max_examples=12, deadline=None)
def test_convolution(p: dict[str, Any]) -> None:
    options = {key: p[key] for key in ("stride", "padding", "dilation", "groups")}
    x, w = torch.rand(1, 2 * p["groups"], *p["sizes"]), torch.rand(p["groups"], 2, *p["kernel"])
    name = f"conv{p['rank']}d"
    expected = getattr(F, name)(x, w, **options)
    count = counted(lambda: _convolution(numbers(x), numbers(w), tuple(expected.shape), p), expected)
    assert cost_of(f"torch.nn.functional.{name}", x, w, **options).matmul_flops == count


def _transposed(x: Any, w: Any, shape: tuple[int, ...], p: dict[str, Any]) -> Any:
    """Each input element times each weight of its group is added where it falls, padding around the output included."""
    out = {place: Number(0.0) for place in places(*shape)}
    channels, outputs = x.shape[1] // p["groups"], w.shape[1]
    for n, c, *at in places(*x.shape):
        for k, *tap in places(outputs, *w.shape[2:]):
            product = x[(n, c, *at)] * w[(c, k, *tap)]
            place = [a * s + t * d - o for a, s, t, d, o in zip(at, p["stride"], tap, p["dilation"], p["padding"], strict=True)]
            target = (n, c // channels * outputs + k, *place)
            out[target] = out.get(target, Number(0.0)) + product
    result = np.empty(shape, dtype=object)
    for place in places(*shape):
        result[place] = out[place]
    return result


@given(problems())
@settings(max_examples=12, deadline=None)
def test_transposed_convolution(p: dict[str, Any]) -> None:
    options = {key: p[key] for key in ("stride", "padding", "dilation", "groups")}
    x, w = torch.rand(1, p["groups"], *p["sizes"]), torch.rand(p["groups"], 2, *p["kernel"])
    name = f"conv_transpose{p['rank']}d"
    expected = getattr(F, name)(x, w, **options)
    count = counted(lambda: _transposed(numbers(x), numbers(w), tuple(expected.shape), p), expected)
    assert cost_of(f"torch.nn.functional.{name}", x, w, **options).matmul_flops == count


def _dot(a: Iterable[Number], b: Iterable[Number]) -> Number:
    return total(x * y for x, y in zip(a, b, strict=True))


def _attention(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    """Only the pairs that the mask leaves; the softmax between the two products is not counted. Values and weights."""
    batch, heads, queries, size = q.shape
    out = np.empty((batch, heads, queries, v.shape[-1]), dtype=object)
    weights: dict[tuple[int, int, int], dict[int, float]] = {}
    for b, h, i in places(batch, heads, queries):
        own = h // (heads // k.shape[1])
        seen = [j for j in range(k.shape[2]) if not causal or j <= i]
        scores = [math.exp(_dot(q[b, h, i], k[b, own, j]).value / math.sqrt(size)) for j in seen]
        weights[b, h, i] = {j: s / sum(scores) for j, s in zip(seen, scores, strict=True)}
        for d in range(v.shape[-1]):
            out[b, h, i, d] = total(v[b, own, j, d] * w for j, w in weights[b, h, i].items())
    return out, weights


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.booleans())
@settings(max_examples=20, deadline=None)
def test_attention(queries: int, keys: int, size: int, values: int, shared: int, causal: bool) -> None:
    q, k, v = torch.rand(1, 2 * shared, queries, size), torch.rand(1, 2, keys, size), torch.rand(1, 2, keys, values)
    options = {"is_causal": causal, "enable_gqa": shared > 1}
    expected = F.scaled_dot_product_attention(q, k, v, **options)
    count = counted(lambda: _attention(numbers(q), numbers(k), numbers(v), causal)[0], expected)
    assert cost_of("torch.nn.functional.scaled_dot_product_attention", q, k, v, **options).matmul_flops == count


def _attention_gradients(q: Any, k: Any, v: Any, weights: Any, grad: Any) -> list[Any]:
    """Scores again, dV, dP, dQ and dK, of the pairs that the mask leaves; the softmax's own gradient is not counted."""
    gq, gk, gv = (np.vectorize(lambda _: Number(0.0), otypes=[object])(x) for x in (q, k, v))
    scale = 1 / math.sqrt(q.shape[-1])
    for (b, h, i), row in weights.items():
        steps = {}
        for j, w in row.items():
            _dot(q[b, h, i], k[b, h, j])  # a fused kernel keeps no scores
            for d in range(v.shape[-1]):
                gv[b, h, j, d] = gv[b, h, j, d] + grad[b, h, i, d] * w
            steps[j] = _dot(grad[b, h, i], v[b, h, j]).value
        mean = sum(w * steps[j] for j, w in row.items())
        for j, w in row.items():
            slope = w * (steps[j] - mean) * scale
            for d in range(q.shape[-1]):
                gq[b, h, i, d] = gq[b, h, i, d] + k[b, h, j, d] * slope
                gk[b, h, j, d] = gk[b, h, j, d] + q[b, h, i, d] * slope
    return [gq, gk, gv]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_backward(causal: bool) -> None:
    q, k, v = (torch.rand(1, 2, n, d, requires_grad=True) for n, d in ((3, 2), (4, 2), (4, 3)))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    grad = torch.rand_like(out)
    given = [numbers(x) for x in (q, k, v)]
    _, weights = _attention(*given, causal)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(out, (q, k, v), grad)])
    gradients = lambda: np.concatenate([g.ravel() for g in _attention_gradients(*given, weights, numbers(grad))])  # noqa: E731
    (piece,) = evaluate_backward(
        call("torch.nn.functional.scaled_dot_product_attention", *map(describe, (q, k, v)), is_causal=causal)
    )
    assert piece.cost.matmul_flops == counted(gradients, expected)


def _gates(w: Any, x: Any, count: list[int]) -> list[Number]:
    """W·x; its products are counted apart from what follows."""
    before = Number.operations
    made = [_dot(row, x) for row in w]
    count[0] += Number.operations - before
    return made


def _lstm_step(x: Any, h: Any, c: Any, w: list[Any], products: list[int]) -> tuple[Any, Any]:
    sums = [a + b for a, b in zip(_gates(w[0], x, products), _gates(w[1], h, products), strict=True)]
    for bias in w[2:]:
        sums = [s + b for s, b in zip(sums, bias, strict=True)]
    n = len(h)
    i, f, o = ([sigmoid(s) for s in sums[k * n : (k + 1) * n]] for k in (0, 1, 3))
    g = [s.of(math.tanh) for s in sums[2 * n : 3 * n]]
    c = [f[k] * c[k] + i[k] * g[k] for k in range(n)]
    return [o[k] * c[k].of(math.tanh) for k in range(n)], c


def _gru_step(x: Any, h: Any, w: list[Any], products: list[int]) -> Any:
    a, b = _gates(w[0], x, products), _gates(w[1], h, products)
    if len(w) > 2:
        a, b = ([s + t for s, t in zip(p, q, strict=True)] for p, q in ((a, w[2]), (b, w[3])))
    n = len(h)
    r, z = ([sigmoid(a[k] + b[k]) for k in range(at, at + n)] for at in (0, n))
    new = [(a[2 * n + k] + r[k] * b[2 * n + k]).of(math.tanh) for k in range(n)]
    return [(1 - z[k]) * new[k] + z[k] * h[k] for k in range(n)]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
def test_recurrent_layer(kind: str, biased: bool) -> None:
    time, width, state = 3, 2, 3
    gates = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[kind]
    weights = [torch.rand(gates * state, width), torch.rand(gates * state, state)]
    weights += [torch.rand(gates * state) for _ in range(2)] if biased else []
    x, zero = torch.rand(time, 1, width), torch.zeros(1, 1, state)
    start = [zero, zero] if kind == "lstm" else zero
    expected = getattr(torch, kind)(x, start, weights, biased, 1, 0.0, False, False, False)[0]
    products = [0]

    def layer() -> Any:
        w, h, c, made = [numbers(p) for p in weights], [Number(0.0)] * state, [Number(0.0)] * state, []
        for step in numbers(x)[:, 0]:
            if kind == "lstm":
                h, c = _lstm_step(step, h, c, w, products)
            elif kind == "gru":
                h = _gru_step(step, h, w, products)
            else:
                sums = [a + b for a, b in zip(_gates(w[0], step, products), _gates(w[1], h, products), strict=True)]
                for bias in w[2:]:
                    sums = [s + b for s, b in zip(sums, bias, strict=True)]
                h = [s.of(math.tanh) for s in sums]
            made.append(h)
        return np.array(made, dtype=object)[:, None]

    count = counted(layer, expected)
    cost = cost_of(f"torch.{kind}", x, start, weights, biased, 1, 0.0, False, False, False)
    assert (cost.matmul_flops, cost.vector_flops) == (products[0], count - products[0])


def test_what_a_conversion_casts_to() -> None:
    """The dtype is the first of the dispatcher's options, or stands after a device; not recorded it is not known."""
    one, rest = t(100, grad=True), (False, False, None)
    for options, moved, backward in (
        ((7, *rest), 1200, [1200]),
        (("cuda:0", 5, *rest), 600, [600]),
        ((None, None, "cuda:0", None), 800, []),
        ((UNKNOWN,) * 4, None, []),
    ):
        recorded = call("aten::to", one, *options)
        assert evaluate(recorded).cost.bytes == moved, options
        assert [piece.cost.bytes for piece in evaluate_backward(recorded)] == backward, options
    for name in ("zeros_like", "ones_like", "rand_like"):
        assert [evaluate(call(f"aten::{name}", one, d)).cost.bytes for d in (UNKNOWN, None, 7)] == [None, 400, 800]
    assert evaluate(call("aten::new_zeros", one, [10], UNKNOWN)).cost.bytes is None


def test_a_division_rounds_where_its_third_argument_says_so() -> None:
    """aten::div.Tensor_mode has the rounding mode where aten::add has its factor."""
    whole = t(100, dtype="int64")
    assert evaluate(call("aten::div", whole, whole)).cost.bytes == 2 * 800 + 400
    assert evaluate(call("aten::div", whole, whole, "floor")).cost.bytes == 3 * 800
    assert evaluate(call("aten::div", t(100), t(100), "floor")).cost.flops == 100
    assert evaluate_backward(call("aten::div", t(100), t(100), "floor")) == ()
    assert evaluate(call("aten::add", t(100), t(100), 2)).cost.flops == 200
