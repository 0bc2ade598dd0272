"""Gradients of whole tensors of which little was read: of slices taken one at a time in a loop, of large tables of embeddings.

The backward of x[i] writes zeros for all of x, copies the slice's gradient in and adds that to the sum of the others: for n
slices n times the tensor, where one op for all of them (unbind, split, a batched product) writes each element once. The fills
and additions but those of one slice go. A table's gradient is filled and its optimizer's step made for all rows, though a step
reads a few; with sparse gradients they are made for these.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.types import Bools, Ints
from pyprof.model.opcall import OpCall
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.prof.formulas import matmul_class
from pyprof.report.advice.base import Advice, cut_ns, is_worth, mean_ns, named, places, told
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change

_OPS = ("select", "slice", "narrow", "index", "__getitem__", "unfold", "diagonal", "as_strided")
_FILLS = ("fill_", "zero_", "zeros", "zeros_like", "new_zeros")
_LOOKUPS = ("embedding", "embedding_bag")
_TABLE, _FEW = 4 << 20, 0.25  # bytes of a table that is large; of its rows, read in a step
_SPARSE = (
    "torch.nn.Embedding(..., sparse=True), with torch.optim.SparseAdam or SGD for these tables: a step then moves only the "
    "rows that were read (SparseAdam leaves the moments of others as they are)"
)
_SEVERAL = 4  # slices of one tensor in a step: fewer are no loop
_LEAST = 0.02  # of the wall time
_DO = {
    "index": "sort the rows once instead of x[rows] in a loop: x[order].split(sizes), with torch.bmm or a grouped product",
    "": "one op in place of x[i] in a loop: `for part in x.unbind(0)` (slices: x.split(size)), or all of them in one torch.bmm",
}


def find(overview: Overview) -> Advice | None:
    """Slices whose gradients are filled again and again, or else tables that are."""
    return _of_slices(overview) or _of_tables(overview)


def _of_tables(overview: Overview) -> Advice | None:
    records, classes, calls = overview.records, overview.frame.classes, overview.records.calls
    steps = 1 if overview.steps is None else len(overview.steps)
    tables = [
        next((one for one in call.tensors if len(one.shape) == 2 and "float" in (one.dtype or "")), None) for call in calls
    ]
    looked_up = [call.op in _LOOKUPS and table is not None for call, table in zip(calls, tables, strict=True)]
    if not any(looked_up) or any("embedding_sparse_backward" in call.op for call in calls):
        return None
    phase, mine = classes.records["phase"], np.array([*looked_up, False], np.bool_)[classes.records["call"]]
    ahead = classes.rows(mine & (phase == PHASES.index("forward")))
    ahead = ahead[overview.inside[ahead]]
    read: dict[tuple[int, ...], int] = {}  # rows of each table in all steps, at most
    often = np.bincount(distinct_rows(records["call"][ahead], records["instance"][ahead]).columns[0], minlength=len(calls))
    for call, table, number in zip(calls, tables, often.tolist(), strict=True):
        if table is not None and number:
            indices = sum(one.numel for one in call.tensors if "int" in (one.dtype or "") and one.numel > 1)
            read[table.shape] = read.get(table.shape, 0) + indices * number
    # A table that a product takes too, as the head of a language model shares it, has a gradient for every row.
    dense = {one.shape[::turn] for call in calls if matmul_class(call.name) for one in call.tensors for turn in (1, -1)}
    few = {one: rows / steps / one[0] for one, rows in read.items() if one not in dense and 0 < rows / steps < _FEW * one[0]}
    share = np.ones(len(calls) + 1)
    for code, (call, table) in enumerate(zip(calls, tables, strict=True)):
        whole = table if looked_up[code] else call.tensors[0] if call.tensors else None
        if whole is not None and whole.shape in few and (whole.nbytes or 0) >= _TABLE:
            share[code] = few[whole.shape]
    optimizer = (phase == PHASES.index("optimizer")) & ~mine
    rows = classes.rows((share[classes.records["call"]] < 1) & (mine & (phase == PHASES.index("backward")) | optimizer))
    rows = rows[overview.inside[rows]]
    held = overview.division.exclusive_ns[rows]
    granted = cut_ns(overview, rows, held * (1 - share[records["call"][rows]]))
    if not is_worth(overview, mean_ns(overview, granted), _LEAST):
        return None
    where, most = places(overview, rows, held), max(few, key=lambda one: one[0] * one[1])
    evidence = (
        f"a step reads {100 * few[most]:.1g} % of the {most[0]:,} rows of a table of embeddings at most; backward and the "
        f"optimizer move all of them: {named(where)}"
    )
    return Advice("indexing_backward", Change(rows=rows, cut_ns=granted), mean_ns(overview, held), evidence, _SPARSE, where)


def _of_slices(overview: Overview) -> Advice | None:
    records, classes = overview.records, overview.frame.classes
    calls = records.calls
    slices = np.array([one.op in _OPS for one in calls] + [False], np.bool_)
    backward = classes.records["phase"] == PHASES.index("backward")
    rows = classes.rows(backward & slices[classes.records["call"]])
    rows = rows[overview.inside[rows] & (records["instance"][rows] >= 0)]
    if not len(rows):
        return None
    # Executions of each op on tensors of one shape in a layer, by the sizes of the whole tensor.
    sizes = [one.tensors[0].shape if one.tensors else () for one in calls]
    known: dict[tuple[int, ...], int] = {}
    size = np.array([known.setdefault(one, len(known)) for one in [*sizes, ()]], np.int64)
    ahead, own = records["fwd_instance"][rows], records["instance"][rows]
    layers = dict[tuple[str, ...], int]()
    of_stack = [layers.setdefault(stack.layer, len(layers)) for stack in records.stacks]
    layer = np.array([*of_stack, -1], np.int64)[records["scope"][rows]]
    each = distinct_rows(size[records["call"][rows]], layer, np.where(ahead >= 0, ahead, own), ahead >= 0)
    place = distinct_rows(*each.columns[:2]).inverse
    loop = (np.bincount(place) >= _SEVERAL * (1 if overview.steps is None else len(overview.steps)))[place]
    often = np.bincount(each.columns[0][loop], minlength=len(known))
    often[known[()]] = 0
    many = often > 0
    rows = rows[(loop & many[each.columns[0]])[each.inverse]]
    if not len(rows):
        return None
    added = _added(overview, size, many)
    filled = rows[_fills(overview, rows)]
    gone, steps = np.concatenate([filled, added]), 1 if overview.steps is None else len(overview.steps)
    whole = np.concatenate([rows, added])
    whose = size[np.where(records["call"][gone] >= 0, records["call"][gone], records["inner"][gone])]
    kept = steps / often[whose]
    held = overview.division.exclusive_ns
    granted = cut_ns(overview, gone, held[gone] * (1 - kept))
    if not is_worth(overview, mean_ns(overview, granted), _LEAST):
        return None
    where, time = places(overview, whole, held[whole]), mean_ns(overview, held[whole])
    (most,) = places(overview, rows, held[rows], 1)
    part, writes, adds = (
        100 * time / max(overview.busy_ns, 1),
        *(told(mean_ns(overview, held[some])) for some in (filled, added)),
    )
    evidence = (
        f"backward of {int(often[many].sum()):,} slices fills the whole tensor for each: {told(time)}, {part:.0f} % of the "
        f"busy time; {writes} writes zeros, {adds} adds them up: {named(where)}"
    )
    do = _DO["index" if most.op == "index" else ""]
    # Of each tensor's launches in a step one stays.
    order, in_step = np.argsort(whose, kind="stable"), np.maximum(np.bincount(whose) // steps, 1)[whose]
    at = np.arange(len(gone)) - np.searchsorted(whose[order], whose[order])
    change = Change(rows=gone, cut_ns=granted, merged=gone[order[at % in_step[order] > 0]])
    return Advice("indexing_backward", change, time, evidence, do, where)


def _fills(overview: Overview, rows: Ints) -> Bools:
    """Which of some records only write zeros."""
    records, name = overview.records, overview.frame.of_name(str)
    zeros = np.array(["FillFunctor" in text for text in name.pool] + [False], np.bool_)[name.codes[rows]]
    by_op = np.array([one.op in _FILLS for one in records.calls] + [False], np.bool_)[records["inner"][rows]]
    return np.asarray(zeros | by_op | (records["kind"][rows] == ActivityKind.MEMSET))


def _added(overview: Overview, size: Ints, many: Bools) -> Ints:
    """Records in backward that add two gradients of such a tensor: ops of their own, of no forward op."""
    records, classes = overview.records, overview.frame.classes

    def adds(one: OpCall) -> bool:
        return one.op in ("add", "add_") and len(one.tensors) > 1 and one.tensors[0].shape == one.tensors[1].shape

    sums = np.array([*map(adds, records.calls), False], np.bool_)
    alike = classes.records
    chosen = (alike["phase"] == PHASES.index("backward")) & sums[alike["call"]] & many[size[alike["call"]]]
    rows = classes.rows(chosen & ~among(alike["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET)))
    return rows[overview.inside[rows] & (records["fwd_instance"][rows] < 0)]
