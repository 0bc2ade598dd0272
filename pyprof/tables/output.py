"""The options that every command with a table has: which rows and columns, in which order and format, and where to.

`add_output` declares them, `choice` checks them before any work is done, `arranged` and `write` carry them out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof.errors import UsageError
from pyprof.messages import visible
from pyprof.tables.formats import FORMATS, Format, write_aligned, write_csv_safe, write_tables
from pyprof.tables.table import AnyTable, Header, LazyTable, Source, Table, Values, choose, sort_key

if TYPE_CHECKING:
    from pyprof.arrays.types import Ints
    from pyprof.tables.where import Condition


class Choice(NamedTuple):
    """What the options choose of a table: columns; those that rows are ordered by; the number of rows, None: all."""

    columns: Sequence[Header]
    sort: Sequence[Header]
    top: int | None


def add_output(parser: argparse.ArgumentParser, default: str = "plain", columns: str = "all", file: bool = True) -> None:
    """Declare -c --csv -w --format --where --sort --top, and -o unless `file` is false (a command with another -o).

    default: the format; columns: those that are printed without -c, for the help.
    """
    parser.add_argument("-c", "--columns", metavar="COLS", help=f"columns, by comma (default {columns})")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated (RFC 4180), the same as --format csv")
    parser.add_argument("--csv-safe", action="store_true", help="--csv, and what a spreadsheet would execute is a text to it")
    form.add_argument("-w", "--width", metavar="N", type=int, help="aligned in lines of N characters")
    described = "; ".join(map("{}: {.help}".format, FORMATS, FORMATS.values()))
    form.add_argument(
        "--format",
        choices=FORMATS,
        help=f"{described} (default: on a terminal a table that fits it; else {default}, or what the suffix of -o says)",
    )
    parser.add_argument(
        "--units",
        choices=("raw", "human"),
        help="raw: ns, B, FLOP as they are (default, but on a terminal); human: 1.24 ms, 9.30 GFLOP, of aligned tables",
    )
    parser.add_argument(
        "--where",
        metavar="COND,...",
        help="only rows for which all hold, e.g. 'op=*mm,sil>50us,dir!=bprop' (* and ? match texts)",
    )
    parser.add_argument(
        "--sort", metavar="COL,...", help="by these columns, numbers largest first, texts by alphabet, unknown last"
    )
    parser.add_argument("--top", metavar="N", type=int, help="only the first N rows")
    if file:
        parser.add_argument("-o", "--output", metavar="FILE", help="write to this file, not to standard output")
    parser.set_defaults(default_format=default)


def choice(
    options: argparse.Namespace, headers: Sequence[Header], default: str = "", aliases: Mapping[str, str] | None = None
) -> Choice:
    """What -c, --sort and --top choose among these columns; default: the columns without -c, all where empty.

    Raises UsageError for an unknown column, a negative number of rows, a format that needs a file and an output that is an
    input, InputError for an output that cannot be written.
    """
    if options.top is not None and options.top < 0:
        raise UsageError(f"--top takes a number of rows, not {options.top}", "for example --top 10")
    _format(options)
    keys = options.columns or default
    columns = choose(keys, headers, aliases) if keys else headers
    return Choice(columns, choose(options.sort, headers, aliases) if options.sort else [], options.top)


def conditions_of(
    options: argparse.Namespace, headers: Sequence[Header], aliases: Mapping[str, str] | None = None
) -> Sequence[Condition]:
    """The conditions of --where. Raises UsageError for a text that cannot be read."""
    if options.where is None:
        return ()
    from pyprof.tables.where import conditions

    return conditions(options.where, headers, aliases or {})


def matching(source: Source, rows: Ints, wanted: Sequence[Condition]) -> Ints:
    """Those of the rows for which every condition holds; raises UsageError as `where.matching` does."""
    if not wanted:
        return rows
    from pyprof.tables.where import matching

    return matching(source, rows, wanted)


def ordered(values: Sequence[Values], rows: Ints) -> Ints:
    """The rows sorted by the first of the columns, equal ones by the next, else as they were."""
    keys = [sort_key(column.take(rows)) for column in values]
    return rows[np.lexsort(keys[::-1])] if keys and len(rows) else rows


def arranged(source: Source, rows: Ints, chosen: Choice) -> LazyTable:
    """The rows in the order of --sort, the first --top of them, with the columns of -c."""
    if chosen.sort:
        rows = ordered([source.of(header.key) for header in chosen.sort], rows)
    return LazyTable(chosen.columns, source, rows[: chosen.top])


def write(
    tables: AnyTable | Sequence[AnyTable], options: argparse.Namespace, json_head: Mapping[str, object] | None = None
) -> None:
    """Write one table or several as the options say, to standard output or to the file of -o.

    json_head: first members of the JSON, the version among them; None: the version of all tables.

    Raises UsageError for a format that needs a file or one table, InputError where the file cannot be written.
    """
    several = [tables] if isinstance(tables, (Table, LazyTable)) else tables
    form, output = _format(options).with_head(json_head), getattr(options, "output", None)
    if form.binary and len(several) > 1:
        raise UsageError("this format holds one table", f"choose one of {', '.join(table.name for table in several)}")
    if on_terminal(options):
        _write_terminal(several, options)
        return
    if output is None:
        write_tables(several, form, sys.stdout)
        return
    from pyprof.tables.files import whole_text_file

    with whole_text_file(Path(output)) as stream:
        write_tables(several, form, stream)


def _format(options: argparse.Namespace) -> Format:
    """The format of --csv, -w or --format, of the suffix of -o, or the command's own."""
    output = getattr(options, "output", None)
    if output is not None:
        from pyprof.tables.files import check_output

        check_output(Path(output), map(Path, _inputs(options)))
    name = "csv" if options.csv else "table" if options.width is not None else options.format
    if name is None and output is not None:
        name = next((name for name, form in FORMATS.items() if form.suffix == Path(output).suffix), None)
    human = options.units == "human"
    safe = getattr(options, "csv_safe", False)
    if safe and (name or "csv") != "csv":
        raise UsageError(f"--csv-safe is of CSV, not of {name}", "give --csv-safe alone")
    name = "csv" if safe else name
    form = FORMATS[name or ("table" if human else options.default_format)]
    if form.binary and output is None:
        raise UsageError("this format is written to a file", "name it: -o FILE")
    if safe:
        form = form._replace(write=write_csv_safe)
    if options.width is not None:
        form = form._replace(write=partial(write_aligned, width=options.width))
    if human and not form.for_people:
        raise UsageError(f"{name} is read by programs, which take numbers as they are", "leave out --units human")
    return form._replace(write=partial(_write_human, write=form.write)) if human else form


def on_terminal(options: argparse.Namespace) -> bool:
    """Whether tables are written as a terminal shows them best, since nothing else was asked for."""
    asked = options.width is not None or options.format is not None or getattr(options, "output", None) is not None
    return not (options.csv or options.csv_safe or asked) and sys.stdout.isatty()


def aligned(options: argparse.Namespace) -> bool:
    """Whether the lines of tables are aligned, so that a tree can be drawn in them."""
    human = options.units == "human" and options.format is None
    return options.width is not None or options.format == "table" or human or on_terminal(options)


def say(lines: Iterable[str]) -> None:
    """Print sentences, on a terminal broken between words."""
    lines = map(visible, lines)
    if sys.stdout.isatty():
        import shutil
        from textwrap import fill

        width = max(shutil.get_terminal_size().columns, 40)
        lines = [fill(line, width, subsequent_indent="        ", break_long_words=False) for line in lines]
    print("\n".join(lines))


def show(table: AnyTable) -> None:
    """Write all rows of a table to standard output as a terminal shows them best, for a command without options of tables."""
    _write_terminal([table], argparse.Namespace(units=None, columns=None, top=len(table.rows)))


def _write_terminal(tables: Sequence[AnyTable], options: argparse.Namespace) -> None:
    import shlex
    import shutil

    from pyprof.tables.terminal import Screen, write_on

    columns, rows = shutil.get_terminal_size()
    again = set(_inputs(options)) - {"-"}  # standard input cannot be read again
    command = visible(shlex.join(getattr(options, "command_line", ()))) if again else ""
    chosen, all_rows = options.columns is not None, options.top is not None
    write_on(Screen(columns, rows, options.units != "raw", chosen, all_rows, command), tables, sys.stdout)


def _write_human(table: AnyTable, stream: IO[str], write: Callable[[AnyTable, IO[str]], None]) -> None:
    from pyprof.tables.readable import readable

    write(readable(table.whole()), stream)


def _inputs(options: argparse.Namespace) -> Sequence[str]:
    """The files that a command reads, none of which it may write; `words` are those of a command with commands of its own."""
    given = getattr(options, "file", None) or getattr(options, "words", None) or []
    return [given] if isinstance(given, str) else given
