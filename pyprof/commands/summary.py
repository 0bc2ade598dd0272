"""Print one screen that says what to fix first: where the time went, advice with the most it can save, time by phase, op, layer
and kernel family, the largest losses against the roofline, and how much is known.

FILE is a capture, records that `pyprof parse` wrote, or a folder with one file for each rank of a job. Several files get a
column each. --table and --format give tables of everything.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING

from pyprof.errors import InputError
from pyprof.parse.records.selection import add_graphs, add_whole, add_window, in_window, window_given
from pyprof.report.summary.beside import beside
from pyprof.report.summary.model import SCHEMA
from pyprof.report.summary.screen import Summary, advice_lines, lines
from pyprof.report.summary.styled import Line, Units, plain
from pyprof.report.summary.tables import TABLES, of_all, tables_of
from pyprof.tables.files import text_output
from pyprof.tables.output import choice, on_terminal, write
from pyprof.tables.screen import add_tables, require_table, selected

if TYPE_CHECKING:
    from pyprof.hardware.devices import Gpu

_WIDTH = 100
_MOST_WIDTH = 120
_LEAST_WIDTH = 40  # a narrower terminal wraps the lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof summary`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="captures or records; several get a column each")
    parser.add_argument("--gpu", metavar="NAME|FILE", help="compare with this device's peaks")
    parser.add_argument("--model", metavar="config.json", help="sizes of a served model: experts, window (Hugging Face)")
    add_window(parser)
    add_whole(parser)
    add_graphs(parser)
    add_tables(parser, TABLES)


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    from pyprof.hardware import gpus
    from pyprof.prof.served import use_model

    require_table(options, TABLES)
    if options.model is not None:
        use_model(options.model)
    if options.table is None:
        choice(options, ())  # reports wrong options before anything is read
    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    found = [_summary(name, gpu, options) for name in options.file]
    output = options.output or ""
    rows_chosen = any(getattr(options, name) is not None for name in ("columns", "where", "sort", "top", "units"))
    if options.table == "advice" and on_terminal(options) and not rows_chosen:
        for one in found:  # sentences, for which no column is wide enough
            _draw(partial(advice_lines, one), True, None, sys.stdout)
    elif options.table is not None:
        write(selected(of_all(options.table, found), options), options)
    elif options.format == "json" or (options.format is None and output.endswith(".json")):
        with text_output(options.output, options.file) as stream:
            print(document(found), file=stream)
    elif options.format == "markdown" or (options.format is None and output.endswith(".md")):
        from pyprof.report.summary.words import markdown

        rows = {} if options.top is None else {"rows": options.top}
        with text_output(options.output, options.file) as stream:
            print(*(markdown(one, options.units != "raw", **rows) for one in found), sep="\n", file=stream)
    elif options.format or output:
        write([table.take(slice(options.top)) for one in found for table in tables_of(one)], options)
    else:
        window = [
            word for name in ("step", "range", "time") if (text := getattr(options, name)) for word in (f"--{name}", text)
        ]
        show(found, options.units != "raw", options.width, shlex.join(["pyprof", "prof", *window, options.file[0]]))
    return 0


def document(found: Sequence[Summary]) -> str:
    """The JSON of one summary, or of several under `files`."""
    if len(found) == 1:
        return found[0].json()
    files = [one.to_dict() for one in found]
    return json.dumps({"schema": SCHEMA, "files": files}, ensure_ascii=False, indent=1, allow_nan=False)


def summary_of(name: str, gpu: Gpu | None = None, options: argparse.Namespace | None = None) -> Summary:
    """The summary of a file. gpu: the device whose peaks count; options: choose the part that is shown, None: all."""
    from pyprof.loading.load import load
    from pyprof.prof.frame import Frame
    from pyprof.report.summary.make import summarise
    from pyprof.report.time.overview import Overview

    records = load(name, with_host=True)
    chosen = in_window(records, options) if options is not None and window_given(options) else None
    return summarise(Overview(Frame(records, gpu), chosen), name)


def _summary(name: str, gpu: Gpu | None, options: argparse.Namespace) -> Summary:
    """The summary of a file, or of the job whose ranks are in a folder."""
    from pyprof.parse.records.locations import is_folder, locate

    if name == "-" or not is_folder(locate(name)):
        return summary_of(name, gpu, options)
    from pyprof.report.ranks.advice import straggler
    from pyprof.report.ranks.survey import survey
    from pyprof.report.ranks.units import files_of
    from pyprof.report.summary.job import job_of

    files = files_of([name])
    ranks = [summary_of(str(file), gpu, options) for file in files]
    if len(ranks) == 1:
        return ranks[0]
    choose = (lambda records: in_window(records, options)) if window_given(options) else None
    try:
        whole = survey(files, choose)
        return job_of(name, ranks, straggler(whole), whole.notes, whole.pipeline)
    except InputError:  # the ranks have nothing in common to compare
        return job_of(name, ranks, None)


def show(
    found: Sequence[Summary], human: bool, width: int | None = None, command: str | None = None, stream: IO[str] | None = None
) -> None:
    """Print one summary, or several side by side. width: characters of a line, None: the terminal's."""
    stream = sys.stdout if stream is None else stream
    width = width and max(width, _LEAST_WIDTH)
    made: Callable[[Units], list[Line]]
    if len(found) == 1:
        made = lambda units: lines(found[0], units, command)  # noqa: E731
    else:
        made = lambda units: beside(found, units)  # noqa: E731
    if stream.isatty():
        _draw(made, human, width, stream)
    else:
        print(plain(made(Units(human, width or _WIDTH))), file=stream)


def _draw(made: Callable[[Units], list[Line]], human: bool, width: int | None, stream: IO[str]) -> None:
    import shutil

    from rich.console import Console
    from rich.text import Text

    columns = width or min(max(shutil.get_terminal_size().columns, _LEAST_WIDTH), _MOST_WIDTH)
    console = Console(file=stream, width=columns, highlight=False, soft_wrap=True)
    for line in made(Units(human, columns, bars=True)):
        text = Text.assemble(*line)
        text.rstrip()
        console.print(text)
