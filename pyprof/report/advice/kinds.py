"""All kinds of advice -> the advice on a capture, what saves most first."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import partial
from importlib import import_module

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.intervals import summed
from pyprof.model.host import MemoryPeak
from pyprof.report.advice import (
    allocation,
    backward_markers,
    channels_last,
    data_loading,
    double_precision,
    exposed_communication,
    fuse_pointwise,
    fused_attention,
    fused_optimizer,
    gemm_alignment,
    graph_nodes,
    host_code,
    host_copy,
    indexing_backward,
    launch_bound,
    lost_records,
    name_kernels,
    per_parameter_collective,
    pipeline_bubble,
    profiler_overhead,
    recompilation,
    recomputation,
    record_cuda,
    record_shapes,
    record_stacks,
    reduced_precision,
    slow_kernel,
    small_work,
    straggler,
    synchronization,
    unified_memory,
    warmup,
    zero_grad,
)
from pyprof.report.advice.base import Advice, is_worth
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import REPLAYED, Change

SCORES = frozenset("softmax bmm matmul baddbmm mul div add sub where masked_fill dropout native_dropout einsum to".split())
"""Ops that write a tensor of attention's scores where it is not fused."""
_LAST = "slow_kernel"  # it is about what the others leave

KINDS: tuple[Callable[[Overview], Advice | None], ...] = (
    data_loading.find,
    host_code.find,
    recompilation.find,
    synchronization.find,
    allocation.find,
    fused_optimizer.find,
    zero_grad.find,
    launch_bound.find,
    straggler.find,
    per_parameter_collective.find,
    exposed_communication.find,
    host_copy.find,
    unified_memory.find,
    indexing_backward.find,
    fused_attention.find,
    channels_last.find,
    gemm_alignment.find,
    reduced_precision.find,
    double_precision.find,
    recomputation.find,
    fuse_pointwise.find,
    small_work.find,
    slow_kernel.find,
    graph_nodes.find,
    record_shapes.find,
    name_kernels.find,
    record_stacks.find,
    backward_markers.find,
    lost_records.find,
    profiler_overhead.find,
    warmup.find,
    record_cuda.find,
)
OF_JOBS = (pipeline_bubble.advice_of,)
"""Advice for which the files of several ranks are compared."""


def kinds_text() -> str:
    """Each kind with what it is about, for `pyprof help advice`."""
    modules = [find.__module__ for find in (*KINDS, *OF_JOBS)]
    about = [(import_module(name).__doc__ or "").partition("\n\n")[0] for name in modules]
    wrap = partial(textwrap.fill, width=118, subsequent_indent=" " * 23)
    lines = [wrap(f"{name.rpartition('.')[2]:22} {text}") for name, text in zip(modules, about, strict=True)]
    return "\n".join(lines)


def advise(overview: Overview) -> list[Advice]:
    """All advice. What saves most comes first, then what adds most to it, what is about the capture itself last."""
    if (unseen := record_cuda.find(overview)) is not None:  # nor of one that does not show the device's work
        return [unseen]
    found = [one for find in KINDS if (one := find(overview)) is not None]
    again = any(one.kind == "recompilation" for one in found)  # what goes on is not the first iteration's
    found = [one for one in found if not (again and one.kind == "warmup")]
    # A cold capture, or one of which the recorder made most of the waiting, is to be made anew before anything else is judged.
    anew = {"warmup"} | ({"profiler_overhead"} if profiler_overhead.is_most(overview) else set())
    ordered = [
        *(one for one in found if one.kind in anew),
        *_by_savings(overview, [one for one in found if one.change is not None]),
        *(one for one in found if one.change is None and one.kind not in anew),
    ]
    host = overview.records.host
    frees = _frees(max(host.memory, key=lambda one: one.allocated_bytes)) if host is not None and host.memory else {}
    return [one._replace(peak_bytes=frees.get(one.kind)) for one in ordered]


def _frees(peak: MemoryPeak) -> dict[str, int]:
    """By kind of advice, bytes in use at the peak that would not be there."""
    scores = [one for one in peak.held if one.of_softmax and (one.op or "").strip("_") in SCORES]
    temporaries = [one for one in peak.held if one.phase == peak.phase == "optimizer" and one.freed]
    gradients = [one for one in peak.held if one.phase == "backward" and peak.phase == "forward"]
    kinds = {"fused_attention": scores, "fused_optimizer": temporaries, "zero_grad": gradients}
    return {kind: sum(one.bytes * one.number for one in those) for kind, those in kinds.items() if those}


def _by_savings(overview: Overview, left: list[Advice]) -> list[Advice]:
    """These with what each saves, in order: the largest alone first, then whichever adds most. One that saves next to nothing
    alone stands after the one that it needs; one that never saves enough is left out. slow_kernel saves what all others
    leave, and stands where so much belongs. Below launch_bound launches take the host no time, as where its advice is
    followed: else nothing on the device would save anything."""
    if not left:
        return []
    overview.frame.forget(REPLAYED)
    replay, chosen = overview.replay, list[Advice]()
    alone = {one.kind: replay.saves_ns(one.change) for one in left if one.change is not None}
    needs, base, graphed = dict[str, str](), 0, list[Change]()
    while left:
        changes = [one.change for one in chosen if one.change is not None]
        above = [*changes, *graphed]
        adds = {one.kind: replay.saves_ns(*above, one.change) - base for one in left if one.change and changes} or alone
        for kind, more in adds.items():
            if chosen and is_worth(overview, more) and not is_worth(overview, alone[kind]):
                needs.setdefault(kind, chosen[-1].kind)
        best = max(left, key=lambda one: (one.kind != _LAST, adds[one.kind], alone[one.kind], one.kind))
        left = [one for one in left if one is not best]
        if is_worth(overview, max(adds[best.kind], alone[best.kind] if best.kind != _LAST else 0)):
            base += adds[best.kind]
            after = needs.get(best.kind)
            chosen.append(best._replace(saves_ns=adds[best.kind], alone_ns=alone[best.kind], after=after))
            if best.kind == "launch_bound" and overview.division.on_gpu and best.change is not None:
                causes = overview.idle.causes
                other = np.flatnonzero(~among(causes.cause, (CAUSES.index("launch"), CAUSES.index("queued"))))
                gaps, _, of = distinct_rows(causes.gap[other])
                graphed = [Change(graphed=(gaps[0], summed(of, causes.ns[other], len(gaps[0]))))]
                base = replay.saves_ns(*changes, best.change, *graphed)
    if chosen and chosen[-1].kind == _LAST and chosen[-1].after is None:
        last = chosen.pop()
        chosen.insert(sum((one.saves_ns or 0) >= (last.saves_ns or 0) for one in chosen), last)
    return chosen
