"""A batch taken from a DataLoader -> a range with the name that torch.profiler gives to it: what waits for data is then known
as that. Under emit_nvtx torch writes the same range itself."""

from __future__ import annotations

from collections.abc import Callable

from torch._C import _autograd, _profiler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.patch import Patches
from pyprof.nvtx.state import STATE, Range, State
from pyprof.nvtx.traceback import Function, hide


def _find(iterator: object) -> Range | None:
    try:
        if _autograd._profiler_type() == _profiler.ActiveProfilerType.NVTX:
            return None
        return STATE.find(str(getattr(iterator, "_profile_name", "enumerate(DataLoader)")), reserve=True)
    except Exception as error:
        STATE.trouble(error, "a batch of a DataLoader")
        return None


hide_from_compiler(_find)


def _make_next(orig: Callable[[object], object]) -> Function:
    """A DataLoader's `__next__` with a range around it."""
    state: State = STATE

    def __next__(self: object) -> object:
        around = _find(self) if state.on else None
        if around is not None:
            around.push(around.handle)
        try:
            return orig(self)
        except BaseException as error:
            hide(error, 1)
            raise
        finally:
            if around is not None:
                around.pop()

    pass_through_compiler(__next__)
    return __next__


def patch_loaders(patches: Patches) -> None:
    """Wrap what gives the next batch of every DataLoader."""
    patches.wrap(_BaseDataLoaderIter, "__next__", _make_next(_BaseDataLoaderIter.__next__))
