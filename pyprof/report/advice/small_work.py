"""Kernels too small to fill the device, many of them equal, that the device does not wait for -> batch them.

A kernel of blocks for less than half of the multiprocessors leaves the others without work; many of them that do the same to
tensors of the same size can be one. What goes is the share of the device that was empty, but no kernel ends in less than the
shortest time. It keeps quiet of CUDA graphs, of compiled programs, and where launching bounds the program.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_rows, is_repeated
from pyprof.arrays.spool import is_constant, taken
from pyprof.arrays.types import Bools, Floats, Ints
from pyprof.parse.records.records import PHASES
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.roofline import LEAST_KERNEL_NS
from pyprof.report.advice.base import Advice, Budget, is_worth, named, places
from pyprof.report.time.overview import Overview
from pyprof.tables.units import human

_LEAST = 0.01  # of the wall time: what is saved at most is seldom all of it
_FILLED = 0.5  # of the multiprocessors: a kernel with blocks for more is not small
_ALIKE = 16  # kernels of one layer that do the same in a step: fewer are no batch
_DO = "one batched op for many equal ones (torch.bmm, torch.vmap, torch._foreach_mul_), or a larger batch"


def find(overview: Overview, budget: Budget) -> Advice | None:
    """What batching these kernels saves at most, None where it is not worth it."""
    classes = overview.frame.classes
    alike, filled = classes.records, _filled(overview)
    by_itself = (alike["kind"] == ActivityKind.KERNEL) & (alike["call"] >= 0)
    other = np.isin(alike["phase"], (PHASES.index("optimizer"), PHASES.index("communication")))
    with np.errstate(invalid="ignore"):
        rows = classes.rows(by_itself & ~other & (filled < _FILLED))
    rows = rows[overview.inside[rows] & (overview.records.of_rows("graph_node", rows) < 0)]
    if len(rows):
        rows = rows[~_launched_together(overview, rows)]
    rows = rows[_often(overview, rows)]
    if not len(rows):
        return None
    left, filled = budget.left_ns(rows), filled[classes.code[rows]]
    granted = budget.take(rows, np.clip(left - np.maximum(left * filled, _least_ns(overview, rows)), 0, None))
    saves = budget.wall_ns(granted)
    if not is_worth(overview, saves, _LEAST):
        return None
    time = budget.wall_ns(overview.division.held_ns[rows])
    where = places(overview, rows, granted)
    units = "compute units" if all(device.amd for device, _ in overview.frame.gpus) else "multiprocessors"
    evidence = (
        f"{len(rows)} kernels with blocks for {100 * float(filled.mean()):.0f} % of the {units} on average take "
        f"{human(time, 'ns')}: {named(where)}"
    )
    return Advice("small_work", saves, time, evidence, _DO, where)


def _filled(overview: Overview) -> Floats:
    """Blocks of the kernels of each class over the multiprocessors of its device, NaN unknown."""
    records, gpus = overview.frame.classes.records, overview.frame.gpus
    blocks = np.prod([records[f"grid_{axis}"].astype(np.float64) for axis in "xyz"], axis=0)
    sms = [device.sms if info.sms <= 0 else info.sms for info, (device, _) in zip(overview.records.gpus, gpus, strict=False)]
    known = np.array([float(number) if number else np.nan for number in sms] + [np.nan])[records["gpu"]]
    return np.where(records["grid_x"] > 0, blocks / known, np.nan)


def _launched_together(overview: Overview, rows: Ints) -> Bools:
    """Which of some records share a launch with others, or have none: those of CUDA graphs."""
    records = overview.records
    one_process = is_constant(records["pid"])
    code = records["corr"] if one_process else distinct_rows(records["pid"], records["corr"]).inverse
    return np.asarray(taken(is_repeated(code), rows) | (taken(records["launch_ns"], rows) < 0))


def _often(overview: Overview, rows: Ints) -> Bools:
    """Which do what many kernels of the same step and layer do: the same kernel of the same op in as many blocks."""
    records, steps = overview.records, overview.steps
    columns = [taken(records[name], rows) for name in ("name", "call", "grid_x", "phase", "scope")]
    count = 1 if steps is None else len(steps)
    code = distinct_rows(*columns).inverse
    return np.asarray(np.bincount(code, minlength=1)[code] >= _ALIKE * count)


def _least_ns(overview: Overview, rows: Ints) -> Floats:
    """Each kernel's part of the shortest time that a batch of them takes."""
    work = overview.frame.roofline.lost_ns[rows]
    bound = np.where(work >= 0, overview.records["dur_ns"][rows] - work, 0)
    return np.maximum(bound, LEAST_KERNEL_NS / _ALIKE)
