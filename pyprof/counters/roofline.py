"""A table of measured launches -> the measured roofline, as a page like that of `pyprof report` or a picture.

A point is a kernel, all its launches together: counted FLOPs over time, against counted FLOPs over the bytes of a level of
memory. The algorithm's own point has its FLOPs and bytes over the same time. Lines are what the device allows. Reads no file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof.counters.table import CounterTable
from pyprof.errors import InputError, UsageError, install_extra, unusable
from pyprof.hardware.names import short_name
from pyprof.prof.sums import LEAST_KNOWN
from pyprof.report.page.colours import colours
from pyprof.tables.files import whole_text_file
from pyprof.tables.names import text_of

LEVELS = ("DRAM", "L2", "L1", "algorithm")
_MOST = 40  # kernels that are drawn, those with most time


class Point(NamedTuple):
    """One kernel at one level: launches, their FLOPs, bytes and ns together. share: of the time of all kernels."""

    name: str
    level: str
    launches: int
    flops: float
    bytes: float
    time_ns: float
    share: float

    @property
    def intensity(self) -> float:
        """FLOP/byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.time_ns * 1e9


class Roof(NamedTuple):
    """A limit: of memory (bytes/s) where `slope`, else of arithmetic (FLOP/s)."""

    name: str
    value: float
    slope: bool


def points(table: CounterTable) -> list[Point]:
    """The kernels with most time, each at every level that was counted."""
    counted, time = table.counted, table.time_ns
    names, code = np.unique([launch.name or "?" for launch in table.measured.launches], return_inverse=True)
    known = np.nan_to_num(time)
    found = []
    for kernel in np.argsort(-np.bincount(code.ravel(), known, len(names)), kind="stable")[:_MOST].tolist():
        name, rows = str(names[kernel]), code.ravel() == kernel
        spent, share = time[rows].sum(), known[rows].sum() / max(known.sum(), 1.0)
        levels = ((counted.flops, counted.dram_bytes), (counted.flops, counted.l2_bytes), (counted.flops, counted.l1_bytes))
        for level, (flops, moved) in zip(LEVELS, (*levels, (table.number("flops"), table.number("bytes"))), strict=True):
            sums = (float(flops[rows].sum()), float(moved[rows].sum()), float(spent))
            if all(math.isfinite(value) and value > 0 for value in sums):  # else it has no place on logarithmic axes
                found.append(Point(name, level, int(rows.sum()), *sums, float(share)))
    return found


def roofs(table: CounterTable) -> list[Roof]:
    """Rooflines of the measured devices, with a compute ceiling for each unit and dtype that was used."""
    found: dict[tuple[str, bool], float] = {}
    names, rates = table.arithmetic
    for name, rate, bandwidth in zip(names, rates.tolist(), table.bandwidth.tolist(), strict=True):
        for key, value in ((("DRAM", True), bandwidth), ((name, False), rate)):
            found[key] = max(found.get(key, 0.0), 0.0 if math.isnan(value) else value)  # clocks vary from launch to launch
    limits = [Roof(name, value, slope) for (name, slope), value in found.items() if value]
    for level, unit in (("L2", "lts"), ("L1", "l1tex")):  # where ncu kept what the cache sustains at most
        sustained = table.measured.of(f"{unit}__t_bytes.sum.peak_sustained")
        cache_rates = sustained * table.measured.of(f"{unit}__cycles_elapsed.avg.per_second")
        if not np.isnan(cache_rates).all():
            limits.append(Roof(level, float(np.nanmax(cache_rates)), True))
    return limits


def draw(table: CounterTable, path: Path) -> None:
    """Write FILE.html, or FILE.png with matplotlib.

    Raises UsageError for another suffix, InputError if nothing can be drawn, ToolError without matplotlib.
    """
    if path.suffix not in (".html", ".png"):
        raise UsageError(f"--roofline writes .html or .png, not {path.name!r}", "--roofline roofline.html")
    shown, limits = points(table), roofs(table)
    if not shown:
        raise InputError("no launch has FLOPs, bytes and time", "pyprof counters --metrics prints what to record")
    if path.suffix == ".png":
        _picture(shown, limits, path)
        return
    from pyprof.report.page.render import render_measured

    with whole_text_file(path) as stream:
        stream.write(render_measured(_charts(shown, limits), "the measured roofline"))


def _charts(shown: Sequence[Point], limits: Sequence[Roof]) -> dict[str, Any]:
    """Data for the page's chart: each point is a cell, its level takes the place of a phase; ns of all kernels."""
    names, levels = [*dict.fromkeys(point.name for point in shown)], [*dict.fromkeys(point.level for point in shown)]
    zeros, time = [0] * len(shown), [round(point.time_ns) for point in shown]
    places = [names.index(point.name) for point in shown]
    cells = {
        "ops": [[text_of(short_name(name)), None] for name in names], "phases": levels,
        "names": [[text_of(short_name(name)), text_of(name)] for name in names],
        "layers": {"parent": [-1], "name": [""], "node": [0]}, "verdicts": [["-", None, ""]], "bounds": [None],
        "sources": [None],
        "rest": {"cells": 0, "time_ns": 0, "kernels": 0}, "op": places, "phase": [levels.index(point.level) for point in shown],
        "layer": zeros, "kernel": places, "verdict": zeros, "bound": zeros, "source": zeros,
        "kernels": [point.launches for point in shown], "calls": [point.launches for point in shown], "time_ns": time,
        "flops": [point.flops for point in shown], "flops_ns": time,
        "bytes": [point.bytes for point in shown], "bytes_ns": time,
        "least_known": LEAST_KNOWN, "lost_ns": zeros, "lost_of_ns": zeros, "least_ns": zeros,
    }  # fmt: skip
    roofs = {
        "arithmetic": sorted(((one.name, one.value) for one in limits if not one.slope), key=lambda pair: -pair[1]),
        **{level.lower(): next((one.value for one in limits if one.slope and one.name == level), None) for level in LEVELS[:3]},
        "notes": [],
    }
    return {"measured": True, "cells": cells, "roofs": roofs, "total_ns": round(shown[0].time_ns / shown[0].share)}


def _ends(roof: Roof, shown: Sequence[Point], limits: Sequence[Roof]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of a line over the points; memory ends where the highest arithmetic begins."""
    left, right = (end(point.intensity for point in shown) * by for end, by in ((min, 0.3), (max, 3.0)))
    if not roof.slope:
        return (left, roof.value), (right, roof.value)
    highest = max((one.value for one in limits if not one.slope), default=right * roof.value)
    end = max(min(right, highest / roof.value), left)
    return (left, left * roof.value), (end, end * roof.value)


def _picture(shown: Sequence[Point], limits: Sequence[Roof], path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise unusable("a PNG", "matplotlib", error, f"{install_extra('plot')}, or --roofline FILE.html") from error
    figure = Figure(figsize=(10, 6.25), layout="constrained")
    plot = figure.subplots()
    plot.set(xscale="log", yscale="log", xlabel="FLOP/byte", ylabel="FLOP/s")
    for roof in limits:
        ends = _ends(roof, shown, limits)
        plot.plot(*zip(*ends, strict=True), color="#444", linewidth=1)
        plot.annotate(roof.name, ends[1], ha="right", va="bottom", fontsize=8)
    for level in LEVELS:
        mine = [point for point in shown if point.level == level]
        sizes = [20 + 300 * point.share for point in mine]
        if mine:
            plot.scatter(
                [p.intensity for p in mine], [p.rate for p in mine], sizes, colours()[f"ph-{level}"], alpha=0.6, label=level
            )
    plot.legend()
    figure.savefig(path, dpi=120)
