"""Tensors made from nothing: filled with one value, with a sequence, or with uniform or normal random numbers.

Filling costs no operation, a sequence 2 an element (a multiplication and an addition), a random number 1, a normal one 3.
Bytes: the tensor, written once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import takewhile

from pyprof.model.opcall import UNKNOWN, DTypeArg, TensorSpec
from pyprof.prof.formulas.algebra import DEFAULT_FLOAT, broadcast, copy_cost, dtype_from, dtype_of, need, opt, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, op

Options = Mapping[str, object]


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def made_shape(sizes: tuple[object, ...], more: Options) -> tuple[int, ...]:
    """Sizes given one by one, as a list, or as size=."""
    given = need(sizes[0] if _listed(sizes) else more.get("size", sizes), "size")
    items = [given] if isinstance(given, int) else [n for n in given if not isinstance(n, DTypeArg)]
    shape = tuple(takewhile(_is_size, items))
    if not shape and sizes[:1] == (UNKNOWN,):
        raise Missing("size not recorded")
    return shape


def _listed(sizes: tuple[object, ...]) -> bool:
    return bool(sizes) and isinstance(sizes[0], (list, tuple))


def made_dtype(values: Iterable[object], more: Options, default: str | None) -> str | None:
    """The dtype among the arguments or keywords, else the default."""
    return next((value.dtype for value in (more.get("dtype"), *values) if isinstance(value, DTypeArg)), default)


def _sized_dtype(sizes: tuple[object, ...], more: Options, default: str | None) -> str | None:
    """The dtype, which the dispatcher gives as a code after a list of sizes."""
    second = sizes[1] if _listed(sizes) and len(sizes) > 1 else None
    return None if second is UNKNOWN else dtype_from(second) or made_dtype(sizes, more, default)


def _chosen(dtype: object, default: str | None) -> str | None:
    """The dtype of an argument, the default where it was left out, None if it was not recorded."""
    return None if dtype is UNKNOWN else dtype_from(dtype) or default


def given_out(more: Options) -> TensorSpec | None:
    """The tensor to write into, where the caller gave one."""
    return opt(more.get("out"))


def _declare_sized(name: str, weight: int) -> None:
    @op(name, places="ta")
    def sized(*sizes: object, **more: object) -> Cost:
        made = given_out(more)
        if made is None:
            if sizes[:1] == (UNKNOWN,):
                return Cost(0, None if weight else 0, None)
            made = spec(made_shape(sizes, more), _sized_dtype(sizes, more, DEFAULT_FLOAT))
        return vector(weight * made.numel, made)


for _name, _weight in {"zeros": 0, "ones": 0, "rand": 1, "randn": 3}.items():
    _declare_sized(_name, _weight)


@op("new_zeros", "new_ones", places="Ta")
def new_filled(input: TensorSpec, *sizes: object, **more: object) -> Cost:
    if sizes[:1] == (UNKNOWN,):
        return Cost(0, 0, None)
    return copy_cost(spec(made_shape(sizes, more), _sized_dtype(sizes, more, input.dtype)))


@op("full", places="ta", order="size fill_value dtype ...")
def full(size: object, fill_value: object, dtype: object = None, out: object = None) -> Cost:
    if size is UNKNOWN and opt(out) is None:
        return Cost(0, 0, None)
    by_value = {bool: "bool", int: "int64", complex: "complex64"}.get(type(fill_value), DEFAULT_FLOAT)
    return copy_cost(opt(out) or spec(made_shape((size,), {}), _chosen(dtype, by_value)))


@op("new_full", places="Ta")
def new_full(input: TensorSpec, size: object, dtype: object = None) -> Cost:
    if size is UNKNOWN:
        return Cost(0, 0, None)
    return copy_cost(spec(made_shape((size,), {}), _chosen(dtype, input.dtype)))


def _declare_like(*names: str, weight: int, order: str = "input dtype ...") -> None:
    @op(*names, places="ta", order=order)
    def like(input: TensorSpec, dtype: object = None) -> Cost:
        shape = need(input, "input").shape
        made = spec(shape, _chosen(dtype, input.dtype))
        return vector(weight * made.numel, made)


_declare_like("zeros_like", "ones_like", weight=0)
_declare_like("full_like", weight=0, order="input fill_value dtype ...")
_declare_like("rand_like", weight=1)
_declare_like("randn_like", weight=3)


@op("randint_like", places="ta")
def randint_like(input: TensorSpec, *options: object, **more: object) -> Cost:
    return vector(input.numel, spec(input.shape, made_dtype(options, more, input.dtype)))


@op("torch.fill", "aten::fill", "aten::zero")
def fill(input: TensorSpec, value: object = 0) -> Cost:
    return copy_cost(opt(value), spec(input.shape, input.dtype))


@op("zero_", "fill_", order="input ...")
@op("fill_diagonal_", "aten::_fill_mem_eff_dropout_mask_", places="Ta", order="input ...")
@op("aten::_no_grad_fill_", "aten::_no_grad_zero_", order="input ...")
def fill_(input: object) -> Cost:
    """An input that is not a tensor is a scalar, whose size a text without types prints as []."""
    return copy_cost(input) if isinstance(input, TensorSpec) else Cost(0, 0)


# ---------------------------------------------------------------------------------------------- sequences


def _sequence(length: int, dtype: str | None, out: object, *bounds: object) -> Cost:
    made = opt(out) or spec((length,), dtype)
    return vector(2 * made.numel, [opt(b) for b in bounds], made)


@op("arange", "range", places="ta")
def arange(*limits: object, **more: object) -> Cost:
    numbers = [v for v in limits if isinstance(v, (int, float)) and not isinstance(v, bool)][:3]
    values = [*numbers, *(need(more[key], key) for key in ("start", "end", "step") if key in more)]
    if not values or limits[:1] == (UNKNOWN,):
        raise Missing("limits not recorded")
    start, end, step = (0, values[0], 1) if len(values) == 1 else (*values[:2], values[2] if len(values) > 2 else 1)
    dtype = made_dtype(limits, more, "int64" if all(isinstance(v, int) for v in values) else DEFAULT_FLOAT)
    return _sequence(max(0, math.ceil((end - start) / step)), dtype, more.get("out"))


@op("linspace", "logspace", places="ta")
def linspace(start: object, end: object, steps: object, dtype: object = None, out: object = None) -> Cost:
    return _sequence(need(steps, "steps"), dtype_of(dtype) or DEFAULT_FLOAT, out, start, end)


@op("fftfreq", places="fX", order="n d dtype ...")
def fftfreq(n: object, dtype: object = None, out: object = None) -> Cost:
    """A sequence, times 1/(n·d)."""
    return _sequence(need(n, "n"), dtype_of(dtype) or DEFAULT_FLOAT, out)


@op("rfftfreq", places="fX", order="n d dtype ...")
def rfftfreq(n: object, dtype: object = None, out: object = None) -> Cost:
    return fftfreq(need(n, "n") // 2 + 1, dtype, out)


@op("eye", places="ta")
def eye(n: object, m: object = None, *options: object, **more: object) -> Cost:
    rows = need(n, "n")
    if len(options) == 3:  # aten::eye(n, dtype, layout, device, pin_memory); with m there are four
        m, options = None, (m, *options)
    elif isinstance(m, DTypeArg):
        m, options = None, (m,)
    columns = m if isinstance(m, int) else rows
    dtype = dtype_from(options[0]) if options else None
    return copy_cost(given_out(more) or spec((rows, columns), dtype or made_dtype(options, more, DEFAULT_FLOAT)))


def _triangle(row: object, col: object, offset: object) -> int:
    """Elements of a matrix on and below a diagonal."""
    columns, shift = need(col, "col"), need(offset, "offset")
    return sum(max(0, min(columns, i + 1 + shift)) for i in range(need(row, "row")))


@op("tril_indices", places="ta", order="row col offset ...")
def tril_indices(row: object, col: object, offset: object = 0) -> Cost:
    count = _triangle(row, col, offset)
    return vector(2 * count, spec((2, count), "int64"))


@op("triu_indices", places="ta", order="row col offset ...")
def triu_indices(row: object, col: object, offset: object = 0) -> Cost:
    count = need(row, "row") * need(col, "col") - _triangle(row, col, need(offset, "offset") - 1)
    return vector(2 * count, spec((2, count), "int64"))


@op("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window", places="ta",
    order="window_length ...")  # fmt: skip
def window(window_length: object, **more: object) -> Cost:
    length = need(window_length, "window_length")
    return vector(4 * length, spec((length,), DEFAULT_FLOAT))


@op("complex", "polar", places="ta", order="real imag ...")
def complex_(real: TensorSpec, imag: TensorSpec) -> Cost:
    return copy_cost(real, imag, spec((2, *broadcast(real.shape, imag.shape)), real.dtype))


@op("one_hot", places="taF")
def one_hot(input: TensorSpec, num_classes: object = -1) -> Cost:
    classes = need(num_classes, "num_classes")
    if classes < 0:
        raise Missing("the number of classes is data, not recorded")
    return copy_cost(input, spec((*input.shape, classes), "int64"))
