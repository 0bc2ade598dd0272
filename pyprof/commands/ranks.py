"""Compare the ranks of a job: who comes last to collectives, how long the others wait, which layer and op makes it late;
compute, communication and idle time of each; bandwidth of collectives; the bubble of a pipeline.

FILE is a folder that `pyprof parse -o FOLDER` wrote, captures, or folders of captures. One rank is in memory at a time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyprof.errors import InputError, UsageError
from pyprof.messages import tell
from pyprof.model import ledger
from pyprof.parse.records.dataset import named_rank
from pyprof.parse.records.locations import File
from pyprof.parse.records.selection import add_graphs, add_window, in_window, window_given
from pyprof.report.ranks.advice import lines
from pyprof.report.ranks.results import PER_STEP, TABLES, matrix_of
from pyprof.report.ranks.survey import Survey, survey
from pyprof.report.ranks.units import files_of
from pyprof.report.run_steps import run_steps, sentences
from pyprof.tables.formats import FORMATS
from pyprof.tables.output import on_terminal, ordered, say, write
from pyprof.tables.screen import add_tables, one_table_option, selected
from pyprof.tables.table import Table, Texts

_SHOWN = 10  # rows of a table on the screen
# Tables on the screen, each with the column that decides which rows are shown.
_SCREEN = {"ranks": "caused_us", "steps": "wait_us", "bandwidth": "time_us", "stragglers": "", "pipeline": "bubble_us"}
_WIDEST = 40  # characters of a layer's name on the screen; its end says most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof ranks`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="a data set by rank, captures, folders or patterns of them")
    add_tables(parser, TABLES, file=False)
    parser.add_argument("--matrix", choices=PER_STEP, help="ranks down and steps across")
    parser.add_argument("-o", "--output", dest="folder", metavar="DIR", help="write every table there (--format parquet)")
    add_window(parser)
    add_graphs(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compare, print. Returns the exit code: 1 where a file could not be used."""
    if options.table is not None and options.matrix is not None:
        raise UsageError("--table and --matrix are two tables", "give one of them")
    if options.top is not None and options.top < 0:
        raise UsageError(f"--top takes a number of rows, not {options.top}", "for example --top 5")
    if options.folder is not None and (option := one_table_option(options, ())):
        raise UsageError(f"{option} takes one table, -o DIR writes all", "give --table NAME without -o")
    if options.folder is None and options.matrix is None and one_table_option(options):
        options.table = options.table or "ranks"
    choose = (lambda records: in_window(records, options)) if window_given(options) else None
    files = files_of(options.file)
    whole = survey(files, choose)
    _show(whole, files, options)
    sys.stdout.flush()
    for failure in whole.failures:
        tell(f"failed: {failure}")
    for note in whole.notes:
        tell(f"note: {note}")
    return 1 if whole.failures else 0


def _show(whole: Survey, files: Sequence[File], options: argparse.Namespace) -> None:
    if options.folder is not None:
        _write_all(whole, Path(options.folder), options)
    elif options.matrix is not None or options.table is not None:
        table = matrix_of(whole, options.matrix) if options.matrix is not None else TABLES[options.table](whole)
        write(selected(table._replace(title=""), options), options)
    elif options.format == "json":
        write([make(whole).take(slice(options.top)) for make in TABLES.values()], options)
    else:
        _print_screen(whole, [*_runs(files)], options)


def _runs(files: Sequence[File]) -> Iterator[str]:
    """A line on the whole run of each rank that has a ledger."""
    for file in files:
        path = ledger.beside(str(file))
        run = None if path is None else run_steps(ledger.read(path))
        if run is not None:
            rank = named_rank(file)
            yield f"{f'rank {rank}' if rank >= 0 else file.name}: {next(sentences(run))}"


def _write_all(whole: Survey, folder: Path, options: argparse.Namespace) -> None:
    """Write every table into a folder, each file completely or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}", "choose another place with -o") from error
    name = "csv" if options.csv or options.csv_safe else options.format or "parquet"
    for table in (make(whole) for make in TABLES.values()):
        options.output, options.format = str(folder / f"{table.name}{FORMATS[name].suffix}"), name
        write(table.take(slice(options.top))._replace(title=""), options)


def _print_screen(whole: Survey, runs: Sequence[str], options: argparse.Namespace) -> None:
    top = _SHOWN if options.top is None else options.top
    left = [f"{len(runs) - top} more ranks"] * (len(runs) > top)
    say([*lines(whole), *runs[:top], *left])
    tables = [
        _on_screen(table, top, on_terminal(options)) for name in _SCREEN if top and len((table := TABLES[name](whole)).rows)
    ]
    if tables:
        print()
        write(tables, options)


def _on_screen(table: Table, top: int, fitted: bool) -> Table:
    """The top rows by the table's main column. fitted: the terminal format cuts rows and texts itself; else long texts keep
    their last characters."""
    key, rows = _SCREEN[table.name], table.rows
    of = f" by {key}" if key else ""
    title = table.title
    if fitted and len(rows) > top:
        rows = ordered([table.of(key)], rows) if key else rows
        return table.take(rows)._replace(most=top)
    if fitted:
        return table
    if len(rows) > top:
        title += f" ({top} of {len(rows)}{of}; all: --table {table.name})"
        rows = ordered([table.of(key)], rows) if key else rows
    values = [
        v._replace(pool=[text if len(text) <= _WIDEST else f"...{text[3 - _WIDEST :]}" for text in v.pool])
        if isinstance(v, Texts)
        else v
        for v in table.take(rows[:top]).values
    ]
    return table._replace(values=values, title=title)
