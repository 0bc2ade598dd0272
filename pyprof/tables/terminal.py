"""A table -> a terminal: fitted to its width, cut to the screen's rows, with bars for shares and few colours.

Unknown, zero and not applicable are dim; `Header.good` is green, `bad` is red. Texts are never interpreted as markup or as
control characters. Imported only for output to a terminal, because importing rich takes time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Literal, NamedTuple

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from pyprof.messages import one_line
from pyprof.tables.readable import readable
from pyprof.tables.shorten import enough, shortened
from pyprof.tables.table import AnyTable, Header, Table, Texts, printed
from pyprof.tables.units import bar

_BAR = 10  # characters
_LEAST_BAR = 4
_ROOMY = 24  # characters that a text may claim before columns are left out
_READABLE = 16  # and gets before anything has a bar
_HEADER = 6  # characters of the header of a text column
_NARROW = 8  # and its least width
_ROWS = ("--top N", "--csv")  # how to get more of them
_NOTHING = ("na", "-", "0")


class Screen(NamedTuple):
    """The terminal and the options. columns, rows: its size; all_rows: the user chose the number of rows; chosen: and the
    columns; human: human units; command: as typed, to tell how to see more."""

    columns: int
    rows: int
    human: bool = True
    chosen: bool = False
    all_rows: bool = False
    command: str = ""


@dataclass(eq=False)
class _Column:
    """A column as it is drawn. Widths: readable: granted before others get bars; natural: nothing is cut; apart: distinct texts
    stay distinct; least: below it the column is left out; width, bar: granted. bars: shares of rows, if any."""

    header: Header
    cells: list[str]
    right: bool
    bars: list[float] | None
    readable: int
    natural: int = 0
    apart: int = 0
    least: int = 0
    width: int = 0
    bar: int = 0
    says_nothing: bool = False


def write_on(screen: Screen, tables: Sequence[AnyTable], stream: IO[str]) -> None:
    """Print the rows and columns of each table that fit, what was left out, and how to see it."""
    # In a notebook rich would write to its output instead of the stream, and colour every text, for Jupyter sets FORCE_COLOR.
    colours: Literal["auto"] | None = "auto" if stream.isatty() else None
    console = Console(
        file=stream, width=screen.columns, highlight=False, soft_wrap=True, force_jupyter=False, color_system=colours
    )
    plain, several, cut = not _encodes(stream, "█▏…─"), len(tables) > 1, False
    for number, table in enumerate(tables):
        if number:
            console.print()
        lines, rows, columns = _drawn(table._replace(title=table.title or table.name * several), screen, plain)
        for line in lines:
            console.print(line)
        missing = [_counted(rows, "row")] if rows else []
        missing += [f"{_counted(len(columns), 'column')} ({', '.join(columns)})"] if columns else []
        ways = [f"--table {table.name}"] if several else [*(_ROWS if rows else ()), *_command(screen)]
        if missing:
            cut = True
            console.print(Text(f"{', '.join(missing)}{': ' * bool(ways)}{', '.join(ways)}", "dim"))
    if several and cut:
        for command in _command(screen, " --table NAME"):
            console.print(Text(f"\nall of one: {command}", "dim"))
        if screen.command.startswith("pyprof "):
            console.print(Text(f"columns: pyprof help {screen.command.split()[1]}", "dim"))


def _drawn(table: AnyTable, screen: Screen, plain: bool) -> tuple[Iterator[Text], int, list[str]]:
    """The lines of a table, the number of hidden rows, and the hidden columns."""
    count = len(table.rows)
    shown = table.first(count if screen.all_rows else table.most or max(screen.rows - 7, 10))
    columns = _columns(shown, screen.human, ".." if plain else "…")
    kept = _kept(columns, screen)
    between = " " * _give_room(kept, screen.columns)
    left_out = [column.header.key for column in columns if column not in kept]
    return _lines(table.title, kept, between, screen.columns, plain), count - len(shown.rows), left_out


def _counted(number: int, what: str) -> str:
    return f"{number:,} more {what}{'s' * (number != 1)}"


def _command(screen: Screen, table: str = "") -> list[str]:
    """The command that shows all rows and columns, if known; table: its option to choose one of several tables."""
    units = "--units human" if screen.human else "--format table"
    return [f"{screen.command}{table} {units} | less -S"] if screen.command else []


def _encodes(stream: IO[str], text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


# ---------------------------------------------------------------------------------------------- columns


def _columns(shown: Table, human: bool, gap: str) -> list[_Column]:
    """The columns to draw, with the widths they would like."""
    fields = readable(shown) if human else shown
    made: list[_Column] = []
    for header, values, numbers in zip(fields.headers, fields.values, shown.values, strict=True):
        right = not isinstance(numbers, Texts) or numbers.right
        least = _READABLE if made else 2 * _READABLE  # the first column names the rows
        if isinstance(values, Texts) and not values.right:
            values = Texts(values.codes, [one_line(text) or header.empty for text in values.brief or values.pool])
        shares = None
        if header.share and not isinstance(numbers, Texts):
            shares = np.nan_to_num(np.where(numbers.unknown, 0, numbers.values.astype(np.float64) / 100)).tolist()
        column = _Column(header, printed(values), right, shares, least)
        longest = max(map(cell_len, {*column.cells, ""}))
        column.natural = max(cell_len(header.text), longest)
        column.least = column.apart = column.natural
        if not column.right:
            named = min(cell_len(header.text), _HEADER)
            column.apart = max(min(enough(column.cells, _NARROW, gap), longest), named)
            column.least = max(min(column.apart, _ROOMY), min(longest, _NARROW), named)
        column.says_nothing = {cell.strip() for cell in column.cells} <= {*_NOTHING, header.empty}
        made.append(column)
    return made


def _kept(columns: Sequence[_Column], screen: Screen) -> list[_Column]:
    """The columns that fit. If texts would be cut much, columns of nothing but zeros or unknowns and details go first; if that
    is not enough, columns from the last on. Of columns that the user named only the latter go."""
    kept, from_last = list(columns), columns[::-1]
    if not screen.chosen:
        for column in [*(c for c in from_last if c.says_nothing), *(c for c in from_last if c.header.detail)]:
            if sum(max(c.least, min(c.natural, max(c.readable, _ROOMY))) + 1 for c in kept) - 1 > screen.columns:
                kept = [c for c in kept if c is not column]
    for column in from_last[:-1]:
        if sum(c.least + 1 for c in kept) - 1 > screen.columns:
            kept = [c for c in kept if c is not column]
    return kept


def _give_room(columns: Sequence[_Column], width: int) -> int:
    """Grant widths in turn: the least, telling texts apart, readable, bars, longer texts, a second blank between columns.

    Returns the number of blanks between columns.
    """
    for column in columns:
        column.width = min(column.least, width)
    left = width - sum(c.width + 1 for c in columns) + 1
    left = _grow(columns, left, [c.apart for c in columns])
    left = _grow(columns, left, [min(c.natural, c.readable) for c in columns])
    barred = [column for column in columns if column.bars is not None]
    for number, column in enumerate(barred):
        column.bar = min(_BAR, left // (len(barred) - number) - 1)
        column.bar = column.bar if column.bar >= _LEAST_BAR else 0
        left -= column.bar + bool(column.bar)
    left = _grow(columns, left, [min(c.natural, 2 * _READABLE) for c in columns])
    wide = left >= len(columns) - 1
    _grow(columns, left - (len(columns) - 1) * wide, [c.natural for c in columns])
    return 1 + wide


def _grow(columns: Sequence[_Column], left: int, to: Sequence[int]) -> int:
    """Share the spare width, columns that need least first; returns what remains."""
    waiting = sorted(zip(to, columns, strict=True), key=lambda one: one[0] - one[1].width)
    for number, (most, column) in enumerate(waiting):
        more = max(min(left // (len(waiting) - number), most - column.width), 0)
        column.width += more
        left -= more
    return left


# ---------------------------------------------------------------------------------------------- lines


def _lines(title: str, columns: Sequence[_Column], between: str, width: int, plain: bool) -> Iterator[Text]:
    if title:
        dash, name = "-" if plain else "─", one_line(title)
        name = shortened([name], width - 4, ".." if plain else "…")[name]
        yield Text.assemble((dash * 2, "dim"), (f" {name} ", "bold"), (dash * (width - cell_len(name) - 4), "dim"))
    if columns and not columns[0].cells:
        yield Text("no rows", "dim")
        return
    drawn = [list(_cells_of(column, plain)) for column in columns]
    for cells in zip(*drawn, strict=True):
        line = Text(between).join(cells)
        line.rstrip()
        yield line


def _cells_of(column: _Column, plain: bool) -> Iterator[Text]:
    """The header and cells of a column at its width."""
    yield _cell(column, column.header.text, "bold")
    short = {} if column.right else shortened(column.cells, column.width, ".." if plain else "…")
    bars = column.bars or [0.0] * len(column.cells)
    for cell, share in zip(column.cells, bars, strict=True):
        text, header = cell.strip(), column.header
        judged = "green" if text and text == header.good else "red" if text and text == header.bad else ""
        style = judged or ("dim" if text in _NOTHING else "")
        yield _cell(column, short.get(cell, cell), style, bar(share, column.bar, plain))


def _cell(column: _Column, text: str, style: str, drawn: str = "") -> Text:
    padded = " " * (column.width - cell_len(text)) + text if column.right else set_cell_size(text, column.width)
    return Text.assemble((padded, style), (f" {drawn:{column.bar}}" if column.bar else "", "cyan"))
