"""How much memory the recording of this process takes: it ends the recording before that becomes too much.

torch.profiler keeps what it records in memory, in a few bytes an event, and only the trace shows how many events there are.
Measured: a trace has 1.1 (many ops) to 11 (many Python calls) bytes for each byte allocated while recording.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from pyprof.memory import free_bytes
from pyprof.recording.limits import FEWER, Bounds
from pyprof.recording.objects import instances

_TRACE_BYTES = 4  # for each byte that is allocated, about as measured where torch.compile compiles
_MOST_BYTES, _MOST_SHARE = 1.25e9, 16  # that a recording may take as it ends; or so many parts of what is free, if that is more
_MAPPED_BYTES = 128 << 10  # a block of its own is at least so large
_MAPPED_AT = 64  # where in its first page torch's memory begins
# In memory once a recording ends, for each byte before: with frames 27 of a loop of small ops, 64 of calls of Python alone;
# without frames 8. What a program allocates of its own counts too, so that more than 32 would stop common programs.
_ENDED_BYTES = {True: 32, False: 8}
_SAMPLE_S = 0.0625
_WATCH_SHARE = 50  # a sample takes at most one of so many parts of the time: the C library walks all that is free, locked
_SAMPLES = 16  # of which the least counts, for what is freed with a step is no event; a quarter of them where nothing is freed
_LAST_SAMPLES = 4096  # some minutes: older ones are forgotten
_BEFORE = 160  # samples before a recording whose most is the program's own
_UNEVEN = 0.618  # samples come unevenly, so that no step's length keeps them at one place of it
_LOOSE_BYTES = 512 << 20  # freed, and not given back to the system
_TRIM_SHARE = 50  # giving it back takes at most one of so many parts of the time


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc; hblkhd: bytes in blocks of their own, uordblks: in use in the heaps."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def _allocator() -> Callable[[], tuple[int, int]] | None:
    """A function that returns the bytes that this process has allocated in the heaps, where events are kept, and in blocks of
    their own (large arrays); None if the C library has none."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    mallinfo.restype = _Mallinfo

    def allocated() -> tuple[int, int]:
        found = mallinfo()
        return found.uordblks, found.hblkhd

    return allocated


class _Heap:
    """Gives freed memory back to the system where much lies about: events of a recording, allocated between the program's
    tensors, keep the C library from doing so (300 MB a step were measured)."""

    def __init__(self) -> None:
        self._least: int | None = None  # bytes of the process that were not in use, after the last time
        self._next_s = 0.0

    def trim(self, allocated: int) -> None:
        """allocated: bytes in use."""
        begin, loose = time.monotonic(), _resident() - allocated
        self._least = loose if self._least is None else self._least
        if begin < self._next_s or loose < self._least + _LOOSE_BYTES:
            return
        ctypes.CDLL(None).malloc_trim(0)
        self._least, end = _resident() - allocated, time.monotonic()
        self._next_s = end + _TRIM_SHARE * (end - begin)


def _resident() -> int:
    """Bytes of memory that this process holds; 0 unknown."""
    try:
        with open("/proc/self/statm") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _tensor_bytes() -> int:
    """Bytes in the heaps of the tensors on the CPU that Python sees: parameters, states of optimizers, data."""
    import torch

    storages: dict[int, int] = {}
    for found in instances((torch.Tensor, torch.nn.Parameter)):
        try:
            if found.device.type == "cpu":
                storage = found.untyped_storage()
                address, size = storage.data_ptr(), storage.nbytes()
                mapped = size >= _MAPPED_BYTES and address % os.sysconf("SC_PAGE_SIZE") == _MAPPED_AT
                storages[address] = 0 if mapped else size
        except RuntimeError:  # it has no storage
            continue
    return sum(storages.values())


class Growth:
    """Calls `over` once with the reason, on a thread of its own, when the trace is expected to pass `bounds`.

    recording: whether the program is recorded now; longer: the seconds that recorded steps have taken more than others. What
    the program itself had allocated at most, some seconds before, is none of the recording's; of what came since the least in
    its last quarter (of some minutes) counts, for events are never given up and activations are at each step's end. from_start:
    the first recording began before the program had tensors; those that it has made since are none of the recording's. frames:
    whether calls of Python are recorded, which may take most memory. Neither half of what is free nor what is more of a
    sixteenth and 1.25 GB is passed.
    """

    def __init__(
        self,
        bounds: Bounds,
        recording: Callable[[], bool],
        over: Callable[[str], None],
        longer: Callable[[], float] = lambda: 0.0,
        frames: bool = True,
    ) -> None:
        self._bounds, self._recording, self._over, self._longer = bounds, recording, over, longer
        self._ended = threading.Event()
        self._allocated = _allocator()
        self._from_start, self._frames = True, frames

    def start(self) -> None:
        """Watch from now on. Without memory to measure, the time of recorded steps counts."""
        _thread.start_new_thread(
            self._watch, (self._allocated or (lambda: (0, 0)),)
        )  # the program does not find it among its own

    def stop(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def _watch(self, allocated: Callable[[], tuple[int, int]]) -> None:
        samples = list[int]()
        before = deque([allocated()[0]], maxlen=_BEFORE)
        tensors, heap, turn, freed, took_s = 0, _Heap(), 0, False, 0.0
        while not self._ended.wait(max(_SAMPLE_S, _WATCH_SHARE * took_s) * (0.5 + turn * _UNEVEN % 1)):
            turn, begin = turn + 1, time.monotonic()
            now, mapped = allocated()
            took_s = time.monotonic() - begin
            if not self._recording():
                before.append(now)
                tensors, freed, self._from_start = 0, False, False
                samples.clear()
                continue
            samples.append(now - max(before))
            del samples[:-_LAST_SAMPLES]
            freed = freed or samples[-1] < samples[-2:][0]
            if self._allocated is not None:
                heap.trim(now + mapped)
            least = _SAMPLES if freed else _SAMPLES // 4
            lasting = min(samples[-max(least, len(samples) // 4) :])
            if len(samples) < least or not self._reason(lasting - tensors):
                continue
            tensors = _tensor_bytes() if self._from_start else 0
            if reason := self._reason(lasting - tensors):
                self._over(reason)
                return

    def _reason(self, recorded_bytes: int) -> str:
        ended, free = _ENDED_BYTES[self._frames] * recorded_bytes, free_bytes() or 2 * _MOST_BYTES
        if ended > min(max(_MOST_BYTES, free / _MOST_SHARE), free / 2):
            less = ", --no-stacks less of each" * self._frames
            return f"since writing more of it might take {ended / 1e9:.1f} GB of memory: {FEWER}{less}"
        return self._bounds.passed(_TRACE_BYTES * max(recorded_bytes, 0), self._longer())
