"""Print a script that makes a shell complete pyprof's commands, options and files.

    eval "$(pyprof completion bash)"        in ~/.bashrc, or the script once into a file that the shell loads

The script holds every command and option of this version as text (shtab writes it): completing starts no Python. After an
update print it anew.
"""

from __future__ import annotations

import argparse
import re
from importlib import import_module

from pyprof.errors import unusable
from pyprof.help import topics

SHELLS = ("bash", "zsh", "fish")
_PATHS = re.compile("FILE|DIR|FOLDER|PATH|OUT|PROGRAM|CAPTURE|MODULE|NAME")  # metavars of arguments that take a path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof completion`."""
    parser.add_argument("shell", choices=SHELLS, help="the shell to generate completions for")


def run(options: argparse.Namespace) -> int:
    """Print the script. Raises ToolError without shtab. Returns the exit code."""
    try:
        import shtab
    except ImportError as error:
        raise unusable("completion", "shtab", error, "pip install shtab") from error
    print(shtab.complete(_whole_parser(), options.shell))
    return 0


def _whole_parser() -> argparse.ArgumentParser:
    """One parser with all commands below it; arguments that take a path complete file names."""
    import shtab

    cli = import_module("pyprof.cli")  # imports this module only when `completion` runs
    about = {command.name: command.help for command in cli.COMMANDS}
    whole = argparse.ArgumentParser(prog="pyprof")
    commands = whole.add_subparsers()
    for name, parser in cli.parsers().items():
        parser.add_help = False
        below = commands.add_parser(name, help=about[name], parents=[parser], add_help=False)
        for action in below._actions:
            if action.dest == "topic":
                action.choices = [*topics(), *about]
            elif action.choices is None and _PATHS.search(str(action.metavar)):
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # read by shtab
    return whole
