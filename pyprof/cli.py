"""`pyprof COMMAND ...`: the explicit list of commands, and the only place where errors become exit codes.

Results go to standard output, everything else to standard error. A command's module is imported when that command runs.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import io
import os
import signal
import sys
from collections import namedtuple
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from pyprof.errors import PyprofError, UsageError
from pyprof.messages import tell, watch

TYPE_CHECKING = False  # of `typing`, whose import takes half as long as the interpreter's start
if TYPE_CHECKING:
    from typing import NoReturn, TextIO

# The module holds `add_arguments(parser)` and `run(options)`, which returns the exit code; help: one line.
Command = namedtuple("Command", "name module help")
COMMANDS = (
    Command("run", "pyprof.commands.run", "run a program unchanged, record it, print the summary"),
    Command("doctor", "pyprof.commands.doctor", "what is installed here, and whether recording will work"),
    Command("parse", "pyprof.commands.parse", "turn a capture into records, one a line (net.dict) or as Parquet"),
    Command("prof", "pyprof.commands.prof", "a table of records or of a capture: ops, FLOPs, bytes, Tensor Cores"),
    Command("summary", "pyprof.commands.summary", "one screen that says what to fix first"),
    Command("report", "pyprof.commands.report", "one page for a browser: the summary with charts, to look at and to send"),
    Command("diff", "pyprof.commands.diff", "two captures: what became faster or slower beyond noise, added, removed"),
    Command(
        "inductor", "pyprof.commands.inductor", "a compiled program: time by category, fused kernels and the bytes they move"
    ),
    Command("ranks", "pyprof.commands.ranks", "many ranks: stragglers and their causes, waiting, overlap, bandwidth"),
    Command("gaps", "pyprof.commands.gaps", "where each GPU idles and why, launches, queue, exposed communication"),
    Command("memory", "pyprof.commands.memory", "what holds the memory at its peak, by kind, layer, line; out of memory"),
    Command("trace", "pyprof.commands.trace", "a timeline for ui.perfetto.dev, each kernel with all that is known of it"),
    Command("counters", "pyprof.commands.counters", "measured counters of each launch beside what the algorithm needs"),
    Command("timers", "pyprof.commands.timers", "timers inside a kernel: time of its blocks, balance of its lanes, timeline"),
    Command(
        "scrub",
        "pyprof.commands.scrub",
        "a copy of a capture to share: without environment, commands, names of people",
    ),
    Command("bench", "pyprof.commands.bench", "time one recorded op alone on this machine, and alternatives to it"),
    Command("mcp", "pyprof.commands.mcp", "answer an assistant's questions on captures, read-only (Model Context Protocol)"),
    Command("completion", "pyprof.commands.completion", "print what makes bash, zsh or fish complete commands and options"),
    Command("help", "pyprof.help", "explain a topic or a command: getting-started, terms, columns, run, ..."),
)
# Those that read captures, and can keep what they found in them.
_CACHED = ("prof", "summary", "report", "diff", "ranks", "gaps", "trace", "counters")
# Those that read files in this process, and run no program.
_READERS = ("parse", *_CACHED, "memory", "scrub")
_BY_NAME = {command.name: command for command in COMMANDS}
_OUT_OF_MEMORY = ("out of memory", "give it more (--max-memory, if that was given), or a shorter capture", 1)
_OBJECTS = 100_000  # made between two searches for garbage: more than a command and a small capture need


def _overview() -> str:
    lines = [
        "usage: pyprof COMMAND [ARGUMENTS]",
        "",
        "For every GPU kernel: the op, layer and source line that launched it, and what it should cost.",
        "",
        *(f"  {command.name:10} {command.help}" for command in COMMANDS),
        "",
        "pyprof COMMAND --help describes a command; pyprof --version prints the version.",
    ]
    return "\n".join(lines)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"see {self.prog} --help")

    def print_help(self, file: object = None) -> None:
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        print(self.format_help(), end="")  # argparse would ignore that it cannot be written


def _parser(command: Command, prog: str) -> _Parser:
    module = import_module(command.module)
    # argparse makes a formatter for every argument, and one without a width imports shutil to ask for the terminal's.
    formatter = partial(argparse.RawDescriptionHelpFormatter, width=80)
    parser = _Parser(prog=prog, description=module.__doc__, formatter_class=formatter)
    module.add_arguments(parser)
    if command.name in _READERS:
        parser.add_argument("--max-memory", metavar="SIZE", help="end with an error rather than take more: 500M, 4G")
    if command.name in _CACHED:
        parser.add_argument("--cache", action="store_true", help="parse a capture once: keep its records in ~/.cache/pyprof")
    return parser


def arguments_text(name: str) -> str:
    """The output of `pyprof NAME --help`, for pages of help."""
    parser = _parser(_BY_NAME[name], f"pyprof {name}")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser.format_help()


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command by its name, for shells that complete them."""
    return {command.name: _parser(command, f"pyprof {command.name}") for command in COMMANDS}


def _run_command(command: Command, arguments: Sequence[str], prog: str) -> int:
    own_streams = command.name != "run"  # there they belong to the program until it ends, and so do the signals
    if own_streams:
        _write_utf8()
        if sys.stderr.isatty():
            watch()
        gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    module = import_module(command.module)
    parser = _parser(command, prog)
    parser.set_defaults(command_line=(*prog.split(), *arguments))
    # Names of files may stand between options; asked for help, argparse would wrap the usage in another way then.
    between = command.name in _READERS and not {"-h", "--help"} & {*arguments}
    options = parser.parse_intermixed_args(arguments) if between else parser.parse_args(arguments)
    with contextlib.ExitStack() as settings:
        if command.name in _READERS:
            from pyprof.memory import limit, read_by

            part = any(getattr(options, name, None) is not None for name in ("time", "step", "range"))
            parquet = str(getattr(options, "output", None)).endswith(".parquet")
            settings.enter_context(read_by(command.name, part=part, parquet=parquet))
            if options.max_memory is not None:
                limit(options.max_memory)
        if getattr(options, "graphs", None) is not None or getattr(options, "cache", False):
            from pyprof.loading.load import cached, graphs_from

            if options.cache:
                settings.enter_context(cached())
            if getattr(options, "graphs", None) is not None:
                settings.enter_context(graphs_from(options.graphs))
        if own_streams and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            from pyprof.tables.files import terminated_by_exception

            settings.enter_context(terminated_by_exception())
        return int(module.run(options))


def _dispatch(arguments: Sequence[str], prog: str | None) -> int:
    if prog is not None:  # python -m pyprof.parse
        return _run_command(_BY_NAME[prog], arguments, f"python -m pyprof.{prog}")
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from pyprof import __version__

        print(f"pyprof {__version__}")
        return 0
    if arguments[0] not in _BY_NAME:
        import difflib

        near = difflib.get_close_matches(arguments[0], _BY_NAME, 1)
        raise UsageError(f"there is no command {arguments[0]!r}", f"did you mean {near[0]}?" if near else "see pyprof --help")
    return _run_command(_BY_NAME[arguments[0]], arguments[1:], f"pyprof {arguments[0]}")


def _write_utf8() -> None:
    """Print the same bytes on every system, and never fail because the terminal's encoding lacks a character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")


def _discard(stream: TextIO) -> None:
    """Let what a standard stream still holds go nowhere when the interpreter flushes it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fail(message: str, hint: str, code: int) -> int:
    """Print an error and its hint; returns the exit code."""
    _write_utf8()
    try:
        tell(f"pyprof: error: {' '.join(message.split())}")
        if hint:
            tell(f"hint: {hint}")
    except OSError:  # standard error is full as well
        _discard(sys.stderr)
    return code


def main(arguments: Sequence[str] | None = None, *, command: str | None = None) -> int:
    """Run a command. arguments: default sys.argv; command: its name, if the arguments do not begin with it.

    Returns the exit code: 0 done, 1 bad input or environment, 2 wrong usage, 3 a limit that the user set did not hold.
    """
    # A closed standard stream (`>&-`) gets a descriptor, so that no file opened later takes its number: writing to standard
    # output then fails as it would have, messages for a closed standard error are dropped.
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    given = sys.argv[1:] if arguments is None else arguments
    if arguments is None and (command or next(iter(given), None)) in _READERS:
        # Without threads of OpenBLAS, one a core: they spin for 2^26 clock cycles each before they sleep, together a quarter of
        # a short run's CPU time. Readers multiply no matrices, and run no program that would inherit this.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        try:
            return _dispatch(given, command)
        finally:
            sys.stdout.flush()
            if arguments is None:  # the process ends now: a last search of all modules for garbage takes a tenth of a short run
                gc.freeze()
    except BrokenPipeError:  # the reader has seen enough: `| head`
        _discard(sys.stdout)
        return 0
    except PyprofError as error:
        return _fail(str(error), error.hint, error.exit_code)
    except OSError as error:
        if error.errno == errno.ENOMEM:  # mapping a file, starting a process
            return _fail(*_OUT_OF_MEMORY)
        cause = error.strerror or str(error)
        if error.filename is not None:
            return _fail(f"{os.fsdecode(error.filename)}: {cause}", "check the path and its permissions", 1)
        _discard(sys.stdout)
        return _fail(f"standard output cannot be written: {cause}", "send it to a file on a disk with free space", 1)
    except MemoryError:
        return _fail(*_OUT_OF_MEMORY)
    except KeyboardInterrupt:
        return 130
