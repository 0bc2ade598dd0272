"""A command on a terminal of a given size, as a user has it: standard output and error are one pseudo-terminal."""

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from typing import IO

from tests.conftest import ROOT

_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen(io.StringIO):
    """A stream that is a terminal, as far as whoever writes to it can tell."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


# One command after another in one process, which costs one start; a form feed between what they write.
_COMMANDS = """
import json, sys
from pyprof.cli import main
for number, words in enumerate(json.loads(sys.argv[1])):
    print(end="\f" * (number > 0), flush=True)
    if code := main(words): sys.exit(code)
"""


def on_terminal(
    arguments: Sequence[str] | Sequence[Sequence[str]],
    columns: int = 100,
    rows: int = 45,
    stderr: bool = False,
    stdin: IO[str] | None = None,
    **variables: str,
) -> str:
    """What `pyprof ARGUMENTS` writes to a terminal, with what steers it; stderr: and what it writes to standard error.

    arguments: of one command, or of several, which a form feed divides.
    stdin: a file in place of the terminal; variables: of the environment besides. Raises AssertionError where it fails.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    unset = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "COLORTERM")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **variables}
    errors = theirs if stderr else subprocess.PIPE
    one = ["-m", "pyprof", *map(str, arguments)] if isinstance(arguments[0], str) else ["-c", _COMMANDS, json.dumps(arguments)]
    child = subprocess.Popen([sys.executable, *one], stdin=stdin or theirs, stdout=theirs, stderr=errors, env=environment)
    os.close(theirs)
    written = b""
    while part := _read(ours):
        written += part
    os.close(ours)
    said = child.communicate()[1]
    assert child.returncode == 0, (said or written).decode()
    encoding = variables.get("PYTHONIOENCODING", "utf-8")
    return written.decode(encoding).replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end was closed
        return b""


def bare(text: str) -> str:
    """A text without what steers the terminal."""
    return _STEERING.sub("", text)


if __name__ == "__main__":  # python -m tests.terminals COLUMNS ROWS ARGUMENTS...
    print(on_terminal(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]), stderr=True), end="")
