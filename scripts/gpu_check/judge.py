"""Rows of captures and measured times -> pass, fail or skip, with the reason. Runs nothing and reads no file.

The limits below are what should hold; they were chosen before any run on a GPU, and held on an H100.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from pyprof.columns.intervals import union

ATTRIBUTED = 0.98  # share of kernel time whose op is known
TIMES_MOST = 1.02  # kernels of the window over the events around its steps
TIMES_LEAST = 0.5  # kernels over the events of a step that waits in the queue: small kernels have gaps even there
OVERHEAD = 20.0  # a recorded step over one that is not
VERDICTS = 0.9  # share of the time of products whose Tensor Core verdict is what the network asked for


class Outcome(NamedTuple):
    """The outcome of one check."""

    status: Literal["pass", "fail", "skip"]
    why: str


def _judged(good: bool, why: str) -> Outcome:
    return Outcome("pass" if good else "fail", why)


def attributed(rows: pd.DataFrame) -> Outcome:
    """Whether the ops are known of nearly all kernel time."""
    total = int(rows["sil"].sum())
    if not total:
        return Outcome("fail", "no time was recorded")
    known = int(rows["sil"][rows["op"].notna()].sum()) / total
    lost = rows[rows["op"].isna()]
    longest = f", the longest without: {lost.sort_values('sil')['kernel'].iloc[-1]}" if len(lost) else ""
    return _judged(known >= ATTRIBUTED, f"{known:.1%} of the time of {len(rows)} rows has an op{longest}")


def flops(rows: pd.DataFrame, of_step: int, steps: int) -> Outcome:
    """Whether the matrix FLOPs of the rows are those of torch's FlopCounterMode, exactly."""
    ours, theirs = int(rows["matmul_flops"].sum()), of_step * steps
    unknown = int((rows["product"] & rows["matmul_flops"].isna()).sum())
    if ours == theirs and not unknown:
        return Outcome("pass", f"{ours} FLOPs in {steps} steps, as FlopCounterMode")
    more = f", {unknown} rows of products have none" if unknown else ""
    return Outcome("fail", f"{ours} FLOPs, FlopCounterMode {theirs} in {steps} steps{more}")


def rates(rows: pd.DataFrame) -> Outcome:
    """Whether no op ran faster than the device's peaks allow."""
    fast = rows[rows["bound"].astype("string").str.endswith("!").fillna(False)]
    if len(fast):
        first = fast.iloc[0]
        return Outcome("fail", f"{len(fast)} rows are above the peak: {first['op']} {first['shapes']} by {first['kernel']}")
    known = rows["bound"].notna() & (rows["bound"].astype("string") != "")
    if not known.any():
        return Outcome("skip", "no row has a limit: is the device known? pyprof help hardware")
    return Outcome("pass", f"none of {int(known.sum())} rows with a limit is above it")


def busy_ns(rows: pd.DataFrame) -> int:
    """The time in which at least one of the rows ran."""
    start, time = rows["start"].to_numpy(np.int64), rows["sil"].to_numpy(np.int64)
    return int(union(np.zeros(len(rows), np.int64), start, start + time).total(1)[0]) if len(rows) else 0


def times(busy: int, recorded_ns: int, queued_ns: int | None) -> Outcome:
    """Kernel time against clocks that are not the profiler's.

    busy: of all recorded steps; recorded_ns: by CUDA events around them, on the CPU by its clock; queued_ns: of as many steps
    whose kernels wait in the queue, None where it was not measured.
    """
    of_events = busy / recorded_ns
    text = f"recorded {busy / 1e6:.3f} ms, clock around the steps {recorded_ns / 1e6:.3f} ms"
    if queued_ns is None:
        return _judged(0 < of_events <= TIMES_MOST, text)
    share = busy / queued_ns
    text += f", of steps in the queue {queued_ns / 1e6:.3f} ms ({share:.0%})"
    return _judged(of_events <= TIMES_MOST and TIMES_LEAST <= share, text)


def same(rows: pd.DataFrame, others: pd.DataFrame) -> Outcome:
    """Whether two ways saw the same kernels under the same ops and shapes, and the same FLOPs of these ops.

    What is unknown in one of the two is no difference. FLOPs are of all kernels of an op together: which of two kernels that
    take about as long carries them is decided by their times.
    """
    if not len(rows) or not len(others):
        return Outcome("fail", f"{len(rows)} rows and {len(others)}: nothing to compare")
    unsized = _unsized(rows) ^ _unsized(others)
    found, expected = _kernels(rows, unsized), _kernels(others, unsized)
    kinds = found.keys() | expected.keys()
    unlike = [f"{' '.join(kind)}: {found[kind]} rows and {expected[kind]}" for kind in sorted(kinds)]
    unlike = [text for text, kind in zip(unlike, sorted(kinds), strict=True) if found[kind] != expected[kind]]
    mine, theirs = _flops(rows, unsized), _flops(others, unsized)
    known = sorted(call for call, count in mine.items() if count is not None and theirs.get(call) is not None)
    unlike += [f"{' '.join(call)}: {mine[call]} FLOPs and {theirs[call]}" for call in known if mine[call] != theirs[call]]
    if unlike:
        return Outcome("fail", f"of {len(kinds)} kinds of rows and {len(known)} of calls {len(unlike)} differ, as {unlike[0]}")
    unknown = len(mine) - len(known)
    more = f"; FLOPs of {unknown} kinds of calls are unknown in one of the two" if unknown else ""
    return Outcome("pass", f"{len(rows)} rows alike in {len(kinds)} kinds{more}")


def _unsized(rows: pd.DataFrame) -> set[str]:
    """The ops of which no shape is known: not every way records those of generated kernels."""
    sized = rows["op"][rows["shapes"] != ""]
    return {str(op) for op in rows["op"][~rows["op"].isin(sized)]}


def _kernels(rows: pd.DataFrame, unsized: set[str]) -> Counter[tuple[str, str, str]]:
    """How many rows have this op, these shapes, this kernel; for some ops without shapes."""
    found: Counter[tuple[str, str, str]] = Counter()
    for op, shapes, kernel, kind in zip(*(rows[key] for key in ("op", "shapes", "kernel", "kind")), strict=True):
        name = "" if kind == "cpu" else str(kernel)  # of an op on the CPU it is the tool's own
        found[str(op), "" if str(op) in unsized else shapes, name] += 1
    return found


def _flops(rows: pd.DataFrame, unsized: set[str]) -> dict[tuple[str, str], int | None]:
    """Of all rows of an op with these shapes, None where one of them is unknown."""
    found: dict[tuple[str, str], int | None] = {}
    for op, shapes, count in zip(rows["op"], rows["shapes"], rows["flops"], strict=True):
        call = str(op), "" if str(op) in unsized else shapes
        before = found.get(call, 0)
        found[call] = None if before is None or pd.isna(count) else before + int(count)
    return found


def overhead(recorded_ns: int, alone_ns: int) -> Outcome:
    """A recorded step against the same without a recording."""
    ratio = recorded_ns / alone_ns
    return _judged(ratio <= OVERHEAD, f"a recorded step takes {ratio:.2f} times {alone_ns / 1e6:.3f} ms")


def tensor_cores(rows: pd.DataFrame, math: str, cc: tuple[int, int] | None) -> Outcome:
    """Whether products in bf16 or TF32 are said to use Tensor Cores, and products in fp32 not to."""
    if cc is None or cc < (8, 0):
        return Outcome("skip", "a device whose verdicts are not known beforehand (not NVIDIA's from 8.0 on)")
    products = rows[rows["product"] & (rows["matmul_flops"].fillna(0) > 0)]
    total = int(products["sil"].sum())
    if not total:
        return Outcome("fail", "no product was found")
    wanted = "0" if math == "fp32" else "1"
    share = int(products["sil"][products["tc"] == wanted].sum()) / total
    return _judged(share >= VERDICTS, f"tc is {wanted} for {share:.0%} of the time of products in {math}")


def counters(launches: pd.DataFrame) -> Outcome:
    """Verdicts against what ncu counted: tc, flops_tensor, kernel of `pyprof counters`."""
    told = launches[launches["tc"].isin(["0", "1"]) & launches["flops_tensor"].notna()]
    if not len(told):
        return Outcome("skip", "ncu counted no Tensor Cores here, or no verdict could be given")
    wrong = told[(told["tc"] == "1") != (told["flops_tensor"] > 0)]
    if len(wrong):
        first = wrong.iloc[0]
        text = f"tc {first['tc']} for {first['kernel']}, which did {int(first['flops_tensor'])} FLOPs on them"
        return Outcome("fail", f"{len(wrong)} of {len(told)} verdicts are wrong, as {text}")
    return Outcome("pass", f"{len(told)} verdicts are what was counted")
