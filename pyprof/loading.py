"""A file, or standard input -> Records, whatever it holds: a capture or lines that parse wrote.

The one place where attribution meets the formulas: which ops have one decides where an op instance begins.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pyprof.errors import InputError, UsageError

if TYPE_CHECKING:
    from pyprof.opcall import OpRules
    from pyprof.parse.records.records import Records
    from pyprof.parse.sources.trace import Trace

__all__ = ["load", "load_capture", "load_with_trace", "op_rules"]


def op_rules() -> OpRules:
    """What the formulas say of ops, for attribution."""
    from pyprof.opcall import OpRules
    from pyprof.prof import formulas

    return OpRules(formulas.known, formulas.is_copy, formulas.is_structural, formulas.gives_way, formulas.moves)


def load_capture(path: Path) -> Records:
    """Records of a capture. Raises PyprofError where it is none or holds nothing."""
    from pyprof.parse.sources import open_trace

    return _attributed([open_trace(path)], path)


def _attributed(opened: list[Trace], path: Path) -> Records:
    """Records of the one trace of a list, which is taken out: where nobody else has it, columns are freed as they are used."""
    from pyprof.parse.attribution.attribute import attribute

    try:
        return attribute(opened.pop(), op_rules())
    except InputError as error:
        raise type(error)(f"{path}: {error}", error.hint) from error


def load_with_trace(name: str) -> tuple[Records, Trace | None]:
    """As `load`, and with the records of a capture the tables that they were made from."""
    path = Path(name)
    if name == "-" or path.is_dir() or not path.exists() or _begins_as_parquet(path) or _holds_lines(path):
        return load(name), None
    from pyprof.parse.sources import open_trace

    trace = open_trace(path)
    return _attributed([trace], path), trace


def load(name: str) -> Records:
    """Records of a file or folder that parse wrote, or of a capture; `-` is standard input, which takes lines only."""
    from pyprof.parse.sources import check_readable

    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("no file was given, and nothing comes in by a pipe", "python -m pyprof.prof net.dict")
        binary = getattr(sys.stdin, "buffer", None)
        return (
            _decoded(binary, "standard input") if isinstance(binary, io.BufferedReader) else _lines(sys.stdin, "standard input")
        )
    path = Path(name)
    if path.is_dir():
        from pyprof.parse.records.dataset import stored
        from pyprof.parse.records.parquet import read
        from pyprof.parse.records.records import concatenate

        if files := stored(path):
            return concatenate([read(file) for file in files])
    check_readable(path)
    if _begins_as_parquet(path):
        from pyprof.parse.records.parquet import read

        return read(path)
    if _holds_lines(path):
        with path.open("rb") as stream:
            return _decoded(stream, name)
    return load_capture(path)


def _begins_as_parquet(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"PAR1"


_RECORD_KEY = re.compile(r"""["']k(?:Short|Long)Name["']\s*:""")
_HEAD_BYTES = 1 << 20


def _encoding(begin: bytes) -> str:
    """UTF-8, or UTF-16 as a shell of Windows redirects it; a byte order mark is no part of the text."""
    return "utf-16" if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def _decoded(stream: io.BufferedReader, name: str) -> Records:
    text = io.TextIOWrapper(stream, _encoding(stream.peek(2)[:2]), "replace")
    try:
        return _lines(text, name)
    finally:
        text.detach()  # the stream is not ours to close


def _holds_lines(path: Path) -> bool:
    """Whether a file holds records, told by its first line: an object with one of the original's keys, wherever it stands.

    Other text under the name of records is taken for such, so that the error names the line that is none.
    """
    from pyprof.parse.sources import is_capture

    if is_capture(path):
        return False
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    first, _, _ = head.decode(_encoding(head), "replace").lstrip().partition("\n")
    return (first.startswith("{") and _RECORD_KEY.search(first) is not None) or path.suffix in (".dict", ".jsonl")


def _lines(stream: TextIO, name: str) -> Records:
    from pyprof.parse.records.netdict.read import read_lines

    records = read_lines(stream, name, op_rules())
    if not len(records):
        raise InputError(f"{name}: no records in it", "give the output of `python -m pyprof.parse`, or the capture itself")
    return records
