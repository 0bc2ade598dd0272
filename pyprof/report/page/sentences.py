"""The figures of a capture -> a sentence above each chart that says what to take from it.

Figures are the summary's. Names of captures are one printable line. Nothing here knows HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pyprof.columns.intervals import summed
from pyprof.columns.types import Ints
from pyprof.prof.frame import Frame
from pyprof.prof.roofline import BOUNDS
from pyprof.prof.sums import LEAST_KNOWN
from pyprof.report.diff.compare import Comparison
from pyprof.report.diff.document import rows
from pyprof.report.summary.model import Figures, Share
from pyprof.report.summary.styled import percent
from pyprof.report.time.causes import MEANINGS
from pyprof.tables.names import text_of
from pyprof.tables.units import human

_MUCH = 0.1  # of the time: less is not worth looking at first
_NEARLY = 0.9  # of a layer's time
_LEAST = 0.02  # of the time: if less is known, a sentence on the roofline would mislead
_CLOSE, _HALF = 0.8, 0.5  # of the roofline
_BECAUSE = {cause: f"because {meaning}" for cause, meaning in MEANINGS.items()} | {
    "profiler": "because recording itself took time between launches (estimated)",
    "queued": "because the device pauses between activities that were launched in time",
    "unknown": "for causes that the records do not show",
}
_LIMITS = {
    "compute": "arithmetic", "memory": "memory bandwidth", "l2": "the L2 cache", "launch": "how fast the host launches",
    "latency": "too little work to fill the device",
}  # fmt: skip


def of_all(summary: Figures) -> str:
    """Say it in one sentence or two: how long a step takes, how busy the device is, what helps most."""
    if summary.unseen is not None:
        return f"{summary.unseen.what}. {summary.unseen.do[:1].upper()}{summary.unseen.do[1:]}."
    what = "GPU" if summary.on_gpu else "CPU"
    kernels = f"{summary.kernels:,} {'kernels' if summary.on_gpu else 'ops'} take {human(summary.kernel_ns, 'ns')}"
    if not summary.wall_ns or summary.busy_ns is None:
        return f"{kernels}; the records do not say when they ran."
    steps = summary.steps
    span = f"The window of {human(summary.wall_ns, 'ns')} has no marked steps"
    if steps is not None:
        span = f"A step takes {human(steps.median_ns, 'ns')}" + (f" (median of {steps.count})" if steps.count > 1 else "")
    several = f"{len(summary.devices)} {what}s are" if len(summary.devices) > 1 else f"{what} is"
    text = f"{span}; the {several} busy {percent(summary.busy_ns, summary.wall_ns)} of the time"
    idle = sum(summary.idle_ns.values())
    if idle > _MUCH * summary.wall_ns:
        cause, ns = max(summary.idle_ns.items(), key=lambda one: one[1])
        text += f" and idle otherwise, {'mostly ' if ns < _NEARLY * idle else ''}{_BECAUSE[cause]}"
    elif summary.ops and summary.ops[0].name:
        text += f", most of it in {_named(summary.ops[0])}"
    first = next((one for one in summary.advice if one.saves_ns), None)
    if first is None or first.saves_ns is None:
        return f"{text}."
    kind = first.kind.replace("_", " ").replace("gemm", "GEMM")
    a_step = summary.a_step(first.saves_ns)
    saves = human(first.saves_ns, "ns") if a_step is None else f"{human(a_step, 'ns')} a step"
    return f"{text}. Most is saved by the advice on {kind}: at most {saves}, {percent(first.saves_ns, summary.wall_ns)}."


def of_change(found: Comparison) -> str:
    """Tell what changed from one capture to another: the step, else the kernels' time, and where most of it is."""
    step = found.run or found.step
    before, after = (found.before_ns, found.after_ns) if step is None else (step.before_ns, step.after_ns)
    what = "The kernels take" if step is None else "A step takes"
    share = abs(after - before) / before if before else 0.0
    least = f"{100 * share:.1f} % {'less' if after < before else 'more'}" if share >= 0.0005 else "the same"
    text = f"{what} {human(after, 'ns')}, before {human(before, 'ns')}: {least}"
    if step is not None and getattr(step, "low_ns", None) is not None and not step.beyond_noise:
        text += ", which is within noise"
    comparable, why = found.judgement
    changes = [(one.change_ns, text_of(one.op or "kernels without an op")) for one in rows(found)]
    changes.append((sum(last - first for first, last in found.idle.values()), "idle time"))
    most, name = max(changes, key=lambda one: abs(one[0]))
    if most:
        text += f". Most changed {name}: {'-' if most < 0 else '+'}{human(abs(most), 'ns')} in the whole window"
    return f"{text}." if comparable else f"{text}. These are different programs: {why}."


def of_layers(summary: Figures) -> str:
    """Name the layer and the op with most time."""
    what = "kernel" if summary.on_gpu else "op"
    several = f" on {len(summary.devices)} devices together" if len(summary.devices) > 1 else ""
    parts = [f"{human(summary.kernel_ns, 'ns')} of {what} time{several}.", _layer(summary)]
    ops = [one for one in summary.ops if one.name and one.share > _MUCH]
    if ops:
        parts.append(f"The op with most of it is {_named(ops[0])}.")
    elif summary.families and summary.families[0].name and summary.families[0].share > _MUCH:
        parts.append(f"The kernels with most of it are those of {_named(summary.families[0])}.")
    return " ".join(filter(None, parts))


def _layer(summary: Figures) -> str:
    if not any(one.name for one in summary.layers):
        return "The capture names no layers; one recorded by pyprof run does."
    if not (summary.layers[0].name and summary.layers[0].share > _MUCH):
        return ""
    most = summary.layers[0]
    within = [one for one in most.inside if one.name]
    inside = within[0] if within and within[0].share > _MUCH else None
    if within and within[0].time_ns > _NEARLY * most.time_ns:  # nearly all of its time is in one layer inside it
        most, inside = within[0], None
    in_it = f"; in it {_named(inside)}" if inside is not None else ""
    return f"The layer with most of it is {_named(most)}{in_it}."


def _named(one: Share) -> str:
    return f"{text_of(one.name or '')} ({100 * one.share:.0f} %)"


def of_limits(summary: Figures, frame: Frame, chosen: Ints) -> str:
    """How close ops come to the roofline, what limits them and where most is lost. chosen: rows of the kernels."""
    names: dict[str, int] = {}
    op_of = np.array([*(names.setdefault(call.op, len(names)) for call in frame.records.calls), len(names)], np.int64)
    lost, time = frame.roofline.lost_ns[chosen], np.maximum(frame.records["dur_ns"][chosen], 0)
    known = lost >= 0
    rows, lost, whole, time = chosen[known], lost[known], int(time.sum()), time[known]
    total = int(time.sum())
    spent_on = summed(frame.roofline.bound[rows].astype(np.int64), time, len(BOUNDS))
    lost_in = summed(op_of[frame.records["call"][rows]], lost, len(names) + 1)  # at the end: kernels without an op
    above = int(lost_in.sum())
    share = total / whole if total else 0.0
    if share < _LEAST:
        return f"Not known: {'; '.join(_missing(summary)) or 'no op has FLOPs and bytes'}."
    reached = (total - above) / total
    how = "Close to" if reached > _CLOSE else "Part of the way to" if reached > _HALF else "Far from"
    of = "" if share > LEAST_KNOWN else f" whose limit is known ({100 * share:.0f} % of the time)"
    spent = Counter[str]()
    for code, ns in enumerate(spent_on.tolist()):
        spent[BOUNDS[code].rstrip("!")] += ns
    (name, most), *_ = spent.most_common(1)
    least = f"the ops{of} take {human(total, 'ns')}, and {human(total - above, 'ns')} at the limits of the device"
    where = ""
    if above:
        most_in = int(lost_in[: len(names)].argmax()) if names else 0
        op, most_ns = text_of([*names][most_in]) if names else "kernels without an op", int(lost_in[most_in])
        where = f" Most is lost in {op}: {human(most_ns, 'ns')} of the {human(above, 'ns')} above the limits."
    limit = f"Most of their time ({100 * most / total:.0f} %) is limited by {_LIMITS[name]}."
    return f"{how} the roofline, at {100 * reached:.0f} % of it: {least}. {limit}{where}"


def _missing(summary: Figures) -> Iterator[str]:
    """Facts that a roofline needs and that are unknown."""
    known = summary.known
    if known is None or min(known.flops, known.bytes) < _MUCH:
        share = 0.0 if known is None else min(known.flops, known.bytes)
        why = ", since their shapes were not recorded" if known is not None and known.shapes < _MUCH else ""
        yield f"the FLOPs and bytes of ops are known for {100 * share:.0f} % of the time only{why}"
    if not any(one.peaks for one in summary.devices):
        given = "--gpu NAME gives them" if summary.on_gpu else "pyprof doctor --calibrate measures them"
        yield f"the peaks of the device are not known ({given})"
    elif not any(one.dram_bytes_per_s for one in summary.devices):
        yield "the memory bandwidth of the device is not known (--gpu NAME gives it)"


def of_idle(summary: Figures, places: Sequence[Mapping[str, Any]]) -> str:
    """How long the device idles, why, and before which op. places: from `places_of`."""
    if summary.unseen is not None:
        return f"{text_of(summary.unseen.what)}, so idle time is not known."
    if summary.wall_ns is None:
        return "The records do not say when they ran, so idle time is not known."
    total = sum(summary.idle_ns.values())
    what = "GPU" if summary.on_gpu else "CPU"
    parts = sorted(((ns, name) for name, ns in summary.idle_ns.items() if ns), reverse=True)
    named = [f"{name.replace('_', ' ')} {human(ns, 'ns')}" for ns, name in parts[:4] if ns > 0.02 * total]
    share = 100 * total / summary.wall_ns if summary.wall_ns else 0.0
    mean = f" (mean of {len(summary.devices)} devices)" if len(summary.devices) > 1 else ""
    causes = f": {', '.join(named)}" if named else ""
    where = ""
    if places and total and (most := places[0]["time_ns"] / total) > _MUCH:
        layer = f" in {places[0]['layer']}" if places[0]["layer"] else ""
        where = f" {100 * most:.0f} % of it comes just before {places[0]['op']}{layer}."
    return f"The {what} idles {human(total, 'ns')} of {human(summary.wall_ns, 'ns')}, {share:.0f} %{mean}{causes}.{where}"


def of_tensor_cores(cells: Mapping[str, Any], amd: bool = False) -> str:
    """The share of products' time on Tensor Cores (on an AMD device: matrix cores)."""
    cores = "matrix cores" if amd else "Tensor Cores"
    spent = Counter[str | None]()
    for verdict, ns in zip(cells["verdict"], cells["time_ns"], strict=True):
        spent[cells["verdicts"][verdict][0]] += ns
    total = spent["1"] + spent["0"]
    if not total:
        return f"No kernel is known to multiply matrices in a type that the {cores} of this device take."
    share = 100 * spent["1"] / total
    return f"{share:.0f} % of the {human(total, 'ns')} of matrix products that could use {cores} ran on them."
