"""Kernels too small to fill the device, many of them equal, that the device does not wait for -> batch them.

A kernel with blocks for less than half of the multiprocessors leaves the others without work; many equal ones can be batched
into one. That saves the idle share of the device, down to the shortest time of any kernel. CUDA graphs and compiled programs
are left out.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import distinct_rows, is_constant, is_repeated
from pyprof.columns.types import Floats
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.prof.roofline import LEAST_KERNEL_NS
from pyprof.report.advice.base import Advice, cut_ns, is_worth, mean_ns, named, places
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_LEAST = 0.01  # of the wall time: the most that can be saved is seldom reached
_FILLED = 0.5  # of the multiprocessors: a kernel with blocks for more is not small
_ALIKE = 16  # kernels of one layer that do the same in a step: fewer are no batch
_DO = "one batched op for many equal ones (torch.bmm, torch.vmap, torch._foreach_mul_), or a larger batch"


def find(overview: Overview) -> Advice | None:
    """Advice on batching small kernels, None if it saves too little."""
    classes = overview.frame.classes
    alike, filled = classes.records, filled_of(overview)
    by_itself = (alike["kind"] == ActivityKind.KERNEL) & (alike["call"] >= 0)
    other = np.isin(alike["phase"], (PHASES.index("optimizer"), PHASES.index("communication")))
    with np.errstate(invalid="ignore"):
        rows = classes.rows(by_itself & ~other & (filled < _FILLED))
    rows = rows[overview.inside[rows] & (overview.records["graph_node"][rows] < 0)]
    records = overview.records
    if len(rows):  # but for those of CUDA graphs, which share a launch with others or have none
        launch = records["corr"] if is_constant(records["pid"]) else distinct_rows(records["pid"], records["corr"]).inverse
        rows = rows[~is_repeated(launch)[rows] & (records["launch_ns"][rows] >= 0)]
    # The same kernel of the same op in as many blocks, many times in a step and layer.
    code = distinct_rows(*(records[name][rows] for name in ("name", "call", "grid_x", "phase", "scope"))).inverse
    steps = 1 if overview.steps is None else len(overview.steps)
    rows = rows[np.bincount(code, minlength=1)[code] >= _ALIKE * steps]
    if not len(rows):
        return None
    left, filled = overview.division.exclusive_ns[rows], filled[classes.code[rows]]
    lost = overview.frame.roofline.lost_ns[rows]
    # Each kernel's part of the shortest time that a batch of them takes.
    least = np.maximum(np.where(lost >= 0, records["dur_ns"][rows] - lost, 0), LEAST_KERNEL_NS / _ALIKE)
    granted = cut_ns(overview, rows, np.clip(left - np.maximum(left * filled, least), 0, None))
    saves = mean_ns(overview, granted)
    if not is_worth(overview, saves, _LEAST):
        return None
    time = mean_ns(overview, overview.division.exclusive_ns[rows])
    where = places(overview, rows, granted)
    units = "compute units" if all(device.amd for device, _ in overview.frame.gpus) else "multiprocessors"
    evidence = (
        f"{len(rows)} kernels with blocks for {100 * float(filled.mean()):.0f} % of the {units} on average take "
        f"{human(time, 'ns')}: {named(where)}"
    )
    return Advice("small_work", Change(rows=rows, cut_ns=granted), time, evidence, _DO, where)


def filled_of(overview: Overview) -> Floats:
    """Blocks of the kernels of each class over the multiprocessors of its device, NaN unknown."""
    records, gpus = overview.frame.classes.records, overview.frame.gpus
    blocks = np.prod([records[f"grid_{axis}"].astype(np.float64) for axis in "xyz"], axis=0)
    sms = [device.sms if info.sms <= 0 else info.sms for info, (device, _) in zip(overview.records.gpus, gpus, strict=False)]
    known = np.array([float(number) if number else np.nan for number in sms] + [np.nan])[records["gpu"]]
    return np.where(records["grid_x"] > 0, blocks / known, np.nan)
