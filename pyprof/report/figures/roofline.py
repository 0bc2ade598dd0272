"""A section of the page -> its roofline as a figure: a point per op, area = time, below the device's limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyprof.report.figures.base import empty, framed, hover, percent, plotly, shown, used
from pyprof.report.figures.sums import Sum, layer_path, sums_by_op
from pyprof.report.page.colours import colours
from pyprof.report.page.data import Section
from pyprof.tables.units import human

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

POINTS = 400  # at most, those with most time
_NAMED = 6  # points with a label
_ROOM = 0.2, 0.045  # parts of the axes that a label takes
_NO_LABEL = "", "middle right"
_LARGEST = 60  # pixels across the point with most time
_LEAST = 5
_LINES = "#4b545c"


def roofline(section: Section) -> Figure:
    """FLOP/s over FLOP per byte on logarithmic axes. Raises ToolError if plotly is not installed."""
    go, cells, roofs = plotly(), section.charts["cells"], section.charts["roofs"]
    found = sums_by_op(cells)
    sent = [one for one in found if cells["phases"][cells["phase"][one.cell]] == "communication"]
    rest = [one for one in found if one not in sent]
    placed = [one for one in rest if (one.flops_per_byte or 0) > 0 and (one.flops_per_s or 0) > 0]
    unknown, points = [one for one in rest if one not in placed], placed[:POINTS]
    title = f"Roofline of {section.summary.file.rpartition('/')[2]}"
    total = sum(one.time_ns for one in found)
    notes = [
        *_left(unknown, total, "FLOPs or bytes are unknown or zero"),
        *_left(sent, total, "communication, which the links bound"),
        *_left(placed[POINTS:], total, "only those with most time are drawn"), *roofs["notes"],
    ]  # fmt: skip
    if not points:
        return empty(
            title, "No op has both FLOPs and bytes that are known, so there is no point.", section.sentences["roofline"], notes
        )
    xs, ys = _domains(points, roofs)
    drawing = [
        *_ceilings(go, roofs, xs, ys),
        *_points(go, cells, points, _named(cells, points, _exponents(xs), _exponents(ys))),
    ]
    figure = framed(drawing, title, section.sentences["roofline"], notes, 480)
    axis = {"type": "log", "exponentformat": "power", "dtick": 1}
    figure.update_xaxes(title="FLOP per byte (least bytes)", range=_exponents(xs), **axis)
    figure.update_yaxes(title="FLOP/s", range=_exponents(ys), **{**axis, "exponentformat": "SI"})
    return figure


def _exponents(domain: tuple[float, float]) -> list[float]:
    from math import log10

    return [log10(end) for end in domain]


def _left(ops: Sequence[Sum], total_ns: int, why: str) -> Iterator[str]:
    """A note on ops without a point, and why."""
    if ops:
        ns = sum(one.time_ns for one in ops)
        count = "1 op" if len(ops) == 1 else f"{len(ops):,} ops"
        yield f"no point for {count} with {human(ns, 'ns')} ({percent(ns / total_ns if total_ns else 0)}): {why}"


def _domains(points: Sequence[Sum], roofs: Mapping[str, Any]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of both axes: they show all points, all limits and the ridge of the highest one."""
    xs, ys = [one.flops_per_byte or 0 for one in points], [one.flops_per_s or 0 for one in points]
    rates = [rate for _, rate in roofs["arithmetic"]]
    ridge = [1.5 * rates[0] / roofs["dram"]] if rates and roofs["dram"] else []
    highest = max(ys + rates)
    return (min(xs) / 2, max(xs + ridge) * 3), (max(min(ys) / 2, highest / 1e9), highest * 2)


def _ceilings(go: Any, roofs: Mapping[str, Any], xs: tuple[float, float], ys: tuple[float, float]) -> Iterator[Any]:
    """A named line for each limit: arithmetic right of its ridge with DRAM, memory up to the highest arithmetic."""
    arithmetic, dram = roofs["arithmetic"], roofs["dram"]
    highest = arithmetic[0][1] if arithmetic else ys[1]
    for name, rate in arithmetic:
        begin = min(max(xs[0], rate / dram), xs[1]) if dram else xs[0]
        yield _line(go, (begin, xs[1]), (rate, rate), f"{name} {human(rate, 'FLOP/s')}", "solid", "top left")
    for name, rate, dash in (("DRAM", dram, "solid"), ("L2", roofs["l2"], "dash")):
        if rate is None:
            continue
        begin, end = max(xs[0], ys[0] / rate), min(xs[1], highest / rate)
        if begin < end:
            yield _line(go, (begin, end), (begin * rate, end * rate), f"{name} {human(rate, 'B/s')}", dash, "bottom right")


def _line(go: Any, x: tuple[float, float], y: tuple[float, float], name: str, dash: str, side: str) -> Any:
    """The line of a limit, named at the right end if it is level, else at the left."""
    return go.Scatter(
        x=[*x], y=[*y], mode="lines+text", text=["", shown(name)] if y[0] == y[1] else [shown(name), ""], textposition=side,
        hoverinfo="skip", showlegend=False, name=shown(name),
        line={"color": _LINES, "width": 1.5, "dash": dash}, textfont={"color": _LINES, "size": 12},
    )  # fmt: skip


def _points(go: Any, cells: Mapping[str, Any], points: Sequence[Sum], named: Mapping[int, tuple[str, str]]) -> Iterator[Any]:
    """One trace per phase, for the legend. named: label and its side, by cell."""
    phases, most = cells["phases"], points[0].time_ns or 1
    for code, phase in used(phases, (cells["phase"][one.cell] for one in points)).items():
        mine = [one for one in points if cells["phase"][one.cell] == code]
        yield go.Scatter(
            x=[one.flops_per_byte for one in mine], y=[one.flops_per_s for one in mine], name=phase,
            mode="markers+text", cliponaxis=True, text=[named.get(one.cell, _NO_LABEL)[0] for one in mine],
            textposition=[named.get(one.cell, _NO_LABEL)[1] for one in mine],
            hovertext=[_about(cells, one) for one in mine], hoverinfo="text",
            marker={
                "size": [one.time_ns for one in mine], "sizemode": "area", "sizeref": most / _LARGEST**2, "sizemin": _LEAST / 2,
                "color": colours()[f"ph-{phase}"], "opacity": 0.5, "line": {"width": 1, "color": colours()[f"ph-{phase}"]},
            },
        )  # fmt: skip


def _named(
    cells: Mapping[str, Any], points: Sequence[Sum], xs: Sequence[float], ys: Sequence[float]
) -> dict[int, tuple[str, str]]:
    """Labels of the largest points and their sides, by cell: each op once, without overlaps. xs, ys: exponents of the axes'
    ends."""
    found: dict[int, tuple[str, str]] = {}
    seen: dict[str, tuple[float, float]] = {}
    for one in points:
        name, at = _op(cells, one)[:28], _exponents((one.flops_per_byte or 1, one.flops_per_s or 1))
        x, y = (at[0] - xs[0]) / (xs[1] - xs[0]), (at[1] - ys[0]) / (ys[1] - ys[0])
        near = any(abs(x - other) < _ROOM[0] and abs(y - level) < _ROOM[1] for other, level in seen.values())
        if len(found) < _NAMED and name not in seen and not near:
            seen[name] = x, y
            found[one.cell] = shown(name), "middle left" if x > 0.8 else "middle right"
    return found


def _op(cells: Mapping[str, Any], one: Sum) -> str:
    return cells["ops"][cells["op"][one.cell]][0] or "no op known"


def _about(cells: Mapping[str, Any], one: Sum) -> str:
    """The text beside the pointer at a point."""
    at, total = one.cell, sum(cells["time_ns"]) or 1
    source = cells["sources"][cells["source"][at]]
    _, math, reason = cells["verdicts"][cells["verdict"][at]]
    tensor = one.tensor and one.tensor + (f", {math}" if math else "") + (
        f": {reason}" if reason and one.tensor != "yes" else ""
    )
    return hover(_op(cells, one), [
        ("shapes", cells["ops"][cells["op"][at]][1] or "na"),
        ("phase", cells["phases"][cells["phase"][at]]),
        ("layer", layer_path(cells, cells["layers"]["node"][cells["layer"][at]])),
        ("source", source),
        ("time", f"{human(one.time_ns, 'ns')}, {percent(one.time_ns / total)}"),
        ("calls, kernels", f"{one.calls:,}, {one.kernels:,}"),
        ("FLOPs", human(one.known_flops, "FLOP")),
        ("bytes", human(one.known_bytes, "B")),
        ("intensity", human(one.flops_per_byte, "FLOP/B")),
        ("rate", f"{human(one.flops_per_s, 'FLOP/s')}, {human(one.bytes_per_s, 'B/s')}"),
        ("of the roofline", f"{percent(one.peak)}, bound by {one.bound or 'na'}"),
        ("lost", human(one.known_lost_ns, "ns")),
        ("Tensor Cores", tensor),
    ])  # fmt: skip
