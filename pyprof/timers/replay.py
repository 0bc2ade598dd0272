"""A recorded call -> the same call on this machine: the op looked up in torch, its tensors made with their shapes and strides.

Names and arguments come from a file that anybody may have written. So an op is found by getattr from torch alone, and only
where a formula knows it: no function that loads, saves or runs anything has one. Nothing recorded is ever evaluated as code.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyprof.errors import ToolError, UsageError
from pyprof.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec
from pyprof.prof import formulas

__all__ = ["Replay", "choose_device", "replayable"]

# What a capture often leaves out, and what does not change the work of an op where its device is given.
_NEUTRAL = frozenset({"device", "generator", "layout", "memory_format", "non_blocking", "out", "pin_memory"})
_SCALARS = ("number", "Scalar", "float")  # one that was not recorded is taken as 1: no op's time depends on it
_TORCH_WORDS = ("memory_format", "layout", "dtype")


@dataclass(frozen=True)
class Replay:
    """A call that can be made: work() makes it; call: what it is; device: where its tensors lie."""

    call: OpCall
    device: str
    work: Callable[[], Any]

    @staticmethod
    def of(call: OpCall, device: str, *, tf32: bool = False, seed: int = 0) -> Replay:
        """Look the op up, make its tensors, and call it once. tf32: let products of fp32 be made in TF32.

        Raises UsageError where the record does not tell enough, ToolError where the op or the memory is not to be had here.
        """
        torch = _torch()
        reason = replayable(call)
        if reason:
            raise UsageError(f"{call.name} cannot be run alone: {reason}", "choose another row: python -m pyprof.prof FILE")
        _check_memory(torch, call, device)
        generator = torch.Generator().manual_seed(seed)
        make = functools.partial(_value, torch=torch, device=device, bound=_bound(call), generator=generator)
        try:
            args = [make(value) for value in call.args]
            kwargs = {name: make(value) for name, value in call.kwargs if not (value is UNKNOWN and name in _NEUTRAL)}
        except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError, AttributeError) as error:
            raise ToolError(f"{call}: its tensors cannot be made here: {_first_line(error)}", "choose another op") from error
        work = _callable(torch, call, args, kwargs, device)
        return Replay(call, device, functools.partial(_in_tf32, torch, work) if tf32 else work)


def replayable(call: OpCall) -> str:
    """Why a call cannot be made again, in a few words; empty where it can."""
    if not formulas.known(call.name):
        return "it is no op of torch that pyprof knows"
    if not call.dispatcher and call.module.split(".")[0] not in ("torch", "Tensor"):
        return "it is not torch's own"
    if not call.described:
        return "its arguments were not recorded"
    if any(tensor.dtype is None for tensor in call.tensors):
        return "the types of its tensors were not recorded"
    unknown = [value for value in call.args if value is UNKNOWN]
    if unknown and not call.dispatcher:
        return f"{len(unknown)} of its arguments were not recorded"
    return ""


def choose_device(wanted: str | None) -> str:
    """`cpu` or `cuda:N` as wanted, by default the current GPU where there is one. Raises ToolError where it is not there."""
    cuda = _torch().cuda
    kind, _, index = (wanted or ("cuda" if cuda.is_available() else "cpu")).partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise UsageError(f"there is no device {wanted!r}", "cpu, cuda or cuda:N")
    if kind == "cpu":
        return kind
    count = cuda.device_count() if cuda.is_available() else 0
    number = int(index) if index else (cuda.current_device() if count else 0)
    if number >= count:
        raise ToolError(f"{wanted}: torch has {count} GPUs here", "pyprof bench ... --device cpu")
    return f"cuda:{number}"


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ToolError("running an op needs torch, which is not installed", "pip install torch") from error
    return torch


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# ---------------------------------------------------------------------------------------------- tensors


def _span(spec: TensorSpec) -> int:
    """Elements from the first to the last that the tensor's strides reach."""
    if spec.strides is None:
        return spec.numel
    if not spec.numel:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(spec.shape, spec.strides, strict=True))


def _check_memory(torch: Any, call: OpCall, device: str) -> None:
    """Refuse what does not fit, outputs guessed to be as large as the inputs: a machine out of memory ends other programs."""
    needed = 2 * sum(int(_span(tensor) * (tensor.itemsize or 0)) for tensor in call.tensors)
    if device.startswith("cuda"):
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = _available_bytes()
    if free is not None and needed > free * 0.8:
        raise ToolError(
            f"{call.op}: it needs about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free on {device}",
            "choose a smaller op, or another --device",
        )


def _available_bytes(path: str = "/proc/meminfo") -> int | None:
    try:
        with open(path) as stream:
            for line in stream:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _bound(call: OpCall) -> int:
    """Integers below this are valid indices of whatever the call may index with them."""
    floats = [tensor for tensor in call.tensors if tensor.dtype and not _is_integer(tensor.dtype) and tensor.shape]
    if "embedding" in call.op:
        return max((tensor.shape[0] for tensor in floats), default=1)
    if "cross_entropy" in call.op or "nll_loss" in call.op:
        return next((tensor.shape[1] if len(tensor.shape) > 1 else tensor.shape[0] for tensor in floats), 1)
    sizes = [size for tensor in floats or call.tensors for size in tensor.shape]
    return max(min(sizes, default=1), 1)


def _is_integer(dtype: str) -> bool:
    return dtype.lstrip("q").startswith(("int", "uint", "bool"))


def _value(value: Any, *, torch: Any, device: str, bound: int, generator: Any) -> Any:
    """A recorded argument as torch takes it."""
    again = functools.partial(_value, torch=torch, device=device, bound=bound, generator=generator)
    if isinstance(value, TensorSpec):
        return _tensor(torch, value, device, bound, generator)
    if isinstance(value, DTypeArg):
        return getattr(torch, value.dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(again(item) for item in value)
    if isinstance(value, str) and value.startswith("torch."):
        word = getattr(torch, value[len("torch.") :], None)
        if isinstance(word, tuple(getattr(torch, name) for name in _TORCH_WORDS)):
            return word
    return value


def _tensor(torch: Any, spec: TensorSpec, device: str, bound: int, generator: Any) -> Any:
    dtype, count = getattr(torch, spec.dtype or ""), _span(spec)
    if dtype == torch.bool:
        flat = torch.rand(count, generator=generator) > 0.5
    elif _is_integer(spec.dtype or ""):
        high = min(bound, torch.iinfo(dtype).max)
        flat = torch.randint(1 if high > 1 else 0, max(high, 1), (count,), generator=generator)
    else:
        flat = torch.rand(count, generator=generator)
    flat = flat.to(dtype).to(device)
    return flat.view(spec.shape) if spec.strides is None else torch.as_strided(flat, spec.shape, spec.strides)


# ---------------------------------------------------------------------------------------------- functions


def _callable(torch: Any, call: OpCall, args: list[Any], kwargs: dict[str, Any], device: str) -> Callable[[], Any]:
    """The call, tried once."""
    inner = ""
    bindings = _overloads(torch, call, args, kwargs) if call.dispatcher else [(_function(torch, call), args, kwargs)]
    for function, positional, named in bindings:
        work = functools.partial(_run, torch, function, positional, named, None if call.tensors else torch.device(device))
        try:
            work()
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, MemoryError) as error:
            inner = inner or _first_line(error)
            continue
        return work
    lacking = any(value is UNKNOWN for value in call.args)
    inner = inner or ("arguments that it needs were not recorded" if lacking else "its arguments fit none of its forms")
    raise ToolError(f"{call.name} cannot be run here: {inner}", "choose another op")


def _run(torch: Any, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], device: Any) -> Any:
    with torch.no_grad():
        if device is None:
            return function(*args, **kwargs)
        with device:  # a call without tensors is told by this where to make its own
            return function(*args, **kwargs)


def _in_tf32(torch: Any, work: Callable[[], Any]) -> Any:
    owners = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [owner.allow_tf32 for owner in owners]
    try:
        for owner in owners:
            owner.allow_tf32 = True
        return work()
    finally:
        for owner, allowed in zip(owners, before, strict=True):
            owner.allow_tf32 = allowed


def _attribute(owner: Any, path: list[str], name: str) -> Any:
    for part in path:
        owner = getattr(owner, part, None) if part.isidentifier() else None
    if owner is None or not callable(owner):
        raise ToolError(f"this torch has no {name}", "the capture may be of another release")
    return owner


def _function(torch: Any, call: OpCall) -> Any:
    """`torch.nn.functional.linear`, `Tensor.add_`: what users call."""
    return _attribute(torch, f"{call.module}.{call.op}".removeprefix("torch.").split("."), call.name)


def _overloads(
    torch: Any, call: OpCall, args: list[Any], kwargs: dict[str, Any]
) -> list[tuple[Any, list[Any], dict[str, Any]]]:
    """Every form of a dispatcher's op that these arguments may be of, likeliest first, with the arguments as it takes them.

    A trace tells all arguments of the schema in order, those that only go by name too.
    """
    packet = _attribute(torch.ops, [call.module, call.op.partition(".")[0]], call.name)
    found = []
    for name in packet.overloads():
        overload = getattr(packet, name)
        schema = overload._schema.arguments
        bound = _bind(schema, args, kwargs)
        if bound is not None:
            found.append((len(schema) != len(args), overload, *bound))
    return [(entry[1], entry[2], entry[3]) for entry in sorted(found, key=lambda entry: entry[0])]


def _bind(schema: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """Positional and named arguments; None where there are too many, or one without a default was not recorded."""
    if len(args) > len(schema):
        return None
    positional: list[Any] = []
    named = dict(kwargs)
    by_name = False
    if not all(_fits(argument, value) for argument, value in zip(schema, args, strict=False)):
        return None
    for argument, value in zip(schema, [*args, *[UNKNOWN] * (len(schema) - len(args))], strict=True):
        by_name = by_name or argument.kwarg_only or value is UNKNOWN
        if value is UNKNOWN:
            if argument.name not in kwargs and not argument.has_default_value():
                if str(argument.type) not in _SCALARS:
                    return None
                named[argument.name] = 1
        elif by_name:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


def _fits(argument: Any, value: Any) -> bool:
    """Whether a tensor stands where one is taken, and a list where a list is; the rest torch tells better."""
    kind = str(argument.type)
    if isinstance(value, (list, tuple)):
        return "List" in kind
    return hasattr(value, "stride") == ("Tensor" in kind and "List" not in kind) or value is None or value is UNKNOWN
