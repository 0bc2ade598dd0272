"""Options of every command that prints a table: rows, columns, order, format, destination.

`add_output` declares them, `choice` checks them before any work is done, `arranged` and `write` carry them out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof.errors import UsageError
from pyprof.messages import visible
from pyprof.tables.formats import FORMATS, Format, write_aligned, write_csv_safe, write_tables
from pyprof.tables.table import AnyTable, Header, LazyTable, Source, Table, Values, choose, sort_key

if TYPE_CHECKING:
    from pyprof.columns.types import Ints
    from pyprof.tables.where import Condition


class Choice(NamedTuple):
    """The chosen columns, the columns to sort by, and the number of rows (None: all)."""

    columns: Sequence[Header]
    sort: Sequence[Header]
    top: int | None


def add_output(parser: argparse.ArgumentParser, default: str = "plain", columns: str = "all", file: bool = True) -> None:
    """Declare -c --csv -w --format --where --sort --top, and -o unless `file` is false (the command has its own -o).

    default: the default format; columns: for the help, the columns printed without -c.
    """
    parser.add_argument("-c", "--columns", metavar="COLS", help=f"columns, by comma, or all (default {columns})")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated (RFC 4180), same as --format csv")
    parser.add_argument("--csv-safe", action="store_true", help="--csv, escaping cells that spreadsheets would run as formulas")
    form.add_argument("-w", "--width", metavar="N", type=int, help="aligned in lines of N characters")
    described = "; ".join(map("{}: {.help}".format, FORMATS, FORMATS.values()))
    form.add_argument(
        "--format",
        choices=FORMATS,
        help=f"{described} (default: on a terminal a table that fits; else by the suffix of -o, or {default})",
    )
    parser.add_argument(
        "--units",
        choices=("raw", "human"),
        help="raw: plain ns, B, FLOP (default except on a terminal); human: 1.24 ms, 9.30 GFLOP, in aligned tables",
    )
    parser.add_argument(
        "--where",
        metavar="COND,...",
        help="only rows that meet all conditions, e.g. 'op=*mm,sil>50us,dir!=bprop' (* and ? match texts)",
    )
    parser.add_argument(
        "--sort", metavar="COL,...", help="by these columns: numbers largest first, texts alphabetically, unknown last"
    )
    parser.add_argument("--top", metavar="N", type=int, help="only the first N rows")
    if file:
        parser.add_argument("-o", "--output", metavar="FILE", help="write to this file instead of standard output")
    parser.set_defaults(default_format=default)


def choice(
    options: argparse.Namespace, headers: Sequence[Header], default: str = "", aliases: Mapping[str, str] | None = None
) -> Choice:
    """The choice made by -c, --sort and --top; default: the columns without -c, empty: all.

    Raises UsageError for an unknown column, a negative number of rows, a format that needs a file or an output that is an
    input; InputError for an output that cannot be written.
    """
    if options.top is not None and options.top < 0:
        raise UsageError(f"--top takes a number of rows, not {options.top}", "for example --top 10")
    _format(options)
    keys = options.columns or default
    columns = choose(keys, headers, aliases) if keys and keys.strip().lower() != "all" else headers
    return Choice(columns, choose(options.sort, headers, aliases) if options.sort else [], options.top)


def conditions_of(
    options: argparse.Namespace, headers: Sequence[Header], aliases: Mapping[str, str] | None = None
) -> Sequence[Condition]:
    """The conditions of --where. Raises UsageError if they cannot be parsed."""
    if options.where is None:
        return ()
    from pyprof.tables.where import conditions

    return conditions(options.where, headers, aliases or {})


def matching(source: Source, rows: Ints, wanted: Sequence[Condition]) -> Ints:
    """The rows that meet every condition. Raises UsageError as `where.matching` does."""
    if not wanted:
        return rows
    from pyprof.tables.where import matching

    return matching(source, rows, wanted)


def ordered(values: Sequence[Values], rows: Ints) -> Ints:
    """The rows in stable order of the columns, the first one first."""
    keys = [sort_key(column.take(rows)) for column in values]
    return rows[np.lexsort(keys[::-1])] if keys and len(rows) else rows


def arranged(source: Source, rows: Ints, chosen: Choice) -> LazyTable:
    """The rows ordered by --sort and cut to --top, with the columns of -c."""
    if chosen.sort:
        rows = ordered([source.of(header.key) for header in chosen.sort], rows)
    return LazyTable(chosen.columns, source, rows[: chosen.top])


def write(
    tables: AnyTable | Sequence[AnyTable], options: argparse.Namespace, json_head: Mapping[str, object] | None = None
) -> None:
    """Write one table or several as the options say, to standard output or the file of -o.

    json_head: first members of the JSON, with the version; None: the version of all tables.

    Raises UsageError for a format that needs a file or a single table, InputError if the file cannot be written.
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
    """The format by --csv, -w or --format, by the suffix of -o, or the command's default."""
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
        raise UsageError("--csv-safe applies to CSV only", "give --csv-safe alone")
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
    if not human:
        return form
    from pyprof.tables.readable import readable

    return form._replace(write=lambda table, stream: form.write(readable(table.whole()), stream))


def is_format_chosen(options: argparse.Namespace) -> bool:
    """Whether the user asked for a format, a width or a file."""
    asked = options.width is not None or options.format is not None or getattr(options, "output", None) is not None
    return bool(options.csv or options.csv_safe or asked)


def on_terminal(options: argparse.Namespace) -> bool:
    """Whether tables go to a terminal in its own layout, because no other was asked for."""
    return not is_format_chosen(options) and sys.stdout.isatty()


def aligned(options: argparse.Namespace) -> bool:
    """Whether tables are printed aligned, so a tree can be drawn in them."""
    human = options.units == "human" and options.format is None
    return options.width is not None or options.format == "table" or human or on_terminal(options)


def say(lines: Iterable[str]) -> None:
    """Print sentences, wrapped on a terminal."""
    lines = map(visible, lines)
    if sys.stdout.isatty():
        import shutil
        from textwrap import fill

        width = max(shutil.get_terminal_size().columns, 40)
        lines = [fill(line, width, subsequent_indent="        ", break_long_words=False) for line in lines]
    print("\n".join(lines))


def show(table: AnyTable) -> None:
    """Print all rows of a table in the layout for terminals, for a command without table options."""
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


def _inputs(options: argparse.Namespace) -> Sequence[str]:
    """The files that a command reads and so must not overwrite; commands with subcommands have them in `words`."""
    given = getattr(options, "file", None) or getattr(options, "words", None) or []
    return [given] if isinstance(given, str) else given
