"""Print a table with one row a kernel: the op that launched it, its direction, shapes, FLOPs, bytes and Tensor Core use.

FILE is the output of `python -m pyprof.parse`, or a capture; without FILE, records are read from standard input.
"""

from __future__ import annotations

import argparse
import os
import sys

import numpy as np

from pyprof.columns.distinct import among
from pyprof.columns.types import Ints
from pyprof.errors import InputError, UsageError
from pyprof.hardware import gpus
from pyprof.messages import tell
from pyprof.model.records import concatenate
from pyprof.parse.records.selection import (
    add_graphs,
    add_kinds,
    add_window,
    first_ns,
    in_window,
    kind_codes,
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
from pyprof.prof.frame import Frame, frame_around
from pyprof.prof.served import use_model
from pyprof.tables.output import add_output, aligned, arranged, choice, conditions_of, matching, write
from pyprof.tables.table import Source, choose

_TORCH_ALONE = {header.key for header in TORCH_COLUMNS} - {header.key for header in SUMS}  # columns that only torch's table has


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof prof`."""
    parser.add_argument(
        "file", metavar="FILE", nargs="*", help="records or captures, one after another; - or nothing: standard input"
    )
    add_output(parser, columns=f"{DEFAULT}; of groups up to {SUMS[SUMS_SHOWN - 1].key}")
    add_kinds(parser)
    parser.add_argument(
        "--gpu", metavar="NAME|FILE", help="compare with this device's peaks (a name from the table, or JSON with its numbers)"
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
    parser.add_argument("--model", metavar="config.json", help="sizes of a served model: experts, window (Hugging Face)")
    parser.epilog = columns_text()


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    from pyprof.loading.load import load

    if options.group_by is not None:
        asked = [part.strip().lower() for text in (options.sort, options.columns) if text for part in text.split(",")]
        if any(ALIASES.get(key, key) in _TORCH_ALONE for key in asked):
            return _torch_table(options)
    # Bad names and values are reported before any work.
    where = conditions_of(options, HEADERS, ALIASES)
    keys = choose(options.group_by, HEADERS, ALIASES) if options.group_by is not None else []
    named = keys or (TREE if options.tree is not None else ())
    default = ",".join(header.key for header in (*named, *SUMS[:SUMS_SHOWN])) if named else DEFAULT
    chosen = choice(options, (*named, *SUMS) if named else HEADERS, default, ALIASES)
    if formulas := options.formulas or os.environ.get("PYPROF_FORMULAS"):
        load_user_formulas(formulas)
    if options.model is not None:
        use_model(options.model)
    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    records = concatenate([*map(load, options.file or ["-"])])
    shown = among(records["kind"], kind_codes(options.kinds))
    frame, inside = frame_around(records, shown, np.flatnonzero(in_window(records, options, shown)), gpu)
    table = RecordTable(frame)
    rows = matching(table, inside, where)
    source: Source = table
    if named:
        from pyprof.prof.group import group_by, layer_tree

        source = groups = group_by(frame, rows, keys) if keys else layer_tree(frame, rows, aligned(options))
        rows = groups.order
    write(arranged(source, rows, chosen)._replace(since=first_ns(records)), options)
    sys.stdout.flush()
    for message in records.messages():
        tell(f"note: {message}")
    _coverage(frame, inside, int(np.count_nonzero(shown)))
    return 0


def _torch_table(options: argparse.Namespace) -> int:
    """Print torch's own key_averages of a capture: every op that was called, nested ones too."""
    from pyprof.loading.formats import op_rules
    from pyprof.loading.load import load_with_trace
    from pyprof.parse.attribution.op_executions import executions
    from pyprof.prof.averages import averages, keys_of

    keys = keys_of(options.group_by)
    if options.where or window_given(options) or len(options.file) != 1:
        raise UsageError(
            "torch's columns need one complete capture", "leave out --where, --step, --range, --time; give one FILE"
        )
    chosen = choice(options, [*TORCH_KEYS[: len(keys)], *TORCH_COLUMNS], "", ALIASES)
    trace = load_with_trace(options.file[0])[1]
    if trace is None:
        raise InputError(
            f"{options.file[0]}: torch's columns need nested ops, which records do not have", "give the capture itself"
        )
    table = averages(executions(trace, op_rules()), keys)
    write(arranged(table, table.rows, chosen), options)
    return 0


def _coverage(frame: Frame, inside: Ints, shown: int) -> None:
    """Tell how much of the time has an op, shapes and FLOPs; for a whole capture also why the rest has no FLOPs."""
    records, costs = frame.records, frame.costs
    time = np.maximum(records["dur_ns"][inside], 0)
    total = time.sum(dtype=np.float64)
    if not total:
        tell(f"{len(inside)} rows, 0.000 ms")
        return
    described = np.array([c.described and bool(c.tensors) for c in records.calls] + [False])[records["call"]]
    masks = (records["call"] >= 0, described, costs.flops >= 0)
    shares = [100 * time.sum(dtype=np.float64, where=mask[inside]) / total for mask in masks]
    tell(
        f"{len(inside)} rows, {total / 1e6:.3f} ms: an op for {shares[0]:.1f} % of the time, shapes for {shares[1]:.1f} %, "
        f"FLOPs for {shares[2]:.1f} %",
    )
    if len(inside) < shown:
        return  # the reasons are counted over all records
    for reason, (count, spent) in sorted(costs.reasons.items(), key=lambda item: (-item[1][1], item[0]))[:5]:
        rows = f"{count} row{'s' * (count != 1)}"
        tell(f"  no FLOPs for {rows} ({100 * spent / total:.1f} % of the time): {reason}")
