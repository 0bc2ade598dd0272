"""How much memory a command will take, and how much there is: refuse at once rather than fail after minutes.

The estimate is the size that a file states (rows of its tables, its footer, its unpacked bytes) times the measured memory of a
row (`scripts/bench/foreseen.py`). `--max-memory` lowers what there is and is a limit of the system as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from pyprof.errors import InputError, ToolError, UsageError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST_BYTES = 64 << 20  # an interpreter with numpy takes about as much
_START_BYTES = 100 << 20  # of a command before it reads anything large
_command: ContextVar[tuple[str, bool]] = ContextVar("command, and whether it reads a part of a capture", default=("", False))
_given: ContextVar[int | None] = ContextVar("--max-memory, in bytes", default=None)


class Size(NamedTuple):
    """Size of a capture: GPU activities, API calls, ranges, bytes of JSON, or the number of stored records."""

    activities: int = 0
    launches: int = 0
    ranges: int = 0
    json_bytes: int = 0
    records: int = 0


_PARSING = Size(activities=130, launches=60, ranges=60, json_bytes=2)
"""Peak bytes per row, and per byte of JSON, from a capture to records."""
_RECORD_BYTES = {"prof": 300, "summary": 350, "gaps": 350, "report": 350, "diff": 350, "ranks": 350, "trace": 600}
"""Bytes per record that each command adds to those of parsing, or takes of stored records."""


def bytes_of(text: str, option: str = "--max-memory") -> int:
    """A size as people write it: 500M, 4G, 4GiB, in powers of 1024. Raises UsageError for others and for less than 64M.

    option: the name that the error gives it.
    """
    found = re.fullmatch(r"(\d{1,15})([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = int(found[1]) * _UNITS[found[2].upper()] if found else 0
    if size < _LEAST_BYTES:
        raise UsageError(f"{option} {text}: not a size of at least 64M", "write 500M or 4G")
    return size


def limit(text: str) -> None:
    """Let this process allocate no more than `--max-memory`: the system's limit on heap, arrays and stacks of threads.

    Raises UsageError if it is not a size, ToolError if the system has no such limit.
    """
    size = bytes_of(text)
    _given.set(size)
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (size if hard < 0 else min(size, hard), hard))
    except (ImportError, OSError, ValueError) as error:
        raise ToolError(f"--max-memory: this system cannot limit memory: {error}", "run it without") from error


@contextmanager
def of_command(name: str, *, part: bool) -> Iterator[None]:
    """Files read inside are read by this command. part: it was asked for a part of a capture."""
    token = _command.set((name, part))
    try:
        yield
    finally:
        _command.reset(token)


def machine_bytes() -> int | None:
    """Memory of this machine, or of the container if that has less; None if neither is known."""
    found = []
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # ValueError: "max"
            found.append(int(Path(path).read_text()))
    return min(found, default=None)


def expected_bytes(size: Size, command: str) -> int:
    """Peak memory of a command on a file of this size."""
    parsed = sum(each * rows for each, rows in zip(_PARSING, size, strict=True))
    activities = size.records or size.activities
    return _START_BYTES + parsed + activities * _RECORD_BYTES.get(command, 0)


def foresee(name: str, size: Size | None) -> None:
    """Raise InputError if the current command would take more memory on this file than there is.

    size: None if the file does not tell; then the command runs, as it does for a part of stored records.
    """
    command, part = _command.get()
    most = _given.get() or machine_bytes()
    if size is None or not command or most is None or (part and size.records):
        return
    expected = expected_bytes(size, command)
    if expected > most:
        there = f"--max-memory is {_gib(most)}" if _given.get() else f"this machine has {_gib(most)}"
        part_of = "--time 0s:10s or --step A:B reads a part of it" if size.records else (
            "record fewer steps (pyprof run --steps A:B), or on a larger machine: pyprof parse FILE -o net.parquet; "
            "--time A:B and --step A:B then read a part of that"
        )  # fmt: skip
        raise InputError(f"{name}: {command} would take about {_gib(expected)} of memory; {there}", part_of)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"
