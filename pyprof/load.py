"""A file, or standard input -> Records, whatever it holds: a capture or lines that parse wrote.

The one place where attribution meets the formulas: which ops have one decides where an op instance begins.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pyprof.errors import InputError, UsageError

if TYPE_CHECKING:
    from pyprof.parse.records import Records
    from pyprof.parse.stacks import OpRules

__all__ = ["load", "load_capture", "op_rules"]


def op_rules() -> OpRules:
    """What the formulas say of ops, for attribution."""
    from pyprof.parse.stacks import OpRules
    from pyprof.prof import formulas

    return OpRules(formulas.known, formulas.is_copy, formulas.is_structural)


def load_capture(path: Path) -> Records:
    """Records of a capture. Raises PyprofError where it is none or holds nothing."""
    from pyprof.parse.attribute import attribute
    from pyprof.parse.sources import open_trace

    trace = open_trace(path)
    try:
        return attribute(trace, op_rules())
    except InputError as error:
        raise type(error)(f"{path}: {error}", error.hint) from error


def load(name: str) -> Records:
    """Records of a file: of the lines that parse wrote, or of a capture; `-` is standard input, which takes lines only."""
    from pyprof.parse.sources import check_readable

    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("no file was given, and nothing comes in by a pipe", "python -m pyprof.prof net.dict")
        return _lines(sys.stdin, "standard input")
    path = Path(name)
    check_readable(path)
    with path.open("rb") as stream:
        begin = stream.read(4096).lstrip()
    # A record is an object with the original's first key; a Kineto trace is an object as well.
    if begin.startswith((b'{"kShortName"', b"{'kShortName'", b"{'kLongName'")) or path.suffix == ".dict":
        with path.open(encoding="utf-8", errors="replace") as text:
            return _lines(text, name)
    return load_capture(path)


def _lines(stream: TextIO, name: str) -> Records:
    from pyprof.parse.readdict import read_lines

    try:
        records = read_lines(stream, name, op_rules())
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not text: {error.reason}", "give the output of `python -m pyprof.parse`") from error
    if not len(records):
        raise InputError(f"{name}: no records in it", "give the output of `python -m pyprof.parse`, or the capture itself")
    return records
