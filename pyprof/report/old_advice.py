"""What would make the program faster: each advice with its evidence and the most that it can save, computed and never guessed.

One function for each kind of advice: from a Frame to a list. Text is not laid out here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.intervals import summed
from pyprof.arrays.types import Bools, Integers, Ints
from pyprof.dtypes import lookup
from pyprof.hardware.names import short_name
from pyprof.parse.records.records import PHASES
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.frame import Frame, operand_tag
from pyprof.prof.roofline import LATENCY, LAUNCH
from pyprof.report.idle import HOST, Activities, find_gaps
from pyprof.report.idle import LAUNCH as LATE_LAUNCH

_LOAD_BYTES = 16  # what one load of a Tensor Core kernel takes where operands are aligned to it
_CONVERSION = re.compile(r"nchw_?(?:to|2)_?nhwc|nhwc_?(?:to|2)_?nchw", re.IGNORECASE)
_FUSED = re.compile(r"fused|multi_tensor_\w*(?:adam|lamb|sgd)|\bAdamFunctor|SGDFunctor|LAMBStage", re.IGNORECASE)
_FEW = 8  # kernels: a step with fewer is that of a small model
_MANY = 16
_TO_HOST = 2  # CUDA's number of a copy from a device to the host
_BEHIND_COPIES = (
    "the device idle behind copies that the host waits for",
    "keep the value on the device, or copy it to pinned memory with non_blocking=True and read it later",
)
_TOO_LATE = (
    "the device idle because the host launched too late",
    'record CUDA graphs (torch.compile(mode="reduce-overhead")), or do less between launches; see pyprof gaps',
)
T = TypeVar("T")


class Advice(NamedTuple):
    """title: what was found; change: what to do; evidence: kernels or ops, sizes and counts; time_ns: their time; saves_ns: the
    most that the change can save."""

    title: str
    change: str
    evidence: str
    time_ns: int
    saves_ns: int


def where(test: Callable[[T], bool], pool: Sequence[T], codes: Integers) -> Bools:
    """Which codes are of an entry of the pool that passes the test; -1 is of none."""
    return np.array([test(entry) for entry in pool] + [False], np.bool_)[codes]


def kernels_of(frame: Frame, rows: Ints) -> Ints:
    """Those of the rows that are kernels."""
    chosen: Ints = rows[frame.records["kind"][rows] == ActivityKind.KERNEL]
    return chosen


def most(codes: Ints, weight: Ints, pool: Sequence[str], count: int = 3) -> str:
    """The texts of most weight, each with how often it occurs: `12 x a, 3 x b`."""
    named = codes >= 0
    used, inverse = np.unique(codes[named], return_inverse=True)
    weights, counts = summed(inverse.ravel(), weight[named], len(used)), np.bincount(inverse.ravel(), minlength=len(used))
    found: dict[str, tuple[int, int]] = {}
    for code, heavy, often in zip(used.tolist(), weights.tolist(), counts.tolist(), strict=True):
        before = found.get(pool[code], (0, 0))
        found[pool[code]] = before[0] + heavy, before[1] + often
    first = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:count]
    return ", ".join(f"{number} x {text}" for text, (_, number) in first)


def products(frame: Frame) -> list[Advice]:
    """Matrix products without Tensor Cores although the device has them for the dtype, or with narrow loads.

    One advice for each (problem, kernel, dtype, device); the least time of a product is the one on Tensor Cores.
    """
    records, costs = frame.records, frame.costs
    codes, verdicts = frame.verdicts
    off, used = where(lambda verdict: verdict.tc == "0", verdicts, codes), where(lambda v: v.tc == "1", verdicts, codes)
    aligned = where(lambda kernel: kernel.align is not None, costs.kernels, costs.kernel)
    candidate = (off | used & aligned) & (costs.matmul_flops > 0) & (costs.bytes >= 0) & (costs.problem >= 0)
    rows = np.flatnonzero(candidate & (records["call"] >= 0))
    names = frame.of_name(short_name)
    # Convolutions have other sizes and switches: no advice on them.
    tags = [None if "conv" in call.op else operand_tag(call) for call in records.calls]
    pool = sorted({tag for tag in tags if tag})
    tag = np.array([pool.index(t) if t else -1 for t in tags], np.int64)[records["call"][rows]]
    distinct, first, inverse = distinct_rows(costs.problem[rows], names.codes[rows], tag, records["gpu"][rows])
    changes: dict[int, tuple[str, str]] = {}
    peaks, drams = (np.full(distinct.shape[1], np.nan) for _ in range(2))
    for number, (problem, name, kind, gpu) in enumerate(distinct.T.tolist()):
        if kind < 0 or name < 0 or not 0 <= gpu < len(frame.gpus):
            continue
        device, dtype, one = frame.gpus[gpu][0], pool[kind], rows[first[number]]
        align = costs.kernels[costs.kernel[one]].align if used[one] else None
        change = _change(dtype, costs.problems[problem], align)
        peak, dram = device.peaks.get("tf32" if dtype == "fp32" else dtype), device.dram_bytes_per_s
        if change is not None and peak and dram:
            changes[number], peaks[number], drams[number] = change, peak, dram
    least = np.maximum(costs.matmul_flops[rows] / peaks[inverse], costs.bytes[rows] / drams[inverse]) * 1e9
    time, size = records["dur_ns"][rows], distinct.shape[1]
    saves, spent = (np.bincount(inverse, values, size) for values in (np.maximum(time - least, 0), time))
    count = np.bincount(inverse, minlength=size)
    found = []
    for number, change in changes.items():
        problem, name, kind, _ = distinct[:, number].tolist()
        m, n, k, batch = costs.problems[problem]
        evidence = f"{count[number]} x {names.pool[name]}, {pool[kind]} m={m} n={n} k={k} batch={batch}"
        if int(saves[number]) > 0:
            found.append(Advice(*change, evidence, int(spent[number]), int(saves[number])))
    return found


def _change(dtype: str, problem: tuple[int, int, int, int], align: int | None) -> tuple[str, str] | None:
    """(title, change), naming only sizes that are not multiples; None where nothing can be advised.

    align: elements that one load of a kernel on Tensor Cores takes, None without Tensor Cores.
    """
    if dtype not in ("fp16", "bf16", "fp32"):
        return None
    if align is None and dtype == "fp32":
        return "fp32 product without Tensor Cores", 'allow TF32: torch.set_float32_matmul_precision("high")'
    found = lookup(dtype)
    aligned = _LOAD_BYTES * 8 // found.bits if found is not None else 1
    if align is not None and align >= aligned:
        return None
    odd = [(axis, size, -(-size // aligned) * aligned) for axis, size in zip("mnk", problem, strict=False) if size % aligned]
    title = f"{dtype} product without Tensor Cores"
    if align is not None:
        title = f"{dtype} product with loads of {align} element{'s' * (align > 1)} at once"
    if not odd:
        return title, f"sizes are multiples of {aligned}: look at strides and alignment"
    return title, "pad " + ", ".join(f"{axis} {size} to {to}" for axis, size, to in odd)


def conversions(frame: Frame) -> list[Advice]:
    """Kernels that convert to channels last and back around convolutions; a model in channels last saves their whole time."""
    records, names = frame.records, frame.of_name(short_name)
    converts = where(lambda name: _CONVERSION.search(name) is not None, names.pool, names.codes)
    around = where(lambda call: "conv" in call.op, records.calls, records["call"])
    rows = kernels_of(frame, np.flatnonzero(converts & around))
    time = int(records["dur_ns"][rows].sum())
    if not time:
        return []
    evidence = most(names.codes[rows], records["dur_ns"][rows], names.pool)
    change = "keep model and input in channels last: .to(memory_format=torch.channels_last)"
    return [Advice("conversions of layout around convolutions", change, evidence, time, time)]


def unfused(frame: Frame) -> list[Advice]:
    """Optimizer steps of many kernels, one advice for each device: what one pass over the parameters would save.

    A fused step moves at least as much as the op of it that moves most (Adam's addcdiv_ reads a parameter and its state and
    writes it): those bytes over the DRAM bandwidth are the least time, the rest is the most that fusing can save.
    """
    records, costs = frame.records, frame.costs
    name = frame.of_name(str)
    fused = where(lambda text: _FUSED.search(text) is not None, name.pool, name.codes)
    stepping = (records["phase"] == PHASES.index("optimizer")) & ~fused
    names: dict[str, int] = {}
    op = np.array([*(names.setdefault(call.op, len(names)) for call in records.calls), -1], np.int64)
    found = []
    for gpu, (device, _) in enumerate(frame.gpus):
        rows = kernels_of(frame, np.flatnonzero(stepping & (records["gpu"] == gpu)))
        known = rows[(costs.bytes[rows] > 0) & (records["own"][rows] >= 0)]
        if len(rows) < _FEW or not len(known) or not device.dram_bytes_per_s:
            continue
        moved = int(summed(op[records["own"][known]], costs.bytes[known], len(names)).max())
        time = int(records["dur_ns"][rows].sum())
        saves = time - round(moved / device.dram_bytes_per_s * 1e9)
        if saves > 0:
            evidence = f"{len(rows)} kernels: {most(op[records['own'][rows]], records['dur_ns'][rows], list(names))}"
            change = "fused=True of torch.optim's Adam, AdamW, SGD and Adagrad, or torch.compile of its step"
            found.append(Advice("an optimizer of many kernels", change, evidence, time, saves))
    return found


def short_kernels(frame: Frame) -> list[Advice]:
    """Kernels outside of the optimizer that latency or launching bounds: they can save their time above the roofline."""
    records, limits = frame.records, frame.roofline
    short = np.isin(limits.bound, (LATENCY, LAUNCH)) & (records["phase"] != PHASES.index("optimizer"))
    rows = kernels_of(frame, np.flatnonzero(short))
    saves = int(limits.lost_ns[rows].sum())
    if len(rows) < _MANY or not saves:
        return []
    time = int(records["dur_ns"][rows].sum())
    ops = most(records["call"][rows].astype(np.int64), records["dur_ns"][rows], [call.op for call in records.calls])
    title = "kernels with too little work, or shorter than their launch"
    evidence = f"{len(rows)} kernels of {time / len(rows) / 1e3:.1f} us on average: {ops}"
    return [Advice(title, "fuse them with torch.compile, or batch them", evidence, time, saves)]


def late_launches(frame: Frame) -> list[Advice]:
    """Gaps of late launches, which can save their own length: those after a copy that the host waited for, and all others."""
    records, chosen = frame.within()
    activities = Activities(records, chosen)
    if not len(activities):
        return []
    gaps = find_gaps(activities, None)
    late = np.isin(gaps.reason, (HOST, LATE_LAUNCH)) & activities.lines.whole[gaps.line] & (gaps.own > 0)
    copied = (records["kind"][gaps.before] == ActivityKind.MEMCPY) & (records["copykind"][gaps.before] == _TO_HOST)
    pool = [call.op for call in records.calls]
    found = []
    for these, preposition, named, texts in (
        (late & copied, "in", gaps.before, _BEHIND_COPIES),
        (late & ~copied, "before", gaps.after, _TOO_LATE),
    ):
        if len(rows := np.flatnonzero(these)):
            ops = most(records["call"][named[rows]].astype(np.int64), gaps.own[rows], pool) or "kernels without an op"
            time = int(gaps.own[rows].sum())
            found.append(Advice(*texts, f"{len(rows)} gap{'s' * (len(rows) > 1)}, {preposition} {ops}", time, time))
    return found


_KINDS = (products, conversions, unfused, short_kernels, late_launches)


def advise(frame: Frame) -> list[Advice]:
    """All advice on a frame, what can save most first."""
    return sorted((one for kind in _KINDS for one in kind(frame)), key=lambda one: (-one.saves_ns, one.evidence))
