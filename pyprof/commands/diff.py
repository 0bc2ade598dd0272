"""Compare two captures of a program: what became faster or slower beyond noise, what was added or removed.

    pyprof diff BEFORE AFTER
    pyprof diff --save main AFTER             keep a capture under a name
    pyprof diff --baseline main AFTER         compare with that capture
    pyprof diff BEFORE AFTER --fail-over 5%   exit code 3 if the step's median grew by more than that, beyond noise

BEFORE and AFTER are captures or records of them, two folders with a capture for each rank, or two snapshots of torch's memory.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pyprof.errors import InputError, UsageError
from pyprof.hardware import gpus
from pyprof.loading.formats import is_snapshot
from pyprof.loading.load import load
from pyprof.messages import tell
from pyprof.parse.records.selection import add_graphs, add_whole, add_window, in_window, window_given
from pyprof.prof.frame import Frame
from pyprof.report.diff import baselines, document
from pyprof.report.diff.compare import Comparison, RankComparison, compare_ranks, lone_ranks
from pyprof.report.time.overview import Overview
from pyprof.tables.output import is_format_chosen, on_terminal, write
from pyprof.tables.screen import add_tables, require_table, selected
from pyprof.tables.shorten import shortened
from pyprof.tables.table import Table, Texts

_LONGEST = 48  # characters of a text for people, where no terminal cuts it
FAILED = 3  # exit code: slower than --fail-over allows
TABLES = {"where": document.where_table}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof diff`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="BEFORE and AFTER; AFTER alone with --baseline or --save")
    parser.add_argument("--fail-over", metavar="P%", help="exit code 3 if a step's median time grew by more, beyond noise")
    parser.add_argument("--baseline", metavar="NAME", help="take the capture kept under this name as BEFORE")
    parser.add_argument("--save", metavar="NAME", help="keep AFTER under this name")
    parser.add_argument(
        "--baselines", metavar="DIR", default=baselines.FOLDER, help=f"folder of the kept captures ({baselines.FOLDER})"
    )
    parser.add_argument("--gpu", metavar="NAME|FILE", help="compare with this device's peaks")
    add_window(parser)
    add_whole(parser)
    add_graphs(parser)
    add_tables(parser, TABLES)


def run(options: argparse.Namespace) -> int:
    """Read, compare, print. Returns the exit code."""
    limit: float | None = None
    if options.fail_over is not None:
        match = re.fullmatch(r"(\d+(?:\.\d*)?) ?%?", options.fail_over.strip())
        if match is None:
            raise UsageError(f"--fail-over takes a percentage, not {options.fail_over!r}", "for example --fail-over 5%")
        limit = float(match[1]) / 100
    files = _files(options)
    if len(files) == 2 and all(map(is_snapshot, files)):
        return _compare_memory(files, options)
    if options.format != "json":
        require_table(options, TABLES)
    code = 0
    if len(files) == 2 and all(Path(name).is_dir() for name in files):
        code = _compare_jobs(files, limit, options)
    elif len(files) == 2:
        found = Comparison(*(_overview(name, options) for name in files))
        _print(found, files, options)
        code = _gate(found, limit) if limit is not None else 0
    if options.save is not None:
        path = baselines.save(Path(files[-1]), options.save, Path(options.baselines))
        tell(f"kept as baseline {options.save!r}: {path}")
    return code


def _files(options: argparse.Namespace) -> list[str]:
    """BEFORE and AFTER, or only the capture to keep."""
    given: list[str] = options.file
    if options.baseline is not None:
        if len(given) != 1:
            raise UsageError(f"--baseline takes one FILE, not {len(given)}", "pyprof diff --baseline NAME AFTER")
        return [str(baselines.find(options.baseline, Path(options.baselines))), *given]
    if len(given) > 2 or (len(given) == 1 and options.save is None):
        raise UsageError(f"two captures are compared, not {len(given)}", "pyprof diff BEFORE AFTER")
    return given


def _compare_memory(files: list[str], options: argparse.Namespace) -> int:
    """Compare the peaks of two snapshots."""
    from pyprof.report.memory.compare import difference, head
    from pyprof.report.memory.make import memory_of

    before, after = map(memory_of, files)
    table = selected(difference(before, after), options)
    if options.format in (None, "table") and not (options.csv or options.csv_safe or options.output):
        print("\n".join([*head(before, after), ""]))
        options.units = options.units or "human"
    write(table, options)
    return 0


def _overview(name: str, options: argparse.Namespace) -> Overview:
    records = load(name, with_host=True)
    frame = Frame(records, gpus.named(options.gpu) if options.gpu is not None else None)
    return Overview(frame, in_window(records, options) if window_given(options) else None)


def _print(found: Comparison, files: list[str], options: argparse.Namespace) -> None:
    if options.format == "json" and not options.table:
        _write_text(document.to_json(found, files), options)
    elif options.table:
        write(selected(TABLES[options.table](found), options), options)
    else:
        table = document.short_table(found)
        table = table if options.top is None else document.where_table(found, options.top)
        options.units = options.units or "human"
        above = list(document.head(found, files))
        if options.format == "markdown" or options.output is not None:
            above = [f"- {line}" for line in above] if options.format == "markdown" else above
            table = table._replace(title="\n".join([*above, "", "Where the difference is"]))
        else:
            print("\n".join([*above, ""]))
        if not is_format_chosen(options) and not on_terminal(options):
            table = _shortened(table)
        write(table, options)


def _shortened(table: Table) -> Table:
    """The table with its long texts cut: an op of many tensors has hundreds of characters of shapes."""
    values = []
    for one in table.values:
        if isinstance(one, Texts):
            pool = one.brief or one.pool
            short = shortened(pool, _LONGEST)
            one = one._replace(brief=[short[text] for text in pool])
        values.append(one)
    return table._replace(values=values)


def _compare_jobs(files: list[str], limit: float | None, options: argparse.Namespace) -> int:
    """Compare rank by rank. The exit code is the worst of all ranks."""
    for lone, name in zip(lone_ranks(files[0], files[1]), files, strict=True):
        if lone:
            tell(f"note: {len(lone)} ranks are only in {name} and are left out")
    sums, codes = [], [0]

    def compared() -> Iterator[RankComparison]:
        for one in compare_ranks(files[0], files[1], lambda name: _overview(name, options)):
            sums.append(document.rank_sums(one))
            if limit is not None:
                codes.append(_gate(one.found, limit, f"rank {sums[-1].rank}: "))
            yield one

    if options.format == "json":
        _write_text(document.job_json(compared(), files), options)
    else:
        for _ in compared():  # rank by rank, so that only two captures are in memory
            pass
        write(document.ranks_table(sums)._replace(title=f"{files[0]} -> {files[1]}, rank by rank"), options)
    return max(codes)


def _write_text(text: str, options: argparse.Namespace) -> None:
    if options.output is None:
        sys.stdout.write(text)
        return
    from pyprof.tables.files import whole_text_file

    with whole_text_file(Path(options.output), map(Path, options.file)) as stream:
        stream.write(text)


def _gate(found: Comparison, limit: float, of: str = "") -> int:
    """The exit code of --fail-over; prints the verdict."""
    step = found.run or found.step
    before, after = (found.before_ns, found.after_ns) if step is None else (step.before_ns, step.after_ns)
    if not before:
        raise InputError("the first capture holds no time to compare with", "give a capture in which something ran")
    judged = step is not None and step.low_ns is not None
    share = (after - before) / before
    failed = share > limit and (not judged or (step is not None and step.beyond_noise))
    what = f"the {found.time_name}" if step is None else "the step's median" if judged else "the step's time"
    known = "" if judged else "; without several steps in both captures it cannot be told from noise"
    noise = ", within noise" if judged and step is not None and not step.beyond_noise else ""
    verdict = "failed" if failed else "passed"
    tell(f"{of}{verdict}: {what} changed by {share:+.1%}{noise}; {limit:.1%} is allowed{known}")
    return FAILED if failed else 0
