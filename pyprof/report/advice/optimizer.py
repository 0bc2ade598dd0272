"""Optimizer steps of many kernels -> what one pass over the parameters would save.

A fused step moves at least as much as the op of it that moves most (Adam's addcdiv_ reads a parameter and its state and writes
it): those bytes over the DRAM bandwidth are the least time, the rest is the most that fusing can save.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.arrays.intervals import summed
from pyprof.parse.records.records import PHASES
from pyprof.prof.frame import Frame
from pyprof.report.advice.advice import Advice, kernels_of, most, where

__all__ = ["unfused"]

_FUSED = re.compile(r"fused|multi_tensor_\w*(?:adam|lamb|sgd)|\bAdamFunctor|SGDFunctor|LAMBStage", re.IGNORECASE)
_FEW = 8  # kernels: a step with fewer is that of a small model


def unfused(frame: Frame) -> list[Advice]:
    """One advice for each device."""
    records, costs = frame.records, frame.costs
    name = frame.of_name(lambda text: text)
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
