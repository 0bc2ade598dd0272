"""A command -> what it took with all the processes that it started. Knows no command.

Memory is the sum over these processes of their proportional shares (PSS): what they share counts once, and so do pages of files
that are in memory for them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

_EVERY_S = 0.03


class Run(NamedTuple):
    """What a command took: seconds, CPU seconds of all its processes, and their memory at its most."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def measured(
    command: Sequence[str | Path],
    output: IO[bytes] | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Run a command. Raises CalledProcessError where it fails."""
    begin, peak = time.perf_counter(), 0.0
    process = subprocess.Popen([*map(str, command)], stdout=output, stderr=subprocess.DEVNULL, cwd=folder, env=environment)
    while not (done := os.wait4(process.pid, os.WNOHANG))[0]:
        peak = max(peak, pss_mib(process.pid))
        time.sleep(_EVERY_S)
    process.returncode = os.waitstatus_to_exitcode(done[1])
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return Run(time.perf_counter() - begin, done[2].ru_utime + done[2].ru_stime, peak)


def pss_mib(process: int) -> float:
    """The proportional share of memory of a process and all that it started."""
    total, todo = 0, [process]
    while todo:
        one = todo.pop()
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            todo += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
        except (OSError, ValueError):  # it has ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024
