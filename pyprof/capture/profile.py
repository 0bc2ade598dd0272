"""`with pyprof.profile(steps=(10, 12)):` around a training loop: everything an nsys capture needs, on the steps chosen.

Ranges of ours for each op and layer, emit_nvtx's for the backward pass, and the CUDA profiler switched on and off, so that
`nsys profile --capture-range=cudaProfilerApi` records those steps only. What torch cannot do here is left out and said.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from pyprof.capture.steps import StepCounter
from pyprof.errors import UsageError

__all__ = ["profile"]


class profile:
    """Record the chosen training steps.

    steps: (A, B) records the steps from A up to and without B, counted from 0 by `optimizer.step()` or, where the program calls
    it, by `pyprof.step()`; None records all of the `with`. shapes: emit_nvtx tells the shapes of backward ops as well.
    Raises UsageError where A is not before B.
    """

    def __init__(self, steps: tuple[int, int] | None = None, *, shapes: bool = True) -> None:
        if steps is not None and not 0 <= steps[0] < steps[1]:
            raise UsageError(f"pyprof.profile: steps {steps} are none", "give (A, B) with A before B")
        self._steps, self._shapes = steps, shapes
        self._outer = ExitStack()
        self._inner: ExitStack | None = None

    def __enter__(self) -> profile:
        from pyprof.nvtx import api

        self._outer.callback(setattr, api, "held_back", api.held_back)
        api.held_back = True
        self._outer.enter_context(StepCounter(self._boundary))
        if self._steps is None or self._steps[0] == 0:
            self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()
        self._outer.close()

    def _boundary(self, done: int) -> None:
        if self._steps is None:
            return
        if done == self._steps[0]:
            self._begin()
        elif done == self._steps[1]:
            self._end()

    def _begin(self) -> None:
        import torch

        from pyprof.nvtx import api

        self._inner = ExitStack()
        self._inner.enter_context(api.instrument())
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # work of earlier steps is not part of the capture
            self._inner.enter_context(torch.cuda.profiler.profile())
            self._inner.enter_context(torch.autograd.profiler.emit_nvtx(record_shapes=self._shapes))
        else:
            _say_once("no GPU: torch's own ranges are missing, and with them the backward pass")

    def _end(self) -> None:
        import torch

        if self._inner is not None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self._inner.close()
            self._inner = None


_said: set[str] = set()


def _say_once(text: str) -> Any:
    if text not in _said:
        _said.add(text)
        print(f"pyprof: {text}", file=sys.stderr)
