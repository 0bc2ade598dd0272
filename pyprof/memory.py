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
_START_BYTES, _ARROW_BYTES = 50 << 20, 50 << 20  # a small file; with pyarrow more
_BLOCKS = (20 << 20, 5)  # of JSON that is read: at most, and for each byte of a small file
_MANY_TEXTS = 40_000  # ranges: from here on pyarrow reads their texts


class Reader(NamedTuple):
    """The command that reads: its name, whether it was asked for a part of a capture, and whether it writes Parquet."""

    name: str = ""
    part: bool = False
    parquet: bool = False


_reader: ContextVar[Reader] = ContextVar("the command that reads", default=Reader())  # noqa: B039  (it cannot be changed)
_given: ContextVar[int | None] = ContextVar("--max-memory, in bytes", default=None)


class Size(NamedTuple):
    """Counts of a capture: GPU activities, API calls, ranges, bytes of JSON; or stored records; or bytes of a snapshot."""

    activities: int = 0
    launches: int = 0
    ranges: int = 0
    json_bytes: int = 0
    records: int = 0
    pickle_bytes: int = 0


_PARSING = (150, 50, 50, 0.5)
"""Peak bytes for each activity, API call, range and byte of JSON, from a capture to records."""
_JSON_OF_ONE = 3200  # bytes of JSON for each record, about
_PICKLE = 6  # peak bytes for each of a snapshot
_RECORD_BYTES = {"prof": 200, "summary": 430, "gaps": 560, "report": 480, "diff": 800, "ranks": 400, "trace": 800}
"""Peak bytes for each record in a command."""


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
def read_by(name: str, *, part: bool, parquet: bool) -> Iterator[None]:
    """Files read inside are read by this command: see Reader."""
    token = _reader.set(Reader(name, part, parquet))
    try:
        yield
    finally:
        _reader.reset(token)


def machine_bytes() -> int | None:
    """Memory of this machine, or of the container if that is less; None if unknown."""
    found = []
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # ValueError: "max"
            found.append(int(Path(path).read_text()))
    return min(found, default=None)


def free_bytes(path: str = "/proc/meminfo") -> int | None:
    """Bytes of memory that programs can still have; None if the system does not report them."""
    try:
        with open(path) as stream:
            for line in stream:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def expected_bytes(size: Size, command: str, *, parquet: bool = False) -> int:
    """Peak memory of a command on a file of this size: of parsing or of what follows, whichever is more; `trace` needs both."""
    parsing = sum(each * rows for each, rows in zip(_PARSING, size[:4], strict=True)) + _PICKLE * size.pickle_bytes
    working = (size.records or size.activities or size.json_bytes // _JSON_OF_ONE) * _RECORD_BYTES.get(command, 0)
    arrow = parquet or size.records > 0 or size.ranges >= _MANY_TEXTS
    start = _START_BYTES + min(_BLOCKS[0], _BLOCKS[1] * size.json_bytes) + arrow * _ARROW_BYTES
    return start + round(parsing + working if command == "trace" else max(parsing, working))


def foresee(name: str, size: Size | None) -> None:
    """Raise InputError if the current command would need more memory for this file than is available.

    size: None if unknown. Then, and for a part of stored records in `prof`, which reads only that, nothing is checked.
    """
    reader, most = _reader.get(), _given.get() or machine_bytes()
    if size is None or not reader.name or most is None or (reader.part and size.records and reader.name == "prof"):
        return
    expected = expected_bytes(size, reader.name, parquet=reader.parquet)
    if expected > most:
        there = f"--max-memory is {_gib(most)}" if _given.get() else f"this machine has {_gib(most)}"
        part_of = "pyprof prof --time 0s:10s or --step A:B reads a part of it" if size.records else (
            "record fewer steps (pyprof run --steps A:B), or on a larger machine: pyprof parse FILE -o net.parquet; "
            "pyprof prof --time A:B or --step A:B then reads a part of that"
        )  # fmt: skip
        raise InputError(f"{name}: {reader.name} would take about {_gib(expected)} of memory; {there}", part_of)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"
