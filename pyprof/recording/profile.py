"""`with pyprof.profile(steps=(10, 12)):` around a training loop: everything that an nsys capture needs, on the chosen steps.

Our ranges for each op and layer, those of emit_nvtx for the backward pass, and the CUDA profiler switched on and off, so that
`nsys profile --capture-range=cudaProfilerApi` records only those steps. What torch cannot do here is left out and reported.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import cache
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

from pyprof.errors import UsageError
from pyprof.messages import tell
from pyprof.recording.steps import StepClock, StepWindow

if TYPE_CHECKING:
    import torch


class Recorder:
    """Ranges, emit_nvtx and the CUDA profiler, switched together. problem: why emit_nvtx records nothing; empty where it works.

    defer: leave CUDA alone until the program uses it: once a process has, its forks cannot use it and its devices are chosen.
    """

    def __init__(self, *, shapes: bool = True, defer: bool = False) -> None:
        self.problem = ""
        self._shapes, self._defer = shapes, defer
        self._open = False
        self._cuda: ModuleType | None = None
        self._emit: torch.autograd.profiler.emit_nvtx | None = None
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
        """Stop recording; what was launched until now is recorded to its end."""
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

    steps: (A, B) records steps A to B - 1, counted from 0 by `optimizer.step()` or, where the program calls it, by
    `pyprof.step()`; None records all of the `with`. shapes: emit_nvtx records the shapes of backward ops as well.
    Outside the chosen steps the cost is negligible. Without CUDA emit_nvtx cannot be used, which one line on standard error
    reports. Raises UsageError if A is not before B.
    """

    def __init__(self, steps: tuple[int, int] | None = None, *, shapes: bool = True) -> None:
        if steps is not None and not 0 <= steps[0] < steps[1]:
            raise UsageError(f"pyprof.profile: steps {steps} contain no step", "give (A, B) with A before B")
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
        window = StepWindow((self._steps,), self._enter, self._recorder.leave)
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
            _print_once(f"torch's own ranges are missing, and with them the backward pass: {self._recorder.problem}")


@cache
def _print_once(text: str) -> None:
    tell(f"pyprof: {text}")
