"""How large a trace may become, and how long recording may take beyond the program's own time -> when to stop, and why.

What a program takes by itself cannot be measured while it is recorded. Known are two things: what follows a recording (to write
the trace, and to read it again), which grows with the trace; and where steps of the same program ran unrecorded, how much
longer the recorded ones take. Knows no tool.
"""

from __future__ import annotations

import time
import zlib
from typing import NamedTuple

_NS_PER_BYTE = 90  # torch.profiler: 60 to 75 of trace, nsys: 90 of what it collects; where compressing takes the next figure
_COMPRESSING_S = 0.0135
_FEWER = "--steps A:B records a few steps"


class Bounds(NamedTuple):
    """The limits of one recording, 0 for none. ns_per_byte: what a byte of trace costs on this machine."""

    trace_bytes: float = 0
    seconds: float = 0
    ns_per_byte: float = _NS_PER_BYTE

    def passed(self, trace_bytes: float, longer_s: float = 0) -> str:
        """Why to stop now, for the user; empty while all is within bounds. longer_s: what recorded steps have taken more."""
        if self.trace_bytes and trace_bytes > self.trace_bytes:
            return f"since its trace becomes too large: {_FEWER}, --limit 0 all"
        if self.seconds and longer_s + trace_bytes * self.ns_per_byte / 1e9 > self.seconds:
            what = (
                "recorded steps take that much longer" if longer_s > self.seconds / 2 else "writing and reading its trace does"
            )
            return f"since it would cost more than {self.seconds / 60:g} minutes ({what}): {_FEWER}, --limit-time 0 all"
        return ""


def ns_per_byte() -> float:
    """What a byte of trace costs here: measured once elsewhere, times how much longer this machine takes to compress a text."""
    text = b"".join(b'{"name":"aten::add","ts":%d}' % (7919 * number) for number in range(20_000))
    best = min(_seconds_to_compress(text) for _ in range(3))
    return _NS_PER_BYTE * best / _COMPRESSING_S


def _seconds_to_compress(text: bytes) -> float:
    begin = time.thread_time()
    zlib.compress(text)
    return time.thread_time() - begin


class Pace:
    """Steps recorded and not -> `longer`: the seconds that recorded ones, and writing them, took beyond the longest other one.

    As long as no step but the first ran unrecorded, only what we do between steps is known to be beyond the program's own time.
    """

    def __init__(self, recorded: bool) -> None:
        self._recorded, self._first = recorded, True
        self._own_s: float | None = None
        self._longer_s = 0.0
        self._began = time.monotonic()

    def ends(self) -> None:
        """A step of the program has ended; what follows, until the next begins, is ours."""
        now = time.monotonic()
        took, self._began = now - self._began, now
        if self._recorded:
            self._longer_s += self._beyond(took)
        elif not self._first:  # that one began with the import of torch
            self._own_s = max(took, self._own_s or 0)
        self._first = False

    def begins(self, recorded: bool) -> None:
        """The next one begins. recorded: whether any of it is traced."""
        now = time.monotonic()
        self._longer_s += now - self._began
        self._began, self._recorded = now, recorded

    def _beyond(self, took: float) -> float:
        return 0 if self._own_s is None else max(0, took - self._own_s)

    def longer(self) -> float:
        """Seconds until now, the current step included."""
        return self._longer_s + (self._beyond(time.monotonic() - self._began) if self._recorded else 0)
