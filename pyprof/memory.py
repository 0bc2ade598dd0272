"""`--max-memory SIZE` -> a limit of the memory of this process, beyond which it ends with a clear error. Knows no command.

The limit is the system's, of what the process may allocate (RLIMIT_DATA: heap, arrays, stacks of threads; files that are mapped
do not count), and holds for the rest of the process's life.
"""

from __future__ import annotations

import re

from pyprof.errors import ToolError, UsageError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST_BYTES = 64 << 20  # an interpreter with numpy takes about as much


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
    """Let this process allocate no more than that.

    Raises UsageError for what is no size, ToolError where the system has no such limit.
    """
    size = bytes_of(text)
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (size if hard < 0 else min(size, hard), hard))
    except (ImportError, OSError, ValueError) as error:
        raise ToolError(f"--max-memory: this system cannot limit memory: {error}", "run it without") from error
