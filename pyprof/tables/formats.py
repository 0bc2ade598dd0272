"""A table -> text or a file in one of FORMATS. A format is one function and its entry in FORMATS.

Text formats only describe what stands around the fields of a row (`Lines`). Rows are formatted and written in batches, since
all texts together take many times the memory of the values; only aligned tables look at all rows first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from json.encoder import encode_basestring
from operator import attrgetter
from typing import IO, BinaryIO, NamedTuple, TypeAlias, cast

import numpy as np

from pyprof.errors import UsageError, install_extra, unusable
from pyprof.messages import one_line, visible
from pyprof.tables.table import PART_ROWS, AnyTable, Fractions, Header, LazyTable, PerPool, Texts, Values, printed

_BATCH_ROWS = 2_000
_ARROW_FROM_ROWS = 50_000  # below this, importing pyarrow costs more than it saves
Text: TypeAlias = str | memoryview  # or its bytes in UTF-8
_EXECUTED = r"(?s)(?:^|(?<=[;\t\r\n]))(?=\s*[=+\-@＝＋－＠].)"  # where a spreadsheet sees a formula


class Lines(NamedTuple):
    """Layout of a text format: begin, a %-template per row, end. unknown: text of unknown values; skipped: characters to leave
    out of the first row (a separator); finite: print infinite numbers as unknown."""

    begin: str
    row: str
    end: str = ""
    unknown: str = "na"
    skipped: int = 0
    finite: bool = False


def write_lines(lines: Lines, table: AnyTable, change: Callable[[str], str], stream: IO[str]) -> None:
    """Write rows in batches; with Arrow if there are many, no field is aligned, and it is installed.

    change: turns a text into its field. Control characters are never written to a terminal.
    """
    fields = [PerPool(partial(_field_texts, change, header.empty, stream.isatty())) for header in table.headers]
    many = len(table.rows) >= _ARROW_FROM_ROWS and lines.row.count("%s") == len(fields)
    made = (_arrow_rows(lines) if many else None) or partial(_python_rows, lines)
    skipped, begin = lines.skipped, titled(lines.begin) if stream.isatty() else lines.begin
    past_encoder = stream.buffer if getattr(stream, "encoding", None) == "utf-8" and hasattr(stream, "buffer") else None
    for part in table.parts():
        stream.write(begin)  # after the first rows are computed: a damaged file fails there
        begin = ""
        values = [Texts(v.codes, of(v)) if isinstance(v, Texts) else v for v, of in zip(part.values, fields, strict=True)]
        if lines.finite:
            values = [v._replace(unknown=v.unknown | ~np.isfinite(v.values)) if isinstance(v, Fractions) else v for v in values]
        for start in range(0, len(values[0].unknown) if values else 0, PART_ROWS):
            for text in made([v.take(slice(start, start + PART_ROWS)) for v in values]):
                some, skipped = text[skipped:], 0
                if isinstance(some, str):
                    stream.write(some)
                elif past_encoder is not None:
                    stream.flush()
                    past_encoder.write(some)
                else:
                    stream.write(str(some, "utf-8"))
    stream.write(lines.end)


def _python_rows(lines: Lines, values: Sequence[Values]) -> Iterator[Text]:
    """The text of some rows, in batches."""
    for start in range(0, len(values[0].unknown), _BATCH_ROWS):
        cells = [printed(v.take(slice(start, start + _BATCH_ROWS)), lines.unknown) for v in values]
        yield "".join(map(lines.row.__mod__, zip(*cells, strict=True)))


def _arrow_rows(lines: Lines) -> Callable[[Sequence[Values]], Iterator[Text]] | None:
    """As `_python_rows` but by Arrow, except rows that Arrow refuses; None if it is not installed."""
    try:
        import pyarrow

        from pyprof.tables.rowtext import BATCH_ROWS, RowTexts
    except ImportError:
        return None
    made = RowTexts(lines.row.split("%s"), lines.unknown)
    refused = UnicodeEncodeError, pyarrow.ArrowException

    def rows(values: Sequence[Values]) -> Iterator[Text]:
        try:
            return batches(values, made.text(values))
        except refused:
            return _python_rows(lines, values)

    def batches(values: Sequence[Values], texts: Iterator[Text]) -> Iterator[Text]:
        done = 0
        try:
            for text in texts:
                yield text
                done += BATCH_ROWS
        except refused:
            yield from _python_rows(lines, [v.take(slice(done, None)) for v in values])

    return rows


def _field_texts(change: Callable[[str], str], empty: str, shown: bool, values: Texts) -> list[str]:
    """The fields of a column's distinct texts; shown: on a terminal, so control characters are made visible."""
    fields = (change(text or empty) for text in values.pool)
    return [*map(visible, fields)] if shown else [*fields]


# ---------------------------------------------------------------------------------------------- separated by a character


def _solid(text: str) -> str:
    return one_line(text).replace(" ", "_") or "-"


def write_plain(table: AnyTable, stream: IO[str]) -> None:
    """Write fields separated by one blank, with no blank inside, after a header line."""
    headers = [*map(_solid, map(attrgetter("text"), table.headers))]
    write_lines(Lines(" ".join(headers) + "\n", " ".join(["%s"] * len(headers)) + "\n"), table, _solid, stream)


_needs_quotes = re.compile('[,"\r\n]').search


def _quoted(text: str) -> str:
    if _needs_quotes(text):
        return '"' + text.replace('"', '""') + '"'
    return text


def write_csv(table: AnyTable, stream: IO[str]) -> None:
    """Write RFC 4180: a header line, fields quoted where needed, lines ending in CR LF."""
    _write_csv(table, stream, _quoted)


def write_csv_safe(table: AnyTable, stream: IO[str]) -> None:
    """Write CSV in which texts that a spreadsheet would run as a formula get a leading apostrophe."""
    _write_csv(table, stream, lambda text: _quoted(re.sub(_EXECUTED, "'", text)))


def _write_csv(table: AnyTable, stream: IO[str], change: Callable[[str], str]) -> None:
    headers = [change(header.text) for header in table.headers]
    row = ",".join(["%s"] * len(headers)) + "\r\n"
    write_lines(Lines(",".join(headers) + "\r\n", row), table, change, stream)


def markdown_text(text: str) -> str:
    """A text on one line of Markdown, as it is."""
    # `f<float>` would be taken for HTML and vanish, `[text](address)` for a link or a picture.
    return re.sub(r"[\\|<*`]|\](?=[(\[])", r"\\\g<0>", one_line(text))


def write_markdown(table: AnyTable, stream: IO[str]) -> None:
    """Write a GitHub Markdown table."""
    table = table.whole()
    rule = ["---" if isinstance(v, Texts) and not v.right else "--:" for v in table.values]
    head = [" | ".join(cells) for cells in ([markdown_text(header.text) for header in table.headers], rule)]
    title = f"{titled(table.title).replace('<', chr(92) + '<')}\n\n" if table.title else ""
    row = f"| {' | '.join(['%s'] * len(rule))} |\n"
    write_lines(Lines(f"{title}| {head[0]} |\n| {head[1]} |\n", row), table, markdown_text, stream)


# ---------------------------------------------------------------------------------------------- keyed


def _each_key_once(table: AnyTable) -> AnyTable:
    """The table without columns chosen a second time."""
    first = {header.key: number for number, header in reversed(list(enumerate(table.headers)))}
    chosen = sorted(first.values())
    headers = [table.headers[n] for n in chosen]
    if isinstance(table, LazyTable):
        return table._replace(headers=headers)
    return table._replace(headers=headers, values=[table.values[n] for n in chosen])


def _json_rows(table: AnyTable, lines: Callable[[str], Lines], stream: IO[str]) -> None:
    """Write rows as JSON objects. lines: makes the layout from the template of one object."""
    table = _each_key_once(table)
    row = "{" + ", ".join(json.dumps(header.key).replace("%", "%%") + ": %s" for header in table.headers) + "}"
    table = table._replace(headers=[header._replace(empty="") for header in table.headers])
    write_lines(lines(row), table, encode_basestring, stream)  # as json.dumps without ensure_ascii


def write_jsonl(table: AnyTable, stream: IO[str]) -> None:
    """Write one JSON object per line; numbers with the digits that the column prints, null for unknown."""
    _json_rows(table, lambda row: Lines("", f"{row}\n", unknown="null", finite=True), stream)


def write_json(table: AnyTable, stream: IO[str]) -> None:
    """Write the rows as an array under the table's name."""
    begin = f"{json.dumps(table.name)}: [\n"
    _json_rows(table, lambda row: Lines(begin, f",\n{row}", "\n]", "null", skipped=2, finite=True), stream)


def write_parquet(table: AnyTable, stream: IO[str]) -> None:
    """Write typed columns under their keys, null for unknown."""
    try:
        from pyprof.tables.parquet import write
    except ImportError as error:
        raise unusable("Parquet", "pyarrow", error, f"{install_extra('parquet')}, or --csv") from error
    write(_each_key_once(table), cast(BinaryIO, cast(TextIOWrapper, stream).buffer))


# ---------------------------------------------------------------------------------------------- aligned


def titled(title: str) -> str:
    """The text above a table (one or more lines) with control characters made visible."""
    return "".join(part if part in ("\n", "\r\n") else visible(part) for part in re.split("(\r?\n)", title))


def write_aligned(table: AnyTable, stream: IO[str], width: int | None = None) -> None:
    """Write aligned lines of at most `width` characters (None: no limit); texts are cut, numbers are not.

    Raises UsageError if the columns need more room.
    """
    table = table.whole()
    fields = [
        Texts(v.codes, _field_texts(one_line, header.empty, False, v if v.brief is None else v._replace(pool=v.brief)))
        if isinstance(v, Texts) and not v.right
        else v
        for header, v in zip(table.headers, table.values, strict=True)
    ]
    table = table._replace(values=fields)
    left = [isinstance(v, Texts) and not v.right for v in fields]
    longest = [_longest(values) for values in fields]
    # Texts are cut, down to `na`; numbers never.
    shortest = [2 if cut else most for cut, most in zip(left, longest, strict=True)]
    least = [0 if h.grow else max(h.width, own) for h, own in zip(table.headers, shortest, strict=True)]
    longest = [max(len(h.text), most) for h, most in zip(table.headers, longest, strict=True)]
    widths = [*map(max, least, longest)] if width is None else _fitted(table.headers, least, longest, width)
    forms = [f"%-{w}.{w}s" if texts else f"%{w}s" for texts, w in zip(left, widths, strict=True)]
    head = " ".join(form % one_line(header.text)[:w] for form, header, w in zip(forms, table.headers, widths, strict=True))
    title = f"{titled(table.title)}\n" if table.title else ""
    write_lines(Lines(f"{title}{head}\n", " ".join(forms) + "\n"), table, str, stream)


def _longest(values: Values) -> int:
    """Length of the longest field of a column."""
    if isinstance(values, Texts):
        return max(map(len, values.pool), default=0)
    known = values.values[~values.unknown]
    ends = values._replace(values=np.array([known.min(), known.max()]), unknown=np.zeros(2, np.bool_)) if len(known) else None
    least = 2 * bool(values.unknown.any())
    return max(least, *map(len, printed(ends))) if ends is not None else least


def _fitted(headers: Sequence[Header], least: Sequence[int], longest: Sequence[int], width: int) -> list[int]:
    """Widths of columns that fill a line; spare room goes to columns that grow."""
    widths = list(least)
    growing = [i for i, header in enumerate(headers) if header.grow]
    left = width - sum(widths) - len(headers) + 1
    if left < len(growing):
        need = width - left + len(growing)
        raise UsageError(
            f"these columns need a line of at least {need} characters", f"give -w {need} or more, or fewer columns"
        )
    # The column that needs least goes first and leaves the rest to the others; none gets wider than its longest text.
    waiting = sorted(growing, key=lambda index: longest[index] - widths[index])
    for number, index in enumerate(waiting):
        share = -(-left // (len(waiting) - number))
        more = max(min(share, longest[index] - widths[index]), 0)
        widths[index] += more
        left -= more
    return widths


# ---------------------------------------------------------------------------------------------- the list


class Format(NamedTuple):
    """One output format. suffix: file suffix; titled: names its tables, so one output can have several; before, between, after:
    text around the tables; binary: only to a file; for_people: may print numbers with human units."""

    write: Callable[[AnyTable, IO[str]], None]
    help: str
    suffix: str
    titled: bool = False
    before: str = ""
    between: str = "\n"
    after: str = ""
    binary: bool = False
    for_people: bool = False

    def with_head(self, members: Mapping[str, object] | None) -> Format:
        """JSON with these first members; any other format unchanged."""
        return self._replace(before=json.dumps(members)[:-1] + ", ") if members and self.before else self


FORMATS: dict[str, Format] = {
    "plain": Format(write_plain, "space-separated", ".txt"),
    "table": Format(write_aligned, "aligned, nothing cut", ".table", titled=True, for_people=True),
    "csv": Format(write_csv, "RFC 4180", ".csv"),
    "jsonl": Format(write_jsonl, "JSON lines", ".jsonl", between=""),
    "json": Format(write_json, "one JSON object with a version", ".json", True, '{"schema": 1, ', ", ", "}\n"),
    "markdown": Format(write_markdown, "Markdown", ".md", titled=True, for_people=True),
    "parquet": Format(write_parquet, "typed columns, to a file", ".parquet", binary=True),
}


def write_tables(tables: Sequence[AnyTable], form: Format, stream: IO[str]) -> None:
    """Write tables in one format, one after another."""
    stream.write(form.before)
    for number, table in enumerate(tables):
        stream.write(form.between if number else "")
        form.write(table, stream)
    stream.write(form.after)
