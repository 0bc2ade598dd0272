"""Every column of prof, one entry each: columns of records (with a function), of groups, and of torch's table.

After a change run scripts/make_schemas.py, which describes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from os.path import basename
from typing import NamedTuple

import numpy as np

from pyprof.columns.types import Ints
from pyprof.hardware.names import short_name
from pyprof.model.records import DIRECTIONS, PHASES, Stack
from pyprof.model.trace import COPY_KINDS, ActivityKind
from pyprof.prof.cost import BYTES_BOUNDS, FLOPS_BOUNDS
from pyprof.prof.frame import Frame, params
from pyprof.prof.roofline import BOUNDS, ceiling
from pyprof.tables.table import Fractions, Header, Integers, Texts, Values, printed, texts

DEFAULT = "idx,dir,sub,mod,op,kernel,params,sil"


class Column(NamedTuple):
    """A column of records. compute: frame -> values, one per record."""

    compute: Callable[[Frame], Values]
    header: Header

    @property
    def key(self) -> str:
        """The key of its header."""
        return self.header.key

    def texts(self, frame: Frame) -> list[str]:
        """The text of each record in the plain formats."""
        return printed(self.header.shown(self.compute(frame)))


def _problem(part: int) -> Callable[[Frame], Values]:
    def compute(frame: Frame) -> Values:
        known = np.array([p[part] for p in frame.costs.problems] + [-1], np.int64)
        return Integers.from_zero(known[frame.costs.problem])

    return compute


def _records(name: str) -> Callable[[Frame], Values]:
    return lambda frame: Integers.from_zero(frame.records[name])


def _cost(name: str) -> Callable[[Frame], Values]:
    return lambda frame: Integers.from_zero(getattr(frame.costs, name))


def _pool(name: str, pool: tuple[str, ...]) -> Callable[[Frame], Values]:
    return lambda frame: Texts(frame.records[name].astype(np.int32), pool)


def _call(column: str, attribute: str) -> Callable[[Frame], Values]:
    text = attrgetter(attribute)
    return lambda frame: frame.of_call(column, text)


def _engine_step(name: str) -> Callable[[Frame], Values]:
    def compute(frame: Frame) -> Values:
        found = [getattr(step.says, name) for step in frame.records.engine_steps]
        numbers = np.array([*(-1 if one is None else one for one in found), -1], np.int64)
        return Integers.from_zero(numbers[frame.records["engine_step"]])

    return compute


def _parts_of_stack(attribute: str, separator: str, brief: Callable[[Stack], str] | None = None) -> Callable[[Frame], Values]:
    """A column of lists, one per stack, joined for formats without lists; brief: the short text for aligned tables."""
    parts = attrgetter(attribute)

    def joined(stack: Stack) -> str:
        return separator.join(parts(stack))

    def compute(frame: Frame) -> Values:
        short = None if brief is None else frame.of_stack(brief).pool
        return frame.of_stack(joined)._replace(lists=[*map(parts, frame.records.stacks)], brief=short)

    return compute


def _src(stack: Stack) -> str | None:
    return stack.trace[-1] if stack.trace else None


_COPY_NAMES = ("", *(COPY_KINDS.get(code, "other") for code in range(1, 14)))

COLUMNS: tuple[Column, ...] = (
    Column(lambda f: Integers.known(f.numbers + 1), Header("idx", "Idx", "number of the record, from 1 in order of begin")),
    Column(lambda f: f.sequence(False), Header("seq", "SeqId", "autograd sequence number", empty="-")),
    Column(lambda f: f.sequence(True), Header("altseq", "AltSeqId", "other sequence numbers on the stack", empty="-")),
    Column(_records("tid"), Header("tid", "TId", "thread that launched it", width=12)),
    Column(_parts_of_stack("layer", ":"),
           Header("layer", "Layer", "layers around the op, outermost first; else the ranges of the user", width=10, empty="-")),
    Column(_parts_of_stack("trace", ",", lambda stack: basename(_src(stack) or "")),
           Header("trace", "Trace", "source lines of the call, outermost first", width=25, empty="-")),
    Column(_pool("dir", DIRECTIONS), Header("dir", "Direction", "fprop or bprop; an optimizer is fprop", width=5)),
    Column(_records("sub"), Header("sub", "Sub", "n-th kernel in a row of the same op", width=3)),
    Column(_call("call", "module"),
           Header("mod", "Module", "module of the op: torch, Tensor, torch.nn.functional, aten, a class", width=15)),
    Column(_call("call", "op"), Header("op", "Op", "the op; of a backward kernel the forward op", width=15)),
    Column(lambda f: f.of_name(short_name), Header("kernel", "Kernel", "short name of the kernel", width=0, grow=True)),
    Column(lambda f: f.of_call("call", params),
           Header("params", "Params", "shapes and types of the op's arguments", width=0, grow=True)),
    Column(_records("dur_ns"), Header("sil", "Sil(ns)", "time of the kernel (silicon), in ns", "ns", 10)),
    Column(lambda f: f.of_verdict(attrgetter("tc"), "-"),
           Header("tc", "TC", "Tensor Cores: 1 used, 0 not, - not applicable, na unknown", width=2, good="1", bad="0")),
    Column(_records("device"), Header("device", "Device", "device ordinal", width=3)),
    Column(_records("stream"), Header("stream", "Stream", "stream", width=3)),
    Column(lambda f: f.shape("grid"), Header("grid", "Grid", "blocks: x,y,z", width=12)),
    Column(lambda f: f.shape("block"), Header("block", "Block", "threads of a block: x,y,z", width=12)),
    Column(_cost("flops"), Header("flops", "FLOPs", "operations that the algorithm needs (FMA = 2)", "FLOP", 12)),
    Column(_cost("bytes_or_least"), Header("bytes", "Bytes", "least bytes: inputs read once, outputs written once", "B", 12)),
    Column(_records("pid"), Header("pid", "PId", "process")),
    Column(_records("rank"), Header("rank", "Rank", "rank in a distributed job", width=4)),
    Column(_records("step"), Header("step", "Step", "step: of training, or of a serving engine", width=4)),
    Column(partial(Frame.of_engine_step, text=attrgetter("says.phase")),
           Header("stepphase", "StepPhase", "of a serving engine's step: prefill, decode, mixed or idle", width=7)),
    Column(_engine_step("requests"), Header("batch", "Batch", "requests in the serving engine's step", width=3)),
    Column(_engine_step("tokens"), Header("tokens", "Tokens", "tokens that the serving engine's step computes", width=5)),
    Column(_pool("phase", PHASES), Header("phase", "Phase", "forward, backward, optimizer, communication or copy", width=8)),
    Column(lambda f: Integers.known((f.records["phase_inferred"] == 1).astype(np.int8)),
           Header("inferred", "Inferred", "1 its phase is known from the kernel's name alone; 0 else", width=3)),
    Column(_records("recomputed"),
           Header("recomputed", "Recomputed", "1 a forward op run again in backward (checkpoints); 0 not", width=3)),
    Column(_records("start_ns"), Header("start", "Start(ns)", "begin, in ns on the capture's clock", "ns", 12, moment=True)),
    Column(_records("launch_ns"),
           Header("launch", "Launch(ns)", "begin of the API call that launched it", "ns", 12, moment=True)),
    Column(lambda f: Integers(f.records["start_ns"] - f.records["launch_ns"], (f.records["launch_ns"] < 0)
                              | (f.records["start_ns"] < 0) | (f.records["kind"] == ActivityKind.CPU)),
           Header("delay", "Delay(ns)", "from the launch to the begin on the device", "ns", 10)),
    Column(_records("launch_dur_ns"), Header("launchdur", "LaunchDur(ns)", "time that this call took", "ns", 10)),
    Column(_records("corr"), Header("corr", "CorrId", "correlation id, unique in a process")),
    Column(_pool("kind", ActivityKind.NAMES), Header("kind", "Kind", "kernel, graph, memcpy, memset or cpu", width=6)),
    Column(lambda f: f.of_name(str), Header("name", "Name", "whole name of the kernel", width=20)),
    Column(lambda f: texts(f.costs.kernel, [str(kernel.family) or None for kernel in f.costs.kernels]),
           Header("family", "Family", "what kind of kernel its name says it is", width=12)),
    Column(lambda f: f.of_verdict(lambda verdict: verdict.unit or None, ""),
           Header("unit", "Unit", "what multiplied: hmma, wgmma, tcgen05, imma, dmma, fma, ...", empty="-")),
    Column(lambda f: f.of_verdict(attrgetter("math"), ""),
           Header("math", "Math", "arithmetic of the products: bf16, tf32, fp8, fp32, ...", width=6, empty="-")),
    Column(_problem(0), Header("m", "M", "rows of the matrix product")),
    Column(_problem(1), Header("n", "N", "columns of the matrix product")),
    Column(_problem(2), Header("k", "K", "depth of the matrix product")),
    Column(lambda f: f.rate("ai"), Header("ai", "FLOP/B", "arithmetic intensity of the op: FLOPs over bytes", "FLOP/B", 8)),
    Column(lambda f: f.rate("flops"),
           Header("tflops", "TFLOP/s", "rate of the op over the time of all its kernels", "TFLOP/s", 8)),
    Column(lambda f: f.rate("bytes"),
           Header("gbs", "GB/s", "rate of the op's least bytes over the time of all its kernels", "GB/s", 8)),
    Column(lambda f: Fractions.not_nan(ceiling(f.of_instance) / 1e12, 3),
           Header("ceiling", "Ceiling", "TFLOP/s that the device allows at the op's intensity", "TFLOP/s", 8)),
    Column(lambda f: Fractions.not_nan(f.roofline.peak, 1),
           Header("peak", "Peak(%)", "share of the roofline: least time of the op over the time of all its kernels", "%", 7)),
    Column(lambda f: Texts(f.roofline.bound, BOUNDS),
           Header("bound", "Bound", "its limit: compute, memory, latency, launch, l2; ! faster than the peaks allow", width=8)),
    Column(lambda f: Integers.from_zero(f.roofline.lost_ns),
           Header("lost", "Lost(ns)", "time above the roofline; an op's adds up over its kernels", "ns", 10)),
    Column(_call("inner", "name"), Header("inner", "Inner", "innermost dispatcher op or autograd function", width=15)),
    Column(lambda f: f.of_stack(_src), Header("src", "Src", "source line that called the op", width=20)),
    Column(lambda f: Texts(np.where(np.isin(f.records["copykind"], range(1, 14)), f.records["copykind"], 0), _COPY_NAMES),
           Header("copykind", "CopyKind", "direction of a copy", width=8, empty="-")),
    Column(_records("regs"), Header("regs", "Regs", "registers per thread", width=4)),
    Column(_records("smem_bytes"), Header("smem", "SMem", "shared memory per block, in bytes", "B", 7)),
    Column(lambda f: f.occupancy,
           Header("occ", "Occ(%)", "theoretical occupancy: resident warps over the most there can be", "%", 6)),
    Column(lambda f: f.waves, Header("waves", "Waves", "blocks of the grid over the blocks that the device holds at once")),
    Column(lambda f: Texts(f.costs.bound, BYTES_BOUNDS),
           Header("bytes_bound", "BytesBound", "lower: bytes are at least these, else unknown; inferred; - by definition",
                  width=8, empty="-")),
    Column(lambda f: Texts(f.costs.flops_bound, FLOPS_BOUNDS),
           Header("flops_bound", "FLOPsBound", "lower, upper: FLOPs are at least, at most these; - by definition",
                  width=8, empty="-")),
    Column(_records("instance"), Header("instance", "Instance", "number of the op's execution; its kernels share one cost")),
)  # fmt: skip

# Columns of groups, after those that name the group.
SUMS = (
    Header("calls", "Calls", "executions of ops"),
    Header("kernels", "Kernels", "kernels, or other rows"),
    Header("time", "Time(ns)", "time of all of them", "ns", 12),
    Header("share", "Share(%)", "of the time of all rows of the table", "%", 8, share=True),
    Header("flops", "FLOPs", "operations that the algorithm needs", "FLOP", 12),
    Header("bytes", "Bytes", "least bytes: inputs read once, outputs written once", "B", 12),
    Header("tflops", "TFLOP/s", "FLOPs over the time of the rows whose FLOPs are known", "TFLOP/s", 8),
    Header("gbs", "GB/s", "bytes over the time of the rows whose bytes are known", "GB/s", 8),
    Header("known", "Known(%)", "share of the time of the rows whose FLOPs are known", "%", 8),
    Header("lost", "Lost(ns)", "time above the roofline", "ns", 10),
    Header("peak", "Peak(%)", "share of the roofline: least time over time", "%"),
    Header("mean", "Mean(ns)", "time of one row", "ns", 10),
    Header("min", "Min(ns)", "shortest time of a row", "ns", 10),
    Header("max", "Max(ns)", "longest time of a row", "ns", 10),
    Header("spread", "Spread(ns)", "standard deviation of the times of the rows", "ns", 10),
)
SUMS_SHOWN = 9  # columns printed without -c
TREE = (
    Header("layer", "Layer", "the layer, and all inside it", width=20, grow=True),
    Header("depth", "Depth", "layers around it", width=5, detail=True),
)
# torch's own table, as key_averages() prints it.
TORCH_KEYS = (
    Header("op", "Op", "the op as torch names it", width=20, grow=True),
    Header("shape", "Shape", "shapes of its inputs", width=20, grow=True),
)
TORCH_COLUMNS = (
    Header("self_cpu", "SelfCPU(ns)", "time on the CPU without the ops inside it", "ns", 10),
    Header("self_cpu_pct", "SelfCPU(%)", "of all ops", "%", 10, share=True),
    Header("cpu_total", "CPUTotal(ns)", "time on the CPU with the ops inside it", "ns", 10),
    Header("cpu_avg", "CPUAvg(ns)", "of one call, with the ops inside it", "ns", 10),
    Header("self_device", "SelfDevice(ns)", "time of the kernels and copies that it launched itself", "ns", 10),
    Header("self_device_pct", "SelfDevice(%)", "of all ops", "%", 10, share=True),
    Header("device_total", "DeviceTotal(ns)", "the same with the ops inside it", "ns", 10),
    Header("device_avg", "DeviceAvg(ns)", "of one call, with the ops inside it", "ns", 10),
    Header("cpu_mem", "CPUMem", "bytes of the host allocated less freed, with the ops inside it", "B", 10, detail=True),
    Header("self_cpu_mem", "SelfCPUMem", "the same without them", "B", 10, detail=True),
    Header("device_mem", "DeviceMem", "bytes of devices allocated less freed, with the ops inside it", "B", 10, detail=True),
    Header("self_device_mem", "SelfDeviceMem", "the same without them", "B", 10, detail=True),
    Header("calls", "Calls", "how often it was called"),
    Header("kernels", "Kernels", "kernels and copies that it launched itself"),
    Header("flops", "FLOPs", "operations that the algorithm needs", "FLOP", 12),
    Header("bytes", "Bytes", "least bytes: inputs read once, outputs written once", "B", 12),
    Header("known", "Known(%)", "share of the time of the calls whose FLOPs are known", "%", 8),
)

ALIASES = {
    "module": "mod",
    "direction": "dir",
    "kernels": "kernel",
    "time": "sil",
    "silicon": "sil",
    "ns": "sil",
    "shape": "params",
    # torch's names, today's and those until 2.2, of the columns of its own table
    "count": "calls",
    "self_cpu_time_total": "self_cpu",
    "cpu_time_total": "cpu_total",
    "cpu_time": "cpu_avg",
    "cpu_memory_usage": "cpu_mem",
    "self_cpu_memory_usage": "self_cpu_mem",
    **{f"self_{device}_time_total": "self_device" for device in ("device", "cuda")},
    **{f"{device}_time_total": "device_total" for device in ("device", "cuda")},
    **{f"{device}_time": "device_avg" for device in ("device", "cuda")},
    **{f"{device}_memory_usage": "device_mem" for device in ("device", "cuda")},
    **{f"self_{device}_memory_usage": "self_device_mem" for device in ("device", "cuda")},
    "self_cuda": "self_device",
    "cuda_total": "device_total",
    "cuda_avg": "device_avg",
    "cuda_mem": "device_mem",
    "self_cuda_mem": "self_device_mem",
}


_BY_KEY = {column.key: column for column in COLUMNS}
HEADERS = tuple(column.header for column in COLUMNS)


class RecordTable(NamedTuple):
    """The records of a frame as a table; a column is computed when it is asked for."""

    frame: Frame

    @property
    def headers(self) -> Sequence[Header]:
        """The headers of all columns."""
        return HEADERS

    def of(self, key: str) -> Values:
        """The values of one column."""
        return _BY_KEY[key].compute(self.frame)

    def take(self, rows: Ints) -> RecordTable:
        """These rows only."""
        return RecordTable(self.frame.take(rows))


def columns_text() -> str:
    """Every column with its key, header and meaning, for the help."""
    described = "  {0.key:15} {0.text:15} {0.help}".format
    groups = ["of groups, behind the columns that they are grouped by:", *map(described, SUMS)]
    torch = ["of torch's own table, with --group-by op or op,shape and --sort or -c one of these:"]
    return "\n".join(["columns:", *map(described, HEADERS), "", *groups, "", *torch, *map(described, TORCH_COLUMNS)])
