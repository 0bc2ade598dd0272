"""An optimizer's step -> a range that tells the optimizer's class. Classes made later are found when one is first used."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from pyprof.markers import encode_optimizer
from pyprof.nvtx.callsite import note_anchor
from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.patch import Patches, dress, is_wrapper
from pyprof.nvtx.state import STATE, State
from pyprof.nvtx.traceback import hide

__all__ = ["classes", "patch_optimizers"]


def _handle(name: str) -> Any:
    registry = STATE.registry
    try:
        return None if registry is None else registry.find(encode_optimizer(name), reserve=True)
    except Exception as error:
        STATE.trouble(error, f"a step of {name}")
        return None


hide_from_compiler(_handle)


def make_step(orig: Callable[..., Any]) -> Callable[..., Any]:
    """An optimizer's `step` with a range around it; a step called by a subclass's own step opens none."""
    state: State = STATE
    local = state.local

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = state.on and getattr(local, "optimizer", None) is not self
        handle = _handle(type(self).__name__) if told else None
        pop = state.pop
        if handle is not None:
            local.optimizer = self
            state.push(handle)
        try:
            return orig(self, *args, **kwargs)
        except BaseException as error:
            hide(error, 1)
            raise
        finally:
            if handle is not None:
                pop()
                local.optimizer = local.anchor = None  # see `note_anchor`

    pass_through_compiler(step)
    note_anchor(step.__code__)
    return step


def classes(root: type) -> list[type]:
    """A class and all that derive from it, each once."""
    found: dict[type, None] = {}
    left = [root]
    while left:
        cls = left.pop()
        if cls not in found:
            found[cls] = None
            left += cls.__subclasses__()
    return list(found)


def _wrap_class(patches: Patches, cls: type) -> None:
    """Wrap the class's own step, if it has one."""
    own = vars(cls).get("step")
    if not isinstance(own, FunctionType) or is_wrapper(own) or cls is torch.optim.Optimizer:
        return
    new = make_step(own)
    dress(new, own, (own.__module__, own.__qualname__))
    vars(new).update({k: v for k, v in vars(own).items() if k not in ("_pyprof_original", "_torchdynamo_inline")})
    if "__wrapped__" not in vars(own):
        vars(new)["__wrapped__"] = own
    patches.replace(cls, "step", new)


def patch_optimizers(patches: Patches) -> None:
    """Wrap `step` of every optimizer class there is, and of those that appear later, when one is first made."""
    base = torch.optim.Optimizer
    for cls in classes(base):
        _wrap_class(patches, cls)
    orig = base._patch_step_function

    def _patch_step_function(self: torch.optim.Optimizer) -> None:
        orig(self)
        if STATE.on:
            for cls in type(self).__mro__:
                if issubclass(cls, base):
                    _wrap_class(patches, cls)

    dress(_patch_step_function, orig, (orig.__module__, orig.__qualname__))
    patches.replace(base, "_patch_step_function", _patch_step_function)
