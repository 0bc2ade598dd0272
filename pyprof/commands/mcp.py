"""Answer an assistant's questions on the captures in some folders: summary, ops, gaps, diff, ranks, memory and more.

    pyprof mcp FOLDER        what a client of the Model Context Protocol starts; `pyprof help mcp` says how to set one up

It speaks the protocol over standard input and output. Nothing is written, and nothing outside of the folders is read.
"""

from __future__ import annotations

import argparse
import sys

from pyprof.errors import ToolError, install_extra
from pyprof.mcp.folders import Folders
from pyprof.messages import tell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof mcp`."""
    parser.add_argument("folder", metavar="FOLDER", nargs="+", help="captures below it can be asked for")


def run(options: argparse.Namespace) -> int:
    """Serve until the input ends. Returns the exit code."""
    folders = Folders(options.folder)
    try:
        from pyprof.mcp.server import serve
    except ImportError as error:
        raise ToolError(f"pyprof mcp needs the package mcp, version 2: {error}", install_extra("mcp")) from error
    if sys.stdin is not None and sys.stdin.isatty():
        tell("pyprof mcp: waits for a client on standard input; `pyprof help mcp` says how to set one up")
    serve(folders)
    return 0
