"""Every op that torch's own FLOP counter covers, asked of its registry directly: also those that only a GPU can run.

torch.utils.flop_counter counts all pairs of a causal attention; the convention here is what the mask leaves, so no mask is given.
Its weight gradient of a convolution leaves the groups out: one group. Flash and efficient attention it reads as (B, H, S, D) though
these ops take (B, S, H, D): they are compared packed, (T, H, D) and (1, T, H, D), where it reads them right.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import flop_registry

from pyprof.prof.formulas import evaluate
from tests.prof.formulas.formula_oracles import call, describe

Arguments = tuple[tuple[Any, ...], Any]


def _t(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _heads(dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key, value of another size, and output, of four heads."""
    return _t(2, 4, 6, 8, dtype=dtype), _t(2, 4, 5, 8, dtype=dtype), _t(2, 4, 5, 16, dtype=dtype), _t(2, 4, 6, 16, dtype=dtype)


def _packed(*one: int) -> tuple[Any, ...]:
    """Query, key, value and output of three sequences of 6 and 5 in two heads, and their offsets; one: dimensions of size 1."""
    q, k, v = _t(*one, 18, 2, 8), _t(*one, 15, 2, 8), _t(*one, 15, 2, 8)
    return q, k, v, _t(*one, 18, 2, 8), torch.tensor([0, 6, 12, 18]), torch.tensor([0, 5, 10, 15])


def _convolution(order: str) -> Arguments:
    x, w = _t(2, 4, 9, 7), _t(6, 4, 3, 2)
    if order == "cudnn":  # padding, stride, dilation, groups, benchmark, deterministic, TF32
        return (x, w, [1, 0], [1, 1], [1, 1], 1, False, False, True), _t(2, 6, 9, 6)
    if order == "slow":
        return (x, w, [3, 2], None, [1, 1], [1, 0]), _t(2, 6, 9, 6)
    return (x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), _t(2, 6, 7, 6)


def _backward_of_convolution() -> Arguments:
    x, w, grad = _t(2, 4, 9, 7), _t(6, 4, 3, 2), _t(2, 6, 7, 6)
    arguments = (grad, x, w, [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
    return arguments, (_t(2, 4, 9, 7), _t(6, 4, 3, 2), None)


def _attention_backward(middle: Callable[[torch.Tensor], tuple[Any, ...]]) -> Arguments:
    q, k, _, _ = _heads()
    out = _t(2, 4, 6, 8, dtype=torch.bfloat16)
    return (out, q, k, k, *middle(out)), (q, k, k)


LSE = _t(2, 4, 6)
CASES: dict[str, Callable[[], Arguments]] = {
    "mm": lambda: ((_t(3, 4), _t(4, 5)), _t(3, 5)),
    "addmm": lambda: ((_t(5), _t(3, 4), _t(4, 5)), _t(3, 5)),
    "bmm": lambda: ((_t(2, 3, 4), _t(2, 4, 5)), _t(2, 3, 5)),
    "baddbmm": lambda: ((_t(2, 3, 5), _t(2, 3, 4), _t(2, 4, 5)), _t(2, 3, 5)),
    "_scaled_mm": lambda: (
        (_t(16, 32, dtype=torch.float8_e4m3fn), _t(32, 48, dtype=torch.float8_e4m3fn), _t(1), _t(1)),
        _t(16, 48),
    ),
    "convolution": lambda: _convolution("general"),
    "_convolution": lambda: _convolution("general"),
    "convolution_overrideable": lambda: _convolution("general"),
    "cudnn_convolution": lambda: _convolution("cudnn"),
    "_slow_conv2d_forward": lambda: _convolution("slow"),
    "convolution_backward": _backward_of_convolution,
    "_scaled_dot_product_flash_attention": lambda: (_heads()[:3], _heads()[3]),
    "_scaled_dot_product_efficient_attention": lambda: ((*_heads()[:3], None, True), _heads()[3]),
    "_scaled_dot_product_cudnn_attention": lambda: ((*_heads()[:3], None, True), _heads()[3]),
    "_scaled_dot_product_flash_attention_backward": lambda: _attention_backward(
        lambda out: (out, LSE, None, None, 6, 5, 0.0, False, None, None)
    ),
    "_scaled_dot_product_efficient_attention_backward": lambda: _attention_backward(
        lambda out: (None, out, LSE, None, None, 0.0, [True] * 4, False)
    ),
    "_scaled_dot_product_cudnn_attention_backward": lambda: _attention_backward(
        lambda out: (out, LSE, None, None, None, None, None, 6, 5, 0.0, False)
    ),
    "_flash_attention_forward": lambda: ((*(p := _packed())[:3], *p[4:], 6, 5, 0.0, False, False), p[3]),
    "_efficient_attention_forward": lambda: ((*(p := _packed(1))[:3], None, *p[4:], 6, 5, 0.0, 0), p[3]),
    "_flash_attention_backward": lambda: (
        (_t(18, 2, 8), *(p := _packed())[:4], _t(2, 18), *p[4:], 6, 5, 0.0, False, None, None),
        (p[0], p[1], p[2]),
    ),
    "_efficient_attention_backward": lambda: (
        (_t(1, 18, 2, 8), *(p := _packed(1))[:3], None, p[3], *p[4:], 6, 5, _t(2, 18), 0.0, None, None, 0),
        (p[0], p[1], p[2]),
    ),
}


def test_every_op_of_the_counter_is_compared() -> None:
    names = {str(op).removeprefix("aten.") for op in flop_registry}
    # flex_attention takes functions and a mask of blocks, which no capture records.
    assert names - {"flex_attention", "flex_attention_backward"} == set(CASES)


@pytest.mark.parametrize("op", CASES)
def test_agrees_with_the_counter(op: str) -> None:
    arguments, out = CASES[op]()
    # Of _slow_conv2d_forward it asks an argument more than the op has: whether it is transposed.
    more = (False,) if op == "_slow_conv2d_forward" else ()
    theirs = flop_registry[getattr(torch.ops.aten, op)](*arguments, *more, out_val=out)
    result = evaluate(call(f"aten::{op}", *map(describe, arguments)))
    assert (result.cost.matmul_flops, result.reason) == (theirs, "")
