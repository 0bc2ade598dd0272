"""A table -> text or a file in one of FORMATS. A format is one function and its entry in that list; none knows a column.

A format of text says what stands around the fields of a row. Rows are then made and written some at a time, since the texts of
all fields together take many times the memory of the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import IO, BinaryIO, NamedTuple, cast

import numpy as np

from pyprof.errors import ToolError, UsageError
from pyprof.tables.table import Fractions, Header, Table, Texts, Values, printed

_BATCH_ROWS = 8_000
_ARROW_FROM_ROWS = 50_000  # below, importing pyarrow takes longer than it saves
_MOST_WIDTH = 4_000  # characters of a field in an aligned table: one name of megabytes would pad every other line to its length
# Names come from the program and the file: what would steer a terminal is not passed on to one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Lines(NamedTuple):
    """How a table is written: begin, each row by a %-template, end. unknown: the text of what is unknown; skipped: the number
    of characters of the first row that are left out."""

    begin: str
    row: str
    end: str = ""
    unknown: str = "na"
    skipped: int = 0


def write_lines(lines: Lines, values: Sequence[Values], stream: IO[str]) -> None:
    """Write rows in batches, by Arrow where there are many, no field is aligned, and it is installed."""
    stream.write(lines.begin)
    rows = len(values[0].unknown) if values else 0
    by_arrow = _arrow_rows(lines, values) if rows >= _ARROW_FROM_ROWS and lines.row.count("%s") == len(values) else None
    for start in range(0, rows, _BATCH_ROWS):
        part = slice(start, start + _BATCH_ROWS)
        text = by_arrow(part) if by_arrow is not None else None
        if text is None:
            cells = [printed(v.take(part), lines.unknown) for v in values]
            text = "".join(map(lines.row.__mod__, zip(*cells, strict=True)))
        stream.write(text if start else text[lines.skipped :])
    stream.write(lines.end)


def _arrow_rows(lines: Lines, values: Sequence[Values]) -> Callable[[slice], str | None] | None:
    """The text of some rows, None where Arrow cannot make it; None where it is not installed or takes none of these texts."""
    try:
        import pyarrow

        from pyprof.tables.rowtext import Rows
    except ImportError:
        return None
    try:
        made = Rows(values, lines.row.split("%s"), lines.unknown)
    except (UnicodeEncodeError, pyarrow.ArrowException):
        return None

    def text(part: slice) -> str | None:
        try:
            return made.text(part)
        except pyarrow.ArrowException:
            return None

    return text


def _fields(table: Table, change: Callable[[str], str]) -> list[Values]:
    """The values as fields of a line, with a change made once to each distinct text."""
    return [
        Texts(v.codes, [change(text or header.empty) for text in v.pool]) if isinstance(v, Texts) else v
        for header, v in zip(table.headers, table.values, strict=True)
    ]


def visible(text: str) -> str:
    """A text without control characters."""
    return _CONTROL.sub("?", text)


# ---------------------------------------------------------------------------------------------- separated by a character


def _solid(text: str) -> str:
    return visible("_".join(text.split())) or "-"


def write_plain(table: Table, stream: IO[str]) -> None:
    """One blank between fields and none inside, with a header line."""
    headers = [_solid(header.text) for header in table.headers]
    write_lines(Lines(" ".join(headers) + "\n", " ".join(["%s"] * len(headers)) + "\n"), _fields(table, _solid), stream)


def _quoted(text: str) -> str:
    if any(character in text for character in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def write_csv(table: Table, stream: IO[str]) -> None:
    """RFC 4180: a header line, fields quoted where they must be, lines that end in CR LF."""
    headers = [_quoted(header.text) for header in table.headers]
    row = ",".join(["%s"] * len(headers)) + "\r\n"
    write_lines(Lines(",".join(headers) + "\r\n", row), _fields(table, _quoted), stream)


def write_markdown(table: Table, stream: IO[str]) -> None:
    """A table of GitHub's Markdown."""

    def cell(text: str) -> str:
        return re.sub(r"[\\|<*`]", r"\\\g<0>", _one_line(text))  # `f<float>` would be taken for HTML and vanish

    values = _fields(table, cell)
    rule = ["---" if isinstance(v, Texts) else "--:" for v in values]
    head = [" | ".join(cells) for cells in ([cell(header.text) for header in table.headers], rule)]
    title = f"{table.title}\n\n" if table.title else ""
    row = f"| {' | '.join(['%s'] * len(values))} |\n"
    write_lines(Lines(f"{title}| {head[0]} |\n| {head[1]} |\n", row), values, stream)


# ---------------------------------------------------------------------------------------------- keyed


def _each_key_once(table: Table) -> Table:
    """A column that was chosen twice has one key."""
    first = {header.key: number for number, header in reversed(list(enumerate(table.headers)))}
    chosen = sorted(first.values())
    return table._replace(headers=[table.headers[n] for n in chosen], values=[table.values[n] for n in chosen])


def _json_rows(table: Table) -> tuple[str, list[Values]]:
    """The template of an object, and the values as JSON writes them."""
    table = _each_key_once(table)
    values: list[Values] = []
    for v in table.values:
        if isinstance(v, Texts):
            v = Texts(v.codes, [json.dumps(text, ensure_ascii=False) for text in v.pool])
        elif isinstance(v, Fractions):
            v = v._replace(unknown=v.unknown | ~np.isfinite(v.values))  # JSON has no infinity
        values.append(v)
    return "{" + ", ".join(json.dumps(header.key).replace("%", "%%") + ": %s" for header in table.headers) + "}", values


def write_jsonl(table: Table, stream: IO[str]) -> None:
    """One JSON object a line; numbers are numbers, with the digits that the column prints; what is unknown is null."""
    row, values = _json_rows(table)
    write_lines(Lines("", f"{row}\n", unknown="null"), values, stream)


def write_json(table: Table, stream: IO[str]) -> None:
    """The rows as an array under the table's name."""
    row, values = _json_rows(table)
    write_lines(Lines(f"{json.dumps(table.name)}: [\n", f",\n{row}", "\n]", "null", skipped=2), values, stream)


def write_parquet(table: Table, stream: IO[str]) -> None:
    """Typed columns under their keys, null for what is unknown."""
    try:
        from pyprof.tables.parquet import write
    except ImportError as error:
        raise ToolError("Parquet needs pyarrow, which is not installed", "pip install 'pyprof[parquet]', or --csv") from error
    write(_each_key_once(table), cast(BinaryIO, cast(TextIOWrapper, stream).buffer))


# ---------------------------------------------------------------------------------------------- aligned


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def write_aligned(table: Table, stream: IO[str], width: int | None = None) -> None:
    """Aligned in lines of at most `width` characters, None: of as many as it takes; texts are cut, numbers are not.

    Raises UsageError where the columns need more than that.
    """
    brief = [Texts(v.codes, v.brief) if isinstance(v, Texts) and v.brief is not None else v for v in table.values]
    values = _fields(table._replace(values=brief), _one_line)
    longest = [max(len(h.text), _longest(v)) for h, v in zip(table.headers, values, strict=True)]
    least = [0 if h.grow else max(h.width, _least(v)) for h, v in zip(table.headers, values, strict=True)]
    widths = [*map(max, least, longest)] if width is None else _fitted(table.headers, least, longest, width)
    forms = [f"%-{w}.{w}s" if isinstance(v, Texts) else f"%{w}s" for v, w in zip(values, widths, strict=True)]
    head = " ".join(form % header.text[:w] for form, header, w in zip(forms, table.headers, widths, strict=True))
    title = f"{table.title}\n" if table.title else ""
    write_lines(Lines(f"{title}{head}\n", " ".join(forms) + "\n"), values, stream)


def _longest(values: Values) -> int:
    """Characters of the longest field of a column."""
    if isinstance(values, Texts):
        return min(max(map(len, values.pool), default=0), _MOST_WIDTH)
    known = values.values[~values.unknown]
    ends = values._replace(values=np.array([known.min(), known.max()]), unknown=np.zeros(2, np.bool_)) if len(known) else None
    least = 2 * bool(values.unknown.any())
    return max(least, *map(len, printed(ends))) if ends is not None else least


def _least(values: Values) -> int:
    """Characters below which a field says nothing: numbers are never cut, and `na` is."""
    return 2 if isinstance(values, Texts) else _longest(values)


def _fitted(headers: Sequence[Header], least: Sequence[int], longest: Sequence[int], width: int) -> list[int]:
    """Widths of columns that fill a line; what is left goes to those that grow."""
    widths = list(least)
    growing = [i for i, header in enumerate(headers) if header.grow]
    left = width - sum(widths) - len(headers) + 1
    if left < len(growing):
        need = width - left + len(growing)
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
    return widths


# ---------------------------------------------------------------------------------------------- the list


class Format(NamedTuple):
    """One output format. suffix: of files written so; titled: whether it names its tables, so that several can stand in one
    output; before, between, after: what stands around them; binary: whether it goes to a file only."""

    write: Callable[[Table, IO[str]], None]
    help: str
    suffix: str
    titled: bool = False
    before: str = ""
    between: str = "\n"
    after: str = ""
    binary: bool = False


FORMATS: dict[str, Format] = {
    "plain": Format(write_plain, "space-separated", ".txt"),
    "table": Format(write_aligned, "aligned, nothing cut", ".table", titled=True),
    "csv": Format(write_csv, "RFC 4180", ".csv"),
    "jsonl": Format(write_jsonl, "JSON lines", ".jsonl", between=""),
    "json": Format(write_json, "one JSON object with a version", ".json", True, '{"schema": 1, ', ", ", "}\n"),
    "markdown": Format(write_markdown, "Markdown", ".md", titled=True),
    "parquet": Format(write_parquet, "typed columns, to a file", ".parquet", binary=True),
}


def write_tables(tables: Sequence[Table], form: Format, stream: IO[str]) -> None:
    """Tables in one format, one after another."""
    stream.write(form.before)
    for number, table in enumerate(tables):
        stream.write(form.between if number else "")
        form.write(table, stream)
    stream.write(form.after)
