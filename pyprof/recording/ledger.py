"""The steps of the running program -> a line each in the ledger (`model/ledger.py`), appended as the step ends.

A line costs one write and no synchronisation: a step's time on the device lies between two CUDA events, which are read once
they are done; the step's line is then written again. Nothing is asked of CUDA while a stream is captured into a graph. torch's
memory statistics are read, never reset; not at every step where reading takes long.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

from pyprof.model.ledger import MARKERS, SCHEMA

_LATE = 16  # steps after which a time on the device that is still unknown is given up
_READING_NS = 3_000  # that reading memory statistics may take a step, on average
_EVENTS_NS = 4_000  # that events may take a step, on average
_MOST_WITHOUT = 8  # of so many steps in a row one has events, however long they take
_OWN_NS = 100_000  # of our own work between two steps, above which the next one has a first event of its own
_OURS = MARKERS[:3]  # counted by the ledger itself


class _Step:
    """A step from its begin on. state: recorded, traced or ""; first, last: events of the device at its ends, None unknown;
    memory: bytes allocated and reserved at its end and at most until then, None unknown."""

    def __init__(self, by: str, number: int, begin_ns: int) -> None:
        self.by, self.number, self.begin_ns = by, number, begin_ns
        self.wall_ns = 0
        self.state = ""
        self.tokens: int | None = None
        self.first: Any = None
        self.last: Any = None
        self.memory: tuple[int, int, int] | None = None

    def line(self, device_ns: int | None = None, more: str = "") -> bytes:
        """Its line in the ledger. more: further members."""
        text = f'{{"schema":{SCHEMA},"by":"{self.by}","step":{self.number},"begin_ns":{self.begin_ns},"wall_ns":{self.wall_ns}'
        if device_ns is not None:
            text += f',"device_ns":{device_ns}'
        if self.memory is not None:
            text += ',"allocated":{},"reserved":{},"peak":{}'.format(*self.memory)
        if self.state:
            text += f',"{self.state}":true'
        if self.tokens is not None:
            text += f',"tokens":{self.tokens}'
        return f"{text}{more}}}\n".encode()


class LedgerWriter:
    """Writes the ledger of this process. path: of the file, asked for at the first line; state: of the step that begins now;
    failed: called with the reason if the ledger ends here."""

    def __init__(self, path: Callable[[], str], state: Callable[[], str], failed: Callable[[str], None]) -> None:
        self._path, self._state, self._failed = path, state, failed
        self._file, self._inode = -1, (0, 0)
        self._began_ns = perf_counter_ns()
        self._step: _Step | None = None
        self._rank = -1  # among MARKERS, of the kind of mark that counts
        self._thread = 0  # that makes these marks
        self._device: _Device | None = None
        self._over = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._stop)

    def _stop(self) -> None:
        self._over = True

    @property
    def number(self) -> int:
        """The step that is under way; -1 unknown."""
        return -1 if self._step is None else self._step.number

    @property
    def counts(self) -> bool:
        """Whether some kind of mark has made steps."""
        return self._rank >= 0

    def mark(self, by: str, number: int, tokens: int | None = None, between: Callable[[int], None] | None = None) -> None:
        """Step `number` begins, and the one before ends. by: one of MARKERS; between: our own work between the two."""
        now_ns = perf_counter_ns()
        counts = not self._over and self._counts(by, number)
        if counts:
            self._guarded(self._end, now_ns)
        if between is not None:
            between(number)
        if counts:
            self._guarded(self._begin, by, number, tokens, now_ns)

    def next(self, by: str) -> None:
        """The next step begins, by a kind of mark that is counted here."""
        step = self._step
        self.mark(by, step.number + 1 if step is not None and step.by == by else 0)

    def exhausted(self) -> None:
        """Take back the step that has just begun: the loop is over."""
        if self._step is not None and self._step.by in _OURS:
            self._step = None

    def _counts(self, by: str, number: int) -> bool:
        """Whether a mark is of the highest kind until now, on the thread that makes them."""
        rank, thread = MARKERS.index(by), threading.get_ident()
        if rank > self._rank and (number or by != "optimizer"):
            self._rank, self._thread = rank, thread
            if self._step is None or self._step.by != by:
                self._step = _Step(by, 0, 0) if by == "optimizer" else None  # that one began with the program
        return rank >= self._rank and self._thread in (0, thread)

    def _end(self, now_ns: int) -> None:
        step = self._step
        if self._device is None:
            self._device = _Device.found()
        if step is None:
            return
        step.wall_ns = now_ns - self._began_ns - step.begin_ns
        device = self._device
        done: list[tuple[_Step, int]] = []
        if device is not None:
            step.last = None if step.first is None else device.mark()
            step.memory, done = device.memory(), device.done(step)
        self._write(step.line() + b"".join(one.line(device_ns) for one, device_ns in done))

    def _begin(self, by: str, number: int, tokens: int | None, ended_ns: int) -> None:
        now_ns = perf_counter_ns()
        before = self._step
        step = self._step = _Step(by, number, now_ns - self._began_ns)
        step.state, step.tokens = self._state(), tokens
        if self._device is not None and self._device.turn():
            if before is not None and before.last is not None and now_ns - ended_ns < _OWN_NS:
                step.first = before.last
            else:
                step.first = self._device.mark()

    def _guarded(self, function: Callable[..., None], *args: object) -> None:
        """Call it; after an error there are no more lines: the program must run."""
        try:
            function(*args)
        except Exception as error:
            self._over = True
            self._failed(f"the ledger of steps ends at step {self.number}: {error}")

    def _write(self, lines: bytes) -> None:
        if self._file < 0:
            self._file = os.open(self._path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            found = os.fstat(self._file)
            self._inode = found.st_dev, found.st_ino
        found = os.fstat(self._file)
        if self._inode != (found.st_dev, found.st_ino):  # the program closed what it had not opened
            raise OSError("its file was closed")
        os.write(self._file, lines)

    def note(self, event: Mapping[str, object]) -> None:
        """A line on what happened in the step that is under way."""
        if not self._over:
            text = json.dumps({"schema": SCHEMA, **event, "step": self.number}, separators=(",", ":"))
            self._guarded(self._write, f"{text}\n".encode())

    def end(self) -> None:
        """Called when the program ends: a step that it marked at its begin is still under way."""
        if not self._over:
            self._guarded(self._last)
        self._over = True

    def _last(self) -> None:
        lines = b"".join(one.line(device_ns) for one, device_ns in (self._device.done(None) if self._device else ()))
        step = self._step
        if step is not None and step.by != "optimizer":
            step.wall_ns = perf_counter_ns() - self._began_ns - step.begin_ns
            lines += step.line(more=',"open":true')
        if lines:
            self._write(lines)


class _Device:
    """Marks in the current stream of the current CUDA device, and its memory."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._free: dict[int, list[Any]] = {}  # events by device
        self._waiting: deque[tuple[_Step, int]] = deque()  # steps whose end is not reached, with their device
        self._every = self._reads = 1
        self._peak = 0
        self._steps = 1
        self._marking_ns = 0  # what the events of the step take that has some
        self._usual_ns = 0.0  # what they took at least of late: the first ones take much longer

    @staticmethod
    def found() -> _Device | None:
        """None as long as the program has not used CUDA."""
        import torch

        return _Device(torch.cuda) if torch.cuda.is_initialized() else None

    def turn(self) -> bool:
        """Whether the step that begins gets events: every one, or one of several where they take long."""
        self._steps -= 1
        if self._steps:
            return False
        self._usual_ns = min(self._marking_ns, 1.2 * self._usual_ns or self._marking_ns)
        self._steps = min(max(1, round(self._usual_ns / _EVENTS_NS)), _MOST_WITHOUT)
        self._marking_ns = 0
        return True

    def mark(self) -> Any:
        """An event in the stream; None while it is captured."""
        if self._cuda.is_current_stream_capturing():
            return None
        begin_ns = perf_counter_ns()
        free = self._free.setdefault(self._cuda.current_device(), [])
        event = free.pop() if free else self._cuda.Event(enable_timing=True)
        event.record()
        self._marking_ns += perf_counter_ns() - begin_ns
        return event

    def memory(self) -> tuple[int, int, int] | None:
        """Bytes allocated and reserved now, and at most allocated until now; None where it is not the turn to read them."""
        self._reads -= 1
        if self._reads:
            return None
        begin_ns = perf_counter_ns()
        found = self._cuda.memory.memory_stats_as_nested_dict()
        allocated, reserved = (found[name]["all"] for name in ("allocated_bytes", "reserved_bytes"))
        self._peak = max(self._peak, allocated["peak"])  # the program may reset its own
        self._reads = self._every = max(1, -(-(perf_counter_ns() - begin_ns) // _READING_NS)) if found else 1
        return allocated["current"], reserved["current"], self._peak

    def done(self, step: _Step | None) -> list[tuple[_Step, int]]:
        """(step, ns on the device) of steps that the device has finished. step: one that has ended, to wait for."""
        marked = step is not None and step.first is not None and step.last is not None
        if not (marked or self._waiting) or self._cuda.is_current_stream_capturing():
            return []
        begin_ns, device = perf_counter_ns(), self._cuda.current_device()
        if step is not None and marked:
            self._waiting.append((step, device))
        found = []
        while self._waiting and self._waiting[0][0].last.query():
            one, at = self._waiting.popleft()
            if at == device:  # elsewhere its first event may be of another device
                found.append((one, round(one.first.elapsed_time(one.last) * 1e6)))
                self._free[at].append(one.first)  # the last one may be the next step's first
        while len(self._waiting) > _LATE:
            self._waiting.popleft()
        self._marking_ns += perf_counter_ns() - begin_ns
        return found
