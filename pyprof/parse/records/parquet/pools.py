"""Stacks, op calls and devices <-> tuples of the types that the schema declares for them.

An argument of a call is stored in front of those inside it, which have one more depth; so any value that a call can hold comes
back as it was. A file that another program wrote ends here as a ValueError. No Arrow array is touched here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from operator import attrgetter
from typing import Any, NamedTuple

from pyprof.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec, checked_shape, contiguous_strides, format_value, sound_text
from pyprof.parse.records.parquet.schema import Type
from pyprof.parse.records.records import GpuInfo, Stack

__all__ = ["POOLS", "arguments"]

_STACK_FIELDS = attrgetter(*Stack.__slots__)
_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {"list": list, "tuple": tuple, "slice": lambda values: slice(*values)}
_SCALARS: dict[str, Callable[[Any], Any]] = {
    "bool": "True".__eq__,
    "int": int,
    "float": float,
    "complex": complex,
    "str": str,
    "dtype": DTypeArg,
}
_SINGLE = {"None": None, "Ellipsis": Ellipsis, "unknown": UNKNOWN}


class StoredValue(NamedTuple):
    """One value of a call, in the order of the schema's fields."""

    depth: int
    name: str | None
    type: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    grad: bool | None = None
    value: str | None = None


def _stack_tuple(stack: Stack) -> tuple[Any, ...]:
    return tuple([tuple(map(sound_text, part)) if isinstance(part, tuple) else part for part in _STACK_FIELDS(stack)])


def _stack(fields: tuple[Any, ...]) -> Stack:
    stack = Stack(*fields)
    if not -1 <= stack.backward_at < len(stack.seq_names):
        raise ValueError("no such name with a sequence number")
    return stack


def _gpu_tuple(gpu: GpuInfo) -> tuple[Any, ...]:
    name, cc, *numbers = astuple(gpu)
    return (sound_text(name), *(cc or (None, None)), *numbers)


def _gpu(fields: tuple[Any, ...]) -> GpuInfo:
    name, major, minor, *numbers = fields
    return GpuInfo(name, None if major is None or minor is None else (major, minor), *numbers)


def _call_tuple(call: OpCall) -> tuple[Any, ...]:
    stored = tuple(stored for name, value in _named(call) for stored in _store(value, name, 0))
    return (sound_text(call.module), sound_text(call.op), call.dispatcher, call.flat, call.described, stored)


def _named(call: OpCall) -> list[tuple[str | None, Any]]:
    return [*((None, value) for value in call.args), *call.kwargs]


def _store(value: Any, name: str | None, depth: int) -> Iterator[StoredValue]:
    name = None if name is None else sound_text(name)
    if isinstance(value, TensorSpec):
        yield StoredValue(depth, name, "tensor", value.dtype, value.shape, value.strides, value.grad)
    elif isinstance(value, (list, tuple, slice)):
        yield StoredValue(depth, name, type(value).__name__)
        for item in (value.start, value.stop, value.step) if isinstance(value, slice) else value:
            yield from _store(item, None, depth + 1)
    elif isinstance(value, DTypeArg):
        yield StoredValue(depth, name, "dtype", value=value.dtype)
    elif isinstance(value, (bool, int, float, complex, str)):
        kind = next(kind for kind in (bool, int, float, complex, str) if isinstance(value, kind))
        yield StoredValue(depth, name, kind.__name__, value=sound_text(str(value)))
    else:
        yield StoredValue(depth, name, next((text for text, one in _SINGLE.items() if one is value), "unknown"))


def _call(fields: tuple[Any, ...]) -> OpCall:
    module, op, dispatcher, flat, described, stored = fields
    values = [StoredValue(*value) for value in stored]
    args, kwargs, at = [], [], 0
    while at < len(values):
        name = values[at].name
        value, at = _load(values, at, 0)
        if name is None:
            args.append(value)
        else:
            kwargs.append((name, value))
    return OpCall(module, op, tuple(args), tuple(kwargs), dispatcher, flat, described)


def _load(values: list[StoredValue], at: int, depth: int) -> tuple[Any, int]:
    """The value that begins at a place, and the place behind it."""
    stored = values[at]
    at += 1
    if stored.depth != depth or depth > 64:
        raise ValueError("a value inside of nothing")
    if stored.type in _CONTAINERS:
        items = []
        while at < len(values) and values[at].depth > depth:
            item, at = _load(values, at, depth + 1)
            items.append(item)
        return _CONTAINERS[stored.type](items), at
    if stored.type == "tensor":
        strides = None if stored.strides is None else checked_shape(stored.strides)
        return TensorSpec(checked_shape(stored.shape or ()), stored.dtype, strides, stored.grad), at
    if stored.type in _SCALARS:
        return _SCALARS[stored.type](stored.value), at
    return _SINGLE[stored.type], at


def arguments(call: OpCall) -> list[tuple[Any, ...]]:
    """name, shape, dtype, strides and value of each argument, for people; tensors of a list one by one."""
    return [
        (name, *_described(item))
        for name, value in _named(call)
        for item in (value if isinstance(value, (list, tuple)) and _has_tensor(value) else [value])
    ]


def _described(value: Any) -> tuple[Any, ...]:
    if isinstance(value, TensorSpec):
        strides = None if value.strides == contiguous_strides(value.shape) else value.strides
        return value.shape, value.dtype, strides, None
    return None, None, None, sound_text(format_value(value))


def _has_tensor(values: Iterable[Any]) -> bool:
    return any(isinstance(value, TensorSpec) for value in values)


_STORED_VALUE: dict[str, Type] = {
    "depth": "int32", "name": "text", "type": "text", "dtype": "text", "shape": ["int64"], "strides": ["int64"],
    "grad": "bool", "value": "text",
}  # fmt: skip
_STACK: dict[str, Type] = {
    "mod": ["text"], "op": ["text"], "marker": ["text"], "layer": ["text"], "trace": ["text"], "reprs": ["text"],
    "seq_names": ["text"], "backward_at": "int32", "ranges": ["text"], "open": "bool",
}  # fmt: skip
_CALL: dict[str, Type] = {
    "module": "text", "op": "text", "dispatcher": "bool", "flat": "bool", "described": "bool", "args": [_STORED_VALUE],
}  # fmt: skip
_GPU: dict[str, Type] = {
    "name": "text", "cc_major": "int32", "cc_minor": "int32", "sms": "int64", "clock_hz": "int64",
    "dram_bytes_per_s": "int64", "l2_bytes": "int64",
}  # fmt: skip


class Pool(NamedTuple):
    """How the items of a pool are stored: type of the tuples, and both ways."""

    type: Type
    to_tuple: Callable[[Any], tuple[Any, ...]]
    from_tuple: Callable[[tuple[Any, ...]], Any]


POOLS = {
    "stacks": Pool(_STACK, _stack_tuple, _stack),
    "calls": Pool(_CALL, _call_tuple, _call),
    "gpus": Pool(_GPU, _gpu_tuple, _gpu),
}
