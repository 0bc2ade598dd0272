"""Print a table with one row a kernel: the op that launched it, its direction, shapes, FLOPs, bytes and Tensor Core use.

FILE is what `python -m pyprof.parse` printed, or a capture itself; without FILE records are read from standard input.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import numpy.typing as npt

from pyprof.errors import InputError, UsageError
from pyprof.hardware import gpus
from pyprof.parse.attribution.op_executions import executions
from pyprof.parse.records.records import concatenate
from pyprof.parse.records.selection import add_kinds, add_window, choose_kinds, in_window, window_given
from pyprof.prof.averages import AVERAGES, averages, is_of_torch, keys_of
from pyprof.prof.columns import COLUMNS, DEFAULT, choose
from pyprof.prof.frame import Frame
from pyprof.prof.group import Table, group_by, layer_tree
from pyprof.prof.select import add_selection, conditions, first_rows, matching, ordered
from pyprof.prof.writers import write_columnated, write_csv, write_jsonl, write_plain

__all__ = ["add_arguments", "run"]

_WRITERS = {"plain": write_plain, "csv": write_csv, "table": write_columnated, "jsonl": write_jsonl}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof prof`."""
    parser.add_argument(
        "file", metavar="FILE", nargs="*", help="records or captures, one after another; - or nothing: standard input"
    )
    parser.add_argument("-c", "--columns", metavar="COLS", help=f"columns, by comma (default {DEFAULT}; of groups all)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated (RFC 4180) instead of space-separated")
    form.add_argument("-w", "--width", metavar="N", type=int, help="aligned in lines of N characters")
    form.add_argument(
        "--format",
        choices=_WRITERS,
        default="plain",
        help="plain: space-separated; table: aligned, nothing cut; jsonl: JSON lines",
    )
    add_kinds(parser)
    parser.add_argument(
        "--gpu", metavar="NAME|FILE", help="hold rates against this device (a name of the table, or JSON with its numbers)"
    )
    add_window(parser)
    add_selection(parser)
    grouping = parser.add_mutually_exclusive_group()
    grouping.add_argument(
        "--group-by",
        metavar="COL,...",
        help="one row for each distinct op, shape, layer, kernel, family or other column, with sums",
    )
    grouping.add_argument("--tree", choices=["layer"], help="one row for each layer, with the sums of all inside it")
    lines = [f"  {column.key:9} {column.header:12} {column.help}" for column in COLUMNS]
    torch_lines = [f"  {column.key:15} {column.header:15} {column.help}" for column in AVERAGES]
    parser.epilog = "\n".join(
        [
            "columns:",
            *lines,
            "",
            "of torch's own table, with --group-by op or op,shape and --sort or -c one of these:",
            *torch_lines,
        ]
    )


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    from pyprof.loading import load

    if options.group_by is not None and is_of_torch(options.sort, options.columns):
        return _torch_table(options)
    where = conditions(options.where)
    keys = choose(options.group_by) if options.group_by is not None else []
    grouped = bool(keys) or options.tree is not None
    if not grouped:
        for named in (options.columns, options.sort):  # wrong names are told before the work
            choose(named or DEFAULT)
    first_rows(np.empty(0, np.int64), options.top)
    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    records = concatenate([load(name) for name in options.file or ["-"]])
    frame = Frame(choose_kinds(records, options.kinds), gpu, records)
    inside = np.flatnonzero(in_window(frame.records, options))
    rows = matching(frame, inside, where)
    if keys:
        table = group_by(frame, rows, keys)
    elif options.tree is not None:
        table = layer_tree(frame, rows, drawn=options.width is not None or options.format == "table")
    table = _arranged(table, options) if grouped else _listed(frame, rows, options)
    _write(table, options)
    sys.stdout.flush()
    for message in records.messages():
        print(f"note: {message}", file=sys.stderr)
    _coverage(frame, inside)
    return 0


def _torch_table(options: argparse.Namespace) -> int:
    """The rows that torch's own key_averages has, of a capture: every op that was called, those inside others too."""
    from pyprof.loading import load_with_trace, op_rules

    keys = keys_of(options.group_by)
    if options.where or window_given(options) or len(options.file) != 1:
        raise UsageError(
            "torch's columns are of one whole capture", "leave out --where, --step, --range, --time; give one FILE"
        )
    first_rows(np.empty(0, np.int64), options.top)
    trace = load_with_trace(options.file[0])[1]
    if trace is None:
        raise InputError(
            f"{options.file[0]}: records hold no ops inside others, which torch's columns are about", "give the capture itself"
        )
    _write(_arranged(averages(executions(trace, op_rules()), keys), options), options)
    return 0


def _listed(frame: Frame, rows: npt.NDArray[np.int64], options: argparse.Namespace) -> Table:
    """Records as they are."""
    sort = [column.compute(frame) for column in choose(options.sort)] if options.sort else []
    rows = first_rows(ordered(sort, rows), options.top)
    columns = choose(options.columns or DEFAULT)
    whole = len(rows) == len(frame.records) and bool((rows == np.arange(len(rows))).all())
    values = (column.compute(frame) for column in columns)
    return Table(columns, list(values) if whole else [found.take(rows) for found in values])


def _arranged(table: Table, options: argparse.Namespace) -> Table:
    """Groups in the order asked for, with the columns asked for."""
    of = dict(zip((column.key for column in table.columns), table.values, strict=True))
    sort = [of[column.key] for column in choose(options.sort, table.columns)] if options.sort else []
    rows = first_rows(ordered(sort, table.rows), options.top)
    columns = choose(options.columns, table.columns) if options.columns else table.columns
    return Table(columns, [of[column.key].take(rows) for column in columns])


def _write(table: Table, options: argparse.Namespace) -> None:
    if options.width is not None:
        write_columnated(table.columns, table.values, sys.stdout, options.width)
    else:
        _WRITERS["csv" if options.csv else options.format](table.columns, table.values, sys.stdout)


def _coverage(frame: Frame, inside: npt.NDArray[np.int64]) -> None:
    """How much of the time is attributed, has shapes and has FLOPs; and why the rest has none."""
    records, costs = frame.records, frame.costs
    time = np.maximum(records["dur_ns"][inside], 0).astype(np.float64)
    total = time.sum()
    if not total:
        print(f"{len(inside)} rows, 0.000 ms", file=sys.stderr)
        return
    described = np.array([c.described and bool(c.tensors) for c in records.calls] + [False])[records["call"]]
    masks = (records["call"] >= 0, described, costs.flops >= 0)
    shares = [100 * time[mask[inside]].sum() / total for mask in masks]
    print(
        f"{len(inside)} rows, {total / 1e6:.3f} ms: an op for {shares[0]:.1f} % of the time, shapes for {shares[1]:.1f} %, "
        f"FLOPs for {shares[2]:.1f} %",
        file=sys.stderr,
    )
    if len(inside) < len(records):
        return  # reasons were counted over all records
    for reason, (count, spent) in sorted(costs.reasons.items(), key=lambda item: (-item[1][1], item[0]))[:5]:
        rows = f"{count} row{'s' * (count != 1)}"
        print(f"  no FLOPs for {rows} ({100 * spent / total:.1f} % of the time): {reason}", file=sys.stderr)
