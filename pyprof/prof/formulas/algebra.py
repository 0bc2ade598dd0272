"""Shapes and dtypes as torch computes them: broadcasting, promotion, output sizes, stored bytes; for use in formulas.

No torch here; the promotion rules are torch's and are tested against torch.result_type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from pyprof.model.dtypes import DType, lookup
from pyprof.model.opcall import UNKNOWN, DTypeArg, TensorSpec
from pyprof.prof.formulas.registry import Cost, Missing, Piece

DEFAULT_FLOAT = "float32"


# ---------------------------------------------------------------------------------------------- arguments


def need(value: object, name: str) -> Any:
    """The value; raises Missing if it was not recorded."""
    if value is UNKNOWN:
        raise Missing(f"{name} not recorded")
    return value


def opt(value: object) -> TensorSpec | None:
    """An optional tensor: None for None, a scalar or what was not recorded (a recorded tensor always has its shape)."""
    return value if isinstance(value, TensorSpec) else None


def wants(value: object) -> TypeGuard[TensorSpec]:
    """Whether an input may need a gradient: a floating tensor that is not known to need none."""
    if not isinstance(value, TensorSpec) or value.grad is False:
        return False
    found = lookup(value.dtype)
    return found is None or found.kind in ("float", "complex")


def dtype_of(value: object) -> str | None:
    """torch's name of a dtype argument; None if it was left out."""
    return value.dtype if isinstance(value, DTypeArg) else None


# Kineto and emit_nvtx give a dtype as the number that c10 gives it.
_CODES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128",
          "bool", "qint8", "quint8", "qint32", "bfloat16")  # fmt: skip


def dtype_from(value: object) -> str | None:
    """The dtype that an argument names, by name or by code; None if it names none."""
    if isinstance(value, (DTypeArg, TensorSpec)):
        return value.dtype
    if isinstance(value, int) and not isinstance(value, bool):
        return _CODES[value] if 0 <= value < len(_CODES) else None
    return None


def pair(value: object, rank: int, name: str) -> tuple[int, ...]:
    """An int or a list of 1 or `rank` ints as `rank` ints. Raises Missing if it was not recorded."""
    given = need(value, name)
    items = [given] if isinstance(given, int) else list(given)
    if any(not isinstance(v, int) for v in items) or len(items) not in (1, rank):
        raise Missing(f"{name}={value!r} not understood")
    return tuple(int(v) for v in items) * (rank if len(items) == 1 else 1)


def dims(value: object, rank: int) -> tuple[int, ...]:
    """Dimensions given as None (all), an int or a list, as non-negative ints. Not recorded they are known of one dimension."""
    if rank <= 1 and value is UNKNOWN:
        return tuple(range(rank))
    given = need(value, "dim")
    if given is None or given == [] or given == ():
        return tuple(range(rank))
    items = [given] if isinstance(given, int) else list(given)
    return tuple(sorted({int(d) % max(rank, 1) for d in items}))


# ---------------------------------------------------------------------------------------------- shapes and sizes


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these broadcast to. Raises Missing if they do not."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    out = []
    for sizes in zip(*padded, strict=True):
        distinct = {n for n in sizes if n != 1}
        if len(distinct) > 1:
            raise Missing(f"shapes {shapes} do not broadcast")
        out.append(distinct.pop() if distinct else 1)
    return tuple(out)


def spec(shape: Iterable[int], dtype: str | None) -> TensorSpec:
    """A contiguous tensor."""
    return TensorSpec(tuple(shape), dtype)


def gradient(of: TensorSpec) -> TensorSpec:
    """The gradient of a tensor: its shape and dtype, stored in full."""
    return TensorSpec(of.shape, of.dtype)


def _cells(tensor: TensorSpec) -> int:
    """Elements of storage that a tensor lies in: a dimension of stride 0 once, windows that overlap (frames of a signal) once.

    From the smallest stride on, a dimension continues the run of cells before it, overlapping it or not, or repeats the whole.
    """
    if tensor.strides is None or not tensor.numel:
        return tensor.numel
    whole, unit, run = 1, 1, 1
    for step, size in sorted((abs(s), n) for n, s in zip(tensor.shape, tensor.strides, strict=True) if s and n > 1):
        if step % unit == 0 and step <= run * unit:
            run += (size - 1) * (step // unit)
        elif step >= run * unit or run == 1:
            whole, unit, run = whole * run, step, size
        else:  # cells that interleave: at the most all of them
            return tensor.stored
    return whole * run


def gathered(of: TensorSpec, shape: Iterable[int]) -> TensorSpec:
    """The part of a tensor that is read when elements are gathered into this shape: each once, so at most the whole tensor."""
    return spec((min(math.prod(shape), _cells(of)),), of.dtype)


def _stored_bytes(tensor: TensorSpec) -> int | None:
    size = tensor.itemsize
    return None if size is None else math.ceil(_cells(tensor) * size)


def nbytes(*items: object) -> int | None:
    """Stored bytes of all tensors among the items, lists included; scalars hold none. None if a dtype is unknown."""
    total = 0
    for item in items:
        if isinstance(item, TensorSpec):
            size = _stored_bytes(item)
        elif isinstance(item, (list, tuple)):
            size = nbytes(*item)
        else:
            size = 0
        if size is None:
            return None
        total += size
    return total


def result(out: object, shape: Iterable[int], dtype: str | None) -> TensorSpec:
    """The output of an op: `out` where the caller gave one, else a new tensor."""
    return out if isinstance(out, TensorSpec) else spec(shape, dtype)


def vector(flops: int, *tensors: object) -> Cost:
    """A cost without matrix products, which touches each of the tensors once."""
    return Cost(0, int(flops), nbytes(*tensors))


def copy_cost(*tensors: object) -> Cost:
    """A cost that only moves data."""
    return Cost(0, 0, nbytes(*tensors))


def grad(name: str, of: object, flops: int, *reads: object) -> Iterator[Piece]:
    """The piece that computes the gradient of one input, which it writes in full; none where that wants no gradient."""
    if wants(of):
        yield Piece(name, vector(flops, *reads, gradient(of)))


# ---------------------------------------------------------------------------------------------- promotion

_ORDER = {"bool": 0, "uint": 1, "int": 1, "quantized": 1, "float": 2, "complex": 3}
_BY_SCALAR = {bool: "bool", int: "int64", float: DEFAULT_FLOAT, complex: "complex64"}


def _promote_two(a: DType | None, b: DType | None) -> DType | None:
    """torch.promote_types of two dtypes; None is 'nothing yet'."""
    if a is None or b is None or a is b:
        return b if a is None else a
    low, high = sorted((a, b), key=lambda d: (_ORDER[d.kind], d.bits))
    if _ORDER[low.kind] == _ORDER[high.kind]:
        return _promote_alike(low, high)
    if high.kind == "complex" and low.kind == "float":
        # Only half stays with complex32; anything wider takes the complex type of its own width.
        wanted = low.bits * 2 if low.name != "bfloat16" else 64
        return lookup(f"complex{max(wanted, high.bits)}")
    return high


def _promote_alike(low: DType, high: DType) -> DType | None:
    if low.kind == "float" and low.bits == high.bits:
        return lookup("float32")  # float16 with bfloat16
    if {low.kind, high.kind} == {"uint", "int"} and low.bits <= high.bits and "uint" in (low.kind, high.kind):
        if high.kind == "int" and low.bits < high.bits:
            return high
        return lookup(f"int{2 * max(low.bits, high.bits)}")
    return high


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    """Promoted dtype of operands; a category outranks those after it (tensors > 0-dim tensors > numbers)."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.kind == "complex":
        return higher
    if higher.kind == "float":
        return _promote_two(higher, lookup("complex32")) if lower.kind == "complex" else higher
    if higher.kind == "bool" or lower.kind in ("float", "complex"):
        return _promote_two(higher, lower)
    return higher


def promote(*operands: object, to_float: bool = False) -> str | None:
    """The dtype of an arithmetic result, as torch.result_type has it; None if it is unknown.

    operands: TensorSpec, numbers, None or UNKNOWN. Assumes the default dtype float32. to_float: integers become floats, as in
    division and functions such as exp.
    """
    levels: list[DType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, TensorSpec):
            level, found = (0 if operand.shape else 1), lookup(operand.dtype)
        elif isinstance(operand, (bool, int, float, complex)):
            level, found = 2, lookup(_BY_SCALAR[type(operand)])
        elif operand is UNKNOWN:
            # A number that was not recorded cannot change a floating result; anything else could.
            if any(isinstance(o, TensorSpec) and _is_floating(o) for o in operands):
                continue
            return DEFAULT_FLOAT if to_float else None
        else:
            continue
        if found is None:
            return None
        levels[level] = _promote_two(levels[level], found)
    combined = _combine(levels[0], _combine(levels[1], levels[2]))
    if combined is None:
        return None
    return DEFAULT_FLOAT if to_float and _ORDER[combined.kind] < 2 else combined.name


def _is_floating(tensor: TensorSpec) -> bool:
    found = lookup(tensor.dtype)
    return found is not None and found.kind in ("float", "complex")


def reduced(shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """The shape after reducing over axes."""
    return tuple(1 if d in axes else n for d, n in enumerate(shape) if keepdim or d not in axes)


def product(sizes: Iterable[int]) -> int:
    """The product of sizes, 1 for none."""
    return math.prod(sizes)
