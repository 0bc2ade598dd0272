"""An optimizer's step -> a range with the optimizer's class. Classes made later are found when one is first used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType

import torch

from pyprof.markers import encode_optimizer
from pyprof.nvtx.callsite import ANCHOR, note
from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.patch import Patches, is_wrapper
from pyprof.nvtx.state import STATE, Range, State
from pyprof.nvtx.traceback import Function, hide


def _find(name: str) -> Range | None:
    try:
        return STATE.find(encode_optimizer(name), reserve=True)
    except Exception as error:
        STATE.trouble(error, f"a step of {name}")
        return None


hide_from_compiler(_find)


def make_step(orig: Function) -> Function:
    """An optimizer's `step` with a range around it; a step that a subclass's own step calls has no range of its own."""
    state: State = STATE
    local = state.local

    def step(self: object, *args: object, **kwargs: object) -> object:
        outermost = getattr(local, "optimizer", None) is not self
        around = _find(type(self).__name__) if state.on and outermost else None
        if around is not None:
            around.push(around.handle)
            local.optimizer = self
        try:
            return orig(self, *args, **kwargs)
        except BaseException as error:
            hide(error, 1)
            raise
        finally:
            if around is not None:
                around.pop()
                local.optimizer = local.anchor = None  # see `ANCHOR`

    pass_through_compiler(step)
    note(step.__code__, ANCHOR)
    return step


def wrap_classes(patches: Patches, wrap: Callable[[type], None], active: Callable[[], bool]) -> None:
    """Call `wrap` with every optimizer class, and while `active()` with those made later, when one is first instantiated."""
    base = torch.optim.Optimizer
    left = [base]
    for cls in left:
        left += [derived for derived in cls.__subclasses__() if derived not in left]
        wrap(cls)
    orig = base._patch_step_function

    def _patch_step_function(self: object) -> None:
        orig(self)
        for cls in type(self).__mro__ if active() else ():
            if issubclass(cls, base):
                wrap(cls)

    patches.wrap(base, "_patch_step_function", _patch_step_function)


def _wrap_class(patches: Patches, cls: type) -> None:
    """Wrap the class's own step, if it has one."""
    own = vars(cls).get("step")
    if not isinstance(own, FunctionType) or is_wrapper(own) or cls is torch.optim.Optimizer:
        return
    new = make_step(own)
    patches.wrap(cls, "step", new)
    vars(new).update({k: v for k, v in vars(own).items() if k not in ("_pyprof_original", "_torchdynamo_inline")})


def patch_optimizers(patches: Patches) -> None:
    """Wrap `step` of every optimizer class."""
    wrap_classes(patches, partial(_wrap_class, patches), lambda: STATE.on)
