"""Process ids and variables of an environment -> which processes run, and an end to those that a tool left behind.

By /proc, as nsys and its programs run on Linux only. Knows nothing of tools and captures.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_POLL_S = 0.01


def is_running(pid: int) -> bool:
    """Whether a process has not ended. One that has ended and that nobody has waited for is not running."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def end_marked(name: str, value: str) -> None:
    """Kill the processes that were started with this variable in their environment, and wait until none of them runs."""
    mark = os.fsencode(f"{name}={value}")
    while marked := [pid for pid in _pids() if mark in _variables(pid) and is_running(pid)]:
        for pid in marked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(map(is_running, marked)):
            time.sleep(_POLL_S)


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]


def _variables(pid: int) -> list[bytes]:
    """Empty where it has ended or is another user's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
