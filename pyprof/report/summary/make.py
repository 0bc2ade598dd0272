"""An Overview -> a Summary: every figure of the window, and what the capture itself is worth saying. No layout here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import among
from pyprof.arrays.intervals import summed
from pyprof.arrays.joining import rows_where
from pyprof.arrays.spool import computed, pieces
from pyprof.arrays.types import Bools, Ints
from pyprof.hardware import cpus
from pyprof.parse.records.records import PHASES
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.frame import params
from pyprof.report.advice.kinds import advise
from pyprof.report.summary.breakdown import Kernels
from pyprof.report.summary.model import Device, Known, Lost, Share, StepPhase, StepTimes, Utilised
from pyprof.report.summary.notes import notes_of
from pyprof.report.summary.served import step_phases
from pyprof.report.summary.slowest import step_times
from pyprof.report.summary.summary import Summary
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.division import BUSY
from pyprof.report.time.overview import Overview
from pyprof.report.utilisation import utilisation

_KERNELS = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU)


def summarise(overview: Overview, file: str) -> Summary:
    """The summary of one capture, or of records; file: what it is called."""
    kernels = Kernels(overview.frame, kernels_of(overview))
    advice, shown = tuple(advise(overview)), _broken_down(overview, kernels)
    division, timed = overview.division, _is_timed(overview)
    parts = overview.parts if timed else {}
    return Summary(
        file=file, source=overview.records.source, on_gpu=division.on_gpu, window=overview.window,
        devices=_devices(overview), wall_ns=division.wall_ns if timed else None, busy_ns=overview.busy_ns if timed else None,
        busy={name: parts[name] for name in BUSY if timed}, idle_ns={name: parts[name] for name in CAUSES if timed},
        kernel_ns=kernels.total_ns, kernels=len(kernels.rows), phases=_phases(kernels), advice=advice,
        notes=notes_of(overview, advice, kernels, shown.known), **shown._asdict(),
    )  # fmt: skip


class _BrokenDown(NamedTuple):
    """Fields of a Summary that are sums over its kernels."""

    known: Known | None
    ops: tuple[Share, ...]
    layers: tuple[Share, ...]
    around: str
    families: tuple[Share, ...]
    lost: tuple[Lost, ...]
    utilised: Utilised
    steps: StepTimes | None
    step_phases: tuple[StepPhase, ...]


def _broken_down(overview: Overview, kernels: Kernels) -> _BrokenDown:
    families = kernels.by("family") if overview.division.on_gpu else ()
    steps, phases = step_times(overview), step_phases(overview, kernels)
    return _BrokenDown(
        _known(kernels),
        kernels.by("op"),
        *kernels.by_layer(),
        families,
        kernels.most_lost(),
        _utilised(overview),
        steps,
        phases,
    )


def _is_timed(overview: Overview) -> bool:
    """Whether it is known when anything ran."""
    start = overview.records["start_ns"]
    return any(bool((start[part] >= 0).any()) for part in pieces(len(start)))


def kernels_of(overview: Overview) -> Ints:
    """The kernels (ops on a CPU) of the window: those that its steps launched, of a part that was asked for its own."""
    kind, inside = overview.records["kind"], _inside(overview)
    return rows_where(len(kind), lambda part: inside[part] & among(kind[part], _KERNELS))


def _inside(overview: Overview) -> Bools:
    records, window = overview.records, overview.window
    if not _is_timed(overview):  # when they ran is not known: all of them
        return np.ones(len(records), np.bool_) if overview.chosen is None else overview.chosen
    if overview.chosen is not None:
        return overview.inside & overview.chosen
    launch, inside = records["launch_ns"], overview.inside
    end = window.end_ns if overview.steps is None else int(overview.steps.end_ns[-1])
    return computed(len(records), np.bool_, lambda part: inside[part] & (launch[part] < end))


def _devices(overview: Overview) -> tuple[Device, ...]:
    division, records, gpus = overview.division, overview.records, overview.frame.gpus
    busy, idle = division.busy_ns.sum(axis=0), overview.idle.by_device
    found = []
    for at, (pid, number) in enumerate(zip(division.pids.tolist(), division.devices.tolist(), strict=True)):
        first = division.first_of(at)
        code = int(records["gpu"][first]) if first >= 0 else -1
        if division.on_gpu:
            gpu = gpus[max(code, 0)][0] if gpus and (code >= 0 or overview.frame.given is not None) else None
            name, peaks, dram = (None, {}, None) if gpu is None else (gpu.name, dict(gpu.peaks), gpu.dram_bytes_per_s)
        else:
            name, peaks, dram = "CPU", *_cpu()
        times = {cause: int(ns) for cause, ns in zip(CAUSES, idle[:, at].tolist(), strict=True)}
        found.append(Device(name or None, pid, number, peaks, dram, int(busy[at]), times))
    return tuple(found)


def _cpu() -> tuple[dict[str, float], float | None]:
    """What was measured on this machine's CPU, against which captures without a device are held."""
    measured = cpus.peak()
    if measured is None:
        return {}, None
    return {tag: rate * 1e12 for tag, rate in measured.tflops.items()}, measured.dram_gbs * 1e9


def _utilised(overview: Overview) -> Utilised:
    of = utilisation(overview.frame, _inside(overview), overview.division.wall_ns, overview.busy_ns)
    return Utilised(
        of.mfu,
        of.hfu,
        of.mfu_min,
        of.hfu_min,
        of.flops,
        of.flops_per_busy_s,
        of.flops_per_wall_s,
        of.peak_flops_per_s,
        of.peaks,
    )


def _phases(kernels: Kernels) -> dict[str, int]:
    """Time of kernels by phase, the longest first."""
    names = (*PHASES, "unknown")
    phase = kernels.classes.records["phase"].astype(np.int64)
    spent = summed(np.where(phase < 0, len(PHASES), phase), kernels.class_ns, len(names)).tolist()
    found = sorted(zip(names, spent, strict=True), key=lambda pair: -pair[1])
    return {name: ns for name, ns in found if ns or name == "unknown"}


def _known(kernels: Kernels) -> Known | None:
    frame, total = kernels.frame, kernels.total_ns
    if not total:
        return None
    call = kernels.classes.records["call"]
    shaped = np.array([*(params(one) is not None for one in frame.records.calls), False], np.bool_)
    of_op, of_shape = (int(kernels.class_ns[mask].sum()) / total for mask in (call >= 0, shaped[call]))
    return Known(of_op, of_shape, *(int(known.time_ns.sum()) / total for known in (kernels.flops, kernels.bytes)))
