"""An overview and its summary -> one section of the page: the data of its charts and the sentences above them.

Figures are the summary's. Nothing here knows HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_values
from pyprof.columns.intervals import summed
from pyprof.columns.types import Ints
from pyprof.hardware import cpus
from pyprof.loading.load import load_allocations
from pyprof.model.trace import ActivityKind
from pyprof.prof.frame import Frame
from pyprof.report.diff.compare import Comparison, compare_ranks
from pyprof.report.diff.document import head, rank_sums, ranks_table, rows
from pyprof.report.memory.make import reported
from pyprof.report.page import sentences
from pyprof.report.page.cells import MOST, cells_of
from pyprof.report.page.memory import MemorySection, memory_section
from pyprof.report.page.timeline import places_of, timeline_of
from pyprof.report.summary.make import kernels_of, summarise
from pyprof.report.summary.model import Figures
from pyprof.report.time.overview import Overview
from pyprof.tables.names import text_of
from pyprof.tables.table import Table

_DIFFERENCES, _WORTH_A_ROW = 30, 0.002  # rows of a comparison; smaller shares of all changes have no row
_NAMED_SHARE = 0.01  # of the products' time: precisions below it have no line on the chart
_UNKNOWN = 8  # reasons listed for unknown FLOPs


class Section(NamedTuple):
    """One capture. charts: their data; sentences: one above each chart; unknown: (reason, kernels, ns) without FLOPs; memory:
    None where no allocations were recorded."""

    summary: Figures
    charts: Mapping[str, Any]
    sentences: Mapping[str, str]
    unknown: tuple[tuple[str, int, int], ...]
    memory: MemorySection | None = None


class Compared(NamedTuple):
    """The changes from the first capture to another. sentence: what changed; lines: the verdict; rows: (op, shape, layer,
    before_ns, after_ns, what); left: number of rows not shown, and their change in ns."""

    names: tuple[str, str]
    sentence: str
    lines: tuple[str, ...]
    rows: tuple[tuple[str, str, str, int, int, str], ...]
    left: tuple[int, int]


class JobsCompared(NamedTuple):
    """The changes from one job to another, rank by rank."""

    names: tuple[str, str]
    table: Table


def section_of(overview: Overview, name: str, files: int = 1) -> Section:
    """The section of one capture. files: how many share the page."""
    return charted(overview, summarise(overview, name), files)


def with_memory(section: Section, name: str) -> Section:
    """The section with the allocations of its file."""
    found = load_allocations(name) if section.summary.memory else None  # records hold the peak only
    return section if found is None else section._replace(memory=memory_section(reported(found, name, "peak")))


def charted(overview: Overview, summary: Figures, files: int = 1) -> Section:
    """The section of a capture with its summary. files: how many share the page."""
    chosen = kernels_of(overview)
    cells = cells_of(overview.frame, chosen, MOST // files)
    timeline = timeline_of(overview, files) if summary.wall_ns else None
    roofs = _roofs(overview.frame, chosen, cells)
    places = places_of(overview) if summary.wall_ns else []
    charts = {"on_gpu": summary.on_gpu, "cells": cells, "timeline": timeline, "places": places, "roofs": roofs}
    said = {
        "all": sentences.of_all(summary),
        "layers": sentences.of_layers(summary),
        "roofline": sentences.of_limits(summary, overview.frame, chosen),
        "idle": sentences.of_idle(summary, places),
        "tensor": sentences.of_tensor_cores(cells, all(gpu.amd for gpu, _ in overview.frame.gpus)) if summary.on_gpu else "",
    }
    unknown = sorted(overview.frame.costs.reasons.items(), key=lambda one: -one[1][1])[:_UNKNOWN]
    return Section(summary, charts, said, tuple((text_of(reason), *both) for reason, both in unknown))


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
    return Compared(names, sentences.of_change(found), lines, texts, (len(rest), sum(one.change_ns for one in rest)))


def jobs_compared(before: str, after: str, read: Callable[[str], Overview]) -> JobsCompared:
    """The comparison of two folders of ranks."""
    return JobsCompared((before, after), ranks_table([rank_sums(one) for one in compare_ranks(before, after, read)]))


def _roofs(frame: Frame, chosen: Ints, cells: Mapping[str, Any]) -> dict[str, Any]:
    """Limits of the device with most time: arithmetic as (name, FLOP/s), DRAM and L2 in bytes/s, notes on missing ones."""
    records = frame.records
    gpu, dur_ns = records["gpu"][chosen].astype(np.int64), np.maximum(records["dur_ns"][chosen], 0)
    time = summed(np.where(gpu < 0, len(records.gpus), gpu), dur_ns, len(records.gpus) + 1)  # at the end: on no device
    on_cpu = bool((records["kind"][chosen] == ActivityKind.CPU).all())
    codes = distinct_values(gpu[gpu >= 0]).tolist()
    notes: list[str] = []
    if codes and frame.gpus:
        most = max(codes, key=lambda code: int(time[code]))
        device = frame.gpus[most][0]
        peaks, dram = [*_peaks(frame, most, cells)], device.dram_bytes_per_s
        if len({frame.gpus[code][0].name for code in codes}) > 1:
            notes.append(f"ceilings of {device.name}, on which most of the time was spent")
        if device.l2_bytes_per_s is None:
            notes.append("the bandwidth of this device's L2 cache is not published, so it has no line")
        l2 = device.l2_bytes_per_s
    else:
        measured = cpus.peak() if on_cpu else None
        peaks = [] if measured is None else [(f"{tag}, CPU", rate * 1e12) for tag, rate in measured.tflops.items()]
        dram, l2 = (None if measured is None else measured.dram_gbs * 1e9), None
    if not peaks and dram is None:
        which = "of this CPU are not measured" if on_cpu else "of this device are not known"
        how = "pyprof doctor --calibrate" if on_cpu else "--gpu NAME, in Python gpu=NAME"
        notes.append(f"the peaks {which}, so there are no ceilings: {how}")
    return {"arithmetic": peaks, "dram": dram, "l2": l2, "notes": notes}


def _peaks(frame: Frame, gpu: int, cells: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """(name, FLOP/s) of the precisions and units of matrix products, and of the plain cores."""
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
