"""Tensors made from nothing: filled with one value, with a sequence, or with uniform or normal random numbers.

Filling costs no operation, a sequence 2 an element (a multiplication and an addition), a random number 1, a normal one 3.
Bytes: the tensor, written once.
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.opcall import UNKNOWN, DTypeArg, TensorSpec
from pyprof.prof.formulas.algebra import DEFAULT_FLOAT, broadcast, copy_cost, dtype_from, need, opt, spec, vector
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, formula

__all__ = ["given_out", "made_dtype", "made_shape"]


def made_shape(sizes: tuple[Any, ...], more: dict[str, Any]) -> tuple[int, ...]:
    """Sizes given one by one, as a list, or as size=."""
    given = sizes[0] if sizes and isinstance(sizes[0], (list, tuple)) else more.get("size", sizes)
    given = [n for n in need(given, "size") if not isinstance(n, DTypeArg)] if not isinstance(given, int) else [given]
    if any(not isinstance(n, int) or isinstance(n, bool) for n in given):
        given = given[: next(i for i, n in enumerate(given) if not isinstance(n, int) or isinstance(n, bool))]
    if not given and sizes and sizes[0] is UNKNOWN:
        raise Missing("size not recorded")
    return tuple(given)


def made_dtype(values: Any, more: dict[str, Any], default: str | None) -> str | None:
    """The dtype among the arguments or keywords, else the default."""
    for value in (more.get("dtype"), *values):
        if isinstance(value, DTypeArg):
            return value.dtype
    return default


def _coded(options: tuple[Any, ...], more: dict[str, Any], default: str | None) -> str | None:
    """The dtype where the dispatcher gives it as a code, the first of the options; else as `made_dtype`."""
    return (dtype_from(options[0]) if options else None) or made_dtype(options, more, default)


def given_out(more: dict[str, Any]) -> TensorSpec | None:
    """The tensor to write into, where the caller gave one."""
    given = more.get("out")
    return given if isinstance(given, TensorSpec) else None


# op: operations an element
_SIZED = {"zeros": 0, "ones": 0, "rand": 1, "randn": 3}


def _register_sized(op: str, weight: int) -> None:
    def sized(*sizes: Any, **more: Any) -> Cost:
        if sizes[:1] == (UNKNOWN,) and given_out(more) is None:
            return Cost(0, None if weight else 0, None)
        made = given_out(more) or spec(made_shape(sizes, more), _aten_dtype(sizes, more))
        return vector(weight * made.numel, made)

    def sized_new(input: TensorSpec, *sizes: Any, **more: Any) -> Cost:
        listed = bool(sizes) and isinstance(sizes[0], (list, tuple))
        dtype = _coded(sizes[1:], more, input.dtype) if listed else made_dtype(sizes, more, input.dtype)
        made = spec(made_shape(sizes, more), dtype)
        return vector(weight * made.numel, made)

    sized.__qualname__ = op
    sized_new.__qualname__ = f"new_{op}"
    formula(f"torch.{op}", f"aten::{op}")(sized)
    if weight == 0:
        formula(f"Tensor.new_{op}", f"aten::new_{op}")(sized_new)


def _aten_dtype(sizes: tuple[Any, ...], more: dict[str, Any]) -> str | None:
    """The dtype, which the dispatcher gives as the code after the list of sizes."""
    listed = bool(sizes) and isinstance(sizes[0], (list, tuple))
    if listed and sizes[1:2] == (UNKNOWN,):
        return None
    return _coded(sizes[1:], more, DEFAULT_FLOAT) if listed else made_dtype(sizes, more, DEFAULT_FLOAT)


for _op, _weight in _SIZED.items():
    _register_sized(_op, _weight)


@formula("torch.full", "aten::full")
def full(size: Any, fill_value: Any, *options: Any, **more: Any) -> Cost:
    by_value = {bool: "bool", int: "int64", complex: "complex64"}.get(type(fill_value), DEFAULT_FLOAT)
    return vector(0, given_out(more) or spec(made_shape((size,), more), _coded(options, more, by_value)))


@formula("Tensor.new_full", "aten::new_full")
def new_full(input: TensorSpec, size: Any, fill_value: Any, *options: Any, **more: Any) -> Cost:
    return vector(0, spec(made_shape((size,), more), _coded(options, more, input.dtype)))


_LIKE = {"zeros_like": 0, "ones_like": 0, "full_like": 0, "rand_like": 1, "randn_like": 3, "randint_like": 1}


def _register_like(op: str, weight: int) -> None:
    def like(input: TensorSpec, *options: Any, **more: Any) -> Cost:
        values = {"full_like": 1, "randint_like": len(options)}.get(op, 0)  # bounds and values stand before the dtype
        coded = _coded(options[values:], more, made_dtype(options, more, input.dtype))
        return vector(weight * input.numel, spec(input.shape, coded))

    like.__qualname__ = op
    formula(*spellings(op, "ta"))(like)


for _op, _weight in _LIKE.items():
    _register_like(_op, _weight)


@formula(*spellings("fill", "ta"), *spellings("zero", "a"))
def fill(input: TensorSpec, value: Any = 0) -> Cost:
    return vector(0, opt(value), spec(input.shape, input.dtype))


@formula(*spellings("zero_", "tTa"), *spellings("fill_", "tTa"),
    "Tensor.fill_diagonal_",
         "aten::fill_diagonal_", "aten::_fill_mem_eff_dropout_mask_", "aten::_no_grad_fill_",
         "aten::_no_grad_zero_")  # fmt: skip
def fill_(input: TensorSpec, value: Any = 0, *options: Any) -> Cost:
    return (
        vector(0, input) if isinstance(input, TensorSpec) else Cost(0, 0)
    )  # a text without types prints a scalar's size as []


# ---------------------------------------------------------------------------------------------- sequences


@formula("torch.arange", "aten::arange", "torch.range", "aten::range")
def arange(*limits: Any, **more: Any) -> Cost:
    numbers = [more[k] for k in ("start", "end", "step") if k in more]
    values = [v for v in limits if isinstance(v, (int, float)) and not isinstance(v, bool)][:3] + numbers
    if not values or any(v is UNKNOWN for v in limits[:1]):
        raise Missing("limits not recorded")
    start, end, step = (0, values[0], 1) if len(values) == 1 else (*values[:2], values[2] if len(values) > 2 else 1)
    dtype = made_dtype(limits, more, "int64" if all(isinstance(v, int) for v in values) else DEFAULT_FLOAT)
    made = given_out(more) or spec((max(0, math.ceil((end - start) / step)),), dtype)
    return vector(2 * made.numel, made)


@formula("torch.linspace", "aten::linspace", "torch.logspace", "aten::logspace")
def linspace(start: Any, end: Any, steps: Any, *options: Any, **more: Any) -> Cost:
    made = given_out(more) or spec((need(steps, "steps"),), made_dtype(options, more, DEFAULT_FLOAT))
    return vector(2 * made.numel, opt(start), opt(end), made)


@formula("torch.fft.fftfreq", "aten::fft_fftfreq")
def fftfreq(n: Any, d: Any = 1.0, *options: Any, **more: Any) -> Cost:
    # A sequence, times 1/(n·d).
    made = given_out(more) or spec((need(n, "n"),), made_dtype(options, more, DEFAULT_FLOAT))
    return vector(2 * made.numel, made)


@formula("torch.fft.rfftfreq", "aten::fft_rfftfreq")
def rfftfreq(n: Any, d: Any = 1.0, *options: Any, **more: Any) -> Cost:
    return fftfreq(need(n, "n") // 2 + 1, d, *options, **more)


@formula("torch.eye", "aten::eye")
def eye(n: Any, m: Any = None, *options: Any, **more: Any) -> Cost:
    rows = need(n, "n")
    if len(options) == 3:  # aten::eye(n, dtype, layout, device, pin_memory); with m there are four
        m, options = None, (m, *options)
    elif isinstance(m, DTypeArg):
        m, options = None, (m,)
    columns = m if isinstance(m, int) else rows
    return vector(0, given_out(more) or spec((rows, columns), _coded(options, more, DEFAULT_FLOAT)))


@formula("torch.tril_indices", "aten::tril_indices")
def tril_indices(row: Any, col: Any, offset: Any = 0, *options: Any, **more: Any) -> Cost:
    count = sum(max(0, min(col, i + 1 + offset)) for i in range(need(row, "row")))
    return vector(2 * count, spec((2, count), "int64"))


@formula("torch.triu_indices", "aten::triu_indices")
def triu_indices(row: Any, col: Any, offset: Any = 0, *options: Any, **more: Any) -> Cost:
    count = sum(max(0, min(col, col - i - offset)) for i in range(need(row, "row")))
    return vector(2 * count, spec((2, count), "int64"))


@formula(
    *(
        f"{place}{kind}_window"
        for kind in ("hann", "hamming", "blackman", "bartlett", "kaiser")
        for place in ("torch.", "aten::")
    )
)
def window(window_length: Any, *options: Any, **more: Any) -> Cost:
    return vector(4 * need(window_length, "window_length"), spec((window_length,), DEFAULT_FLOAT))


@formula("torch.complex", "aten::complex", "torch.polar", "aten::polar")
def complex_(real: TensorSpec, imag: TensorSpec, out: Any = None) -> Cost:
    return copy_cost(real, imag, spec((2, *broadcast(real.shape, imag.shape)), real.dtype))


@formula("torch.one_hot", "aten::one_hot", "torch.nn.functional.one_hot")
def one_hot(input: TensorSpec, num_classes: Any = -1) -> Cost:
    if need(num_classes, "num_classes") < 0:
        raise Missing("the number of classes is data, not recorded")
    return copy_cost(input, spec((*input.shape, num_classes), "int64"))
