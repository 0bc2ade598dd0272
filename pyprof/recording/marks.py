"""Marks of steps that only the ledger counts: steps of the program's own torch.profiler, batches of its DataLoader.

A program without an optimizer and without `pyprof.step()` (inference) has no others. Wrapped are methods that run once a step.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from pyprof.recording.ledger import LedgerWriter

if TYPE_CHECKING:
    from pyprof.nvtx.patch import Patches


class OtherMarks:
    """Calls `ledger.next` at these marks, between `start` and `stop`."""

    def __init__(self, ledger: LedgerWriter) -> None:
        self._ledger = ledger
        self._patches: Patches | None = None

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

    def stop(self) -> None:
        """Leave torch as it was."""
        if self._patches is not None:
            self._patches.undo()
