"""Print a table with one row a kernel: the op that launched it, its direction, shapes, FLOPs, bytes and Tensor Core use.

FILE is what `python -m pyprof.parse` printed, or a capture itself; without FILE records are read from standard input.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import numpy.typing as npt

from pyprof.errors import UsageError
from pyprof.parse.command import add_kinds, choose_kinds, report
from pyprof.parse.records import concatenate
from pyprof.prof.columns import COLUMNS, DEFAULT, Column, choose, sort_key, unknown_as
from pyprof.prof.frame import Frame
from pyprof.prof.writers import write_columnated, write_csv, write_plain

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof prof`."""
    parser.add_argument(
        "file", metavar="FILE", nargs="*", help="records or captures, one after another; - or nothing: standard input"
    )
    parser.add_argument("-c", "--columns", metavar="COLS", default=DEFAULT, help="columns, by comma (default %(default)s)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated (RFC 4180) instead of space-separated")
    form.add_argument("-w", "--width", metavar="N", type=int, help="aligned in lines of N characters")
    add_kinds(parser)
    parser.add_argument("--where", metavar="COL=VALUE,...", help="only rows with these values, e.g. op=linear,dir=bprop")
    parser.add_argument("--sort", metavar="COL", help="largest first by a column of numbers, else by text")
    parser.add_argument("--top", metavar="N", type=int, help="only the first N rows")
    lines = [f"  {column.key:9} {column.header:12} {column.help}" for column in COLUMNS]
    parser.epilog = "columns:\n" + "\n".join(lines)


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    from pyprof.load import load

    columns = choose(options.columns)
    conditions = _conditions(options.where)
    sort = choose(options.sort)[0] if options.sort else None
    records = concatenate([load(name) for name in options.file or ["-"]])
    frame = Frame(choose_kinds(records, options.kinds))
    rows = _rows(frame, conditions, sort, options.top)
    values = [column.compute(frame).take(rows) for column in columns]
    if options.width is not None:
        write_columnated(columns, values, sys.stdout, options.width)
    else:
        (write_csv if options.csv else write_plain)(columns, values, sys.stdout)
    sys.stdout.flush()
    report(records)
    _coverage(frame)
    return 0


def _conditions(text: str | None) -> list[tuple[str, str]]:
    found = []
    for part in filter(None, (text or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"--where takes COL=VALUE, not {part!r}", "for example --where op=linear,dir=bprop")
        found.append((key, value))
    return found


def _rows(frame: Frame, conditions: list[tuple[str, str]], sort: Column | None, top: int | None) -> npt.NDArray[np.int64]:
    rows = np.arange(len(frame.records))
    for key, wanted in conditions:
        texts = unknown_as(choose(key)[0].compute(frame))
        rows = rows[[texts[row] == wanted for row in rows.tolist()]]
    if sort is not None:
        rows = rows[np.argsort(sort_key(sort.compute(frame).take(rows)), kind="stable")]
    return rows if top is None else rows[: max(top, 0)]


def _coverage(frame: Frame) -> None:
    """How much of the time is attributed, has shapes and has FLOPs; and why the rest has none."""
    records, costs = frame.records, frame.costs
    time = records["dur_ns"].astype(np.float64)
    total = time.sum()
    if not total:
        return
    described = np.array([c.described and bool(c.tensors) for c in records.calls] + [False])[records["call"]]
    shares = [100 * time[mask].sum() / total for mask in (records["call"] >= 0, described, costs.flops >= 0)]
    print(
        f"{len(records)} rows, {total / 1e6:.3f} ms: an op for {shares[0]:.1f} % of the time, shapes for {shares[1]:.1f} %, "
        f"FLOPs for {shares[2]:.1f} %",
        file=sys.stderr,
    )
    for reason, (count, spent) in sorted(costs.reasons.items(), key=lambda item: -item[1][1])[:5]:
        print(f"  no FLOPs for {count} rows ({100 * spent / total:.1f} % of the time): {reason}", file=sys.stderr)
