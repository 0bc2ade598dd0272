"""Calls of a training loop -> ranges: an optimizer's step, with its class, and a batch taken from a DataLoader.

Classes of optimizers that are made later are found when one is first used. The range of a batch has the name that
torch.profiler gives to it, so that reports recognise waiting for data. Under emit_nvtx torch writes the same range itself.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import torch
from torch._C import _autograd, _profiler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from pyprof.model.markers import encode_optimizer
from pyprof.nvtx.callsite import ANCHOR, note
from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.patch import Patches, is_wrapper
from pyprof.nvtx.state import STATE, Range, State
from pyprof.nvtx.traceback import Function, close_again, closing, hide, interrupted


def _find_step(name: str) -> Range | None:
    try:
        return STATE.find(encode_optimizer(name), reserve=True)
    except Exception as error:
        if interrupted(error):
            raise
        STATE.trouble(error, f"a step of {name}")
        return None


hide_from_compiler(_find_step)


def make_step(orig: Function) -> Function:
    """An optimizer's `step` with a range around it; a step that a subclass's own step calls has no range of its own."""
    state: State = STATE
    local = state.local

    def step(self: object, *args: object, **kwargs: object) -> object:
        outermost = getattr(local, "optimizer", None) is not self
        around = _find_step(type(self).__name__) if state.on and outermost else None
        pop = None if around is None else around.pop
        try:
            if around is not None:
                around.push(around.handle)
                local.optimizer = self
            return orig(self, *args, **kwargs)
        except BaseException as error:
            if around is not None:
                pop = closing(error, around.push, around.pop)
            hide(error, 1)
            raise
        finally:
            if pop is not None:
                local.optimizer = local.anchor = None  # see `ANCHOR`
                try:
                    pop()
                except BaseException as error:
                    close_again(error, pop)
                    raise

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


def patch_optimizers(patches: Patches) -> None:
    """Wrap `step` of every optimizer class that has one of its own."""

    def wrap(cls: type) -> None:
        own = vars(cls).get("step")
        if isinstance(own, FunctionType) and not is_wrapper(own) and cls is not torch.optim.Optimizer:
            new = make_step(own)
            patches.wrap(cls, "step", new)
            vars(new).update({k: v for k, v in vars(own).items() if k not in ("_pyprof_original", "_torchdynamo_inline")})

    wrap_classes(patches, wrap, lambda: STATE.on)


def _find_batch(iterator: object) -> Range | None:
    try:
        if _autograd._profiler_type() == _profiler.ActiveProfilerType.NVTX:
            return None
        return STATE.find(str(getattr(iterator, "_profile_name", "enumerate(DataLoader)")), reserve=True)
    except Exception as error:
        if interrupted(error):
            raise
        STATE.trouble(error, "a batch of a DataLoader")
        return None


hide_from_compiler(_find_batch)


def _make_next(orig: Callable[[object], object]) -> Function:
    """A DataLoader's `__next__` with a range around it."""
    state: State = STATE

    def __next__(self: object) -> object:
        around = _find_batch(self) if state.on else None
        pop = None if around is None else around.pop
        try:
            if around is not None:
                around.push(around.handle)
            return orig(self)
        except BaseException as error:
            if around is not None:
                pop = closing(error, around.push, around.pop)
            hide(error, 1)
            raise
        finally:
            if pop is not None:
                try:
                    pop()
                except BaseException as error:
                    close_again(error, pop)
                    raise

    pass_through_compiler(__next__)
    return __next__


def patch_loaders(patches: Patches) -> None:
    """Wrap what gives the next batch of every DataLoader."""
    patches.wrap(_BaseDataLoaderIter, "__next__", _make_next(_BaseDataLoaderIter.__next__))
