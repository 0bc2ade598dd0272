"""Ops far below the roofline although compute or memory limits them, not launches or latency -> another kernel for them.

Such ops of one name must lose at least 5 % of the wall time. Each saves down to the best share of the roofline that ops of its
kernels' family reach in this capture under the same limit, or where it is the only one down to 70 %. Kernels without a known
roofline are told only where they are long and their grid leaves most of the device idle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.intervals import summed
from pyprof.columns.types import Floats, Ints
from pyprof.hardware.names import short_name
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.prof.roofline import COMPUTE, MEMORY
from pyprof.report.advice.base import Advice, counted, cut_ns, is_worth, mean_ns, named, places, told
from pyprof.report.advice.small_work import filled_of
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change

_SLOW, _REACHED = 50.0, 70.0  # percent of the roofline: what is slow, and what can be had where nothing shows more
_LEAST = 0.05  # of the wall time
_WARP = 32  # threads: a block of fewer leaves lanes idle
_EMPTY, _LONG_NS = 0.25, 100_000  # of the multiprocessors that have a block; shorter kernels are small work
# Families whose addresses come from the data, so that no kernel of them moves their bytes at the memory's bandwidth.
_SCATTERED = ("embedding", "index_gather", "sort_scan", "kv_cache", "moe_misc")
_DO = {
    "gemm": 'another product kernel: torch.compile(mode="max-autotune"), or PYTORCH_TUNABLEOP_ENABLED=1 to choose one by trial',
    "moe": "a configuration tuned for these sizes on this GPU (vLLM: benchmarks/kernels/benchmark_moe.py --tune), or another "
    "MoE backend",
    "attention": "another attention backend: torch.nn.attention.sdpa_kernel([SDPBackend.CUDNN_ATTENTION, "
    "SDPBackend.FLASH_ATTENTION]), flash-attn; on AMD that of aiter or CK",
    "conv": 'torch.backends.cudnn.benchmark = True, channels_last, or torch.compile(mode="max-autotune")',
    "memory": "torch.compile, whose kernels read each tensor once; contiguous inputs",
    "unknown": "tune it (triton.autotune over block sizes, num_warps); `ncu -k regex:{kernel} --set full` tells its stalls",
}
_SPLIT = "; its grid fills {filled:.0f} % of the device: split-K, or more rows at a time"
_GRID = "a grid of at least {sms} blocks, one for each multiprocessor, with a grid-stride loop inside"


class _Slow(NamedTuple):
    """Slow kernels. op: name of each one's op; share, target: percent of the roofline that the op reaches, and could."""

    rows: Ints
    op: Ints
    names: list[str]
    share: Floats
    target: Floats


def find(overview: Overview) -> Advice | None:
    """The slow ops of all names that lose enough, else kernels on few multiprocessors."""
    return _by_roofline(overview) or _by_grid(overview)


def _slow(overview: Overview) -> _Slow | None:
    records, roof, classes = overview.records, overview.frame.roofline, overview.frame.classes
    kernel = overview.inside & among(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH)) & (records["call"] >= 0)
    costs = overview.frame.of_classes.costs
    scattered = np.array([kernel.family in _SCATTERED for kernel in costs.kernels] + [False], np.bool_)[costs.kernel]
    rows = np.flatnonzero(kernel & ((roof.bound == COMPUTE) | (roof.bound == MEMORY)))
    rows = rows[~scattered[classes.code[rows]]]
    if not len(rows):
        return None
    time, call = np.maximum(records["dur_ns"][rows], 1), records["call"][rows]
    families = [kernel.family for kernel in costs.kernels]
    family = np.array([*map(families.index, families), -1])[costs.kernel[classes.code[rows]]]
    like = distinct_rows(family, roof.bound[rows]).inverse
    sized = distinct_rows(like, call)  # an op with its shapes, by the family of its kernels
    share = np.bincount(sized.inverse, roof.peak[rows] * time) / np.bincount(sized.inverse, time)
    best = np.zeros(int(like.max()) + 1)
    np.maximum.at(best, sized.columns[0], share)
    alone = np.bincount(sized.columns[0]) == 1
    target = np.where(alone, _REACHED, np.minimum(best, 100))[sized.columns[0]][sized.inverse]
    share = share[sized.inverse]
    names = [*dict.fromkeys(one.op for one in records.calls)]
    number = {name: at for at, name in enumerate(names)}
    op = np.array([number[one.op] for one in records.calls], np.int64)[call]
    lost = summed(op, np.where(share < _SLOW, roof.lost_ns[rows], 0), len(names)) / max(overview.division.count, 1)
    chosen = (share < _SLOW) & (lost[op] >= _LEAST * overview.division.wall_ns)
    return _Slow(rows[chosen], op[chosen], names, share[chosen], target[chosen]) if chosen.any() else None


def _by_roofline(overview: Overview) -> Advice | None:
    if (slow := _slow(overview)) is None:
        return None
    records, roof, rows = overview.records, overview.frame.roofline, slow.rows
    granted = cut_ns(overview, rows, (1 - slow.share / slow.target) * overview.division.exclusive_ns[rows])
    if not is_worth(overview, mean_ns(overview, granted)):
        return None
    time, lost = records["dur_ns"][rows], roof.lost_ns[rows]
    total, above = (int(values.sum()) // max(overview.division.count, 1) for values in (time, lost))
    of_op = [summed(slow.op, values, len(slow.names)) for values in (time, lost)]
    least = np.bincount(slow.op, roof.peak[rows] * time, len(slow.names))
    order = [at for at in np.argsort(-of_op[1], kind="stable").tolist() if of_op[0][at]]
    shares = ", ".join(f"{slow.names[at]} {least[at] / of_op[0][at]:.0f} %" for at in order[:3])
    compute = lost[roof.bound[rows] == COMPUTE].sum() * 2 > lost.sum()
    where = places(overview, rows, lost)
    evidence = (
        f"{told(above)} of {told(total)} above the roofline ({100 * above / overview.division.wall_ns:.0f} % of the wall) in "
        f"{counted(len(rows), 'kernel')} limited by {'compute' if compute else 'memory'}, at {shares} of it: {named(where)}"
    )
    most = int(np.argmax(granted))
    if slow.target[most] != _REACHED:
        evidence += f"; others of its kernels' family reach {slow.target[most]:.0f} %"
    return Advice("slow_kernel", Change(rows=rows, cut_ns=granted), total, evidence, _do(overview, int(rows[most])), where)


def _do(overview: Overview, row: int) -> str:
    """The line to write for the op of one kernel."""
    code, op = int(overview.frame.classes.code[row]), overview.records.calls[overview.records["call"][row]].op
    costs, name = overview.frame.of_classes.costs, overview.frame.of_name(short_name)
    kind = costs.kernels[costs.kernel[code]].kind if costs.kernel[code] >= 0 else "unknown"
    text = _DO["moe" if "moe" in op else kind if kind in _DO else "unknown"]
    filled = 100 * float(filled_of(overview)[code])
    split = _SPLIT.format(filled=filled) if kind == "gemm" and filled < 100 else ""
    return text.replace("{kernel}", name.pool[name.codes[row]] if name.codes[row] >= 0 else "NAME") + split


def _by_grid(overview: Overview) -> Advice | None:
    """Long kernels with blocks for a few of the multiprocessors; what ranks exchange needs no more."""
    records, classes, filled = overview.records, overview.frame.classes, filled_of(overview)
    costs, alike = overview.frame.of_classes.costs, classes.records
    talks = np.array([kernel.kind == "comm" for kernel in costs.kernels] + [False])[costs.kernel]
    talks |= alike["phase"] == PHASES.index("communication")
    with np.errstate(invalid="ignore"):
        rows = classes.rows((alike["kind"] == ActivityKind.KERNEL) & ~talks & (filled < _EMPTY))
    long = overview.inside[rows] & (records["dur_ns"][rows] >= _LONG_NS) & (overview.frame.roofline.bound[rows] < 0)
    rows = rows[long]
    granted = cut_ns(overview, rows, overview.division.exclusive_ns[rows] * (1 - filled[classes.code[rows]]))
    if not is_worth(overview, mean_ns(overview, granted), _LEAST):
        return None
    where, held = places(overview, rows, granted), mean_ns(overview, overview.division.exclusive_ns[rows])
    most, name = int(rows[np.argmax(granted)]), overview.frame.of_name(short_name)
    blocks = int(np.prod([int(records[f"grid_{axis}"][most]) for axis in "xyz"]))
    sms = round(blocks / float(filled[classes.code[most]]))
    what = name.pool[name.codes[most]] if name.codes[most] >= 0 else "one"
    threads = int(np.prod([int(records[f"block_{axis}"][most]) for axis in "xyz"]))
    small = f" of {counted(threads, 'thread')}" if 0 < threads < _WARP else ""
    evidence = f"{counted(len(rows), 'long kernel')} on few multiprocessors, {told(held)}: {what} has "
    evidence += f"{counted(blocks, 'block')}{small} for {sms}"
    change = Change(rows=rows, cut_ns=granted)
    return Advice("slow_kernel", change, held, evidence, _GRID.format(sms=sms), where)
