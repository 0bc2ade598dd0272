"""Which part of a program is recorded by torch.profiler where the user chose none: the first two training steps after warm-up.

Whether a program makes steps is not known when it begins. So everything is recorded from the start, in memory. A program that
makes steps is recorded anew when they are warm, and the earlier recording is given up as soon as a warm step is complete; what
makes no steps, or too few, keeps it. While torch.compile compiles nothing is recorded: a minute of that gives gigabytes of
Python calls. Knows no files but the one that it writes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.recording.exclusive import next_kind
from pyprof.recording.torchprof import Capture

if TYPE_CHECKING:
    import torch


WARM, STEPS = 2, 2  # steps before those that are recorded, and how many of those there are
GAVE_WAY = "before the program used torch.profiler itself: --tool nsys records all of it"


class _Part(Capture):
    """One recording, whose trace is written by `save` once it is known to be wanted.

    first: the step in which it begins; warm: at its beginning, after warm-up; again: after torch.compile has compiled;
    overdue: it ends with the step, since it could not end where torch.compile began to compile.
    """

    def __init__(self, path: str, first: int, *, warm: bool, again: bool, on_trace: Callable[[Path], None]) -> None:
        super().__init__(path, table=0, on_trace=on_trace)
        self.steps = self.first = first
        self.begins_in_step = warm
        self.warm, self.again, self.overdue = warm, again, False
        self.began = time.monotonic()
        self.seconds = 0.0
        self.thread = threading.get_ident()
        self._whole: torch.profiler.profile | None = None

    def _write(self, profiler: torch.profiler.profile) -> None:
        self._whole, self.seconds = profiler, time.monotonic() - self.began

    def finish(self) -> None:
        """End, on the thread that began."""
        self._end(None, None, None)

    def save(self) -> None:
        """Write what was recorded, once."""
        whole, self._whole = self._whole, None
        if whole is not None:
            super()._write(whole)


class Automatic:
    """The recording of a program of which nothing is known. `begin`, `begins` at each step, `stop` from any thread, `end`.

    note: a line for the user about what was recorded; empty for all of a program without steps. number: steps made until now.
    """

    def __init__(self, path: str, on_trace: Callable[[Path], None], on_failure: Callable[[str], None]) -> None:
        self._path, self._on_written, self._on_failed = path, on_trace, on_failure
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._part: _Part | None = None  # that records now
        self._kept: _Part | None = None  # the best of those before
        self._first = WARM
        self._done = self._too_large = self._compiled = self.gave_way = False
        self.number = 0
        self.note = ""

    def begin(self) -> None:
        """Record from now on."""
        self._start(True, warm=False)

    def _start(self, all_threads: bool | None, *, warm: bool) -> None:
        if all_threads is None:
            return
        again = self._compiled and not warm
        part = _Part(self._path, self.number, warm=warm, again=again, on_trace=self._on_written)
        part.exclusive.all_threads = all_threads
        part.on_failure = self._on_failed
        part.__enter__()
        self._part = Capture.program = part

    def recording(self) -> bool:
        """Whether anything is recorded now."""
        return self._part is not None

    def _mine(self) -> bool:
        """Whether this is the thread whose steps are counted, in the process that began."""
        return self._part is None or (self._part.thread == threading.get_ident() and os.getpid() == self._pid)

    def begins(self, number: int) -> None:
        """A step begins."""
        with self._lock:
            if self._done or not self._mine():
                return
            self.number = number
            part = self._part
            if part is not None and part.gave_way:
                self._done = self.gave_way = True
                self.number = number - 1  # that in which it ended
            elif part is not None and part.warm:
                part.step()
                if number > part.first:
                    self._kept = None
                if number >= part.first + STEPS:
                    self._finish()
            elif number >= self._first:
                self._keep()
                self._start(next_kind(), warm=True)
            elif part is not None and part.overdue:
                self._keep()
            elif part is not None and number > part.steps:
                part.step()

    def compiling(self, *_: object) -> None:
        """torch.compile begins to compile: what is warm begins after the step in which it did so last."""
        with self._lock:
            part = self._part
            if self._done or part is None or not self._mine():
                return
            self._first, self._compiled = max(self._first, self.number + 1), True
            if part.exclusive.all_threads or not _in_backward():
                self._keep()
            else:  # torch gives the thread its state back after each backward function, an ended recording with it
                part.overdue = True
                sys.setprofile(None)  # at least no Python calls

    def compiled(self, *_: object) -> None:
        """torch.compile has compiled. A program that makes no steps is recorded from here on.

        Not inside of a backward pass, whose own ranges are open; and in turn as one of the two kinds of recording.
        """
        with self._lock:
            kept = self._kept
            if self._part is None and kept is not None and not (self._done or self._too_large or self.number):
                if kept.thread == threading.get_ident() and not _in_backward():
                    self._start(not kept.exclusive.all_threads and next_kind() is not False, warm=False)

    def stop(self, reason: str) -> None:
        """The recording has become too large: it ends now and is written. reason: for the user."""
        with self._lock:
            part = self._part
            seconds = 0 if part is None else time.monotonic() - part.began
            if part is None or not part.stop():
                return
            self._part, self._too_large = None, True
            self._done = part.warm
            self.note = f"the recording was stopped after {seconds:.0f} s, {reason}"
            part.save()
            self._kept = None

    def end(self) -> None:
        """The program ends: write what is best of what was recorded."""
        with self._lock:
            part = self._part
            self.gave_way = self.gave_way or (part is not None and part.gave_way)
            if part is not None and part.warm and self.number > part.first:
                self._finish()
            self._done = True
            self._keep()
            kept = self._kept
            if kept is None or (kept.warm and self._too_large):  # what was written before has more
                return
            what = ("after" if kept.again else "before") + " torch.compile compiled" if self._compiled else "from the start"
            if self.gave_way:
                self.note = f"recorded is what ran {what}, {GAVE_WAY}"
            elif self.number or self._compiled:
                steps = f"the program made {self.number} step{'s' * (self.number != 1)}, none of them warm: "
                self.note = f"{steps * bool(self.number)}recorded is what ran {what}"
            kept.save()

    def _keep(self) -> None:
        """End this recording, and keep it if it is better than the one before: later than the first of all, or longer."""
        part, self._part = self._part, None
        if part is not None:
            part.finish()
            kept = self._kept
            if kept is None or (part.again and not kept.again) or part.seconds > kept.seconds:
                self._kept = part

    def _finish(self) -> None:
        """The warm steps are complete, or the program ends after one of them."""
        part, self._part, self._kept, self._done = self._part, None, None, True
        if part is not None:
            part.finish()
            last = part.first + STEPS - 1
            which = f"steps {part.first} and {last} are" if self.number > last else f"step {part.first} is"
            self.note = f"{which} recorded, after warm-up (--steps A:B records others, --steps all everything)"
            if self.gave_way:
                self.note = f"recorded is what ran from step {part.first} on, {GAVE_WAY}"
            part.save()


def _in_backward() -> bool:
    """Whether this thread is inside of a backward pass."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)
