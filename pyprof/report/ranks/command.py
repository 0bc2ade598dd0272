"""Compare the ranks of a job: who comes last to collectives, how long the others wait, which layer and op makes it late;
compute, communication and idle time of each; bandwidth of collectives.

FILE is a folder that `pyprof parse -o FOLDER` wrote, captures, or folders of captures. One rank is in memory at a time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pyprof.errors import InputError, UsageError
from pyprof.parse.records.selection import add_window, in_window, window_given
from pyprof.report.ranks.results import TABLES, matrix_of, slowest_ranks, table_named
from pyprof.report.ranks.survey import Survey, how_aligned, survey
from pyprof.report.ranks.tables import FORMATS, Table
from pyprof.report.ranks.units import files_of

__all__ = ["add_arguments", "lines", "run"]

_SHOWN = 10  # rows of a table on the screen
# The tables there, and what decides which rows are shown.
_SCREEN = {"ranks": "caused_us", "steps": "wait_us", "bandwidth": "time_us", "stragglers": ""}
_WIDEST = 40  # characters of a layer there: its end says most
_MEASURES = ("span", "compute", "communication", "exposed", "overlap", "copy", "idle", "wait", "caused")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof ranks`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="a data set by rank, captures, folders or patterns of them")
    parser.add_argument("--table", metavar="NAME", help=f"one table with all its rows: {', '.join(TABLES)}")
    parser.add_argument("--matrix", metavar="MEASURE", help=f"ranks down and steps across: {', '.join(_MEASURES)}")
    parser.add_argument("--format", choices=FORMATS, default="table", help="of a table (%(default)s)")
    parser.add_argument("--csv", action="store_true", help="the same as --format csv; with -o CSV files")
    parser.add_argument("-o", "--output", metavar="DIR", help="write every table there as a Parquet file")
    parser.add_argument("--top", metavar="N", type=int, default=_SHOWN, help="rows of each table on the screen (%(default)s)")
    add_window(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compare, print. Returns the exit code: 1 where a file could not be used."""
    if options.table is not None and options.table not in TABLES:
        raise UsageError(f"there is no table {options.table!r}", f"tables: {', '.join(TABLES)}")
    if options.matrix is not None and options.matrix not in _MEASURES:
        raise UsageError(f"there is no measure {options.matrix!r}", f"measures: {', '.join(_MEASURES)}")
    if options.table is not None and options.matrix is not None:
        raise UsageError("--table and --matrix are two tables", "give one of them")
    if options.top < 0:
        raise UsageError(f"--top takes a number of rows, not {options.top}", "for example --top 5")
    choose = (lambda records: in_window(records, options)) if window_given(options) else None
    with survey(files_of(options.file), choose) as whole:
        _show(whole, options)
    sys.stdout.flush()
    for failure in whole.failures:
        print(f"failed: {failure.reason}", file=sys.stderr)
    for note in whole.notes:
        print(f"note: {note}", file=sys.stderr)
    return 1 if whole.failures else 0


def _show(whole: Survey, options: argparse.Namespace) -> None:
    form = "csv" if options.csv else options.format
    if options.output is not None:
        _write_all(whole, Path(options.output), form)
    elif options.matrix is not None:
        matrix_of(whole, options.matrix).write(form, sys.stdout)
    elif options.table is not None or form != "table":
        table_named(whole, options.table or "ranks").write(form, sys.stdout)
    else:
        _print_screen(whole, options.top)


def _write_all(whole: Survey, folder: Path, form: str) -> None:
    """Every table into a folder, each file whole or not at all."""
    suffix = "parquet" if form == "table" else {"plain": "txt"}.get(form, form)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            table = table_named(whole, name)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".") as beside:
                path = Path(beside) / name
                if suffix == "parquet":
                    table.write_parquet(path)
                else:
                    with path.open("w", encoding="utf-8", newline="") as stream:
                        table.write(form, stream)
                os.replace(path, folder / f"{name}.{suffix}")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}", "choose another place with -o") from error


def _print_screen(whole: Survey, top: int) -> None:
    print("\n".join(lines(whole)))
    for name, key in _SCREEN.items():
        _print_table(table_named(whole, name), top, key)


def _print_table(table: Table, top: int, key: str) -> None:
    if len(table) and top:
        by = f" by {key}" if key else ""
        print(f"\n{table.title}" + (f" ({top} of {len(table)}{by}; all: --table {table.name})" if len(table) > top else ""))
        table.largest(top, key).cut(_WIDEST).write("table", sys.stdout)


def lines(whole: Survey) -> Iterator[str]:
    """What matters most, a line each."""
    met = int((whole.arrivals.ranks > 1).sum())
    steps = len({step for busy in whole.busy for step in busy.steps.tolist() if step >= 0})
    named = ((len(whole.ranks), "rank"), (steps, "step"), (met, "collective"))
    counts = [f"{number or 'no'} {name}{'' if number == 1 else 's'}" for number, name in named]
    yield f"{', '.join(counts)} compared"
    tied = [unit for unit in range(len(whole.units)) if how_aligned(whole, unit) == "collectives"]
    if tied:
        moved = np.abs(whole.clocks.offset[tied]).max()
        spread = float(np.median(whole.clocks.spread[tied]))
        yield f"clocks: moved by at most {moved / 1e3:.3f} us to agree on collectives; left over {spread / 1e3:.3f} us"
    caused = np.bincount(whole.rank_of[whole.waits.unit], whole.waits.caused, len(whole.ranks))
    late = np.bincount(whole.rank_of[whole.waits.unit], whole.waits.late, len(whole.ranks))
    total = caused.sum()
    if not met or not total:
        return
    communication = sum(int(busy.times[:, 2].sum()) for busy in whole.busy)
    share = f"{100 * total / communication:.1f} % of their communication" if communication else "na"
    yield f"waiting: {total / 1e6:.3f} ms of all ranks together, {share}"
    slow = slowest_ranks(whole)[:3]
    causes = whole.work.compare(whole.rank_of, len(whole.ranks), slow)
    for row in slow:
        yield (
            f"rank {whole.ranks[row]}: last at {100 * late[row] / met:.1f} % of collectives; the others waited "
            f"{caused[row] / 1e6:.3f} ms for it, {100 * caused[row] / total:.1f} % of all waiting"
        )
        most = next((cause for cause in causes if cause[0] == row), None)
        if most is not None:
            layer, op = most[1]
            where = op if layer == "-" else f"{op} in {layer}"
            each = " a step" if steps else ""
            yield f"    longer than the median rank: {where}, {most[2] / 1e3:.3f} us{each}, not {most[3] / 1e3:.3f}"
