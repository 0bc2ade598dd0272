"""Compare the ranks of a job: who comes last to collectives, how long the others wait, which layer and op makes it late;
compute, communication and idle time of each; bandwidth of collectives.

FILE is a folder that `pyprof parse -o FOLDER` wrote, captures, or folders of captures. One rank is in memory at a time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pyprof.errors import InputError, UsageError
from pyprof.parse.records.selection import add_window, in_window, window_given
from pyprof.report.ranks.advice import Straggler, described, in_words
from pyprof.report.ranks.results import PER_STEP, TABLES, by_rank, matrix_of
from pyprof.report.ranks.survey import Survey, how_aligned, survey
from pyprof.report.ranks.units import files_of
from pyprof.tables.formats import FORMATS
from pyprof.tables.output import on_terminal, ordered, say, write
from pyprof.tables.screen import add_tables, one_table_option, selected
from pyprof.tables.table import Table, Texts

_SHOWN = 10  # rows of a table on the screen
# The tables there, and what decides which rows are shown.
_SCREEN = {"ranks": "caused_us", "steps": "wait_us", "bandwidth": "time_us", "stragglers": ""}
_WORTH = 0.1  # of what the most costly rank costs
_ENTERED = 8  # ranks whose entry to a collective is shown
_WIDEST = 40  # characters of a layer there: its end says most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof ranks`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="a data set by rank, captures, folders or patterns of them")
    add_tables(parser, TABLES, file=False)
    parser.add_argument("--matrix", choices=PER_STEP, help="ranks down and steps across")
    parser.add_argument("-o", "--output", dest="folder", metavar="DIR", help="write every table there (--format parquet)")
    add_window(parser)


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
    with survey(files_of(options.file), choose) as whole:
        _show(whole, options)
        sys.stdout.flush()
        for failure in whole.failures:
            print(f"failed: {failure}", file=sys.stderr)
        for note in whole.notes:
            print(f"note: {note}", file=sys.stderr)
    return 1 if whole.failures else 0


def _show(whole: Survey, options: argparse.Namespace) -> None:
    if options.folder is not None:
        _write_all(whole, Path(options.folder), options)
    elif options.matrix is not None or options.table is not None:
        table = matrix_of(whole, options.matrix) if options.matrix is not None else TABLES[options.table](whole)
        write(selected(table._replace(title=""), options), options)
    elif options.format == "json":
        write([make(whole).take(slice(options.top)) for make in TABLES.values()], options)
    else:
        _print_screen(whole, options)


def _write_all(whole: Survey, folder: Path, options: argparse.Namespace) -> None:
    """Every table into a folder, each file whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}", "choose another place with -o") from error
    name = "csv" if options.csv else options.format or "parquet"
    for table in (make(whole) for make in TABLES.values()):
        options.output, options.format = str(folder / f"{table.name}{FORMATS[name].suffix}"), name
        write(table.take(slice(options.top))._replace(title=""), options)


def _print_screen(whole: Survey, options: argparse.Namespace) -> None:
    top = _SHOWN if options.top is None else options.top
    say(lines(whole))
    tables = [
        _on_screen(table, top, on_terminal(options)) for name in _SCREEN if top and len((table := TABLES[name](whole)).rows)
    ]
    if tables:
        print()
        write(tables, options)


def _on_screen(table: Table, top: int, fitted: bool) -> Table:
    """The rows with most of what the table is about; fitted: the terminal's format cuts the rest, else texts are cut to their
    last characters."""
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


def lines(whole: Survey) -> Iterator[str]:
    """What matters most, a line each."""
    met = int((whole.arrivals.ranks > 1).sum())
    steps = len({step for busy in whole.busy for step in busy.steps.tolist() if step >= 0})
    named = ((len(whole.ranks), "rank"), (steps, "step"), (met, "collective"))
    counts = [f"{number or 'no'} {name}{'' if number == 1 else 's'}" for number, name in named]
    yield f"{', '.join(counts)} compared"
    aligned = [unit for unit in range(len(whole.units)) if how_aligned(whole, unit) == "collectives"]
    if aligned:
        moved = np.abs(whole.clocks.offset[aligned]).max()
        spread = float(np.median(whole.clocks.spread[aligned]))
        yield f"clocks: moved by at most {moved / 1e3:.3f} us to agree on collectives; left over {spread / 1e3:.3f} us"
    total = by_rank(whole, whole.waits.caused).sum()
    if not met or not total:
        return
    communication = sum(int(busy.times[:, 2].sum()) for busy in whole.busy)
    share = f", {100 * total / communication:.1f} % of their communication" if communication and whole.ends else ""
    yield f"waiting: {total / 1e6:.3f} ms of all ranks together{share}"
    for row in whole.slowest:
        if whole.saves[row] >= _WORTH * whole.saves.max():
            yield from _late(described(whole, row), total)
            causes = [in_words(cause) for cause in whole.causes(row)[:2]]
            yield from (f"    {text}" for text in causes or ["nothing recorded explains a tenth of its delay"])


def _late(one: Straggler, total: int) -> Iterator[str]:
    """What a rank that others waited for costs; total: ns of all waiting."""
    share = f"{100 * one.waited_ns / total:.1f} % of all waiting"
    times = f"last at {one.collectives} of {one.met} collectives"
    yield f"rank {one.rank}: {times}; the others waited {one.waited_ns / 1e6:.3f} ms for it, {share}"
    step = "" if one.step is None else f" of step {one.step}"
    after = f"{one.last_ns / 1e6:.3f} ms after rank {one.earliest}"
    if one.second != one.earliest:
        after += f", {(one.last_ns - one.second_ns) / 1e6:.3f} ms after rank {one.second}, the next-to-last"
    yield f"    most at {one.kind}{step}: {after}"
    shown = [f"{rank} {ns / 1e6:.3f}" for rank, ns in one.entered]
    if len(shown) > _ENTERED:
        shown[_ENTERED // 2 : -_ENTERED // 2] = ["..."]
    yield f"    entered there, rank and ms: {', '.join(shown)}"
    yield f"    saves {one.saves_ns / 1e6:.3f} ms in all if it enters with the next-to-last"
