"""Size of a capture -> expected memory of a command: refuse at once rather than fail after minutes.

The estimate is the number of rows or bytes in the file, times bytes per row measured by `scripts/bench/foreseen.py`.
`--max-memory` replaces the machine's memory in this check and also sets a limit of the operating system.
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
_START_BYTES = 100 << 20  # a command before it reads anything large
_command: ContextVar[tuple[str, bool]] = ContextVar("command, and whether it reads a part of a capture", default=("", False))
_given: ContextVar[int | None] = ContextVar("--max-memory, in bytes", default=None)


class Size(NamedTuple):
    """Counts of a capture: GPU activities, API calls, ranges, bytes of JSON; or the number of stored records."""

    activities: int = 0
    launches: int = 0
    ranges: int = 0
    json_bytes: int = 0
    records: int = 0


_PARSING = Size(activities=130, launches=60, ranges=60, json_bytes=2)
"""Peak bytes of parsing, per row and per byte of JSON."""
_RECORD_BYTES = {"prof": 300, "summary": 350, "gaps": 350, "report": 350, "diff": 350, "ranks": 350, "trace": 600}
"""Bytes per record that each command takes, besides parsing."""


def bytes_of(text: str, option: str = "--max-memory") -> int:
    """Bytes of a size such as 500M, 4G or 4GiB (powers of 1024). Raises UsageError if malformed or below 64M.

    option: the option's name in the error.
    """
    found = re.fullmatch(r"(\d{1,15})([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = int(found[1]) * _UNITS[found[2].upper()] if found else 0
    if size < _LEAST_BYTES:
        raise UsageError(f"{option} {text}: not a size of at least 64M", "write 500M or 4G")
    return size


def limit(text: str) -> None:
    """Limit this process to `--max-memory`, by the system's limit on data (RLIMIT_DATA).

    Raises UsageError if the text is not a size, ToolError if the system has no such limit.
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
    """Name the command for `foresee` inside the block. part: the user chose a part of the capture."""
    token = _command.set((name, part))
    try:
        yield
    finally:
        _command.reset(token)


def machine_bytes() -> int | None:
    """Memory of this machine, or of the container if that is less; None if unknown."""
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
    """Raise InputError if the current command would need more memory for this file than is available.

    size: None if unknown. Then, and for a part of stored records, nothing is checked.
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
