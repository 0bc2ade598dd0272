"""A capture -> what it lacks of the device's work: launches without a kernel, counters in place of kernels, CUDA not traced.

A call that launches has the correlation id of what it launched. Between the calls that begin and end the capture of a graph,
and inside an engine's annotation of one, calls launch nothing. Of calls inside each other the outermost is the launch.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among
from pyprof.columns.intervals import union
from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.markers import graph_capture
from pyprof.model.records import Unseen
from pyprof.model.trace import ActivityKind, Trace
from pyprof.parse.attribution.launches import outermost_calls
from pyprof.parse.attribution.phases import texts_where

_LAUNCH, _GRAPH = re.compile(r"Launch(?!Host)"), re.compile(r"GraphLaunch")
_KNOWN = re.compile(r"^(?:cuda|cu|hip)[A-Z]")
_BEGIN, _END = re.compile("StreamBeginCapture"), re.compile("StreamEndCapture")
_ON_CPU = re.compile(r"_for_cpu\b|\bmkldnn_|\bonednn::|\bnnpack")  # ops that only a CPU has
_ON_GPU = re.compile(  # ops that only a GPU has
    r"cudnn|miopen|cuda|cublas|nccl|triton_|_(?:flash|efficient)_attention_(?:for|back)ward"
    r"|_scaled_dot_product_(?:flash|efficient|cudnn)_attention|\bpin_memory"
)
_MPS = re.compile(r"(?:\b|_)mps(?:_|::|$)")
_MOST = 0.5  # of the launches: where more have no kernel, what is there stands for nothing
_FAR_NS = 1 << 62
UNSEEN = "launches without a kernel in the capture"  # name of their count
_PROFILERS = "end other profilers of this GPU (nsys, ncu, DCGM), and let users read its counters (NVIDIA: ERR_NVGPUCTRPERM)"
_NONE = {
    "kineto": f"{_PROFILERS}; keep ProfilerActivity.CUDA among the activities of torch.profiler.profile",
    "nsys": f"record with nsys profile -t cuda,nvtx, of a version not older than the CUDA driver; {_PROFILERS}",
}
_GRAPHS = {
    "kineto": f"a torch whose profiler records the kernels of graphs; {_PROFILERS}",
    "nsys": "nsys profile --cuda-graph-trace=node, with an nsys not older than the CUDA driver",
}
_SOME = "call torch.cuda.synchronize() before recording begins and ends, and record fewer steps: kernels were dropped"
_INSTRUMENTS = "torch.mps.profiler.profile() shows them in Xcode's Instruments; --gpu FILE.json gives the peaks of a device"
_FOREIGN = "record with a profiler that writes what this device did as events of its own; --gpu FILE.json gives its peaks"
_UNTRACED = {
    "kineto": f"add ProfilerActivity.CUDA to the activities of torch.profiler.profile; where it is there: {_PROFILERS}",
    "nsys": "record with nsys profile -t cuda,nvtx",
}


class LaunchCounts(NamedTuple):
    """How many calls launched kernels and graphs, and the begins of those without any activity of a device, ns."""

    kernels: int
    graphs: int
    lost_kernels: Ints
    lost_graphs: Ints


def unseen_of(trace: Trace, launch: Array, found: LaunchCounts) -> Unseen | None:
    """Tell what hides the device's work, None where enough of it was recorded. launch: see `launch_of_activity`."""
    lost_kernels, lost_graphs = len(found.lost_kernels), len(found.lost_graphs)
    lost = lost_kernels + lost_graphs
    tool = "nsys" if trace.source == "nsys" else "kineto"
    ran = among(trace.activities["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH)).any()
    if not ran and trace.measured is not None:
        what = f"{_counted(len(trace.measured), 'range')} of hardware counters in place of kernels, which have no time here"
        return Unseen(what, "pyprof counters FILE: what was counted, by op")
    if not ran and lost:
        names = [(lost_kernels, "kernel"), (lost_graphs, "graph")]
        what = " and ".join(_counted(number, name) for number, name in names if number)
        return Unseen(f"{what} {'was' if lost == 1 else 'were'} launched and none was recorded", _NONE[tool])
    if not ran and not len(launch) and any(_MPS.search(marker.name) for marker in trace.markers):
        what = "ops ran on Apple's MPS, whose kernels torch.profiler does not record"
        return Unseen(what, _INSTRUMENTS)
    if not ran and not len(launch) and (gpu := _gpu(trace)):
        if not len(trace.launches["corr"]) and _used(trace):
            what = f"CUDA was not traced: no call of it is in the capture, although there is a GPU ({gpu})"
            return Unseen(what, _UNTRACED[tool])
        if (
            len(trace.launches["corr"]) and not texts_where(trace.strings, trace.launches["name"], _KNOWN.search).any()
        ):  # of others it is not known which launch
            return Unseen(f"the work of the device ({gpu}) is not in the capture, only calls of its runtime", _FOREIGN)
    if lost_graphs > _MOST * found.graphs:
        what = f"{lost_graphs:,} of {_counted(found.graphs, 'launch')} of CUDA graphs have no kernel in the capture"
        return Unseen(what, _GRAPHS[tool])
    if lost_kernels > _MOST * found.kernels:
        what = f"{lost_kernels:,} of {_counted(found.kernels, 'launch')} of kernels have no kernel in the capture"
        return Unseen(what, f"{_SOME}; {_PROFILERS}")
    return None


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('ch') else 's'}"


def _gpu(trace: Trace) -> str:
    """The first GPU in the capture, unless something shows that the program ran on the CPU; '' for none."""
    names = [trace.strings[code] for code in trace.devices["name"].tolist()]
    if trace.watched or not names or any(_ON_CPU.search(marker.name) for marker in trace.markers):
        return ""
    return next(filter(None, names), "without a name")


def _used(trace: Trace) -> bool:
    """Whether a program without recorded CUDA calls used the GPU: taken for granted under nsys, which is run for its sake;
    in a trace of torch.profiler ops that only a GPU has must show it."""
    return trace.source == "nsys" or any(marker.call and _ON_GPU.search(marker.name) for marker in trace.markers)


def beside_gpu(trace: Trace) -> list[str]:
    """A note on ops of a CPU that has a GPU beside it, which they do not show to have been used."""
    gpu = "" if len(trace.launches["corr"]) else _gpu(trace)
    text = (
        f"ops are taken to have run on the CPU; if they ran on the GPU ({gpu}), add ProfilerActivity.CUDA: times are the host's"
    )
    return [text] if gpu else []


def count_launches(trace: Trace, launch: Array) -> LaunchCounts:
    """The launches of a capture, those of graphs that were being captured left out. launch: see `launch_of_activity`."""
    calls = trace.launches
    named = texts_where(trace.strings, calls["name"], _LAUNCH.search)
    has = np.zeros(len(named), np.bool_)
    has[launch[launch >= 0]] = True
    rows = np.flatnonzero(named)
    if has[rows].all():
        graphs = int(texts_where(trace.strings, calls["name"][rows], _GRAPH.search).sum())
        return LaunchCounts(len(rows) - graphs, graphs, *np.empty((2, 0), np.int64))
    rows = rows[~_captured(trace, rows)]
    outer, of = outermost_calls(calls["thread"][rows], calls["start_ns"][rows], calls["end_ns"][rows])
    ran = np.zeros(len(outer), np.bool_)
    ran[of[has[rows]]] = True
    graph = texts_where(trace.strings, calls["name"][rows[outer]], _GRAPH.search)
    begin = calls["start_ns"][rows[outer]].astype(np.int64)
    # Kernels that nothing links to their launch, as where no correlation ids were recorded, and those that were left out for
    # want of a time are those of some of these.
    bare = int(((trace.activities["kind"] == ActivityKind.KERNEL) & (launch < 0)).sum()) + trace.left_out
    lost = (np.sort(begin[which & ~ran])[bare:] for which in (~graph, graph))
    return LaunchCounts(int((~graph).sum()), int(graph.sum()), *lost)


def _captured(trace: Trace, rows: Ints) -> Bools:
    """Which calls were captured into a graph, and launched nothing."""
    calls, ranges = trace.launches, trace.ranges
    process = trace.threads["process"].astype(np.int64)
    begins, ends = (np.flatnonzero(texts_where(trace.strings, calls["name"], one.search)) for one in (_BEGIN, _END))
    until = np.append(np.sort(calls["end_ns"][ends]), _FAR_NS)
    begin = calls["start_ns"][begins]
    label = np.array([graph_capture(marker.text) is not None for marker in trace.markers], np.bool_)
    around = np.flatnonzero(label[ranges["label"]]) if len(label) else np.empty(0, np.int64)
    inside = union(
        np.concatenate([process[calls["thread"][begins]], process[ranges["thread"][around]]]),
        np.concatenate([begin, ranges["start_ns"][around]]),
        np.concatenate([until[np.searchsorted(until, begin)], ranges["end_ns"][around]]),
    )
    group, when = process[calls["thread"][rows]], calls["start_ns"][rows].astype(np.int64)
    return np.asarray(inside.covered(group, when + 1) > inside.covered(group, when))
