"""A table -> a terminal: fitted to its width, its first rows where it is longer than the screen, bars for shares, few colours.

What is unknown, nothing or does not apply is dim, what a column calls good is green, bad is red. Texts are printed as they are:
nothing in them is markup or steers the terminal. Imported only where a table is written to one, for rich takes time to import.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from pyprof.tables.formats import one_line
from pyprof.tables.readable import readable
from pyprof.tables.shorten import enough, shortened
from pyprof.tables.table import AnyTable, Header, Table, Texts, Values, printed
from pyprof.tables.units import bar

_BAR = 10  # characters
_LEAST_BAR = 4
_ROOMY = 24  # characters that a text may claim before columns are left out for want of room
_NARROW = 8  # and what it has even so
_NOTHING = ("na", "-", "0")


class Screen(NamedTuple):
    """Where a table goes and what was asked for. columns, rows: of the terminal; all_rows: the user chose how many; chosen: and
    which columns; human: units that people read; command: words that the user gave, to name those that show more."""

    columns: int
    rows: int
    human: bool = True
    chosen: bool = False
    all_rows: bool = False
    command: str = ""


@dataclass
class _Column:
    """A column as it is drawn. natural: width in which nothing is cut; apart: in which distinct texts are told apart; least:
    below which it is rather left out; bars: shares of rows, if it has any; width, bar: those that it got."""

    header: Header
    cells: list[str]
    right: bool
    bars: list[float] | None
    natural: int = 0
    apart: int = 0
    least: int = 0
    width: int = 0
    bar: int = 0
    says_nothing: bool = False


def write_terminal(table: AnyTable, stream: IO[str], screen: Screen) -> None:
    """Write the rows that fit, what was left out, and how to get it."""
    console = Console(file=stream, width=screen.columns, highlight=False, soft_wrap=True)
    plain = not _encodes(stream, "█▏…─")
    limit = len(table.rows) if screen.all_rows else table.most or max(screen.rows - 7, 10)
    shown = table.first(limit)
    more = len(table.rows) - len(shown.rows)
    columns = _columns(shown, screen.human, more == 0, ".." if plain else "…")
    kept = _kept(columns, screen)
    between = " " * _give_room(kept, screen.columns)
    for line in _lines(table.title, kept, between, screen.columns, plain):
        console.print(line)
    for note in _notes(table, len(shown.rows), more, [c.header for c in columns if c not in kept], screen):
        console.print(Text(note, "dim"))


def _encodes(stream: IO[str], text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


# ---------------------------------------------------------------------------------------------- columns


def _columns(shown: Table, human: bool, whole: bool, gap: str) -> list[_Column]:
    """The columns of the rows that are shown; whole: these are all."""
    fields = readable(shown) if human else shown
    made = []
    for header, values, numbers in zip(fields.headers, fields.values, shown.values, strict=True):
        column = _Column(header, _cells(header, values), not isinstance(numbers, Texts), _shares(header, numbers))
        longest = max(map(cell_len, {*column.cells, ""}))
        column.natural = max(cell_len(header.text), longest)
        if column.right:
            column.least = column.apart = column.natural
        else:
            column.apart = max(min(enough(column.cells, _NARROW, gap), longest), cell_len(header.text))
            column.least = min(column.natural, max(min(column.apart, _ROOMY), min(longest, _NARROW)))
        column.says_nothing = whole and bool(column.cells) and {cell.strip() for cell in column.cells} <= {*_NOTHING, ""}
        made.append(column)
    return made


def _cells(header: Header, values: Values) -> list[str]:
    if not isinstance(values, Texts) or values.right:
        return printed(values)
    pool = values.pool if values.brief is None else values.brief
    return printed(Texts(values.codes, [one_line(text) or header.empty for text in pool]))


def _shares(header: Header, values: Values) -> list[float] | None:
    if not header.share or isinstance(values, Texts):
        return None
    shares = np.where(values.unknown, 0, values.values.astype(np.float64) / 100)
    found: list[float] = np.nan_to_num(shares).tolist()
    return found


def _kept(columns: Sequence[_Column], screen: Screen) -> list[_Column]:
    """The columns for which there is room. First those leave whose rows say nothing, then details, then the last ones; of
    columns that the user named only the last."""
    kept, from_last = list(columns), columns[::-1]
    leaving = [] if screen.chosen else [*(c for c in from_last if c.says_nothing), *(c for c in from_last if c.header.detail)]
    for column in [*leaving, *from_last[:-1]]:
        if sum(c.least + 1 for c in kept) - 1 <= screen.columns:
            break
        kept = [c for c in kept if c is not column]
    return kept


def _give_room(columns: Sequence[_Column], width: int) -> int:
    """Widths: the least, then what tells texts apart, then a second blank between columns, then bars, then whole texts.

    Returns the number of blanks between columns.
    """
    for column in columns:
        column.width = min(column.least, width)
    left = _grow(columns, width - sum(c.width + 1 for c in columns) + 1, "apart")
    wide = left >= len(columns) - 1
    left -= (len(columns) - 1) * wide
    barred = [column for column in columns if column.bars is not None]
    for number, column in enumerate(barred):
        column.bar = min(_BAR, left // (len(barred) - number) - 1)
        column.bar = column.bar if column.bar >= _LEAST_BAR else 0
        left -= column.bar + bool(column.bar)
    _grow(columns, left, "natural")
    return 1 + wide


def _grow(columns: Sequence[_Column], left: int, to: str) -> int:
    """Share what is left of the width, those first that need least; returns what remains."""
    waiting = sorted(columns, key=lambda column: getattr(column, to) - column.width)
    for number, column in enumerate(waiting):
        more = max(min(left // (len(waiting) - number), getattr(column, to) - column.width), 0)
        column.width += more
        left -= more
    return left


# ---------------------------------------------------------------------------------------------- lines


def _lines(title: str, columns: Sequence[_Column], between: str, width: int, plain: bool) -> Iterator[Text]:
    if title:
        line = "-" if plain else "─"
        yield Text.assemble(
            f"{line * 2} ", (one_line(title), "bold"), f" {line * max(width - cell_len(title) - 4, 0)}", style="dim"
        )
    drawn = [list(_drawn(column, plain)) for column in columns]
    for cells in zip(*drawn, strict=True):
        line = Text(between).join(cells)
        line.rstrip()
        yield line


def _drawn(column: _Column, plain: bool) -> Iterator[Text]:
    """The header and the cells of a column, as wide as it is."""
    yield _cell(column, column.header.text, "bold")
    short = {} if column.right else shortened(column.cells, column.width, ".." if plain else "…")
    bars = column.bars or [0.0] * len(column.cells)
    for cell, share in zip(column.cells, bars, strict=True):
        yield _cell(column, short.get(cell, cell), _style(column.header, cell.strip()), bar(share, column.bar, plain))


def _cell(column: _Column, text: str, style: str, drawn: str = "") -> Text:
    padded = " " * (column.width - cell_len(text)) + text if column.right else set_cell_size(text, column.width)
    return Text.assemble((padded, style), (f" {drawn:{column.bar}}" if column.bar else "", "cyan"))


def _style(header: Header, text: str) -> str:
    if text and text == header.good:
        return "green"
    if text and text == header.bad:
        return "red"
    return "dim" if text in _NOTHING else ""


def _notes(table: AnyTable, rows: int, more: int, left_out: Sequence[Header], screen: Screen) -> Iterator[str]:
    """What is not shown, and commands that show it."""
    if not rows:
        yield "no rows"
    alone = "" if not table.most else f" --table {table.name}"
    if more:
        how = "--top N, -o FILE" if not alone else alone.strip()
        whole = f"; all: {screen.command}{alone} --units {'human' if screen.human else 'raw --format table'} | less -S"
        yield f"{more:,} more row{'s' * (more != 1)}: {how}{whole if screen.command else ''}"
    if left_out:
        names = ", ".join(header.key for header in left_out)
        yield f"no room for {names}: {'a wider window' if screen.chosen else '-c COL,... or a wider window'}"
