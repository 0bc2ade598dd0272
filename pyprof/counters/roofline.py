"""A table of measured launches -> the measured roofline, as a static page (SVG, no script) or a picture.

A point is a kernel, all its launches together: counted FLOPs over time, against counted FLOPs over the bytes of a level of
memory. The algorithm's own point has its FLOPs and bytes over the same time. Lines are what the device allows. Reads no file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyprof.arrays.types import Floats
from pyprof.counters.table import CounterTable
from pyprof.errors import InputError, ToolError, UsageError
from pyprof.tables.files import whole_text_file

LEVELS = ("DRAM", "L2", "L1", "algorithm")
_COLOURS = {"DRAM": "#1f6feb", "L2": "#2da44e", "L1": "#bf8700", "algorithm": "#8c959f"}
_WIDTH, _HEIGHT, _MARGIN = 960, 600, 70
_MOST = 40  # kernels that are drawn, those with most time


class Point(NamedTuple):
    """One kernel at one level. intensity: FLOP/byte; rate: FLOP/s; share: of the time of all kernels."""

    name: str
    level: str
    intensity: float
    rate: float
    share: float


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
            point = _point(name, level, share, flops[rows].sum(), moved[rows].sum(), spent)
            found += [point] if point is not None else []
    return found


def _point(name: str, level: str, share: float, *sums: float) -> Point | None:
    """None where one of FLOPs, bytes and ns is unknown or zero: it has no place on logarithmic axes."""
    flops, moved, spent_ns = sums
    if not all(math.isfinite(value) and value > 0 for value in sums):
        return None
    return Point(name, level, flops / moved, flops / spent_ns * 1e9, share)


def roofs(table: CounterTable) -> list[Roof]:
    """The limits of the devices on which something was measured, arithmetic in the units and types that were used."""
    found: dict[tuple[str, bool], float] = {}
    names, rates = table.arithmetic
    for name, rate, bandwidth in zip(names, rates.tolist(), table.bandwidth.tolist(), strict=True):
        for key, value in ((("DRAM", True), bandwidth), ((name, False), rate)):
            found[key] = max(found.get(key, 0.0), 0.0 if math.isnan(value) else value)  # clocks vary from launch to launch
    return [Roof(name, value, slope) for (name, slope), value in found.items() if value] + _caches(table)


def _caches(table: CounterTable) -> list[Roof]:
    """The rates of caches, where ncu kept what they sustain at most."""
    found = []
    for level, unit in (("L2", "lts"), ("L1", "l1tex")):
        sustained = table.measured.of(f"{unit}__t_bytes.sum.peak_sustained")
        clock = table.measured.of(f"{unit}__cycles_elapsed.avg.per_second")
        rates: Floats = (sustained * clock)[~np.isnan(sustained * clock)]
        found += [Roof(level, float(rates.max()), True)] if len(rates) else []
    return found


def draw(table: CounterTable, path: Path) -> None:
    """Write FILE.html, or FILE.png with matplotlib.

    Raises UsageError for another suffix, InputError where nothing can be drawn, ToolError without matplotlib.
    """
    if path.suffix not in (".html", ".png"):
        raise UsageError(f"--roofline writes .html or .png, not {path.name!r}", "--roofline roofline.html")
    shown, limits = points(table), roofs(table)
    if not shown:
        raise InputError("no launch has FLOPs, bytes and time", "pyprof counters --metrics prints what to record")
    if path.suffix == ".png":
        _picture(shown, limits, path)
        return
    with whole_text_file(path) as stream:
        stream.write(f"<!doctype html>\n<meta charset='utf-8'>\n<title>measured roofline</title>\n{svg(shown, limits)}\n")


class _Axes:
    """Logarithmic axes around points and roofs, a decade more on each side."""

    def __init__(self, shown: Sequence[Point], limits: Sequence[Roof]) -> None:
        intensities, rates = [p.intensity for p in shown], [p.rate for p in shown]
        rates += [roof.value for roof in limits if not roof.slope]
        self.x = math.floor(math.log10(min(intensities))), math.floor(math.log10(max(intensities))) + 1
        self.y = math.floor(math.log10(min(rates))), math.floor(math.log10(max(rates))) + 1

    def place(self, intensity: float, rate: float) -> tuple[float, float]:
        """Where a point is, in pixels from the upper left."""
        across = (math.log10(intensity) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(rate) - self.y[0]) / (self.y[1] - self.y[0])
        return _MARGIN + across * (_WIDTH - 2 * _MARGIN), _HEIGHT - _MARGIN - up * (_HEIGHT - 2 * _MARGIN)

    def line(self, roof: Roof, highest: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """The ends of a roof inside the axes; memory ends where the highest arithmetic begins."""
        left, right = 10.0 ** self.x[0], 10.0 ** self.x[1]
        if not roof.slope:
            return (left, roof.value), (right, roof.value)
        begin = max(left, 10.0 ** self.y[0] / roof.value)
        end = max(min(right, highest / roof.value), begin)
        return (begin, begin * roof.value), (end, end * roof.value)


def svg(shown: Sequence[Point], limits: Sequence[Roof]) -> str:
    """The picture as one SVG element; every point names its kernel when the pointer rests on it."""
    axes = _Axes(shown, limits)
    highest = max([roof.value for roof in limits if not roof.slope], default=10.0 ** axes.y[1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">'
    ]
    for power in range(axes.x[0], axes.x[1] + 1):
        x, bottom = axes.place(10.0**power, 10.0 ** axes.y[0])
        parts += [
            f'<path d="M{x:.1f} {_MARGIN}V{bottom:.1f}" stroke="#eee"/>',
            _text(x, bottom + 18, f"{10.0**power:g}", "middle"),
        ]
    for power in range(axes.y[0], axes.y[1] + 1):
        left, y = axes.place(10.0 ** axes.x[0], 10.0**power)
        parts += [
            f'<path d="M{left:.1f} {y:.1f}H{_WIDTH - _MARGIN}" stroke="#eee"/>',
            _text(left - 6, y + 4, f"{10.0**power:.0e}", "end"),
        ]
    for roof in limits:
        (x1, y1), (x2, y2) = (axes.place(*end) for end in axes.line(roof, highest))
        unit = "byte/s" if roof.slope else "FLOP/s"
        parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#444" fill="none"/>')
        parts.append(_text(x2, y2 - 5, f"{roof.name} {roof.value:.3g} {unit}", "end"))
    for point in shown:
        x, y = axes.place(point.intensity, point.rate)
        about = (
            f"{point.name}: {point.level}, {point.intensity:.3g} FLOP/byte, {point.rate:.3g} FLOP/s, {point.share:.1%} of time"
        )
        size = 3 + 9 * math.sqrt(point.share)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{_COLOURS[point.level]}" fill-opacity="0.6">'
            f"<title>{escape(about)}</title></circle>"
        )
    for row, level in enumerate(level for level in LEVELS if any(point.level == level for point in shown)):
        parts.append(f'<circle cx="{_WIDTH - 150}" cy="{20 + 16 * row}" r="5" fill="{_COLOURS[level]}"/>')
        parts.append(_text(_WIDTH - 140, 24 + 16 * row, level, "start"))
    parts.append(_text(_WIDTH / 2, _HEIGHT - 20, "FLOP/byte", "middle"))
    parts.append(_text(_MARGIN, _MARGIN - 30, "FLOP/s", "middle"))
    return "\n".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _picture(shown: Sequence[Point], limits: Sequence[Roof], path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ToolError("a PNG needs the package matplotlib", "pip install 'pyprof[plot]', or --roofline FILE.html") from error
    axes = _Axes(shown, limits)
    highest = max([roof.value for roof in limits if not roof.slope], default=10.0 ** axes.y[1])
    figure = Figure(figsize=(10, 6.25), layout="constrained")
    plot = figure.subplots()
    plot.set(xscale="log", yscale="log", xlabel="FLOP/byte", ylabel="FLOP/s")
    for roof in limits:
        ends = axes.line(roof, highest)
        plot.plot(*zip(*ends, strict=True), color="#444", linewidth=1)
        plot.annotate(roof.name, ends[1], ha="right", va="bottom", fontsize=8)
    for level in LEVELS:
        mine = [point for point in shown if point.level == level]
        sizes = [20 + 300 * point.share for point in mine]
        if mine:
            plot.scatter([p.intensity for p in mine], [p.rate for p in mine], sizes, _COLOURS[level], alpha=0.6, label=level)
    plot.legend()
    figure.savefig(path, dpi=120)
