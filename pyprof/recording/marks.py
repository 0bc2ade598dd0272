"""Marks of steps that only the ledger counts: steps of the program's own torch.profiler, batches of its DataLoader, calls of
its model.

A program without an optimizer and without `pyprof.step()` (inference) has no others. Wrapped are methods that run once a step.
The model is the first module that is called a second time outside of any other one; until then each call is looked at.
torch.compile traces what is wrapped here and would compile anew: once it is used, calls are marks no more.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from pyprof.recording.ledger import LedgerWriter

if TYPE_CHECKING:
    from pyprof.nvtx.patch import Patches


class OtherMarks:
    """Calls `ledger.next` at these marks, between `start` and `stop`."""

    def __init__(self, ledger: LedgerWriter) -> None:
        self._ledger = ledger
        self._patches: Patches | None = None
        self._modules: Patches | None = None
        self._looking = True

    def start(self) -> None:
        """Wrap them."""
        from torch.profiler import profile
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
        from pyprof.nvtx.patch import Patches
        from pyprof.recording.torchprof import Capture

        ledger, step, following = self._ledger, profile.step, _BaseDataLoaderIter.__next__
        loader: weakref.ref[object] = weakref.ref(self)  # a program may have several: the first counts until it is exhausted

        def stepped(self: profile) -> None:
            step(self)
            ours = Capture.program
            if ours is None or ours.profiler is not self:
                ledger.next("profiler")

        def __next__(self: object) -> object:
            nonlocal loader
            if not isinstance(loader(), _BaseDataLoaderIter):
                loader = weakref.ref(self)
            if loader() is not self:
                return following(self)
            ledger.next("loader")
            try:
                return following(self)
            except StopIteration:
                loader = weakref.ref(ledger)
                ledger.exhausted()
                raise

        hide_from_compiler(ledger.next, ledger.exhausted)
        pass_through_compiler(stepped, __next__)
        self._patches = Patches()
        self._patches.wrap(profile, "step", stepped)
        self._patches.wrap(_BaseDataLoaderIter, "__next__", __next__)
        self._look_for_model()

    def _look_for_model(self) -> None:
        from torch.nn import Module

        from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
        from pyprof.nvtx.patch import Patches
        from pyprof.nvtx.traceback import hide
        from pyprof.recording import frames

        whole: Any = Module._call_impl
        local, seen = threading.local(), dict[int, weakref.ref[Any]]()

        def noticed(module: Any) -> bool:
            """Whether it is the outermost one that is called now."""
            if not self._looking or getattr(local, "inside", False):
                return False
            if (known := seen.get(id(module))) is not None and known() is module:
                self._count_calls(module)
            seen[id(module)] = weakref.ref(module)
            local.inside = True
            return True

        def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
            outermost = noticed(self)
            try:
                return whole(self, *args, **kwargs)
            except BaseException as error:
                hide(error, 1)
                raise
            finally:
                if outermost:
                    local.inside = False

        hide_from_compiler(noticed)
        pass_through_compiler(_call_impl)
        self._modules = Patches()
        self._modules.wrap(Module, "_call_impl", _call_impl)
        frames.at_first_use.append(self._leave_modules)

    def _leave_modules(self) -> None:
        self._looking = False
        if self._modules is not None:
            self._modules.undo()

    def _count_calls(self, model: Any) -> None:
        """Count each call of this module after the first as a step, unless something else marks steps already."""
        from pyprof.nvtx.compiling import pass_through_compiler
        from pyprof.nvtx.traceback import hide

        self._leave_modules()
        if self._modules is None or self._ledger.counts:
            return
        whole, ledger, counted = type(model)._call_impl, self._ledger, weakref.ref(model)
        ledger.mark("module", 1)

        def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
            if counted() is self:
                ledger.next("module")
            try:
                return whole(self, *args, **kwargs)
            except BaseException as error:
                hide(error, 1)
                raise

        pass_through_compiler(_call_impl)
        self._modules.wrap(type(model), "_call_impl", _call_impl)

    def stop(self) -> None:
        """Leave torch as it was."""
        if self._patches is not None:
            self._patches.undo()
        self._leave_modules()
