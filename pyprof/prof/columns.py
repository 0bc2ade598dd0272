"""Every column once: key, header, help, how to compute it. `-c`, the help, the README and the writers derive from it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyprof.errors import InputError, UsageError
from pyprof.parse.records.records import DIRECTIONS, PHASES
from pyprof.parse.sources.trace import COPY_KINDS, ActivityKind
from pyprof.prof.frame import Floats, Frame, Numbers, Texts, Values
from pyprof.prof.roofline import BOUNDS

__all__ = ["ALIASES", "COLUMNS", "DEFAULT", "Column", "choose", "is_text", "sort_key", "unknown_as"]

DEFAULT = "idx,dir,sub,mod,op,kernel,params,sil"


@dataclass(frozen=True)
class Column:
    """One column. width: least characters in the columnated form; grow: takes what is left of the line there."""

    key: str
    header: str
    help: str
    compute: Callable[[Frame], Values]
    width: int = 7
    grow: bool = False


def _problem(part: int) -> Callable[[Frame], Values]:
    def compute(frame: Frame) -> Values:
        known = np.array([p[part] for p in frame.costs.problems] + [-1], np.int64)
        return Numbers(known[frame.costs.problem])

    return compute


def _records(name: str) -> Callable[[Frame], Values]:
    return lambda frame: frame.number(name)


def _idx(frame: Frame) -> Values:
    return Numbers(np.arange(1, len(frame.records) + 1))


def _delay(frame: Frame) -> Values:
    records = frame.records
    known = (records["launch_ns"] >= 0) & (records["start_ns"] >= 0) & (records["kind"] != ActivityKind.CPU)
    return Numbers(np.where(known, records["start_ns"] - records["launch_ns"], -1))


def _kernel_class(attribute: str) -> Callable[[Frame], Values]:
    return lambda frame: Texts(frame.costs.kernel, [str(getattr(k, attribute)) or "na" for k in frame.costs.kernels])


def _pool(name: str, texts: tuple[str, ...]) -> Callable[[Frame], Values]:
    return lambda frame: Texts(frame.records[name].astype(np.int32), texts)


def _call(column: str, attribute: str) -> Callable[[Frame], Values]:
    return lambda frame: frame.of_call(column, lambda call: str(getattr(call, attribute)))


def _verdict(attribute: str, unknown: str) -> Callable[[Frame], Values]:
    return lambda frame: frame.of_verdict(lambda verdict: getattr(verdict, attribute) or unknown)


def _copykind(frame: Frame) -> Values:
    texts = ["-", *(COPY_KINDS.get(code, "other") for code in range(1, 14))]
    codes = frame.records["copykind"].astype(np.int64)
    return Texts(np.where((codes >= 1) & (codes <= 13), codes, 0), texts)


def _layer(frame: Frame) -> Values:
    return frame.of_stack("scope", lambda stack: ":".join(stack.layer) or "-")


def _trace(frame: Frame) -> Values:
    return frame.of_stack("scope", lambda stack: ",".join(stack.trace) or "-")


def _src(frame: Frame) -> Values:
    return frame.of_stack("scope", lambda stack: stack.trace[-1] if stack.trace else "na")


def _ceiling(frame: Frame) -> Values:
    return Floats(frame.roofline.ceiling / 1e12, 3)


def _peak(frame: Frame) -> Values:
    return Floats(frame.roofline.peak, 1)


def _bound(frame: Frame) -> Values:
    return Texts(frame.roofline.bound, BOUNDS)


def _lost(frame: Frame) -> Values:
    return Numbers(frame.roofline.lost_ns)


COLUMNS: tuple[Column, ...] = (
    Column("idx", "Idx", "number of the record, from 1 in order of begin", _idx),
    Column("seq", "SeqId", "autograd sequence number", lambda f: f.sequence(False)),
    Column("altseq", "AltSeqId", "other sequence numbers on the stack", lambda f: f.sequence(True)),
    Column("tid", "TId", "thread that launched it", _records("tid"), 12),
    Column("layer", "Layer", "named layers around the op, outermost first; where none was named the user's ranges", _layer, 10),
    Column("trace", "Trace", "source lines of the call, outermost first", _trace, 25),
    Column("dir", "Direction", "fprop or bprop", _pool("dir", DIRECTIONS), 5),
    Column("sub", "Sub", "n-th kernel in a row of the same op", _records("sub"), 3),
    Column("mod", "Module", "module of the op: torch, Tensor, torch.nn.functional, aten, a class", _call("call", "module"), 15),
    Column("op", "Op", "the op; of a backward kernel the forward op", _call("call", "op"), 15),
    Column("kernel", "Kernel", "short name of the kernel", lambda f: f.short_names, 0, True),
    Column("params", "Params", "shapes and types of the op's arguments", lambda f: f.params, 0, True),
    Column("sil", "Sil(ns)", "time of the kernel (silicon), in ns", _records("dur_ns"), 10),
    Column("tc", "TC", "Tensor Cores: 1 used, 0 not, - not applicable, na cannot be told", _verdict("tc", "na"), 2),
    Column("device", "Device", "device ordinal", _records("device"), 3),
    Column("stream", "Stream", "stream", _records("stream"), 3),
    Column("grid", "Grid", "blocks: x,y,z", lambda f: f.shape("grid"), 12),
    Column("block", "Block", "threads of a block: x,y,z", lambda f: f.shape("block"), 12),
    Column("flops", "FLOPs", "operations that the algorithm needs (FMA = 2)", lambda f: Numbers(f.costs.flops), 12),
    Column("bytes", "Bytes", "least bytes: inputs read once, outputs written once", lambda f: Numbers(f.costs.bytes), 12),
    Column("pid", "PId", "process", _records("pid")),
    Column("rank", "Rank", "rank in a distributed job", _records("rank"), 4),
    Column("step", "Step", "training step", _records("step"), 4),
    Column("phase", "Phase", "forward, backward, optimizer, communication or copy", _pool("phase", PHASES), 8),
    Column("recomputed", "Recomputed", "1 a forward op run again in backward (checkpoints); 0 not", _records("recomputed"), 3),
    Column("start", "Start(ns)", "begin, in ns on the capture's clock", _records("start_ns"), 12),
    Column("launch", "Launch(ns)", "begin of the API call that launched it", _records("launch_ns"), 12),
    Column("delay", "Delay(ns)", "from the launch to the begin on the device", _delay, 10),
    Column("launchdur", "LaunchDur(ns)", "time that this call took", _records("launch_dur_ns"), 10),
    Column("corr", "CorrId", "correlation id, unique in a process", _records("corr")),
    Column("kind", "Kind", "kernel, graph, memcpy, memset or cpu", _pool("kind", ActivityKind.NAMES), 6),
    Column("name", "Name", "whole name of the kernel", lambda f: f.of_name(str), 20),
    Column("family", "Family", "what kind of kernel its name says it is", _kernel_class("family"), 12),
    Column("unit", "Unit", "what multiplied: hmma, wgmma, tcgen05, imma, dmma, fma, ...", _verdict("unit", "na"), 7),
    Column("math", "Math", "arithmetic of the products: bf16, tf32, fp8, fp32, ...", _verdict("math", "-"), 6),
    Column("m", "M", "rows of the matrix product", _problem(0)),
    Column("n", "N", "columns of the matrix product", _problem(1)),
    Column("k", "K", "depth of the matrix product", _problem(2)),
    Column("ai", "FLOP/B", "arithmetic intensity of the op: FLOPs over bytes", lambda f: f.rate("ai"), 8),
    Column("tflops", "TFLOP/s", "rate of the op over the time of all its kernels", lambda f: f.rate("flops"), 8),
    Column("gbs", "GB/s", "rate of the op's least bytes over the time of all its kernels", lambda f: f.rate("bytes"), 8),
    Column("ceiling", "Ceiling", "TFLOP/s that the device allows at the op's intensity", _ceiling, 8),
    Column("peak", "Peak(%)", "share of the roofline: least time of the op over the time of all its kernels", _peak, 7),
    Column("bound", "Bound", "what limits it: compute, memory, latency, launch, l2; ! faster than the peaks allow", _bound, 8),
    Column("lost", "Lost(ns)", "time above the roofline; an op's adds up over its kernels", _lost, 10),
    Column("inner", "Inner", "innermost dispatcher op or autograd function", _call("inner", "name"), 15),
    Column("src", "Src", "source line that called the op", _src, 20),
    Column("copykind", "CopyKind", "direction of a copy", _copykind, 8),
    Column("regs", "Regs", "registers per thread", _records("regs"), 4),
    Column("smem", "SMem", "shared memory per block, in bytes", _records("smem_bytes"), 7),
    Column("occ", "Occ(%)", "theoretical occupancy: resident warps over the most there can be", lambda f: f.occupancy, 6),
    Column("waves", "Waves", "blocks of the grid over the blocks that the device holds at once", lambda f: f.waves, 7),
    Column("instance", "Instance", "number of the op's execution; its kernels share one cost", _records("instance")),
)  # fmt: skip

ALIASES = {
    "module": "mod",
    "direction": "dir",
    "kernels": "kernel",
    "time": "sil",
    "silicon": "sil",
    "ns": "sil",
    "shape": "params",
    # torch's names, of today and until 2.2, for the columns of its own table
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


def choose(text: str, among: Sequence[Column] = COLUMNS) -> list[Column]:
    """The columns of a comma list, in its order; among: those that there are.

    Raises InputError for one that there is not, with the nearest that there is, UsageError where none is named.
    """
    chosen = []
    by_key = {column.key: column for column in among}
    for key in filter(None, (part.strip().lower() for part in text.split(","))):
        column = by_key.get(key) or by_key.get(ALIASES.get(key, ""))
        if column is None:
            near = difflib.get_close_matches(key, by_key, 1, 0.4)
            meant = f"did you mean {near[0]}? " if near else ""
            raise InputError(f"there is no column {key!r}", f"{meant}columns: {','.join(by_key)}")
        chosen.append(column)
    if not chosen:
        raise UsageError("no columns were chosen", f"for example -c {DEFAULT}")
    return chosen


def sort_key(values: Values) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
    """Numbers whose ascending order is largest first for numbers and alphabetical for texts; the unknown last."""
    if isinstance(values, Texts):
        order = {text: rank for rank, text in enumerate(sorted(set(values.pool)))}  # equal texts tie, however they are pooled
        rank = np.array([*(order[text] for text in values.pool), len(order)], np.float64)
        ranked: npt.NDArray[np.float64] = rank[values.codes]
        return ranked
    if isinstance(values, Floats):
        return np.where(np.isnan(values.values), np.inf, -values.values)
    if values.values.dtype == np.object_:  # sums beyond 64 bits
        return np.unique(np.where(values.values < 0, 1 << 200, -values.values), return_inverse=True)[1].ravel()
    # As whole numbers: a float does not tell those above 2**53 apart.
    numbers = values.values.astype(np.int64)
    return np.where(numbers < 0, np.iinfo(np.int64).max, -numbers)


def is_text(values: Values) -> bool:
    """Whether a column is aligned as text."""
    return isinstance(values, Texts)


def unknown_as(values: Values, text: str = "na") -> list[str]:
    """Every value of a column as text; what is unknown is `text`."""
    if isinstance(values, Texts):
        pool = [*values.pool, text]
        return [pool[code] for code in values.codes.tolist()]
    if isinstance(values, Floats):
        return [text if v != v else f"{v:.{values.digits}f}" for v in values.values.tolist()]
    return [text if v < 0 else str(v) for v in values.values.tolist()]
