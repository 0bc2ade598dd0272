"""The arguments of a call -> a key that is cheap to build, and for a new key an `OpCall` that describes them.

Reads only a tensor's metadata on the host (shape, dtype, strides, requires_grad), never its elements, so nothing waits for a
device. Keeps no reference to a tensor. What cannot be described is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from pyprof.model.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec, contiguous_strides
from pyprof.nvtx.traceback import interrupted

MAX_ITEMS = 4096
"""Elements of a list that are described; a longer one is UNKNOWN."""

MAX_NUMBERS = 64
"""Plain numbers of a list that are described: shapes, dimensions and splits, not data."""

MAX_STRING = 200
"""Characters of a string that is described; a longer one is UNKNOWN."""

_MAX_INT = 1 << 64
_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_Size = torch.Size
_PLAIN = frozenset({int, bool, str, type(None), type(Ellipsis), complex})
_HASHED = (torch.dtype, torch.device, torch.memory_format, torch.layout)


class Unkeyable(Exception):
    """The arguments cannot be a key (subclasses of Tensor, symbolic sizes); the call must be described each time."""


def add_key(values: Iterable[Any], key: list[object]) -> None:
    """Append a key of these arguments. Arguments with different descriptions never have equal keys.

    Raises Unkeyable for objects whose metadata must not be read here, and any exception that a tensor raises for its strides.
    """
    add = key.append
    for value in values:
        kind = type(value)
        if kind is _Tensor or kind is _Parameter:
            key += (value.shape, value.dtype, value.requires_grad, value.is_contiguous() or value.stride())
        elif kind in _PLAIN:
            add(kind)
            add(value)
        elif kind is float:
            add(kind)
            add(value if value and value == value else repr(value))  # 0.0 equals -0.0, and nan equals nothing
        elif kind is list or kind is tuple or kind is _Size:
            described = len(value) <= MAX_ITEMS
            add(kind)
            add(len(value) if described else -1)
            if described:
                add_key(value, key)
        elif kind is slice:
            add(kind)
            add_key((value.start, value.stop, value.step), key)
        elif isinstance(value, _HASHED):
            add(value)
        elif isinstance(value, (_Tensor, list, tuple, torch.SymInt, torch.SymFloat, torch.SymBool, int, float, str)):
            raise Unkeyable
        else:
            add(kind)


def _tensor(value: torch.Tensor) -> object:
    """A tensor as an `OpCall` holds it, a DTensor by the part that this process holds: it computes with no more."""
    if type(value).__name__ == "DTensor" and isinstance(local := getattr(value, "_local_tensor", None), _Tensor):
        spec = _tensor(local)
        return replace(spec, grad=True if value.requires_grad else None) if isinstance(spec, TensorSpec) else spec
    try:
        shape = tuple(value.shape)
        dtype = str(value.dtype).removeprefix("torch.")
    except Exception as error:  # a tensor without a shape (strided nested), or one that refuses to return it
        if interrupted(error):
            raise
        return UNKNOWN
    if not all(type(n) is int for n in shape):
        return UNKNOWN
    try:
        strides = tuple(value.stride()) if value.layout == torch.strided and not value.is_contiguous() else None
        if strides is not None and (len(strides) != len(shape) or not all(type(n) is int for n in strides)):
            strides = None
    except Exception as error:  # a tensor without strides
        if interrupted(error):
            raise
        strides = None
    try:
        grad = True if value.requires_grad else None
    except Exception as error:
        if interrupted(error):
            raise
        grad = None
    return TensorSpec(shape, dtype, contiguous_strides(shape) if strides is None else strides, grad)


def _items(value: list[object] | tuple[object, ...]) -> object:
    if len(value) > MAX_ITEMS:
        return UNKNOWN
    if len(value) > MAX_NUMBERS and any(isinstance(v, (int, float, complex, str)) for v in value):
        return UNKNOWN
    inner = [describe_value(v) for v in value]
    return inner if isinstance(value, list) else tuple(inner)


def describe_value(value: object) -> object:
    """One argument as an `OpCall` holds it."""
    if isinstance(value, _Tensor):
        return _tensor(value)
    if value is None or value is Ellipsis or isinstance(value, bool):
        return value
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return UNKNOWN  # reading it would specialise the program to one size
    if isinstance(value, int):
        return int(value) if -_MAX_INT < value < _MAX_INT else UNKNOWN
    if isinstance(value, (float, complex)):
        return float(value) if isinstance(value, float) else complex(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_STRING else UNKNOWN
    if isinstance(value, (list, tuple)):
        return _items(value)
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return value if all(p is None or type(p) is int for p in parts) else UNKNOWN
    if isinstance(value, torch.dtype):
        return DTypeArg(str(value).removeprefix("torch."))
    if isinstance(value, (torch.device, torch.memory_format, torch.layout)):
        return str(value)
    return UNKNOWN


def describe_call(module: str, op: str, names: tuple[str, ...], args: tuple[object, ...], kwargs: dict[str, object]) -> OpCall:
    """The call as an `OpCall`, under the name (module, op) of the function that users call.

    names: where that function takes its arguments in another order than the called one, the name of each positional argument
    there: empty for one that stays positional, `-` for one that it does not have.
    """
    named = [(k, describe_value(v)) for k, v in kwargs.items()]
    if not names:
        return OpCall(module, op, tuple(map(describe_value, args)), tuple(named))
    positional: list[object] = []
    moved: list[tuple[str, object]] = []
    for name, value in zip((*names, *("-" for _ in args[len(names) :])), args, strict=False):
        if not name:
            positional.append(describe_value(value))
        elif name != "-":
            moved.append((name, describe_value(value)))
    return OpCall(module, op, tuple(positional), (*moved, *named))
