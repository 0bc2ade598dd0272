"""An optimizer's step of many kernels over the same parameters -> one pass.

One pass reads parameter, gradient and state and writes parameter and state: those bytes over the bandwidth are the least time,
the rest is what fusing saves at most. On a CPU its rate is the best that an op of the step reaches in the capture, and the time
between its ops goes as well. Where no sizes were recorded the pass takes as long as its op that moves most, scaled by the
tensors of both. It keeps quiet where the step is fused already.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import summed
from pyprof.columns.types import Ints
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import BETWEEN_OPS_NS, Advice, cut_ns, mean_ns, named, places
from pyprof.report.advice.shared_pointwise import function
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_FUSED = r"(?i)fused|triton_|multi_tensor_\w*(?:adam|lamb|sgd)|(?:adam|sgd|lamb|adagrad)\w*functor|LAMBStage|adagrad|\badam"
_LONGEST = 500  # characters of a name that say so
_ONE_PASS = 0.75  # of the bytes of a pass: a step that moves fewer is one already, as that of SGD without momentum
_LEAST_BYTES = 1 << 10  # that an op moves: fewer show no rate
_FEW = 8  # kernels of a device: fewer in a step mean a small model
# Tensors that one pass reads and writes for each parameter: parameter, gradient, parameter again, and each state twice.
_TENSORS = {"adam": 7, "lamb": 7, "adagrad": 5, "rmsprop": 5, "sgd": 5}
_USUAL = 5
_OP_TENSORS = 4  # of addcdiv_, which reads three and writes one; other ops of a step move less
_BY_TORCH = ("adam", "sgd")  # which take fused=True on a GPU
_COMPILED = "torch.compile(optimizer.step), or fused=True of torch.optim's Adam, AdamW and SGD"


class _Pass(NamedTuple):
    """The parameters that the steps of the window went over, of one device: their bytes, 0 unknown; the time of the op that
    took longest."""

    nbytes: int
    op_ns: int


def find(overview: Overview) -> Advice | None:
    """Advice on a fused optimizer step, None if it saves too little."""
    records, frame = overview.records, overview.frame
    named_fused, alike = frame.of_classes.of_name(str), frame.classes.records
    fused = np.array([re.search(_FUSED, name[:_LONGEST]) is not None for name in named_fused.pool] + [False], np.bool_)[
        named_fused.codes
    ]
    on_gpu = overview.division.on_gpu
    kernel = (alike["kind"] == (ActivityKind.KERNEL if on_gpu else ActivityKind.CPU)) & (
        alike["phase"] == PHASES.index("optimizer")
    )
    stepping = frame.classes.rows(kernel & ~fused)
    stepping = stepping[overview.inside[stepping]]
    names = [] if overview.host is None else overview.host.optimizers
    name = names[0] if len(names) == 1 else "the optimizer"
    tensors = _TENSORS.get(next((part for part in _TENSORS if part in name.lower()), ""), _USUAL)
    rows, wish = np.empty(0, np.int64), np.empty(0)
    for device in range(overview.division.count):
        mine = stepping[overview.division.device[stepping] == device]
        if len(mine) < _FEW:
            continue
        time = int(records["dur_ns"][mine].sum())
        least = _least_ns(overview, mine, tensors)
        rows = np.append(rows, mine)
        wish = np.append(wish, overview.division.exclusive_ns[mine] * max(1 - least / max(time, 1), 0))
    if not len(rows):
        return None
    granted = cut_ns(overview, rows, wish)
    cause = "launch" if on_gpu else "host"
    gaps, idle = overview.idle.rows_of(cause)
    # Those before kernels that go over one parameter each: a pass has few launches, as those of lists have.
    lists = np.array(["multi_tensor" in text for text in named_fused.pool] + [False], np.bool_)[named_fused.codes]
    each = rows[~lists[frame.classes.code[rows]]]
    own = np.isin(overview.division.gaps.after[gaps], each)
    if not on_gpu:  # longer ones are the program's own code; and a step of one op a parameter is one pass already
        own &= (idle < BETWEEN_OPS_NS) & granted.any()
    gaps, idle = gaps[own], idle[own]
    waits = mean_ns(overview, idle)
    saves = mean_ns(overview, granted) + waits
    exclusive_ns = overview.division.exclusive_ns[rows]
    held, where = mean_ns(overview, exclusive_ns), places(overview, rows, exclusive_ns)
    ops = f": {named(where)}" if where[0].op else ""
    words = " and the device waits {} for their launches" if on_gpu else " and Python {} between them"
    waiting = words.format(human(waits, "ns")) if waits else ""
    passing = f"one pass over the parameters {human(held + waits - saves, 'ns')}"
    evidence = f"{len(rows):,} {'kernels' if on_gpu else 'ops'} of {name} take {human(held, 'ns')}{waiting}, {passing}{ops}"
    by_torch = any(part in name.lower() for part in _BY_TORCH)
    do = f"{name}(..., fused=True)" if by_torch else _COMPILED
    change = Change(rows=rows, cut_ns=granted, merged=each)
    if not on_gpu:
        change = replace(change, gaps=gaps, gap_ns=idle, cause=cause)
    return Advice("fused_optimizer", change, held + waits, evidence, do, where)


def _least_ns(overview: Overview, rows: Ints, tensors: int) -> float:
    """Least time of one pass over the parameters in each step of the window, ns in all."""
    gpu = int(overview.records["gpu"][rows[0]])
    devices = overview.frame.gpus
    bandwidth = devices[gpu][0].dram_bytes_per_s if 0 <= gpu < len(devices) else None
    found = _pass(overview, rows)
    if not overview.division.on_gpu and found.nbytes:
        call, moved = overview.records["call"][rows], overview.frame.costs.bytes[rows]
        if np.maximum(moved, 0).sum() <= _ONE_PASS * tensors * found.nbytes:
            return np.inf
        some = np.flatnonzero((moved >= _LEAST_BYTES) & (call >= 0))
        times, count = overview.records["dur_ns"][rows[some]], len(overview.records.calls)
        total, took = (summed(call[some], column, count) for column in (moved[some], times))
        bandwidth = float((total / np.where(took > 0, took, np.inf)).max(initial=0)) * 1e9
    if found.nbytes and bandwidth:
        return tensors * found.nbytes / bandwidth * 1e9
    return found.op_ns * max(tensors / _OP_TENSORS, 1)


def _pass(overview: Overview, rows: Ints) -> _Pass:
    """Each parameter is what ops change that are called equally often: of those with tensors of one size the median op's calls
    are the parameters of this size, since some ops change a parameter or a state twice in a step."""
    records = overview.records
    own, call, name, instance, dur_ns = (records[one][rows] for one in ("own", "call", "name", "instance", "dur_ns"))
    (calls, names), _, code = distinct_rows(np.where(own >= 0, own, call), name)
    instance = np.where(instance >= 0, instance, -1 - np.arange(len(rows)))
    often = np.bincount(distinct_rows(code, instance).columns[0], minlength=len(calls))
    time = summed(code, dur_ns, len(calls))
    changed: dict[tuple[TensorSpec, ...], dict[str, int]] = {}
    spent: dict[str, int] = {}
    for at, (about, text) in enumerate(zip(calls.tolist(), names.tolist(), strict=True)):
        one = records.calls[about] if about >= 0 else None
        op = one.op if one is not None else function(records.strings[text]) or "?"
        spent[op] = spent.get(op, 0) + int(time[at])
        if one is None or (one.flat and one.op.startswith("_foreach")):  # whose lists are not told from their elements
            continue
        # The tensors that it changes: its first argument, or of a _foreach_ op all of its first list.
        if first := tuple(TensorSpec(t.shape, t.dtype) for t in OpCall("", "", one.args[:1]).tensors):
            counts = changed.setdefault(first, {})
            counts[op] = counts.get(op, 0) + int(often[at])
    nbytes = 0
    for tensors, counts in changed.items():
        nbytes += sum(tensor.nbytes or 0 for tensor in tensors) * sorted(counts.values())[(len(counts) - 1) // 2]
    return _Pass(nbytes, max(spent.values()))
