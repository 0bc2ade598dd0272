"""`pyprof COMMAND ...`: one explicit list of commands, and the only place where errors become exit codes.

Results go to standard output, everything else to standard error. Nothing is imported before a command needs it.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn, Protocol, cast

from pyprof.errors import PyprofError, UsageError

__all__ = ["COMMANDS", "main"]


class Command(NamedTuple):
    """One command: its name, the module that holds `add_arguments(parser)` and `run(options)`, and one line of help."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command("run", "pyprof.recording.command", "run a program unchanged, record it, print what took most time"),
    Command("doctor", "pyprof.doctor", "what is installed here, and whether a capture will work"),
    Command("parse", "pyprof.parse.command", "a capture becomes records, one a line (net.dict)"),
    Command("prof", "pyprof.prof.command", "records or a capture become a table: ops, FLOPs, bytes, Tensor Cores"),
    Command("summary", "pyprof.report.summary", "the one screen that says what to fix first"),
    Command("inductor", "pyprof.report.inductor", "a compiled program: time by category, fused kernels with what they move"),
    Command("ranks", "pyprof.report.ranks.command", "many ranks: stragglers and why, waiting, overlap, bandwidth"),
    Command("gaps", "pyprof.report.gaps", "where each GPU idles and why, launches, queue, exposed communication"),
    Command("bench", "pyprof.timers.command", "one recorded op alone on this machine, and beside it what it could be instead"),
)


class _Runnable(Protocol):
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """argparse with errors of ours: one line and a hint."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"see {self.prog} --help")


def _overview() -> str:
    lines = [
        "usage: pyprof COMMAND [ARGUMENTS]",
        "",
        "Which op, layer and line launched every GPU kernel, and what it should cost.",
        "",
    ]
    lines += [f"  {command.name:10} {command.help}" for command in COMMANDS]
    return "\n".join([*lines, "", "pyprof COMMAND --help tells more; pyprof --version prints the version."])


def _run_command(command: Command, arguments: Sequence[str], prog: str) -> int:
    if command.name != "run":  # there the streams are the program's until it ends
        _write_utf8()
    module: _Runnable = cast(_Runnable, import_module(command.module))
    parser = _Parser(prog=prog, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(parser)
    return module.run(parser.parse_args(arguments))


def _dispatch(arguments: Sequence[str], prog: str | None) -> int:
    by_name = {command.name: command for command in COMMANDS}
    if prog is not None:  # python -m pyprof.parse
        return _run_command(by_name[prog], arguments, f"python -m pyprof.{prog}")
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from pyprof import __version__

        print(f"pyprof {__version__}")
        return 0
    if arguments[0] not in by_name:
        import difflib

        near = difflib.get_close_matches(arguments[0], by_name, 1)
        raise UsageError(f"there is no command {arguments[0]!r}", f"did you mean {near[0]}?" if near else "see pyprof --help")
    return _run_command(by_name[arguments[0]], arguments[1:], f"pyprof {arguments[0]}")


def _write_utf8() -> None:
    """Print the same bytes wherever we run, and never fail for a text that the terminal's encoding has not."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _quiet_stdout() -> None:
    """The reader of our output has gone: write nothing more, and let the interpreter's last flush write nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: Sequence[str] | None = None, *, command: str | None = None) -> int:
    """Run a command; arguments: those of the process where None; command: run this one and take no name from the arguments.

    Returns the exit code: 0 done, 1 the input or the environment is at fault, 2 wrong usage, 3 a limit of the user's did not
    hold.
    """
    try:
        code = _dispatch(sys.argv[1:] if arguments is None else arguments, command)
        sys.stdout.flush()
    except BrokenPipeError:
        _quiet_stdout()
        return 0
    except PyprofError as error:
        _write_utf8()
        print(f"pyprof: error: {' '.join(str(error).split())}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return code
