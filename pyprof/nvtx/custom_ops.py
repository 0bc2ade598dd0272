"""Calls of `torch.ops.NAMESPACE.op` -> ranges: custom ops, of extensions and torch.library, are no functions to be patched.

Ops of torch's own namespaces are left alone: torch itself calls them all the time, and users call them by other names.
"""

from __future__ import annotations

from functools import partial

import torch

from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.patch import Patches
from pyprof.nvtx.state import STATE, State
from pyprof.nvtx.traceback import Function, hide
from pyprof.nvtx.wrapper import OpName, make_wrapper

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
