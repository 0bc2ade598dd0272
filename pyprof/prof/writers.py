"""Columns of a frame -> text in one of four forms, each one function of (columns, values, stream); none knows a column.

plain       one blank between fields, no blank inside one
csv         RFC 4180
columnated  fields cut and padded to a given width of line, or as wide as they need
jsonl       one JSON object a line with the columns' keys; what is unknown is null
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from os.path import basename
from typing import TextIO

from pyprof.errors import UsageError
from pyprof.prof.columns import Column, is_text, unknown_as
from pyprof.prof.frame import Texts, Values

__all__ = ["write_columnated", "write_csv", "write_jsonl", "write_plain"]

_BATCH_ROWS = 10_000
_BATCH_VALUES = 8_000
_ARROW_FROM_ROWS = 50_000  # below, importing pyarrow takes longer than it saves
# Names come from the program and the file: what would steer a terminal is not passed on to one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _each_text(values: Values, change: Callable[[str], str]) -> Values:
    """A change made once to each distinct text."""
    return Texts(values.codes, [change(text) for text in values.pool]) if isinstance(values, Texts) else values


def _write_rows(cells: list[list[str]], separator: str, stream: TextIO, end: str) -> None:
    rows = zip(*cells, strict=True)
    lines = [separator.join(row) + end for row in rows]
    for start in range(0, len(lines), _BATCH_ROWS):
        stream.write("".join(lines[start : start + _BATCH_ROWS]))


def _write_values(values: list[Values], separator: str, stream: TextIO, end: str) -> None:
    """Rows of values, some at a time: the texts of all cells together take many times the memory of the values."""
    rows = len(values[0].codes if isinstance(values[0], Texts) else values[0].values)
    by_arrow = _arrow_rows(values, separator, end) if rows >= _ARROW_FROM_ROWS else None
    for start in range(0, rows, _BATCH_VALUES):
        part = slice(start, start + _BATCH_VALUES)
        text = by_arrow(part) if by_arrow is not None else None
        if text is None:
            _write_rows([unknown_as(v.take(part)) for v in values], separator, stream, end)
        else:
            stream.write(text)


def _arrow_rows(values: list[Values], separator: str, end: str) -> Callable[[slice], str | None] | None:
    """The text of some rows, None where Arrow cannot make it; None where it is not installed or takes none of these texts."""
    try:
        import pyarrow

        from pyprof.prof.rowtext import Rows
    except ImportError:
        return None
    try:
        made = Rows(values, separator, end)
    except (UnicodeEncodeError, pyarrow.ArrowException):
        return None

    def text(part: slice) -> str | None:
        try:
            return made.text(part)
        except pyarrow.ArrowException:
            return None

    return text


def write_plain(columns: list[Column], values: list[Values], stream: TextIO) -> None:
    """Space-separated, with a header line."""

    def solid(text: str) -> str:
        return _CONTROL.sub("?", "_".join(text.split())) or "-"

    stream.write(" ".join(solid(column.header) for column in columns) + "\n")
    _write_values([_each_text(v, solid) for v in values], " ", stream, "\n")


def _quoted(text: str) -> str:
    if any(character in text for character in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def write_csv(columns: list[Column], values: list[Values], stream: TextIO) -> None:
    """Comma-separated with a header line; fields quoted where they must be. Lines end in CR LF."""
    stream.write(",".join(_quoted(column.header) for column in columns) + "\r\n")
    _write_values([_each_text(v, _quoted) for v in values], ",", stream, "\r\n")


def write_jsonl(columns: list[Column], values: list[Values], stream: TextIO) -> None:
    """One JSON object a line; numbers are numbers, with the digits that the column prints."""
    keys = [json.dumps(column.key) for column in columns]
    cells = [
        [f"{key}: {text}" for text in unknown_as(_each_text(v, _json), "null")] for key, v in zip(keys, values, strict=True)
    ]
    _write_rows([["{" + text for text in cells[0]], *cells[1:]] if cells else [], ", ", stream, "}\n")


def _json(text: str) -> str:
    return "null" if text == "na" else json.dumps(text, ensure_ascii=False)


def write_columnated(columns: list[Column], values: list[Values], stream: TextIO, width: int | None = None) -> None:
    """Aligned in lines of at most `width` characters, None: of as many as it takes; texts are cut, numbers are not.

    Raises UsageError where the columns need more than that.
    """
    values = [_each_text(v, _last_name) if c.key == "trace" else v for c, v in zip(columns, values, strict=True)]
    cells = [unknown_as(_each_text(v, _one_line)) for v in values]
    widths = [_least(column, v, texts) for column, v, texts in zip(columns, values, cells, strict=True)]
    growing = [i for i, column in enumerate(columns) if column.grow]
    longest = [max([len(c.header), *map(len, _distinct(v, t))]) for c, v, t in zip(columns, values, cells, strict=True)]
    if width is None:
        widths = [max(pair) for pair in zip(widths, longest, strict=True)]
    else:
        left = width - sum(widths) - len(columns) + 1
        if left < 0 or (growing and left < len(growing)):
            need = sum(widths) + len(columns) - 1 + len(growing)
            raise UsageError(
                f"these columns need a line of at least {need} characters", f"give -w {need} or more, or fewer columns"
            )
        # The one that needs least first: what it leaves goes to the others, and none is wider than its longest text.
        waiting = sorted(growing, key=lambda index: longest[index] - widths[index])
        for number, index in enumerate(waiting):
            share = -(-left // (len(waiting) - number))
            more = max(min(share, longest[index] - widths[index]), 0)
            widths[index] += more
            left -= more
    headers = [column.header for column in columns]
    _write_rows([[h] for h in _aligned(headers, values, widths)], " ", stream, "\n")
    padded = [_pad(v, texts, w) for v, texts, w in zip(values, cells, widths, strict=True)]
    _write_rows(padded, " ", stream, "\n")


def _aligned(headers: list[str], values: list[Values], widths: list[int]) -> list[str]:
    return [h[:w].ljust(w) if is_text(v) else h[:w].rjust(w) for h, v, w in zip(headers, values, widths, strict=True)]


def _pad(values: Values, texts: list[str], width: int) -> list[str]:
    if is_text(values):
        return [text[:width].ljust(width) for text in texts]
    return [text.rjust(width) for text in texts]


def _distinct(values: Values, cells: list[str]) -> list[str]:
    return list(values.pool) if isinstance(values, Texts) else cells


def _least(column: Column, values: Values, cells: list[str]) -> int:
    if column.grow:
        return 0
    if is_text(values):
        return max(column.width, 2)
    return max([column.width, *map(len, cells)])


def _last_name(trace: str) -> str:
    return basename(trace.rpartition(",")[2])


def _one_line(text: str) -> str:
    return _CONTROL.sub("?", " ".join(text.split()))
