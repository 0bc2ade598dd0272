"""Runs torch and records what it did as OpCalls: the oracle against which the formulas are held."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pyprof.model.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec


def describe(value: Any) -> Any:
    """A live argument as a formula receives it."""
    if isinstance(value, torch.Tensor):
        strides = tuple(value.stride()) if value.layout == torch.strided else None
        return TensorSpec(
            tuple(value.shape), str(value.dtype).removeprefix("torch."), strides, True if value.requires_grad else None
        )
    if isinstance(value, torch.dtype):
        return DTypeArg(str(value).removeprefix("torch."))
    if isinstance(value, (list, tuple)):
        described = [describe(v) for v in value]
        return described if isinstance(value, list) else tuple(described)
    if value is None or isinstance(value, (bool, int, float, complex, str, slice)) or value is Ellipsis:
        return value
    return UNKNOWN


class Dispatched(TorchDispatchMode):
    """Every op of the dispatcher that ran, with its arguments in the order of its schema, and what it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[OpCall] = []
        self.results: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        namespace, _, name = func._schema.name.partition("::")
        values = list(args)
        rest = func._schema.arguments[len(args) :]
        values += [kwargs[a.name] if a.name in kwargs else a.default_value for a in rest]
        self.calls.append(OpCall(namespace, name, tuple(describe(v) for v in values), dispatcher=True))
        self.results.append(result)
        return result


class Called(TorchFunctionMode):
    """Every Python-level call of torch, as the instrumenter tells it, and what it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[OpCall] = []
        self.results: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = resolve_name(func) or ""
        module, _, op = name.removeprefix("torch.").rpartition(".")
        module = {"": "torch", "Tensor": "Tensor", "_VF": "torch"}.get(module, f"torch.{module}")
        call = OpCall(module, op, tuple(describe(a) for a in args), tuple((k, describe(v)) for k, v in kwargs.items()))
        result = func(*args, **kwargs)
        self.calls.append(call)
        self.results.append(result)
        return result


def dispatched(function: Callable[[], Any]) -> Dispatched:
    """What the dispatcher ran in one call of the function."""
    with Dispatched() as mode:
        function()
    return mode


def call(name: str, *args: Any, flat: bool = False, **kwargs: Any) -> OpCall:
    """An OpCall of a full name: `call("torch.mm", a, b)`, `call("aten::mm", a, b)`."""
    dispatcher = "::" in name
    module, op = name.split("::") if dispatcher else name.rsplit(".", 1)
    return OpCall(module, op, args, tuple(kwargs.items()), dispatcher=dispatcher, flat=flat)


def t(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None, grad: bool | None = None) -> TensorSpec:
    return TensorSpec(shape, dtype, strides, grad)


def stored(tensor: torch.Tensor) -> int:
    """Bytes of the cells of storage that a tensor's elements lie in, each counted once."""
    if tensor.is_contiguous():
        return tensor.numel() * tensor.element_size()
    cells = torch.zeros(1, dtype=torch.int64)
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        if size > 1:
            cells = (cells[:, None] + torch.arange(size) * step).reshape(-1) if step else cells
    return torch.unique(cells).numel() * tensor.element_size()


@dataclass(frozen=True)
class Touch:
    """What one op of the dispatcher could have touched: bytes read by argument name, bytes written by argument and in all."""

    name: str
    call: OpCall
    read: dict[str, int]
    changed: dict[str, int]
    made: int


class Touched(TorchDispatchMode):
    """Every op of the dispatcher that ran on real strided tensors, with the bytes of storage of its arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.touches: list[Touch] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        namespace, _, name = schema.name.partition("::")
        values = list(args)
        values += [kwargs[a.name] if a.name in kwargs else a.default_value for a in schema.arguments[len(args) :]]
        read: dict[str, int] = {}
        changed: dict[str, int] = {}
        owners: set[int] = set()
        for argument, value in zip(schema.arguments, values, strict=True):
            tensors = [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]
            if any(x.layout != torch.strided for x in tensors):
                return func(*args, **kwargs)  # sparse: how much is stored is data
            owners |= {x.untyped_storage().data_ptr() for x in tensors}
            size = sum(map(stored, tensors))
            if not argument.is_out:
                read[argument.name] = size
            if argument.alias_info is not None and argument.alias_info.is_write:
                changed[argument.name] = size
        call = OpCall(namespace, name, tuple(describe(v) for v in values), dispatcher=True)
        result = func(*args, **kwargs)
        results = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.layout == torch.strided]
        made = sum(stored(x) for x in results if x.untyped_storage().data_ptr() not in owners)
        self.touches.append(Touch(name, call, read, changed, made))
        return result
