"""Print the one screen that says what to fix first: time by phase, op and family, Tensor Cores, time lost, coverage, advice.

FILE is a capture, or records that `pyprof parse` wrote.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pyprof.hardware import cpus, gpus
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame
from pyprof.report.advice import advise
from pyprof.tables.table import Texts, choose

__all__ = ["add_arguments", "lines", "run"]

_LONGEST = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof summary`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="records or captures, one after another")
    parser.add_argument("--gpu", metavar="NAME|FILE", help="hold rates against this device")


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    from pyprof.loading import load
    from pyprof.parse.records.records import concatenate

    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    print("\n".join(lines(Frame(concatenate([load(name) for name in options.file]), gpu))))
    return 0


def lines(frame: Frame) -> Iterator[str]:
    """The screen, line by line. Shares are of the time of all kernels (of all ops, where there is no GPU)."""
    records, costs = frame.records, frame.costs
    timed = np.isin(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU))
    time = np.where(timed, np.maximum(records["dur_ns"], 0), 0).astype(np.float64)
    total = float(time.sum())
    on_cpu = bool((records["kind"][timed] == ActivityKind.CPU).all())
    yield f"{int(timed.sum())} {'ops on the CPU' if on_cpu else 'kernels'}, {total / 1e6:.3f} ms"
    if not total:
        return
    for key in ("phase", "op") if on_cpu else ("phase", "op", "family"):
        yield f"{key + ':':10}" + ", ".join(f"{name} {100 * t / total:.1f} %" for name, t in _longest(frame, key, time))
    if not on_cpu:
        codes, verdicts = frame.verdicts
        used, unused = (time[np.array([v.tc == t for v in verdicts])[codes]].sum() for t in "10")
        products = f"{100 * used / (used + unused):.1f} %" if used + unused else "na"
        yield f"Tensor Cores: {products} of the {(used + unused) / 1e6:.3f} ms of products that have a path there"
    again = timed & (records["recomputed"] == 1)
    if again.any():
        flops = costs.flops[again]
        unknown = f", not known for {int((flops < 0).sum())} of {len(flops)}" if (flops < 0).any() else ""
        yield (
            f"recomputed: {time[again].sum() / 1e6:.3f} ms ({100 * time[again].sum() / total:.1f} %) in forward ops that run "
            f"again in backward, {flops[flops >= 0].sum() / 1e9:.3f} GFLOP{unknown} (--where recomputed=1)"
        )
    lost = frame.roofline.lost_ns
    known = (lost >= 0) & timed
    if on_cpu and cpus.peak() is None:
        yield "above the roofline: not known, since this CPU was not measured (pyprof doctor --calibrate)"
    else:
        share = 100 * time[known].sum() / total
        yield f"above the roofline: {lost[known].sum() / 1e6:.3f} ms, known for {share:.1f} % of the time"
    shares = [100 * time[mask].sum() / total for mask in (records["call"] >= 0, costs.flops >= 0, costs.bytes >= 0)]
    yield f"coverage: op {shares[0]:.1f} %, FLOPs {shares[1]:.1f} %, bytes {shares[2]:.1f} % of the time"
    for piece in advise(frame)[:_LONGEST]:
        yield f"advice: {piece.title}: {piece.change}; saves at most {piece.saves_ns / 1e6:.3f} of {piece.time_ns / 1e6:.3f} ms"
        yield f"        {piece.evidence}"


def _longest(frame: Frame, key: str, time: npt.NDArray[np.float64]) -> list[tuple[str, float]]:
    """The texts of a column with most time, and that time; a text is looked at once, however many rows have it."""
    values = choose(key, COLUMNS)[0].compute(frame)
    if not isinstance(values, Texts):
        raise TypeError(f"{key} is a column of numbers")
    sums: dict[str, float] = {}
    pool = [*values.pool, "na"]
    for text, spent in zip(pool, np.bincount(values.codes % len(pool), time, len(pool)).tolist(), strict=True):
        sums[text] = sums.get(text, 0.0) + spent
    longest = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:_LONGEST]
    return [(text, spent) for text, spent in longest if spent]
