"""Print a table with one row a kernel: the op that launched it, its direction, shapes, FLOPs, bytes and Tensor Core use.

FILE is what `python -m pyprof.parse` printed, or a capture itself; without FILE records are read from standard input.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import numpy as np

from pyprof.arrays.joining import positions
from pyprof.arrays.types import Ints
from pyprof.errors import InputError, UsageError
from pyprof.hardware import gpus
from pyprof.messages import tell
from pyprof.parse.records.records import COLUMNS, concatenate
from pyprof.parse.records.selection import (
    add_graphs,
    add_kinds,
    add_window,
    first_ns,
    in_window,
    of_kinds,
    window_given,
)
from pyprof.prof.columns import (
    ALIASES,
    DEFAULT,
    HEADERS,
    SUMS,
    SUMS_SHOWN,
    TORCH_COLUMNS,
    TORCH_KEYS,
    TREE,
    RecordTable,
    columns_text,
)
from pyprof.prof.formulas.user import load_user_formulas
from pyprof.prof.frame import Frame
from pyprof.prof.nearby import frame_of
from pyprof.tables.output import add_output, aligned, arranged, choice, conditions_of, matching, write
from pyprof.tables.table import Header, Source, choose


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof prof`."""
    parser.add_argument(
        "file", metavar="FILE", nargs="*", help="records or captures, one after another; - or nothing: standard input"
    )
    add_output(parser, columns=f"{DEFAULT}; of groups up to {SUMS[SUMS_SHOWN - 1].key}")
    add_kinds(parser)
    parser.add_argument(
        "--gpu", metavar="NAME|FILE", help="hold rates against this device (a name of the table, or JSON with its numbers)"
    )
    add_window(parser)
    add_graphs(parser)
    grouping = parser.add_mutually_exclusive_group()
    grouping.add_argument(
        "--group-by",
        metavar="COL,...",
        help="one row for each distinct op, shape, layer, kernel, family or other column, with sums",
    )
    grouping.add_argument("--tree", choices=["layer"], help="one row for each layer, with the sums of all inside it")
    parser.add_argument("--formulas", metavar="FILE.py", help="formulas of your own; also the variable PYPROF_FORMULAS")
    parser.epilog = columns_text()


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    from pyprof.loading import load

    if options.group_by is not None and _is_of_torch(options):
        return _torch_table(options)
    # Wrong names and values are reported before the work.
    where = conditions_of(options, HEADERS, ALIASES)
    keys = choose(options.group_by, HEADERS, ALIASES) if options.group_by is not None else []
    named = keys or (TREE if options.tree is not None else ())
    default = ",".join(header.key for header in (*named, *SUMS[:SUMS_SHOWN])) if named else DEFAULT
    chosen = choice(options, (*named, *SUMS) if named else HEADERS, default, ALIASES)
    if formulas := options.formulas or os.environ.get("PYPROF_FORMULAS"):
        load_user_formulas(formulas)
    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    records = concatenate([*map(load, options.file or ["-"])])
    shown = of_kinds(records, options.kinds)
    inside = positions(in_window(records, options, shown))
    since, whole = first_ns(records), len(inside) == np.count_nonzero(shown)
    records.release(*COLUMNS)
    frame, inside = frame_of(records, shown, inside, gpu)
    del shown
    table = RecordTable(frame)
    rows = matching(table, inside, where)
    found = arranged(*(_grouped(frame, rows, keys, options) if named else (table, rows)), chosen)
    found = found._replace(since=since)
    records.release(*COLUMNS)
    write(found, options)
    sys.stdout.flush()
    for each in (records, frame.records):
        each.release(*COLUMNS)
    for message in records.messages():
        tell(f"note: {message}")
    _coverage(frame, inside, whole=whole)
    return 0


def _grouped(frame: Frame, rows: Ints, keys: Sequence[Header], options: argparse.Namespace) -> tuple[Source, Ints]:
    """The groups and their order."""
    from pyprof.prof.group import group_by, layer_tree

    groups = group_by(frame, rows, keys) if keys else layer_tree(frame, rows, aligned(options))
    return groups, groups.order


def _is_of_torch(options: argparse.Namespace) -> bool:
    """Whether -c or --sort names a column that only torch's own table has, by its key or torch's name."""
    named = [part.strip().lower() for text in (options.sort, options.columns) if text for part in text.split(",")]
    other = {header.key for header in SUMS}
    own = {header.key for header in TORCH_COLUMNS} - other
    return any(ALIASES.get(key, key) in own for key in named)


def _torch_table(options: argparse.Namespace) -> int:
    """The rows of torch's own key_averages, of a capture: every op that was called, those inside others too."""
    from pyprof.formats import op_rules
    from pyprof.loading import load_with_trace
    from pyprof.parse.attribution.op_executions import executions
    from pyprof.prof.averages import averages, keys_of

    keys = keys_of(options.group_by)
    if options.where or window_given(options) or len(options.file) != 1:
        raise UsageError(
            "torch's columns are of one whole capture", "leave out --where, --step, --range, --time; give one FILE"
        )
    chosen = choice(options, [*TORCH_KEYS[: len(keys)], *TORCH_COLUMNS], "", ALIASES)
    trace = load_with_trace(options.file[0])[1]
    if trace is None:
        raise InputError(
            f"{options.file[0]}: records hold no ops inside others, which torch's columns are about", "give the capture itself"
        )
    table = averages(executions(trace, op_rules()), keys)
    write(arranged(table, table.rows, chosen), options)
    return 0


def _coverage(frame: Frame, inside: Ints, *, whole: bool) -> None:
    """How much of the time is attributed, has shapes and has FLOPs; and, of the whole capture, why the rest has none."""
    records, costs = frame.records, frame.costs
    time = np.maximum(records["dur_ns"][inside], 0)
    total = time.sum(dtype=np.float64)
    if not total:
        tell(f"{len(inside)} rows, 0.000 ms")
        return
    described = np.array([c.described and bool(c.tensors) for c in records.calls] + [False])[records["call"]]
    masks = (records["call"] >= 0, described, (costs.matmul_flops >= 0) & (costs.vector_flops >= 0))
    shares = [100 * time.sum(dtype=np.float64, where=mask[inside]) / total for mask in masks]
    tell(
        f"{len(inside)} rows, {total / 1e6:.3f} ms: an op for {shares[0]:.1f} % of the time, shapes for {shares[1]:.1f} %, "
        f"FLOPs for {shares[2]:.1f} %",
    )
    if not whole:
        return  # reasons were counted over all records
    for reason, (count, spent) in sorted(costs.reasons.items(), key=lambda item: (-item[1][1], item[0]))[:5]:
        rows = f"{count} row{'s' * (count != 1)}"
        tell(f"  no FLOPs for {rows} ({100 * spent / total:.1f} % of the time): {reason}")
