"""The list of targets -> torch's attributes replaced, and put back exactly as they were.

For every replaced attribute the previous entry of its owner's own `vars()` is kept (none where it was inherited), so that
undoing leaves them identical. Knows nothing of what a wrapper does.

Custom ops, of extensions and torch.library, are no functions to be patched: calls of `torch.ops.NAMESPACE.op` are. Ops of
torch's own namespaces are left alone: torch itself calls them all the time, and users call them by other names.
"""

from __future__ import annotations

import ctypes
import gc
import types
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch

from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.standin import StandIn
from pyprof.nvtx.state import STATE, State
from pyprof.nvtx.targets import COLLECTIVES, FUNCTIONAL, NAMESPACES, PYTHON, RENAMED
from pyprof.nvtx.traceback import Function, hide
from pyprof.nvtx.wrapper import OpName, make_wrapper

_FUNCTIONS: Any = torch._C._VariableFunctionsClass
_C_TYPES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_MISSING = object()
_MARK = "_pyprof_original"


def is_wrapper(value: object) -> bool:
    """Whether a callable is one that we made."""
    return type(value) is StandIn or (isinstance(value, types.FunctionType) and _MARK in value.__dict__)


def find_owner(path: str) -> Any:
    """The module or class at a dotted path; None if this torch does not have it."""
    parts = path.split(".")
    try:
        owner: Any = import_module(parts[0])
        for name in parts[1:]:
            owner = getattr(owner, name) if hasattr(owner, name) else import_module(f"{owner.__name__}.{name}")
    except (ImportError, AttributeError):
        return None
    return owner


_stand_ins: dict[int, StandIn] = {}  # by id of the original; kept for ever, since the user's graphs and tables may hold them


def stand_in(orig: Function, name: OpName, home: type | None = None) -> StandIn:
    """The stand-in of a function: always the same one, by whatever name the function is reached."""
    known = _stand_ins.get(id(orig))
    if known is None:
        wrapper = make_wrapper(orig, name)
        vars(wrapper)["_torchdynamo_inline"] = orig  # where torch.compile sees past the stand-in, it traces the original
        known = _stand_ins[id(orig)] = StandIn(wrapper, orig, home)
    return known


def _own_dict(owner: object) -> dict[str, object] | None:
    """The dictionary of a class written in C, which setattr refuses to change; None for any other owner."""
    if owner is not _FUNCTIONS:
        return None
    found = gc.get_referents(owner.__dict__)  # a mappingproxy refers only to its dictionary
    return found[0] if len(found) == 1 and isinstance(found[0], dict) else None


def _set(owner: object, name: str, value: object) -> None:
    """Set an attribute, or delete it where the value is _MISSING."""
    inner = _own_dict(owner)
    if inner is not None:
        inner[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
    elif value is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


class Patches:
    """Replaced attributes, in order; `undo` restores them."""

    def __init__(self) -> None:
        self._done: list[tuple[object, str, object, object]] = []
        self._at_undo: list[Callable[[], object]] = []

    def __len__(self) -> int:
        return len(self._done)

    def replace(self, owner: object, name: str, new: object) -> None:
        """Set an attribute, and keep what the owner itself held under that name."""
        self._done.append((owner, name, vars(owner).get(name, _MISSING), new))
        _set(owner, name, new)

    def at_undo(self, action: Callable[[], object]) -> None:
        """Have `action` called once all attributes are restored."""
        self._at_undo.append(action)

    def wrap(self, owner: object, name: str, wrapper: Function) -> None:
        """Replace a function written in Python by its wrapper, dressed as the function."""
        orig = getattr(owner, name)
        dress(wrapper, orig)
        self.replace(owner, name, wrapper)

    def undo(self) -> None:
        """Restore all attributes, but those that someone else has replaced since: what we put there is passive by now."""
        while self._done:
            owner, name, before, new = self._done.pop()
            if vars(owner).get(name, _MISSING) is new:
                _set(owner, name, before)
        while self._at_undo:
            self._at_undo.pop()()


def dress(wrapper: Function, orig: Function, place: tuple[str, str] | None = None) -> None:
    """Give a wrapper the name, module and documentation of the original.

    place: module and qualified name under which pickle finds the wrapper, by default those of the original.
    `inspect.signature` follows `__wrapped__` to the original; torch.compile traces the original in its place.
    """
    wrapper.__module__, wrapper.__qualname__ = place or (orig.__module__, orig.__qualname__)
    wrapper.__name__ = getattr(orig, "__name__", wrapper.__qualname__.rpartition(".")[2])
    wrapper.__doc__ = orig.__doc__
    vars(wrapper).update(__wrapped__=orig, _torchdynamo_inline=orig, **{_MARK: orig})


def _arguments(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def op_name(module: str, op: str) -> OpName:
    """The name and argument names under which users know a function."""
    if (module, op) not in RENAMED:
        return OpName(module, op)
    name, arguments = RENAMED[module, op]
    return OpName(FUNCTIONAL, name, _arguments(arguments))


def targets() -> Iterator[tuple[Any, str, Function, OpName]]:
    """(owner, attribute, original, name) of everything to patch."""
    for space in NAMESPACES:
        owner = find_owner(space.where)
        if owner is None or (owner is _FUNCTIONS and _own_dict(owner) is None):
            continue
        for name in filter(space.has, dir(owner)):
            orig: Any = getattr(owner, name, None)
            if type(orig) in _C_TYPES:
                yield owner, name, orig, op_name(space.module, name)
    for where, name, module in PYTHON:
        owner = find_owner(where)
        orig = getattr(owner, name, None)
        if isinstance(orig, types.FunctionType):
            yield owner, name, orig, OpName(module, name)


hide_from_compiler(*(part for part in vars(StandIn).values() if isinstance(part, types.FunctionType)))


def patch_ops(patches: Patches) -> None:
    """Replace all targets by stand-ins."""
    from torch.utils import _device

    # Torch builds the tables whose keys are its own functions before these are replaced: functions of torch reach
    # `__torch_function__` as the originals even when patched, so tables of wrappers would never match.
    table: dict[int, str] = torch.jit._builtins._get_builtin_table()
    _device._device_constructors()
    torch.overrides.get_default_nowrap_functions()
    found = list(targets())  # all originals are looked up before the first is replaced
    for owner, attribute, orig, name in found:
        patches.replace(owner, attribute, stand_in(orig, name, owner if owner is torch.Tensor else None))
    for original, known in _stand_ins.items():
        if original in table:  # torch.jit.script treats the stand-in as its original builtin
            table[id(known)] = table[original]


def patch_collectives(patches: Patches) -> None:
    """Replace the methods of process groups that torch.distributed's functions call."""
    group = find_owner("torch._C._distributed_c10d.ProcessGroup")
    for name, (op, arguments) in COLLECTIVES.items():
        orig = getattr(group, name, None)
        if orig is not None:
            new = make_wrapper(orig, OpName("torch.distributed", op, _arguments(arguments)))
            dress(new, orig, (group.__module__, f"ProcessGroup.{name}"))
            patches.replace(group, name, new)


_OWN = frozenset("aten prim prims profiler inductor c10d _dtensor fsdp higher_order rngprims".split())

# By id of the op, which is kept beside its wrapper so that no other object gets this id; None for an op of torch's own.
_wrappers: dict[int, tuple[object, Function | None]] = {}


def _wrapper(op: torch._ops.OpOverloadPacket | torch._ops.OpOverload, orig: Function) -> Function | None:
    """The wrapper of an op or of one overload, made at its first call."""
    known = _wrappers.get(id(op))
    if known is None:
        qualified = getattr(op, "_qualified_op_name", "") or op.name()
        namespace, _, name = qualified.partition("::")
        name = OpName(f"torch.ops.{namespace}", name.partition(".")[0])
        wrapper = None if namespace in _OWN else make_wrapper(partial(orig, op), name, depth=2)
        known = _wrappers[id(op)] = (op, wrapper)
    return known[1]


def _make_call(orig: Function) -> Function:
    state: State = STATE

    def __call__(self: object, /, *args: object, **kwargs: object) -> object:
        try:
            wrapper = _wrapper(self, orig) if state.on else None
            return orig(self, *args, **kwargs) if wrapper is None else wrapper(*args, **kwargs)
        except BaseException as error:
            hide(error, 1)
            raise

    pass_through_compiler(__call__)
    return __call__


def patch_custom_ops(patches: Patches) -> None:
    """Replace the call of ops and of overloads."""
    for cls in (torch._ops.OpOverloadPacket, torch._ops.OpOverload):
        patches.wrap(cls, "__call__", _make_call(cls.__call__))


hide_from_compiler(_wrapper)
