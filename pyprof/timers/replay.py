"""A recorded call -> the same call on this machine: the op looked up in torch, its tensors made with their shapes and strides.

Names and arguments may come from a hostile file. So an op is looked up by getattr from torch only, and only if it has a
formula: no function that loads, saves or runs anything has one. Nothing recorded is ever evaluated as code.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyprof.errors import ToolError, UsageError
from pyprof.memory import free_bytes
from pyprof.model.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec
from pyprof.prof import formulas
from pyprof.timers.timing import torch_for

if TYPE_CHECKING:
    import torch as torch_types

# Arguments that captures often leave out and that do not change the work of an op on a given device.
_NEUTRAL = frozenset({"device", "generator", "layout", "memory_format", "non_blocking", "out", "pin_memory"})
_SCALARS = ("number", "Scalar", "float")  # 1 is used for one that was not recorded: no op's time depends on it
_TORCH_WORDS = ("memory_format", "layout", "dtype")


@dataclass(frozen=True)
class OptimizerStep:
    """A step of an optimizer over parameters of these sizes. name: AdamW or SGD; how: fused, foreach or for-loop."""

    name: str
    how: str
    parameters: tuple[TensorSpec, ...]
    momentum: float = 0.0

    def __str__(self) -> str:
        elements = sum(tensor.numel for tensor in self.parameters)
        return f"torch.optim.{self.name} {self.how}, {len(self.parameters)} parameters of {elements} elements"


Work: TypeAlias = "tuple[OpCall, ...] | OptimizerStep"
"""What is timed together: calls one after another, each with tensors of its own, or a step."""


def replay_work(work: Work, device: str, *, tf32: bool = False) -> Callable[[], object]:
    """A function that repeats calls or a step, see `replay`."""
    if isinstance(work, OptimizerStep):
        return _step(work, device)
    made = [replay(call, device, tf32=tf32) for call in work]

    def in_turn() -> None:
        for one in made:
            one()

    return made[0] if len(made) == 1 else in_turn


def _step(step: OptimizerStep, device: str) -> Callable[[], object]:
    """The step of an optimizer whose parameters have gradients and which has its state, since it was called once."""
    torch = torch_for("running an optimizer")
    _check_memory(
        torch, OpCall("torch.optim", step.name, step.parameters * 2), device
    )  # a gradient and two moments beside each
    ways = {"fused": step.how == "fused", "foreach": step.how == "foreach"}
    momentum = {"momentum": step.momentum} if step.momentum else {}
    maker = _Maker(torch, device, 1, torch.Generator().manual_seed(0))
    try:
        parameters = [maker.tensor(tensor).requires_grad_() for tensor in step.parameters]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        run: Callable[[], object] = getattr(torch.optim, step.name)(parameters, lr=1e-3, **momentum, **ways).step
        run()
    except (RuntimeError, TypeError, ValueError, AttributeError, MemoryError) as error:
        raise ToolError(f"{step} cannot be run here: {_first_line(error)}", "choose another device") from error
    return run


def replay(call: OpCall, device: str, *, tf32: bool = False) -> Callable[[], object]:
    """A function that repeats a call: the op is looked up, its tensors are made, and it was called once with them.

    device: of its tensors; tf32: allow TF32 for products of fp32. Raises UsageError if too little was recorded, ToolError if
    the op or the memory is not available here.
    """
    torch = torch_for("running an op")
    reason = replayable(call)
    if reason:
        raise UsageError(f"{call.name} cannot be run alone: {reason}", "choose another row: python -m pyprof.prof FILE")
    _check_memory(torch, call, device)
    maker = _Maker(torch, device, _bound(call), torch.Generator().manual_seed(0))
    try:
        args = [maker.value(value) for value in call.args]
        kwargs = {name: maker.value(value) for name, value in call.kwargs if not (value is UNKNOWN and name in _NEUTRAL)}
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError, AttributeError) as error:
        raise ToolError(f"{call}: its tensors cannot be made here: {_first_line(error)}", "choose another op") from error
    work = _callable(torch, call, args, kwargs, device)
    return functools.partial(_in_tf32, torch, work) if tf32 else work


def replayable(call: OpCall) -> str:
    """Why a call cannot be repeated, in a few words; empty if it can."""
    if not formulas.named(call.name):
        return "pyprof knows no such op of torch"
    if not call.dispatcher and call.module.split(".")[0] not in ("torch", "Tensor"):
        return "it does not belong to torch"
    if not call.described:
        return "its arguments were not recorded"
    if any(tensor.dtype is None for tensor in call.tensors):
        return "the dtypes of its tensors were not recorded"
    unknown = [value for value in call.args if value is UNKNOWN]
    if unknown and not call.dispatcher:
        return f"{len(unknown)} of its arguments were not recorded"
    if unknown and formulas.evaluate(call).cost.flops is None:  # a convolution's stride: what ran was another problem
        return "arguments on which its work depends were not recorded"
    return ""


def choose_device(wanted: str | None) -> str:
    """`cpu` or `cuda:N`, by default the current GPU if there is one. Raises ToolError if torch has no such device."""
    cuda = torch_for("running an op").cuda
    kind, _, index = (wanted or ("cuda" if cuda.is_available() else "cpu")).partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise UsageError(f"unknown device {wanted!r}", "use cpu, cuda or cuda:N")
    if kind == "cpu":
        return kind
    count = cuda.device_count() if cuda.is_available() else 0
    number = int(index) if index else (cuda.current_device() if count else 0)
    if number >= count:
        raise ToolError(f"{wanted}: torch has {count} GPUs here", "use pyprof bench ... --device cpu")
    return f"cuda:{number}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _span(spec: TensorSpec) -> int:
    """Elements of memory from the first to the last that the tensor's strides reach."""
    if spec.strides is None:
        return spec.numel
    if not spec.numel:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(spec.shape, spec.strides, strict=True))


def _check_memory(torch: ModuleType, call: OpCall, device: str) -> None:
    """Refuse a call that would not fit (outputs assumed as large as its inputs): out of memory, other programs are killed."""
    needed = 2 * sum(int(_span(tensor) * (tensor.itemsize or 0)) for tensor in call.tensors)
    if device.startswith("cuda"):
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = free_bytes()
    if free is not None and needed > free * 0.8:
        raise ToolError(
            f"{call.op}: needs about {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free on {device}",
            "choose a smaller op, or another --device",
        )


def _bound(call: OpCall) -> int:
    """Integers below this are valid indices into everything that the call may index."""
    floats = [tensor for tensor in call.tensors if tensor.dtype and not _is_integer(tensor.dtype) and tensor.shape]
    if "embedding" in call.op:
        return max((tensor.shape[0] for tensor in floats), default=1)
    if "cross_entropy" in call.op or "nll_loss" in call.op:
        return next((tensor.shape[1] if len(tensor.shape) > 1 else tensor.shape[0] for tensor in floats), 1)
    sizes = [size for tensor in floats or call.tensors for size in tensor.shape]
    return max(min(sizes, default=1), 1)


def _is_integer(dtype: str) -> bool:
    return dtype.lstrip("q").startswith(("int", "uint", "bool"))


class _Maker(NamedTuple):
    """Makes arguments for torch. bound: integers are made below it; generator: of the random values."""

    torch: ModuleType
    device: str
    bound: int
    generator: torch_types.Generator

    def value(self, value: Any) -> Any:
        """A recorded argument as torch takes it."""
        if isinstance(value, TensorSpec):
            return self.tensor(value)
        if isinstance(value, DTypeArg):
            return getattr(self.torch, value.dtype)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.value, value))
        if isinstance(value, str) and value.startswith("torch."):
            word = getattr(self.torch, value[len("torch.") :], None)
            if isinstance(word, tuple(getattr(self.torch, name) for name in _TORCH_WORDS)):
                return word
        return value

    def tensor(self, spec: TensorSpec) -> torch_types.Tensor:
        """A tensor with random contents, floats from 0 to 1."""
        torch, name, count = self.torch, spec.dtype or "", _span(spec)
        dtype = getattr(torch, name)
        if dtype == torch.bool:
            flat = torch.rand(count, generator=self.generator) > 0.5
        elif _is_integer(name):
            high = min(self.bound, torch.iinfo(dtype).max)
            flat = torch.randint(1 if high > 1 else 0, max(high, 1), (count,), generator=self.generator)
        else:
            flat = torch.rand(count, generator=self.generator)
        flat = flat.to(dtype).to(self.device)
        return flat.view(spec.shape) if spec.strides is None else torch.as_strided(flat, spec.shape, spec.strides)


Args: TypeAlias = list[object]
Kwargs: TypeAlias = dict[str, object]


def _callable(torch: ModuleType, call: OpCall, args: Args, kwargs: Kwargs, device: str) -> Callable[[], object]:
    """The call as a function, after one successful try. Raises ToolError if no form of the op takes the arguments."""
    inner = ""
    if call.dispatcher:
        forms = _overloads(torch, call, args, kwargs)
    else:
        path = f"{call.module}.{call.op}".removeprefix("torch.").split(".")  # torch.nn.functional.linear, Tensor.add_
        forms = [functools.partial(_attribute(torch, path, call.name), *args, **kwargs)]
    own_device = None if call.tensors else torch.device(device)  # where a call without tensors makes its own
    for form in forms:

        def work(form: Callable[[], object] = form) -> object:
            with torch.no_grad(), contextlib.nullcontext() if own_device is None else own_device:
                return form()

        try:
            work()
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, MemoryError) as error:
            inner = inner or _first_line(error)
            continue
        return work
    lacking = any(value is UNKNOWN for value in call.args)
    inner = inner or ("arguments that it needs were not recorded" if lacking else "its arguments fit none of its forms")
    raise ToolError(f"{call.name} cannot be run here: {inner}", "choose another op")


def _in_tf32(torch: ModuleType, work: Callable[[], object]) -> object:
    owners = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [owner.allow_tf32 for owner in owners]
    try:
        for owner in owners:
            owner.allow_tf32 = True
        return work()
    finally:
        for owner, allowed in zip(owners, before, strict=True):
            owner.allow_tf32 = allowed


def _attribute(owner: object, path: list[str], name: str) -> Any:
    for part in path:
        owner = getattr(owner, part, None) if part.isidentifier() else None
    if owner is None or not callable(owner):
        raise ToolError(f"this torch has no {name}", "the capture may be of another release")
    return owner


def _overloads(torch: ModuleType, call: OpCall, args: Args, kwargs: Kwargs) -> list[functools.partial[object]]:
    """The forms of a dispatcher's op that may take these arguments, most likely first.

    A trace records all arguments of the schema in order, including keyword-only ones.
    """
    packet = _attribute(torch.ops, [call.module, call.op.partition(".")[0]], call.name)
    found = []
    for overload in (getattr(packet, name) for name in packet.overloads()):
        schema = overload._schema.arguments
        if (bound := _bind(schema, args, kwargs)) is not None:
            found.append((len(schema) != len(args), functools.partial(overload, *bound[0], **bound[1])))
    return [form for _, form in sorted(found, key=itemgetter(0))]


def _bind(schema: Sequence[torch_types.Argument], args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs] | None:
    """Positional and named arguments; None if there are too many, or if one without a default was not recorded."""
    if len(args) > len(schema) or not all(map(_fits, schema, args)):
        return None
    positional: Args = []
    named = dict(kwargs)
    by_name = False
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


def _fits(argument: torch_types.Argument, value: object) -> bool:
    """Whether tensors and lists are where the schema has them; torch checks the rest better."""
    kind = str(argument.type)
    if isinstance(value, (list, tuple)):
        return "List" in kind
    return hasattr(value, "stride") == ("Tensor" in kind and "List" not in kind) or value is None or value is UNKNOWN
