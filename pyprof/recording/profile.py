"""`with pyprof.profile(steps=(10, 12)):` around a training loop: everything an nsys capture needs, on the steps chosen.

Ranges of ours for each op and layer, emit_nvtx's for the backward pass, and the CUDA profiler switched on and off, so that
`nsys profile --capture-range=cudaProfilerApi` records those steps only. What torch cannot do here is left out and said.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from pyprof.errors import UsageError
from pyprof.recording.steps import StepClock, Window

__all__ = ["Recorder", "profile"]


class Recorder:
    """Ranges, emit_nvtx and the CUDA profiler, switched together. problem: why emit_nvtx tells nothing, where it does not.

    defer: leave CUDA alone until the program has begun to use it, since a process that has cannot be forked and use it in the
    child, nor choose its devices any more.
    """

    def __init__(self, *, shapes: bool = True, defer: bool = False) -> None:
        self.problem = ""
        self._shapes, self._defer = shapes, defer
        self._open = False
        self._cuda: Any = None
        self._emit: Any = None
        self._thread = 0

    def enter(self) -> None:
        """Record from now on."""
        import torch

        from pyprof.nvtx import api

        self._open = True
        api.resume()
        if not self._defer or torch.cuda.is_initialized():
            self._begin_cuda()
        elif torch.backends.cuda.is_built():
            torch.cuda._lazy_call(self._begin_cuda)

    def leave(self) -> None:
        """Record no more; what was launched until now is recorded to its end."""
        import torch

        from pyprof.nvtx import api

        self._open = False
        emit, self._emit = self._emit, None
        if emit is not None and self._thread == threading.get_ident():  # only the thread that began can end it
            emit.__exit__(None, None, None)
        api.pause()
        cuda, self._cuda = self._cuda, None
        if cuda is not None:
            torch.cuda.synchronize()
            cuda.cudaProfilerStop()

    def _begin_cuda(self) -> None:
        """Never raises: it may run inside the program's own first use of CUDA."""
        import torch

        if not self._open:
            return
        try:
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # work of earlier steps is not part of the capture
                self._cuda = torch.cuda.cudart()
                self._cuda.cudaProfilerStart()
            emit = torch.autograd.profiler.emit_nvtx(record_shapes=self._shapes)
            emit.__enter__()
        except Exception as error:  # no CUDA in this torch, no device, or torch.profiler is recording already
            self.problem = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            return
        self._emit, self._thread = emit, threading.get_ident()


class profile:
    """Record the chosen training steps.

    steps: (A, B) records the steps from A up to and without B, counted from 0 by `optimizer.step()` or, where the program calls
    it, by `pyprof.step()`; None records all of the `with`. shapes: emit_nvtx tells the shapes of backward ops as well.
    Outside the chosen steps next to nothing is done. Without CUDA emit_nvtx cannot be used: one line says so.
    Raises UsageError where A is not before B.
    """

    def __init__(self, steps: tuple[int, int] | None = None, *, shapes: bool = True) -> None:
        if steps is not None and not 0 <= steps[0] < steps[1]:
            raise UsageError(f"pyprof.profile: steps {steps} are none", "give (A, B) with A before B")
        self._steps, self._recorder = steps, Recorder(shapes=shapes)
        self._outer = ExitStack()

    def __enter__(self) -> profile:
        from pyprof.nvtx import api

        self._outer.callback(setattr, api, "held_back", api.held_back)
        self._outer.enter_context(api.instrument())
        api.held_back = True
        api.pause()
        if self._steps is None:
            self._outer.callback(self._recorder.leave)
            self._enter()
            return self
        window = Window((self._steps,), self._enter, self._recorder.leave)
        clock = StepClock(window.begins, mark=True)
        self._outer.callback(window.close)
        self._outer.callback(clock.stop)
        clock.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._outer.close()

    def _enter(self) -> None:
        self._recorder.enter()
        if self._recorder.problem:
            _say_once(f"torch's own ranges are missing, and with them the backward pass: {self._recorder.problem}")


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        print(f"pyprof: {text}", file=sys.stderr)
