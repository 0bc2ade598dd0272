"""All kinds of advice in the order in which they claim time -> the advice on a capture, what saves most first."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import partial
from importlib import import_module

from pyprof.report.advice import (
    allocation,
    backward_markers,
    channels_last,
    data_loading,
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
from pyprof.report.advice.base import Advice, Budget
from pyprof.report.time.overview import Overview

# A kind that removes work comes before those that only make the same work faster.
KINDS: tuple[Callable[[Overview, Budget], Advice | None], ...] = (
    data_loading.find,
    host_code.find,
    recompilation.find,
    synchronization.find,
    allocation.find,
    fused_optimizer.find,  # before launch_bound: what waits for its launches goes with them
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
    recomputation.find,
    fuse_pointwise.find,
    small_work.find,
    slow_kernel.find,  # after all that change what it is about
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


def kinds_text() -> str:
    """Each kind with what it is about, in the order in which they claim time, for `pyprof help advice`."""
    modules = [find.__module__ for find in KINDS]
    about = [(import_module(name).__doc__ or "").partition("\n\n")[0] for name in modules]
    wrap = partial(textwrap.fill, width=118, subsequent_indent=" " * 23)
    lines = [wrap(f"{name.rpartition('.')[2]:22} {text}") for name, text in zip(modules, about, strict=True)]
    return "\n".join(lines)


def advise(overview: Overview) -> list[Advice]:
    """All advice. What saves most comes first, what is about the capture itself last."""
    budget = Budget(overview.division)
    if (unseen := record_cuda.find(overview, budget)) is not None:  # nor of one that does not show the device's work
        return [unseen]
    found = [one for find in KINDS if (one := find(overview, budget)) is not None]
    again = any(one.kind == "recompilation" for one in found)  # what goes on is not the first iteration's
    found = [one for one in found if not (again and one.kind == "warmup")]
    # A cold capture, or one of which the recorder made most of the waiting, is to be made anew before anything else is judged.
    anew = {"warmup"} | ({"profiler_overhead"} if profiler_overhead.is_most(overview) else set())
    return sorted(found, key=lambda one: (one.kind not in anew, one.saves_ns is None, -(one.saves_ns or 0), one.kind))
