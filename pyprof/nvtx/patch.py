"""The list of targets -> torch's attributes replaced, and put back exactly as they were.

Every replaced attribute is noted with what its owner held itself before (nothing, where it was inherited), so that undoing
leaves each `vars()` entry identical. Knows nothing of what a wrapper does.
"""

from __future__ import annotations

import ctypes
import gc
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch

from pyprof.nvtx.compiling import hide_from_compiler
from pyprof.nvtx.standin import StandIn
from pyprof.nvtx.targets import COLLECTIVES, NAMESPACES, PYTHON, RENAMED
from pyprof.nvtx.wrapper import Told, make_wrapper

__all__ = ["Patches", "dress", "find_owner", "is_wrapper", "patch_collectives", "patch_ops", "targets"]

_FUNCTIONS: Any = torch._C._VariableFunctionsClass
_C_TYPES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_MISSING: Any = object()
_MARK = "_pyprof_original"


def is_wrapper(value: Any) -> bool:
    """Whether a callable is one of ours."""
    return type(value) is StandIn or (isinstance(value, types.FunctionType) and _MARK in value.__dict__)


def find_owner(path: str) -> Any:
    """The module or class at a dotted path, or None where this torch has none."""
    parts = path.split(".")
    try:
        owner: Any = import_module(parts[0])
        for name in parts[1:]:
            owner = getattr(owner, name) if hasattr(owner, name) else import_module(f"{owner.__name__}.{name}")
    except (ImportError, AttributeError):
        return None
    return owner


_stand_ins: dict[int, StandIn] = {}  # by id of the original; kept for good, since graphs and tables of the user's may hold them


def stand_in(orig: Callable[..., Any], told: Told, home: type | None = None) -> StandIn:
    """The stand-in of a function: always the same one for the same function, however it is reached."""
    known = _stand_ins.get(id(orig))
    if known is None:
        wrapper = make_wrapper(orig, told)
        vars(wrapper)["_torchdynamo_inline"] = orig  # where torch.compile sees past the stand-in, it traces the original
        known = _stand_ins[id(orig)] = StandIn(wrapper, orig, home)
    return known


def _own_dict(owner: Any) -> dict[str, Any] | None:
    """The dictionary of a class written in C, which setattr refuses to change; None for any other owner."""
    if owner is not _FUNCTIONS:
        return None
    found = gc.get_referents(owner.__dict__)  # a mappingproxy refers to nothing but what it shows
    return found[0] if len(found) == 1 and isinstance(found[0], dict) else None


def _set(owner: Any, name: str, value: Any) -> None:
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
    """What was replaced, in order; `undo` puts all of it back."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []
        self._at_undo: list[Callable[[], Any]] = []

    def __len__(self) -> int:
        return len(self._done)

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Set an attribute, noting what the owner itself held under that name."""
        self._done.append((owner, name, vars(owner).get(name, _MISSING), new))
        _set(owner, name, new)

    def replaced(self) -> list[Any]:
        """Everything that was put in the place of something."""
        return [new for _, _, _, new in self._done]

    def at_undo(self, action: Callable[[], Any]) -> None:
        """Call this when everything is put back."""
        self._at_undo.append(action)

    def undo(self) -> None:
        """Put everything back. What someone else has replaced since is left to them; ours is passive by then."""
        while self._done:
            owner, name, before, new = self._done.pop()
            if vars(owner).get(name, _MISSING) is new:
                _set(owner, name, before)
        while self._at_undo:
            self._at_undo.pop()()


def _jit_table() -> dict[int, str]:
    found: dict[int, str] = torch.jit._builtins._get_builtin_table()
    return found


def dress(wrapper: Callable[..., Any], orig: Callable[..., Any], place: tuple[str, str]) -> None:
    """Give a wrapper the name, home and documentation of what it stands for.

    place: module and qualified name under which pickle finds the wrapper. `inspect.signature` follows `__wrapped__` and so says
    of the wrapper what it says of the original; torch.compile traces the original in its place.
    """
    wrapper.__name__ = getattr(orig, "__name__", place[1].rpartition(".")[2])
    wrapper.__module__, wrapper.__qualname__ = place
    wrapper.__doc__ = orig.__doc__
    vars(wrapper).update(__wrapped__=orig, _torchdynamo_inline=orig, **{_MARK: orig})


def _warm_tables() -> None:
    """Let torch build the tables that are keyed by its own functions while these are still the originals.

    Functions of torch reach `__torch_function__` as the originals even when patched, so tables of wrappers would never match.
    """
    from torch.utils import _device

    _jit_table()
    _device._device_constructors()
    torch.overrides.get_default_nowrap_functions()


def told_as(module: str, op: str) -> Told:
    """How a function is told: under the name and with the argument names that users know."""
    renamed = RENAMED.get((module, op))
    if renamed is None:
        return Told(module, op)
    names = tuple(part.strip() for part in renamed[2].split(",")) if renamed[2] else ()
    return Told(renamed[0], renamed[1], names)


def targets() -> Iterator[tuple[Any, str, Any, Told]]:
    """(owner, attribute, original, told) of everything to patch."""
    for space in NAMESPACES:
        owner = find_owner(space.where)
        if owner is None or (owner is _FUNCTIONS and _own_dict(owner) is None):
            continue
        for name in dir(owner):
            if not space.has(name):
                continue
            orig = getattr(owner, name, None)
            if type(orig) in _C_TYPES:
                yield owner, name, orig, told_as(space.told, name)
    for where, name, told in PYTHON:
        owner = find_owner(where)
        orig = getattr(owner, name, None)
        if isinstance(orig, types.FunctionType):
            yield owner, name, orig, Told(told, name)


def _register_jit() -> None:
    """Let torch.jit.script know each stand-in as the builtin that it stands for."""
    table = _jit_table()
    for original, known in _stand_ins.items():
        if original in table:
            table[id(known)] = table[original]


hide_from_compiler(*(part for part in vars(StandIn).values() if isinstance(part, types.FunctionType)))


def patch_ops(patches: Patches) -> None:
    """Replace all targets by stand-ins."""
    _warm_tables()
    found = list(targets())  # all originals are looked up before the first is replaced
    for owner, name, orig, told in found:
        method = owner is torch.Tensor
        new = stand_in(orig, told, owner if method else None)
        patches.replace(owner, name, new)
    _register_jit()


def patch_collectives(patches: Patches) -> None:
    """Replace the methods of process groups that torch.distributed's functions call."""
    group = find_owner("torch._C._distributed_c10d.ProcessGroup")
    for name, (op, names) in COLLECTIVES.items():
        orig = getattr(group, name, None)
        if orig is not None:
            new = make_wrapper(orig, Told("torch.distributed", op, tuple(part.strip() for part in names.split(","))))
            dress(new, orig, (group.__module__, f"ProcessGroup.{name}"))
            patches.replace(group, name, new)
