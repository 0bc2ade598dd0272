"""Every exception that pyprof raises on purpose, so that a caller can catch one class and a person reads one line.

    PyprofError               exit code 1: the input or the environment is at fault
    ├── InputError            a file cannot be read, or is not what it was said to be
    │   ├── NotACapture       readable, but no format that pyprof knows
    │   └── EmptyCapture      a known format in which nothing usable was recorded
    ├── ToolError             a tool or a package that the task needs is missing or refuses to work
    ├── UsageError            exit code 2: the command line asks for something that does not exist
    └── GateError             exit code 3: a limit set by the user did not hold

Each carries a hint: the next command to type, or the next thing to look at. Nothing here knows about formats.
"""

from __future__ import annotations

__all__ = ["EmptyCapture", "GateError", "InputError", "NotACapture", "PyprofError", "ToolError", "UsageError"]


class PyprofError(Exception):
    """What went wrong in one line, with a hint for the next step.

    message: one line, naming the file or argument; hint: one line, a command to type where there is one.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class InputError(PyprofError):
    """A file cannot be read or is damaged."""


class NotACapture(InputError):
    """A readable file that is in none of the known formats."""


class EmptyCapture(InputError):
    """A capture in which neither GPU activity nor op ranges were recorded."""


class ToolError(PyprofError):
    """A tool or a package that this task needs is missing or does not work here."""


class UsageError(PyprofError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class GateError(PyprofError):
    """A limit that the user set (`--fail-over`, `--min-match`) did not hold."""

    exit_code = 3
