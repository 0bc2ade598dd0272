"""Optimizer steps of many kernels -> what one pass over the parameters would save.

A fused step must at least move what the one of its ops moves that moves most (Adam's addcdiv_ reads a parameter and its state
and writes it): that over the DRAM bandwidth is the least, the rest of the time the most that fusing can save.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.parse.records import PHASES
from pyprof.prof.frame import Frame
from pyprof.report.advice.piece import Advice, kernels_of, most

__all__ = ["unfused"]

_FUSED = re.compile(r"fused|multi_tensor_\w*(?:adam|lamb|sgd)|\bAdamFunctor|SGDFunctor|LAMBStage", re.IGNORECASE)
_FEW = 8  # kernels: a step of fewer is a small model's


def unfused(frame: Frame) -> list[Advice]:
    """One piece for each device."""
    records, costs = frame.records, frame.costs
    name = frame.of_name(lambda text: text)
    fused = np.array([_FUSED.search(text) is not None for text in name.pool] + [False])[name.codes]
    stepping = (records["phase"] == PHASES.index("optimizer")) & ~fused
    found = []
    for gpu, (device, _) in enumerate(frame.gpus):
        rows = kernels_of(frame, np.flatnonzero(stepping & (records["gpu"] == gpu)))
        known = rows[(costs.bytes[rows] > 0) & (records["own"][rows] >= 0)]
        if len(rows) < _FEW or not len(known) or not device.dram_bytes_per_s:
            continue
        ops = np.array([records.calls[own].op for own in records["own"][known].tolist()])
        moved = max(int(costs.bytes[known[ops == op]].sum()) for op in np.unique(ops).tolist())
        time = int(records["dur_ns"][rows].sum())
        saves = time - round(moved / device.dram_bytes_per_s * 1e9)
        if saves > 0:
            pool = [call.op for call in records.calls]
            evidence = f"{len(rows)} kernels: {most(records['own'][rows].astype(np.int64), records['dur_ns'][rows], pool)}"
            change = "fused=True of torch.optim's Adam, AdamW, SGD and Adagrad, or torch.compile of its step"
            found.append(Advice("an optimizer of many kernels", change, evidence, time, saves))
    return found
