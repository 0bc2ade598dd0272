"""All kinds of advice -> the advice on a capture, what saves most first."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import partial
from importlib import import_module

from pyprof.report.advice import (
    backward_markers,
    channels_last,
    data_loading,
    exposed_communication,
    fuse_pointwise,
    fused_attention,
    fused_optimizer,
    gemm_alignment,
    graph_nodes,
    host_copy,
    launch_bound,
    lost_records,
    name_kernels,
    profiler_overhead,
    recomputation,
    record_cuda,
    record_shapes,
    record_stacks,
    reduced_precision,
    small_work,
    straggler,
    synchronization,
    unified_memory,
    warmup,
)
from pyprof.report.advice.base import Advice, is_worth
from pyprof.report.time.overview import Overview

KINDS: tuple[Callable[[Overview], Advice | None], ...] = (
    data_loading.find,
    synchronization.find,
    fused_optimizer.find,
    launch_bound.find,
    straggler.find,
    exposed_communication.find,
    host_copy.find,
    unified_memory.find,
    fused_attention.find,
    channels_last.find,
    gemm_alignment.find,
    reduced_precision.find,
    recomputation.find,
    fuse_pointwise.find,
    small_work.find,
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
_ALONE = "warmup"  # of a cold capture nothing else can be said


def kinds_text() -> str:
    """Each kind with what it is about, for `pyprof help advice`."""
    modules = [find.__module__ for find in KINDS]
    about = [(import_module(name).__doc__ or "").partition("\n\n")[0] for name in modules]
    wrap = partial(textwrap.fill, width=118, subsequent_indent=" " * 23)
    lines = [wrap(f"{name.rpartition('.')[2]:22} {text}") for name, text in zip(modules, about, strict=True)]
    return "\n".join(lines)


def advise(overview: Overview) -> list[Advice]:
    """All advice. What saves most comes first, then what adds most to it, what is about the capture itself last."""
    if (unseen := record_cuda.find(overview)) is not None:  # nor of one that does not show the device's work
        return [unseen]
    found = [one for find in KINDS if (one := find(overview)) is not None]
    if alone := [one for one in found if one.kind == _ALONE]:
        return alone
    return [
        *_by_savings(overview, [one for one in found if one.change is not None]),
        *(one for one in found if one.change is None),
    ]


def _by_savings(overview: Overview, left: list[Advice]) -> list[Advice]:
    """These with what each saves, in order: the largest alone first, then whichever adds most. One that saves next to nothing
    alone stands after the one that it needs; one that never saves enough is left out."""
    replay, chosen = overview.replay, list[Advice]()
    alone = {one.kind: replay.saves_ns(one.change) for one in left if one.change is not None}
    needs, total = dict[str, str](), 0
    while left:
        changes = [one.change for one in chosen if one.change is not None]
        adds = {one.kind: replay.saves_ns(*changes, one.change) - total for one in left if one.change is not None}
        for kind, more in adds.items():
            if chosen and is_worth(overview, more) and not is_worth(overview, alone[kind]):
                needs.setdefault(kind, chosen[-1].kind)
        best = max(left, key=lambda one: (adds[one.kind], alone[one.kind], one.kind))
        left = [one for one in left if one is not best]
        if is_worth(overview, max(adds[best.kind], alone[best.kind])):
            total += adds[best.kind]
            after = needs.get(best.kind)
            chosen.append(best._replace(saves_ns=adds[best.kind], alone_ns=alone[best.kind], after=after))
    return chosen
