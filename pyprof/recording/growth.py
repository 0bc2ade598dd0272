"""Memory that a recording takes -> how large its trace will be, so that it can be stopped in time.

torch.profiler keeps what it records in memory, in a few bytes an event, and only the trace shows how many events there are.
Measured: a trace has 1.1 (many ops) to 11 (many Python calls) bytes for each byte allocated while recording. Knows no profiler.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import threading
from collections import deque
from collections.abc import Callable

from pyprof.recording.bounds import Bounds

_TRACE_BYTES = 4  # for each byte that is allocated, about as measured where torch.compile compiles
_SECONDS = 0.25
_SAMPLES = 4


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc; hblkhd: bytes in blocks of their own, uordblks: in use in the heaps."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def _allocator() -> Callable[[], int] | None:
    """A function that returns the bytes that this process has allocated; None where the C library has none."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    mallinfo.restype = _Mallinfo

    def allocated() -> int:
        found = mallinfo()
        return int(found.uordblks + found.hblkhd)

    return allocated


def _tensor_bytes() -> int:
    """Bytes of the tensors on the CPU that Python sees: parameters, states of optimizers, data."""
    import torch

    kinds = (torch.Tensor, torch.nn.Parameter)
    storages: dict[int, int] = {}
    for found in gc.get_objects():
        if type(found) in kinds:
            try:
                if found.device.type == "cpu":
                    storages[found.untyped_storage().data_ptr()] = found.untyped_storage().nbytes()
            except RuntimeError:  # it has no storage
                continue
    return sum(storages.values())


class Growth:
    """Calls `over` once with the reason, on a thread of its own, when the trace is expected to pass `bounds`.

    recording: whether the program is recorded now; longer: the seconds that recorded steps have taken more than others. The
    least of the last samples counts, since events are never given up and much of what a program allocates is. from_start: the
    first recording began before the program had tensors; those that it has made since are none of the recording's.
    """

    def __init__(
        self,
        bounds: Bounds,
        recording: Callable[[], bool],
        over: Callable[[str], None],
        longer: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._bounds, self._recording, self._over, self._longer = bounds, recording, over, longer
        self._ended = threading.Event()
        self._allocated = _allocator()
        self._from_start = True

    def start(self) -> None:
        """Watch from now on; nothing where there is no limit. Without memory to measure, the time of recorded steps counts."""
        if self._bounds.trace_bytes or self._bounds.seconds:
            _thread.start_new_thread(self._watch, (self._allocated or int,))  # the program does not find it among its own

    def stop(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def _watch(self, allocated: Callable[[], int]) -> None:
        samples: deque[int] = deque(maxlen=_SAMPLES)
        before, tensors = allocated(), 0
        while not self._ended.wait(_SECONDS):
            if not self._recording():
                before, tensors, self._from_start = allocated(), 0, False
                samples.clear()
                continue
            samples.append(allocated() - before)
            if len(samples) < _SAMPLES or not self._reason(min(samples) - tensors):
                continue
            tensors = _tensor_bytes() if self._from_start else 0
            if reason := self._reason(min(samples) - tensors):
                self._over(reason)
                return

    def _reason(self, recorded_bytes: int) -> str:
        return self._bounds.passed(_TRACE_BYTES * max(recorded_bytes, 0), self._longer())
