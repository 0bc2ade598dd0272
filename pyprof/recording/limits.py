"""How much of a program is recorded: when a recording must stop, which part torch.profiler keeps, which ops took most time.

Two things limit a recording, beside the memory that it takes (`growth`).
Bounds: how large the trace may become, and how long recording may take beyond the program's own time. What a program takes by
itself cannot be measured while it is recorded. Known are two things: what follows a recording (writing and reading the trace),
which grows with the trace; and, where steps of the same program ran unrecorded, how much longer the recorded ones take.
Automatic: whether a program makes steps is not known when it begins. So everything is recorded from the start, in memory. A
program that makes steps is recorded anew when they are warm, and the earlier recording is given up as soon as a warm step is
complete; a program with no steps, or too few, keeps it. One that torch.compile compiles before its first step is recorded
anew from there on.

`python -m pyprof.recording.limits TRACE TABLE COUNT` writes the ops of a trace that took most time to a text file.
`pyprof.capture` starts it for each cycle, so that reading the trace takes neither time nor memory of the measured program.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from pyprof.recording.exclusive import next_kind
from pyprof.recording.frames import inside_ranges
from pyprof.recording.images import getpid
from pyprof.recording.torchprof import Capture

if TYPE_CHECKING:
    import torch

    from pyprof.model.records import Records

_NS_PER_BYTE = 90  # torch.profiler: 60 to 75 of trace, nsys: 90 of what it collects; where compressing takes the next figure
_COMPRESSING_S = 0.0135
FEWER = "--steps A:B records a few steps"


class Bounds(NamedTuple):
    """The limits of one recording, 0 for none. ns_per_byte: what a byte of trace costs on this machine."""

    trace_bytes: float = 0
    seconds: float = 0
    ns_per_byte: float = _NS_PER_BYTE

    def passed(self, trace_bytes: float, longer_s: float = 0) -> str:
        """The reason to stop now, for the user, or "". longer_s: seconds that recorded steps took beyond others."""
        if self.trace_bytes and trace_bytes > self.trace_bytes:
            return f"since its trace becomes too large: {FEWER}, --limit 0 all"
        if self.seconds and longer_s + trace_bytes * self.ns_per_byte / 1e9 > self.seconds:
            what = (
                "recorded steps take that much longer" if longer_s > self.seconds / 2 else "writing and reading its trace does"
            )
            return f"since it would cost more than {self.seconds / 60:g} minutes ({what}): {FEWER}, --limit-time 0 all"
        return ""


def ns_per_byte() -> float:
    """Cost of a byte of trace on this machine, ns: a measured constant, scaled by the time to compress a text."""
    text = b"".join(b'{"name":"aten::add","ts":%d}' % (7919 * number) for number in range(20_000))
    best_s = float("inf")
    for _ in range(3):
        begin = time.thread_time()
        zlib.compress(text)
        best_s = min(best_s, time.thread_time() - begin)
    return _NS_PER_BYTE * best_s / _COMPRESSING_S


class Pace:
    """Times of recorded and unrecorded steps -> `longer`: the seconds that recording and writing have cost the program.

    Each recorded step counts with its time beyond the longest unrecorded one. Until a step after the first ran unrecorded, only
    our own work between steps is known to be a cost.
    """

    def __init__(self, recorded: bool) -> None:
        self._recorded, self._first = recorded, True
        self._own_s: float | None = None
        self._longer_s = 0.0
        self._began = time.monotonic()

    def ends(self) -> None:
        """Called when a step of the program has ended: the time until the next one begins is our own work."""
        now = time.monotonic()
        took, self._began = now - self._began, now
        if self._recorded:
            self._longer_s += self._beyond(took)
        elif not self._first:  # that one began with the import of torch
            self._own_s = max(took, self._own_s or 0)
        self._first = False

    def begins(self, recorded: bool) -> None:
        """Called when the next step begins. recorded: whether any of it is traced."""
        now = time.monotonic()
        self._longer_s += now - self._began
        self._began, self._recorded = now, recorded

    def _beyond(self, took: float) -> float:
        return 0 if self._own_s is None else max(0, took - self._own_s)

    def longer(self) -> float:
        """Seconds until now, the current step included."""
        return self._longer_s + (self._beyond(time.monotonic() - self._began) if self._recorded else 0)


WARM, STEPS = 2, 5  # steps before those that are recorded, and how many of those there are
_TRIES = 3  # warm recordings that are given up since torch.compile compiled; a program that always compiles is seen doing so
GAVE_WAY = "until the program used torch.profiler itself: --tool nsys records everything"


class _Part(Capture):
    """One recording, whose trace is written by `save` once it is known to be wanted.

    first: the step in which it begins; warm: at its beginning, after warm-up; again: after torch.compile has compiled;
    compiles: torch.compile compiled while it recorded.
    """

    def __init__(
        self, path: str, first: int, *, warm: bool, again: bool, stacks: bool, on_trace: Callable[[Path], None]
    ) -> None:
        super().__init__(path, table=0, stacks=stacks, on_trace=on_trace)
        self.steps = self.first = first
        self.begins_in_step = warm
        self.warm, self.again, self.compiles = warm, again, False
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
    """The recording of a program about which nothing is known. `begin`, `begins` at each step, `stop` from any thread, `end`.

    note: a line for the user about what was recorded; empty for all of a program without steps. number: steps made until now.
    """

    def __init__(
        self, path: str, on_trace: Callable[[Path], None], on_failure: Callable[[str], None], *, stacks: bool = True
    ) -> None:
        self._path, self._on_written, self._on_failed, self._stacks = path, on_trace, on_failure, stacks
        self._lock = threading.RLock()
        self._pid = getpid()
        self._part: _Part | None = None  # that records now
        self._kept: _Part | None = None  # the best of those before
        self._first, self._tries = WARM, 0
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
        part = _Part(self._path, self.number, warm=warm, again=again, stacks=self._stacks, on_trace=self._on_written)
        part.exclusive.all_threads = all_threads
        part.on_failure = self._on_failed
        part.__enter__()
        self._part = Capture.program = part

    def recording(self) -> bool:
        """Whether anything is recorded now."""
        return self._part is not None

    def state(self) -> str:
        """Whether the current step is recorded, traced only or neither, as the ledger says it."""
        part = self._part
        return "" if part is None or not part.recording() else "recorded" if part.warm else "traced"

    def _mine(self) -> bool:
        """Whether this is the thread whose steps are counted, in the process that began."""
        return self._part is None or (self._part.thread == threading.get_ident() and getpid() == self._pid)

    def begins(self, number: int) -> None:
        """Called when a step begins: start or end the recording that the schedule wants there."""
        with self._lock:
            if self._done or not self._mine():
                return
            self.number = number
            part = self._part
            if part is not None and part.gave_way:
                self._done = self.gave_way = True
                self.number = number - 1  # that in which it ended
            elif part is not None and part.warm and part.compiles and self._tries < _TRIES:
                self._tries += 1
                self._keep()
                self._start(next_kind(), warm=True)
            elif part is not None and part.warm:
                part.step()
                if number > part.first:
                    self._kept = None
                if number >= part.first + STEPS:
                    self._finish()
            elif number >= self._first:
                self._keep()
                self._start(next_kind(), warm=True)
            elif part is not None and number > part.steps:
                part.step()

    def compiling(self, *_: object) -> None:
        """Called when torch.compile begins to compile: warm steps begin after the last step in which it does."""
        with self._lock:
            part = self._part
            if not self._done and part is not None and self._mine():
                self._first, self._compiled, part.compiles = max(self._first, self.number + 1), True, True

    def compiled(self, *_: object) -> None:
        """Called when torch.compile has compiled: record a program without steps anew from here on.

        Not inside a backward pass or compiled code, whose ranges are open. The two kinds of recording take turns.
        """
        with self._lock:
            part = self._part
            if part is None or self._done or self.number or not self._mine() or inside_ranges():
                return
            self._keep()
            self._start(not part.exclusive.all_threads and next_kind() is not False, warm=False)

    def stop(self, reason: str) -> None:
        """End and write a recording that has become too large. reason: for the user."""
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
        """Write the best recording, as the program ends."""
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
                self.note = f"recorded only what ran {what}, {GAVE_WAY}"
            elif self.number or self._compiled:
                steps = f"the program made {self.number} step{'s' * (self.number != 1)}, none of them warm: "
                self.note = f"{steps * bool(self.number)}recorded what ran {what}"
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
        """Finish when the warm steps are complete, or the program ends after one of them."""
        part, self._part, self._kept, self._done = self._part, None, None, True
        if part is not None:
            part.finish()
            last = min(part.first + STEPS, self.number) - 1  # the program may end sooner
            which = f"steps {part.first} to {last}" if last > part.first else f"step {part.first}"
            self.note = f"recorded {which}, after warm-up (others: --steps A:B; the whole run: --steps all)"
            if self.gave_way:
                self.note = f"recorded only what ran from step {part.first} on, {GAVE_WAY}"
            part.save()


_TABLE_WIDTH = 150


def print_top(records: Records, stream: IO[str], count: int, width: int) -> None:
    """Print the `count` ops whose kernels took most time in total (without a GPU: the ops' own time on the CPU).

    Calls: executions of the op; Share: of the time of all rows. Lines are cut at `width` characters.
    """
    import numpy as np

    from pyprof.model.trace import ActivityKind
    from pyprof.prof.columns import HEADERS
    from pyprof.prof.frame import Frame
    from pyprof.prof.group import group_by
    from pyprof.tables.table import choose, printed

    shown = np.isin(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU))
    frame = Frame(records.select(shown))
    groups = group_by(frame, np.arange(len(frame.records)), choose("phase,op,params", HEADERS))
    stream.write(f"{'Time(ms)':>11} {'Share':>6} {'Calls':>7} {'Phase':13} {'Op':20} Params\n")
    keys = ("time", "share", "calls", "phase", "op", "params")
    cells = [printed(groups.of(key).take(groups.order[:count])) for key in keys]
    for spent, share, calls, phase, op, params in zip(*cells, strict=True):
        line = f"{int(spent) / 1e6:11.3f} {share:>5}% {calls:>7} {phase:13} {op:20} {params}"
        stream.write(line[:width].rstrip() + "\n")


def main() -> None:
    """Write the table, or one line that says why there is no table."""
    from pyprof.errors import PyprofError
    from pyprof.loading.load import load_capture
    from pyprof.tables.files import whole_text_file

    trace, table, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    os.nice(10)
    with whole_text_file(table) as stream:
        try:
            print_top(load_capture(trace), stream, count, _TABLE_WIDTH)
            stream.write(f"all kernels: python -m pyprof.prof -w {_TABLE_WIDTH} {shlex.quote(str(trace))}\n")
        except PyprofError as error:
            stream.write(f"no table: {error}\n")


if __name__ == "__main__":
    main()
