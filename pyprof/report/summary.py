"""Print the one screen that says what to fix first: time by phase, op and family, Tensor Cores, time lost, coverage, advice.

FILE is a capture, or records that `pyprof parse` wrote.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from pyprof.hardware import gpus
from pyprof.parse.trace import ActivityKind
from pyprof.prof.advice import advise
from pyprof.prof.columns import choose, unknown_as
from pyprof.prof.frame import Frame

__all__ = ["add_arguments", "lines", "run"]

_LONGEST = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof summary`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="records or captures, one after another")
    parser.add_argument("--gpu", metavar="NAME|FILE", help="hold rates against this device")


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    from pyprof.load import load
    from pyprof.parse.records import concatenate

    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    print("\n".join(lines(Frame(concatenate([load(name) for name in options.file]), gpu))))
    return 0


def lines(frame: Frame) -> Iterator[str]:
    """The screen, line by line. Shares are of the time of all kernels (of all ops, where there is no GPU)."""
    records, costs = frame.records, frame.costs
    timed = np.isin(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU))
    time = np.where(timed, np.maximum(records["dur_ns"], 0), 0).astype(np.float64)
    total = float(time.sum())
    yield f"{int(timed.sum())} kernels, {total / 1e6:.3f} ms"
    if not total:
        return
    for key in ("phase", "op", "family"):
        texts = np.array(unknown_as(choose(key)[0].compute(frame)))
        names, inverse = np.unique(texts, return_inverse=True)
        sums = np.bincount(inverse.ravel(), time)
        longest = np.argsort(-sums, kind="stable")[:_LONGEST]
        yield f"{key + ':':10}" + ", ".join(f"{names[i]} {100 * sums[i] / total:.1f} %" for i in longest if sums[i])
    codes, verdicts = frame.verdicts
    used, unused = (time[np.array([v.tc == t for v in verdicts])[codes]].sum() for t in "10")
    products = f"{100 * used / (used + unused):.1f} %" if used + unused else "na"
    yield f"Tensor Cores: {products} of the {(used + unused) / 1e6:.3f} ms of products that have a path there"
    lost = frame.roofline.lost_ns
    known = (lost >= 0) & timed
    yield f"above the roofline: {lost[known].sum() / 1e6:.3f} ms, known for {100 * time[known].sum() / total:.1f} % of the time"
    shares = [100 * time[mask].sum() / total for mask in (records["call"] >= 0, costs.flops >= 0, costs.bytes >= 0)]
    yield f"coverage: op {shares[0]:.1f} %, FLOPs {shares[1]:.1f} %, bytes {shares[2]:.1f} % of the time"
    for piece in advise(frame)[:_LONGEST]:
        yield f"advice: {piece.title}: {piece.change}; saves at most {piece.saves_ns / 1e6:.3f} of {piece.time_ns / 1e6:.3f} ms"
        yield f"        {piece.evidence}"
