"""Collectives that run while the device computes nothing -> hide them, or send less.

They cost the time in which nothing else runs. One file cannot tell how much of that is waiting for a late rank; the evidence
says so, and how long the fastest of equal collectives took. Jobs of one rank are left out, and so are sends between two ranks:
between stages of a pipeline these mostly wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_values
from pyprof.columns.intervals import summed
from pyprof.columns.types import Ints
from pyprof.model.records import PHASES
from pyprof.report.advice import per_parameter_collective, straggler
from pyprof.report.advice.base import Advice, is_worth, mean_ns, places
from pyprof.report.ranks.collectives import Collective, bus_factor, of_records
from pyprof.report.time.division import COMPUTE
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_SHOWN = 3  # kinds of collectives
_HIDDEN, _LITTLE = 0.25, 0.02  # of all communication, of the wall time: of less than both the last bucket is seldom hidden
_MANY = 64  # of a step: buckets of gradients are fewer
_DDP, _FSDP = "DistributedDataParallel", "FSDP"
_DO = {
    "ddp": "DistributedDataParallel(model, static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=...), "
    "with model.no_sync() while gradients accumulate",
    "each": "DistributedDataParallel(model): one all_reduce a bucket of gradients, beside backward, not one for each parameter",
    "fsdp": "fully_shard(layer, reshard_after_forward=False) where memory allows, "
    "layer.set_modules_to_forward_prefetch([next_layer]) and layer.set_modules_to_backward_prefetch([previous_layer])",
    "all_to_all": "start it earlier, with async_op=True, and do other work before wait(); torchrec: TrainPipelineSparseDist",
    "layers": "two micro-batches in turn, so that one computes while the other communicates; or fewer ranks that share a layer",
    "plain": "launch it on a stream of its own as soon as its data is there, and wait (cudaStreamWaitEvent) only where its "
    "result is read",
    "other": "start it earlier with async_op=True and wait() only where its result is read",
}


class _Group(NamedTuple):
    """Equal collectives: how many, their exposed time (mean over devices), and the duration of the shortest."""

    one: Collective
    number: int
    exposed_ns: int
    least_ns: int


def find(overview: Overview) -> Advice | None:
    """Advice on the exposed time of all collectives together, None if it is not worth a line."""
    records, division = overview.records, overview.division
    rows, which, collectives = of_records(records)
    alone = np.array([one.group_size == 1 or not one.meets for one in collectives] + [False], np.bool_)
    keep = overview.inside[rows] & ~alone[which]
    rows, which = rows[keep], which[keep]
    held = division.exclusive_ns[rows]
    waiting, apart = np.zeros((2, len(records)), np.int64)  # what other kinds say of the same collectives
    for other, part in ((straggler.find(overview), waiting), (per_parameter_collective.find(overview), apart)):
        if other is not None and other.change is not None:
            part[other.change.rows] = other.change.cut_ns
    hidden = np.maximum(records["dur_ns"][rows] - waiting[rows] - apart[rows], 0)
    saves = mean_ns(overview, np.maximum(held - waiting[rows] - apart[rows], 0))
    time, exposed = mean_ns(overview, records["dur_ns"][rows]), mean_ns(overview, held)
    well_hidden = exposed < _HIDDEN * time and saves < _LITTLE * division.wall_ns
    if not is_worth(overview, saves) or well_hidden:
        return None
    groups = _groups(collectives, which, records["dur_ns"][rows], held // division.count)
    sizes = {} if overview.host is None else overview.host.groups
    listed = "; ".join(_text(group, sizes) for group in groups[:_SHOWN])
    how_much = (
        f"all communication ({human(time, 'ns')})"
        if exposed == time
        else (f"{human(exposed, 'ns')} of {human(time, 'ns')} of communication")
    )
    evidence = f"{how_much} runs while nothing computes: {listed}"
    evidence += _limit(overview, time - exposed, exposed, mean_ns(overview, waiting[rows]))
    return Advice(
        "exposed_communication",
        Change(rows=rows, cut_ns=hidden),
        exposed,
        evidence,
        _do(overview, rows, held, groups),
        places(overview, rows, held),
    )


def _groups(collectives: list[Collective], which: Ints, time_ns: Ints, exclusive_ns: Ints) -> list[_Group]:
    """Distinct collectives, longest exposed time first."""
    count = len(collectives)
    least = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(least, which, time_ns)
    columns = (np.bincount(which, minlength=count), summed(which, exclusive_ns, count), least)
    found = [_Group(collectives[at], *(int(column[at]) for column in columns)) for at in distinct_values(which).tolist()]
    return sorted(found, key=lambda group: (-group.exposed_ns, group.one.kind, group.one.nbytes or 0))


def _text(group: _Group, sizes: Mapping[str, int]) -> str:
    """`3 x all_reduce of 17.6 MB, 27.3 ms exposed (the fastest 8.93 ms or 3.45 GB/s on the bus)`."""
    one = group.one
    exposed = f"{human(group.exposed_ns, 'ns')} exposed"
    if not one.nbytes or group.least_ns <= 0:
        return f"{group.number} x {one.kind}, {exposed}"
    factor = bus_factor(one.kind, one.group_size or (sizes.get(one.group) if one.group else None))
    rate = f" or {human(factor * one.nbytes / group.least_ns * 1e9, 'B/s')} on the bus" if factor else ""
    least = f"the fastest {human(group.least_ns, 'ns')}{rate}"
    return f"{group.number} x {one.kind} of {human(one.nbytes, 'B')}, {exposed} ({least})"


def _limit(overview: Overview, hidden_ns: int, exposed_ns: int, waiting_ns: int) -> str:
    """How much overlap can hide at most, what of it waits for a late rank, or that one file cannot tell."""
    if waiting_ns:
        return f"; {human(waiting_ns, 'ns')} of it waits for a late rank (see straggler)"
    busy = overview.division.busy_ns
    free = max(int(busy[COMPUTE].mean()) - hidden_ns, 0)
    if free < exposed_ns:
        waiting = f"overlap alone can hide {human(free, 'ns')} at most, the rest is bytes, link or waiting for a late rank"
    else:
        waiting = "what of it is waiting for a late rank one file cannot tell"
    return f"; {waiting} (`pyprof ranks` of all ranks shows who is late)"


def _do(overview: Overview, rows: Ints, exclusive_ns: Ints, groups: list[_Group]) -> str:
    """The line to write for the kind that is exposed longest."""
    kinds: dict[str, int] = {}
    for group in groups:
        kinds[group.one.kind] = kinds.get(group.one.kind, 0) + group.exposed_ns
    most = max(kinds, key=lambda kind: kinds[kind])
    if not overview.uses_torch:
        return _DO["plain"]
    stacks = overview.records.stacks
    texts = {text for stack in stacks for text in (*stack.ranges, *stack.layer, *stack.mod)}
    texts |= set() if overview.host is None else set(overview.host.classes.values())
    around = {name for name in (_DDP, _FSDP) if any(name in text for text in texts)}  # wrappers of torch
    if most in ("all_gather", "reduce_scatter") or (_FSDP in around and most != "all_to_all"):
        return _DO["fsdp"]
    if most == "all_to_all":
        return _DO["all_to_all"]
    reduces = most == "all_reduce" or most.endswith("_kernel")
    trains = _DDP in around or _has(overview, "backward", "optimizer")
    # Whether most of it is called by layers of the model, and not by what surrounds it.
    own = np.array([bool(set(stack.layer) - set(stack.ranges)) for stack in stacks] + [False], np.bool_)
    in_layers = 2 * exclusive_ns[own[overview.records["scope"][rows]]].sum() > exclusive_ns.sum()
    if reduces and (in_layers or (not trains and _has(overview, "forward"))):
        return _DO["layers"]
    if not (reduces and trains):
        return _DO["other"]
    steps = len(overview.steps) if overview.steps is not None else 1
    if _DDP not in around and len(rows) > _MANY * steps:
        return _DO["each"]
    buffers = "; broadcast_buffers=False, unless buffers must be equal on all ranks" if "broadcast" in kinds else ""
    return _DO["ddp"] + buffers


def _has(overview: Overview, *phases: str) -> bool:
    """Whether one of these phases is known in the window."""
    return bool(np.isin(overview.records["phase"][overview.inside], [PHASES.index(phase) for phase in phases]).any())
