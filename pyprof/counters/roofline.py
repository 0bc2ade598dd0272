from pyprof.prof.sums import LEAST_KNOWN
"""A table of measured launches -> the measured roofline, as a page like that of `pyprof report` or a picture.
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
A point is a kernel, all its launches together: counted FLOPs over time, against counted FLOPs over the bytes of a level of
from pyprof.prof.sums import LEAST_KNOWN
memory. The algorithm's own point has its FLOPs and bytes over the same time. Lines are what the device allows. Reads no file.
from pyprof.prof.sums import LEAST_KNOWN
"""
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
from __future__ import annotations
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
import math
from pyprof.prof.sums import LEAST_KNOWN
from collections.abc import Sequence
from pyprof.prof.sums import LEAST_KNOWN
from pathlib import Path
from pyprof.prof.sums import LEAST_KNOWN
from typing import Any, NamedTuple
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
import numpy as np
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
from pyprof.counters.table import CounterTable
from pyprof.prof.sums import LEAST_KNOWN
from pyprof.errors import InputError, UsageError, install_extra, unusable
from pyprof.prof.sums import LEAST_KNOWN
from pyprof.hardware.names import short_name
from pyprof.prof.sums import LEAST_KNOWN
from pyprof.report.page.colours import colours
from pyprof.prof.sums import LEAST_KNOWN
from pyprof.tables.files import whole_text_file
from pyprof.prof.sums import LEAST_KNOWN
from pyprof.tables.names import text_of
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
LEVELS = ("DRAM", "L2", "L1", "algorithm")
from pyprof.prof.sums import LEAST_KNOWN
_MOST = 40  # kernels that are drawn, those with most time
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
class Point(NamedTuple):
from pyprof.prof.sums import LEAST_KNOWN
    """One kernel at one level: launches, their FLOPs, bytes and ns together. share: of the time of all kernels."""
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
    name: str
from pyprof.prof.sums import LEAST_KNOWN
    level: str
from pyprof.prof.sums import LEAST_KNOWN
    launches: int
from pyprof.prof.sums import LEAST_KNOWN
    flops: float
from pyprof.prof.sums import LEAST_KNOWN
    bytes: float
from pyprof.prof.sums import LEAST_KNOWN
    time_ns: float
from pyprof.prof.sums import LEAST_KNOWN
    share: float
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
    @property
from pyprof.prof.sums import LEAST_KNOWN
    def intensity(self) -> float:
from pyprof.prof.sums import LEAST_KNOWN
        """FLOP/byte."""
from pyprof.prof.sums import LEAST_KNOWN
        return self.flops / self.bytes
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
    @property
from pyprof.prof.sums import LEAST_KNOWN
    def rate(self) -> float:
from pyprof.prof.sums import LEAST_KNOWN
        """FLOP/s."""
from pyprof.prof.sums import LEAST_KNOWN
        return self.flops / self.time_ns * 1e9
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
class Roof(NamedTuple):
from pyprof.prof.sums import LEAST_KNOWN
    """A limit: of memory (bytes/s) where `slope`, else of arithmetic (FLOP/s)."""
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
    name: str
from pyprof.prof.sums import LEAST_KNOWN
    value: float
from pyprof.prof.sums import LEAST_KNOWN
    slope: bool
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
def points(table: CounterTable) -> list[Point]:
from pyprof.prof.sums import LEAST_KNOWN
    """The kernels with most time, each at every level that was counted."""
from pyprof.prof.sums import LEAST_KNOWN
    counted, time = table.counted, table.time_ns
from pyprof.prof.sums import LEAST_KNOWN
    names, code = np.unique([launch.name or "?" for launch in table.measured.launches], return_inverse=True)
from pyprof.prof.sums import LEAST_KNOWN
    known = np.nan_to_num(time)
from pyprof.prof.sums import LEAST_KNOWN
    found = []
from pyprof.prof.sums import LEAST_KNOWN
    for kernel in np.argsort(-np.bincount(code.ravel(), known, len(names)), kind="stable")[:_MOST].tolist():
from pyprof.prof.sums import LEAST_KNOWN
        name, rows = str(names[kernel]), code.ravel() == kernel
from pyprof.prof.sums import LEAST_KNOWN
        spent, share = time[rows].sum(), known[rows].sum() / max(known.sum(), 1.0)
from pyprof.prof.sums import LEAST_KNOWN
        levels = ((counted.flops, counted.dram_bytes), (counted.flops, counted.l2_bytes), (counted.flops, counted.l1_bytes))
from pyprof.prof.sums import LEAST_KNOWN
        for level, (flops, moved) in zip(LEVELS, (*levels, (table.number("flops"), table.number("bytes"))), strict=True):
from pyprof.prof.sums import LEAST_KNOWN
            sums = (float(flops[rows].sum()), float(moved[rows].sum()), float(spent))
from pyprof.prof.sums import LEAST_KNOWN
            if all(math.isfinite(value) and value > 0 for value in sums):  # else it has no place on logarithmic axes
from pyprof.prof.sums import LEAST_KNOWN
                found.append(Point(name, level, int(rows.sum()), *sums, float(share)))
from pyprof.prof.sums import LEAST_KNOWN
    return found
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
def roofs(table: CounterTable) -> list[Roof]:
from pyprof.prof.sums import LEAST_KNOWN
    """Rooflines of the measured devices, with a compute ceiling for each unit and dtype that was used."""
from pyprof.prof.sums import LEAST_KNOWN
    found: dict[tuple[str, bool], float] = {}
from pyprof.prof.sums import LEAST_KNOWN
    names, rates = table.arithmetic
from pyprof.prof.sums import LEAST_KNOWN
    for name, rate, bandwidth in zip(names, rates.tolist(), table.bandwidth.tolist(), strict=True):
from pyprof.prof.sums import LEAST_KNOWN
        for key, value in ((("DRAM", True), bandwidth), ((name, False), rate)):
from pyprof.prof.sums import LEAST_KNOWN
            found[key] = max(found.get(key, 0.0), 0.0 if math.isnan(value) else value)  # clocks vary from launch to launch
from pyprof.prof.sums import LEAST_KNOWN
    limits = [Roof(name, value, slope) for (name, slope), value in found.items() if value]
from pyprof.prof.sums import LEAST_KNOWN
    for level, unit in (("L2", "lts"), ("L1", "l1tex")):  # where ncu kept what the cache sustains at most
from pyprof.prof.sums import LEAST_KNOWN
        sustained = table.measured.of(f"{unit}__t_bytes.sum.peak_sustained")
from pyprof.prof.sums import LEAST_KNOWN
        cache_rates = sustained * table.measured.of(f"{unit}__cycles_elapsed.avg.per_second")
from pyprof.prof.sums import LEAST_KNOWN
        if not np.isnan(cache_rates).all():
from pyprof.prof.sums import LEAST_KNOWN
            limits.append(Roof(level, float(np.nanmax(cache_rates)), True))
from pyprof.prof.sums import LEAST_KNOWN
    return limits
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
def draw(table: CounterTable, path: Path) -> None:
from pyprof.prof.sums import LEAST_KNOWN
    """Write FILE.html, or FILE.png with matplotlib.
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
    Raises UsageError for another suffix, InputError if nothing can be drawn, ToolError without matplotlib.
from pyprof.prof.sums import LEAST_KNOWN
    """
from pyprof.prof.sums import LEAST_KNOWN
    if path.suffix not in (".html", ".png"):
from pyprof.prof.sums import LEAST_KNOWN
        raise UsageError(f"--roofline writes .html or .png, not {path.name!r}", "--roofline roofline.html")
from pyprof.prof.sums import LEAST_KNOWN
    shown, limits = points(table), roofs(table)
from pyprof.prof.sums import LEAST_KNOWN
    if not shown:
from pyprof.prof.sums import LEAST_KNOWN
        raise InputError("no launch has FLOPs, bytes and time", "pyprof counters --metrics prints what to record")
from pyprof.prof.sums import LEAST_KNOWN
    if path.suffix == ".png":
from pyprof.prof.sums import LEAST_KNOWN
        _picture(shown, limits, path)
from pyprof.prof.sums import LEAST_KNOWN
        return
from pyprof.prof.sums import LEAST_KNOWN
    from pyprof.report.page.render import render_measured
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
    with whole_text_file(path) as stream:
from pyprof.prof.sums import LEAST_KNOWN
        stream.write(render_measured(_charts(shown, limits), "the measured roofline"))
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
def _charts(shown: Sequence[Point], limits: Sequence[Roof]) -> dict[str, Any]:
from pyprof.prof.sums import LEAST_KNOWN
    """Data for the page's chart: each point is a cell, its level takes the place of a phase; ns of all kernels."""
from pyprof.prof.sums import LEAST_KNOWN
    names, levels = [*dict.fromkeys(point.name for point in shown)], [*dict.fromkeys(point.level for point in shown)]
from pyprof.prof.sums import LEAST_KNOWN
    zeros, time = [0] * len(shown), [round(point.time_ns) for point in shown]
from pyprof.prof.sums import LEAST_KNOWN
    places = [names.index(point.name) for point in shown]
from pyprof.prof.sums import LEAST_KNOWN
    cells = {
from pyprof.prof.sums import LEAST_KNOWN
        "ops": [[text_of(short_name(name)), None] for name in names], "phases": levels,
from pyprof.prof.sums import LEAST_KNOWN
        "names": [[text_of(short_name(name)), text_of(name)] for name in names],
from pyprof.prof.sums import LEAST_KNOWN
        "layers": {"parent": [-1], "name": [""], "node": [0]}, "verdicts": [["-", None, ""]], "bounds": [None],
from pyprof.prof.sums import LEAST_KNOWN
        "sources": [None],
from pyprof.prof.sums import LEAST_KNOWN
        "rest": {"cells": 0, "time_ns": 0, "kernels": 0}, "op": places, "phase": [levels.index(point.level) for point in shown],
from pyprof.prof.sums import LEAST_KNOWN
        "layer": zeros, "kernel": places, "verdict": zeros, "bound": zeros, "source": zeros,
from pyprof.prof.sums import LEAST_KNOWN
        "kernels": [point.launches for point in shown], "calls": [point.launches for point in shown], "time_ns": time,
from pyprof.prof.sums import LEAST_KNOWN
        "flops": [point.flops for point in shown], "flops_ns": time,
from pyprof.prof.sums import LEAST_KNOWN
        "bytes": [point.bytes for point in shown], "bytes_ns": time,
from pyprof.prof.sums import LEAST_KNOWN
        "least_known": LEAST_KNOWN, "lost_ns": zeros, "lost_of_ns": zeros, "least_ns": zeros,
from pyprof.prof.sums import LEAST_KNOWN
    }  # fmt: skip
from pyprof.prof.sums import LEAST_KNOWN
    roofs = {
from pyprof.prof.sums import LEAST_KNOWN
        "arithmetic": sorted(((one.name, one.value) for one in limits if not one.slope), key=lambda pair: -pair[1]),
from pyprof.prof.sums import LEAST_KNOWN
        **{level.lower(): next((one.value for one in limits if one.slope and one.name == level), None) for level in LEVELS[:3]},
from pyprof.prof.sums import LEAST_KNOWN
        "notes": [],
from pyprof.prof.sums import LEAST_KNOWN
    }
from pyprof.prof.sums import LEAST_KNOWN
    return {"measured": True, "cells": cells, "roofs": roofs, "total_ns": round(shown[0].time_ns / shown[0].share)}
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
def _ends(roof: Roof, shown: Sequence[Point], limits: Sequence[Roof]) -> tuple[tuple[float, float], tuple[float, float]]:
from pyprof.prof.sums import LEAST_KNOWN
    """The ends of a line over the points; memory ends where the highest arithmetic begins."""
from pyprof.prof.sums import LEAST_KNOWN
    left, right = (end(point.intensity for point in shown) * by for end, by in ((min, 0.3), (max, 3.0)))
from pyprof.prof.sums import LEAST_KNOWN
    if not roof.slope:
from pyprof.prof.sums import LEAST_KNOWN
        return (left, roof.value), (right, roof.value)
from pyprof.prof.sums import LEAST_KNOWN
    highest = max((one.value for one in limits if not one.slope), default=right * roof.value)
from pyprof.prof.sums import LEAST_KNOWN
    end = max(min(right, highest / roof.value), left)
from pyprof.prof.sums import LEAST_KNOWN
    return (left, left * roof.value), (end, end * roof.value)
from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN

from pyprof.prof.sums import LEAST_KNOWN
def _picture(shown: Sequence[Point], limits: Sequence[Roof], path: Path) -> None:
from pyprof.prof.sums import LEAST_KNOWN
    try:
from pyprof.prof.sums import LEAST_KNOWN
        from matplotlib.figure import Figure
from pyprof.prof.sums import LEAST_KNOWN
    except ImportError as error:
from pyprof.prof.sums import LEAST_KNOWN
        raise unusable("a PNG", "matplotlib", error, f"{install_extra('plot')}, or --roofline FILE.html") from error
from pyprof.prof.sums import LEAST_KNOWN
    figure = Figure(figsize=(10, 6.25), layout="constrained")
from pyprof.prof.sums import LEAST_KNOWN
    plot = figure.subplots()
from pyprof.prof.sums import LEAST_KNOWN
    plot.set(xscale="log", yscale="log", xlabel="FLOP/byte", ylabel="FLOP/s")
from pyprof.prof.sums import LEAST_KNOWN
    for roof in limits:
from pyprof.prof.sums import LEAST_KNOWN
        ends = _ends(roof, shown, limits)
from pyprof.prof.sums import LEAST_KNOWN
        plot.plot(*zip(*ends, strict=True), color="#444", linewidth=1)
from pyprof.prof.sums import LEAST_KNOWN
        plot.annotate(roof.name, ends[1], ha="right", va="bottom", fontsize=8)
from pyprof.prof.sums import LEAST_KNOWN
    for level in LEVELS:
from pyprof.prof.sums import LEAST_KNOWN
        mine = [point for point in shown if point.level == level]
from pyprof.prof.sums import LEAST_KNOWN
        sizes = [20 + 300 * point.share for point in mine]
from pyprof.prof.sums import LEAST_KNOWN
        if mine:
from pyprof.prof.sums import LEAST_KNOWN
            plot.scatter(
from pyprof.prof.sums import LEAST_KNOWN
                [p.intensity for p in mine], [p.rate for p in mine], sizes, colours()[f"ph-{level}"], alpha=0.6, label=level
from pyprof.prof.sums import LEAST_KNOWN
            )
from pyprof.prof.sums import LEAST_KNOWN
    plot.legend()
from pyprof.prof.sums import LEAST_KNOWN
    figure.savefig(path, dpi=120)
