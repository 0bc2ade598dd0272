"""An Overview -> a Summary: every figure of the window, advice and notes. No layout here."""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.intervals import spans, summed
from pyprof.columns.types import Bools, Ints
from pyprof.hardware import cpus
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.prof.frame import params
from pyprof.report.advice.kinds import advise
from pyprof.report.run_steps import run_steps
from pyprof.report.summary.breakdown import Kernels
from pyprof.report.summary.model import Device, Known, RangeTimes, Utilised
from pyprof.report.summary.notes import notes_of
from pyprof.report.summary.screen import Summary
from pyprof.report.summary.step_times import step_phases, step_times
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.division import BUSY
from pyprof.report.time.overview import Overview
from pyprof.report.utilisation import utilisation

_KERNELS = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU)
_NAMELESS = 0.9  # of the kernel time: from here on without ops, kernels by their names tell more


def summarise(overview: Overview, file: str) -> Summary:
    """The summary of one capture, or of records; file: its name."""
    division, unseen = overview.division, overview.records.unseen
    timed = _is_timed(overview) and unseen is None
    advice = tuple(advise(overview))
    # What only advice needs goes before columns of the kernels come.
    overview.forget_replay()
    kernels = Kernels(overview.frame, kernels_of(overview))
    known = _known(kernels)
    times = (0, 0) if unseen else (division.wall_ns, overview.busy_ns)
    used = utilisation(overview.frame, _inside(overview), *times)
    parts = overview.parts if timed else {}
    names = (*PHASES, "unknown")
    phase = kernels.classes.records["phase"].astype(np.int64)
    spent = summed(np.where(phase < 0, len(PHASES), phase), kernels.class_ns, len(names)).tolist()
    by_phase = sorted(zip(names, spent, strict=True), key=lambda pair: -pair[1])
    layers, around, around_cls = kernels.by_layer()
    ops = kernels.by("op")
    nameless = bool(ops) and ops[0].name is None and ops[0].share >= _NAMELESS
    return Summary(
        file=file, source=overview.records.source, on_gpu=division.on_gpu, window=overview.window,
        devices=_devices(overview), wall_ns=division.wall_ns if timed else None, busy_ns=overview.busy_ns if timed else None,
        busy={name: parts[name] for name in BUSY if timed}, idle_ns={name: parts[name] for name in CAUSES if timed},
        kernel_ns=kernels.total_ns, kernels=len(kernels.rows), steps=step_times(overview),
        utilised=Utilised(
            **{name: getattr(used, name) for name in Utilised._fields if name != "precisions"}, precisions=used.peaks
        ),
        phases={name: ns for name, ns in by_phase if ns or name == "unknown"}, ops=ops, layers=layers,
        around=around, around_cls=around_cls, families=kernels.by("family") if division.on_gpu else (),
        lost=kernels.most_lost(), known=known,
        advice=advice, notes=notes_of(overview, advice, kernels, known), step_phases=step_phases(overview, kernels),
        unseen=unseen, ranges=_ranges(kernels), run=run_steps(overview.records.ledger),
        memory=() if overview.records.host is None else tuple(overview.records.host.memory),
        by_kernel=kernels.by("kernel") if nameless and division.on_gpu else (),
    )  # fmt: skip


def _is_timed(overview: Overview) -> bool:
    """Whether the records have times."""
    return bool((overview.records["start_ns"] >= 0).any())


def kernels_of(overview: Overview) -> Ints:
    """Rows of the kernels (on a CPU: ops) that the steps of the window launched, or that the user chose."""
    return np.flatnonzero(_inside(overview) & among(overview.records["kind"], _KERNELS))


def _inside(overview: Overview) -> Bools:
    records, window = overview.records, overview.window
    if not _is_timed(overview):  # without times all of them count
        return np.ones(len(records), np.bool_) if overview.chosen is None else overview.chosen
    if overview.chosen is not None:
        return overview.inside & overview.chosen
    end = window.end_ns if overview.steps is None else int(overview.steps.end_ns[-1])
    return np.asarray(overview.inside & (records["launch_ns"] < end))


def _devices(overview: Overview) -> tuple[Device, ...]:
    division, records, gpus = overview.division, overview.records, overview.frame.gpus
    if records.unseen is not None:
        return tuple(
            Device(gpu.name or None, -1, at, dict(gpu.peaks), gpu.dram_bytes_per_s, None, {})
            for at, (gpu, _) in enumerate(gpus)
        )
    busy, idle = division.busy_ns.sum(axis=0), overview.idle.by_device
    found = []
    for at, (pid, number) in enumerate(zip(division.pids.tolist(), division.devices.tolist(), strict=True)):
        first = division.first_of(at)
        code = int(records["gpu"][first]) if first >= 0 else -1
        if division.on_gpu:
            gpu = gpus[max(code, 0)][0] if gpus and (code >= 0 or overview.frame.given is not None) else None
            name, peaks, dram = (None, {}, None) if gpu is None else (gpu.name, dict(gpu.peaks), gpu.dram_bytes_per_s)
        else:
            measured = cpus.peak()  # what this machine reaches: captures without a device are compared with it
            name, peaks, dram = "CPU", {}, None
            if measured is not None:
                peaks, dram = {tag: rate * 1e12 for tag, rate in measured.tflops.items()}, measured.dram_gbs * 1e9
        times = {cause: int(ns) for cause, ns in zip(CAUSES, idle[:, at].tolist(), strict=True)}
        found.append(Device(name or None, pid, number, peaks, dram, int(busy[at]), times))
    return tuple(found)


def _known(kernels: Kernels) -> Known | None:
    frame, total = kernels.frame, kernels.total_ns
    if not total:
        return None
    call = kernels.classes.records["call"]
    shaped = np.array([*(params(one) is not None for one in frame.records.calls), False], np.bool_)
    of_op, of_shape = (int(kernels.class_ns[mask].sum()) / total for mask in (call >= 0, shaped[call]))
    return Known(of_op, of_shape, *(int(known.known_ns.sum()) / total for known in (kernels.flops, kernels.bytes)))


def _ranges(kernels: Kernels) -> tuple[RangeTimes, ...]:
    """How often and how long each range ran (with the ranges around it), most time first, of records of ranges alone, as of a
    program on a GPU whose CUDA was not traced; else empty."""
    records, rows = kernels.frame.records, kernels.rows
    took = records["launch_dur_ns"][rows].astype(np.int64)
    if not len(rows) or not kernels.frame.host_times[rows].all() or (records["call"][rows] >= 0).any() or (took < 0).any():
        return ()
    names: dict[str, int] = {}
    codes = [names.setdefault(":".join(stack.layer), len(names)) for stack in records.stacks]
    (name,), _, group = distinct_rows(np.array([*codes, -1], np.int64)[records["scope"][rows]])
    count, texts = len(name), [*names, ""]
    columns = np.bincount(group, minlength=count), summed(group, took, count), *spans(group, took, took, count)
    found = [
        RangeTimes(texts[code] or None, *each)
        for code, *each in zip(name.tolist(), *(c.tolist() for c in columns), strict=True)
    ]
    return tuple(sorted(found, key=lambda one: (-one.time_ns, one.name or "")))
