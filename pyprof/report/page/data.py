"""An overview and its summary -> what one section of the page holds: the data of its charts, and the sentences above them.

Figures are the summary's. Nothing here knows HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_values
from pyprof.arrays.types import Ints
from pyprof.hardware import cpus
from pyprof.prof.frame import Frame
from pyprof.prof.roofline import BOUNDS
from pyprof.report.diff.compare import Comparison
from pyprof.report.diff.document import head, rank_sums, ranks_table, rows
from pyprof.report.diff.job import compare_ranks
from pyprof.report.overview import Overview
from pyprof.report.page.cells import MOST, cells_of
from pyprof.report.page.timeline import COLUMNS, timeline_of
from pyprof.report.summary.make import kernels_of, summarise
from pyprof.report.summary.model import Figures, Share
from pyprof.tables.names import text_of
from pyprof.tables.table import Table
from pyprof.tables.units import human

_DIFFERENCES, _WORTH_A_ROW = 30, 0.002  # rows of a comparison; of all changes: what less is has no row
_NAMED_SHARE = 0.01  # of the products' time: a precision with less has no ceiling on the chart
_MUCH = 0.1  # of the time: a layer with less is not what to look at first
_LEAST = 0.02  # of the time: with less of it a sentence on the roofline would mislead
_UNKNOWN = 8  # rows of what is not known


class Section(NamedTuple):
    """One capture: its summary, what the charts are drawn from, one sentence above each, and what is unknown (reason, kernels,
    ns)."""

    summary: Figures
    charts: Mapping[str, Any]
    sentences: Mapping[str, str]
    unknown: tuple[tuple[str, int, int], ...]


class Compared(NamedTuple):
    """What changed from the first capture to another. lines: the verdict; rows: (op, shape, layer, before_ns, after_ns, what);
    left: rows that are not shown, and the change in ns that they are together."""

    names: tuple[str, str]
    lines: tuple[str, ...]
    rows: tuple[tuple[str, str, str, int, int, str], ...]
    left: tuple[int, int]


class JobsCompared(NamedTuple):
    """What changed from one job to another, rank by rank."""

    names: tuple[str, str]
    table: Table


def section_of(overview: Overview, name: str, files: int = 1) -> Section:
    """Of one capture; files: how many share the page."""
    return charted(overview, summarise(overview, name), files)


def charted(overview: Overview, summary: Figures, files: int = 1) -> Section:
    """The section of a capture whose summary is there already."""
    chosen = kernels_of(overview)
    cells = cells_of(overview.frame, chosen, MOST // files)
    timeline = timeline_of(overview, max(COLUMNS // files, 200)) if summary.wall_ns else None
    roofs = _roofs(overview.frame, chosen, cells)
    charts = {"on_gpu": summary.on_gpu, "cells": cells, "timeline": timeline, "roofs": roofs}
    sentences = {
        "layers": _layers(summary),
        "roofline": _limits(overview.frame, chosen),
        "idle": _idle(summary),
        "tensor": _tensor(cells) if summary.on_gpu else "",
    }
    unknown = sorted(overview.frame.costs.reasons.items(), key=lambda one: -one[1][1])[:_UNKNOWN]
    return Section(summary, charts, sentences, tuple((text_of(reason), *both) for reason, both in unknown))


def compared(found: Comparison, names: tuple[str, str]) -> Compared:
    """The comparison of two captures."""
    every = rows(found)
    least = _WORTH_A_ROW * sum(abs(one.change_ns) for one in every)
    shown = [one for one in every if abs(one.change_ns) >= least][:_DIFFERENCES]
    rest = every[len(shown) :]
    texts = tuple(
        (text_of(one.op or "kernels without an op"), text_of(one.shape), text_of(one.layer), one.before_ns, one.after_ns,
         text_of(one.what)) for one in shown
    )  # fmt: skip
    lines = tuple(map(text_of, [*head(found, names)][1:]))
    return Compared(names, lines, texts, (len(rest), sum(one.change_ns for one in rest)))


def jobs_compared(before: str, after: str, read: Callable[[str], Overview]) -> JobsCompared:
    """The comparison of two folders of ranks."""
    return JobsCompared((before, after), ranks_table([rank_sums(one) for one in compare_ranks(before, after, read)]))


# ---------------------------------------------------------------------------------------------- sentences


def _layers(summary: Figures) -> str:
    """The op and the layer with most time."""
    ops = [one for one in summary.ops if one.name and one.share > _MUCH]
    layers = [one for one in summary.layers if one.name and one.share > _MUCH]
    what = "kernel" if summary.on_gpu else "op"
    whole = f"{human(summary.kernel_ns, 'ns')} of {what} time."
    most = [(kind, one) for kind, one in (("layer", _deepest(layers)), ("op", ops[0] if ops else None)) if one is not None]
    if not most and summary.families and summary.families[0].name:
        most = [("kernels of family", summary.families[0])]
    texts = [f"{kind} {text_of(one.name or '')} ({100 * one.share:.0f} %)" for kind, one in most]
    return f"{whole} Most of it is in the {' and in the '.join(texts)}." if most else whole


def _deepest(layers: list[Share]) -> Share | None:
    """The layer with most time, or the one inside it that has nearly all of that."""
    if not layers:
        return None
    inside = [one for one in layers[0].inside if one.name and one.time_ns > 0.9 * layers[0].time_ns]
    return inside[0] if inside else layers[0]


def _limits(frame: Frame, chosen: Ints) -> str:
    """How far the ops of which a limit is known are from it, and what limits them."""
    lost, time = frame.roofline.lost_ns[chosen], np.maximum(frame.records["dur_ns"][chosen], 0)
    known = lost >= 0
    total, above = int(time[known].sum()), int(lost[known].sum())
    share = total / int(time.sum()) if total else 0.0
    if share < _LEAST:
        return "Next to no op has a known limit: FLOPs, bytes or the device's peaks are not known."
    spent = Counter[str]()
    bound = frame.roofline.bound[chosen]
    for code in distinct_values(bound[known]).tolist():
        spent[BOUNDS[code].rstrip("!")] += int(time[bound == code].sum())
    (name, most), *_ = spent.most_common(1)
    of = "" if share > 0.99 else f" whose limit is known ({100 * share:.0f} % of the time)"
    where = f"The limit of most time is {_LIMITS[name]} ({100 * most / total:.0f} %)."
    reached = f"{100 * (total - above) / total:.0f} % of the roofline"
    least = f"at the limits of the device the {human(total, 'ns')}{of} would take {human(total - above, 'ns')}"
    return f"{reached}: {least}. {where}"


_LIMITS = {
    "compute": "arithmetic", "memory": "memory bandwidth", "l2": "the L2 cache", "launch": "the launch by the host",
    "latency": "the least time of a kernel",
}  # fmt: skip


def _idle(summary: Figures) -> str:
    """How long the device idles, and why."""
    if summary.wall_ns is None:
        return "The records do not say when they ran, so idle time is not known."
    total = sum(summary.idle_ns.values())
    what = "GPU" if summary.on_gpu else "CPU"
    parts = sorted(((ns, name) for name, ns in summary.idle_ns.items() if ns), reverse=True)
    named = [f"{name.replace('_', ' ')} {human(ns, 'ns')}" for ns, name in parts[:4] if ns > 0.02 * total]
    share = 100 * total / summary.wall_ns if summary.wall_ns else 0.0
    mean = f" (mean of {len(summary.devices)} devices)" if len(summary.devices) > 1 else ""
    return f"The {what} idles {human(total, 'ns')} of {human(summary.wall_ns, 'ns')}, {share:.0f} %{mean}" + (
        f": {', '.join(named)}." if named else "."
    )


def _tensor(cells: Mapping[str, Any]) -> str:
    """Which share of the time of products ran on Tensor Cores."""
    spent = Counter[str | None]()
    for verdict, ns in zip(cells["verdict"], cells["time_ns"], strict=True):
        spent[cells["verdicts"][verdict][0]] += ns
    total = spent["1"] + spent["0"]
    if not total:
        return "No kernel multiplies matrices in a type for which this device has Tensor Cores, as far as is known."
    return f"Tensor Cores did {100 * spent['1'] / total:.0f} % of {human(total, 'ns')} of matrix products that could use them."


# ---------------------------------------------------------------------------------------------- ceilings


def _roofs(frame: Frame, chosen: Ints, cells: Mapping[str, Any]) -> dict[str, Any]:
    """The ceilings of the device on which most ran: arithmetic (name, FLOP/s), DRAM (bytes/s), and notes on what is missing."""
    gpu = frame.records["gpu"][chosen]
    time = np.maximum(frame.records["dur_ns"][chosen], 0).astype(np.float64)
    codes = distinct_values(gpu[gpu >= 0]).tolist()
    notes: list[str] = []
    if codes and frame.gpus:
        most = max(codes, key=lambda code: float(time[gpu == code].sum()))
        device = frame.gpus[most][0]
        peaks, dram = [*_peaks(frame, most, cells)], device.dram_bytes_per_s
        if len({frame.gpus[code][0].name for code in codes}) > 1:
            notes.append(f"ceilings of {device.name}, on which most of the time was spent")
        if device.l2_bytes_per_s is None:
            notes.append("the bandwidth of this device's L2 cache is not published, so it has no line")
        l2 = device.l2_bytes_per_s
    else:
        measured = None if frame.records["gpu"].max(initial=-1) >= 0 else cpus.peak()
        peaks = [] if measured is None else [(f"{tag}, CPU", rate * 1e12) for tag, rate in measured.tflops.items()]
        dram, l2 = (None if measured is None else measured.dram_gbs * 1e9), None
    if not peaks and dram is None:
        notes.append("the peaks of this device are not known, so there are no ceilings: --gpu NAME")
    return {"arithmetic": peaks, "dram": dram, "l2": l2, "notes": notes}


def _peaks(frame: Frame, gpu: int, cells: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The ceilings of the precisions and units that multiplied, and of the cores."""
    device, spent = frame.gpus[gpu][0], Counter[tuple[str, str]]()
    verdicts = frame.verdicts[1]
    for code, ns in zip(cells["verdict"], cells["time_ns"], strict=True):
        if verdicts[code].math:
            spent[verdicts[code].math, verdicts[code].unit] += ns
    rates = dict[float, str]()
    for (math, unit), ns in spent.most_common():
        rate = device.peak(math, unit)
        if rate is not None and ns > _NAMED_SHARE * sum(spent.values()):
            tensor = rate != device.peaks.get("fp64" if math == "fp64" else "fp32")
            rates.setdefault(rate, f"{math}, {'matrix units' if tensor else 'cores'}")
    if (cores := device.peaks.get("fp32")) is not None:
        rates.setdefault(cores, "fp32, cores")
    for rate, name in sorted(rates.items(), reverse=True):
        yield name, rate
