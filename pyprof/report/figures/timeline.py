"""A section of the page -> its timeline as a figure: busy time of each stream by phase, idle time of each device by cause, the
longest gaps.

The columns are those of the page's timeline; the height of a bar is its share of the time of its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.report.figures.base import empty, framed, hover, percent, plotly
from pyprof.report.page.colours import colours
from pyprof.report.page.data import Section
from pyprof.tables.units import human

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_LANE, _ENTRY = 38, 29  # pixels of a lane with its margin, and of a legend entry
_FULL = 0.8  # height within a lane of a column that is busy all the time
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_LINES = "#4b545c"


class _Lane(NamedTuple):
    """A row of the drawing. parts: thousandths of each column by phase or cause; css: prefix of its colours; before: prefix of
    the names of its parts; device: place among the devices."""

    name: str
    parts: Mapping[str, Sequence[int]]
    css: str
    before: str
    device: int


def timeline(section: Section) -> Figure:
    """Lanes over the window's time. Raises ToolError if plotly is not installed."""
    go, of, title = plotly(), section.charts["timeline"], f"Timeline of {section.summary.file.rpartition('/')[2]}"
    if of is None:
        return empty(title, section.sentences["idle"])
    scale, unit = next((one for one in _UNITS if of["wall_ns"] >= one[0]), _UNITS[-1])
    lanes = [*_lanes(of, section.charts["on_gpu"])]
    drawing = [*_bars(go, of, lanes, scale, unit), *_gaps(go, of, lanes, scale), *_steps(go, of, len(lanes), scale)]
    height = max(_LANE * len(lanes), _ENTRY * len({trace.name for trace in drawing})) + 20
    figure = framed(drawing, title, section.sentences["idle"], [*_notes(of)], height)
    shares = [float(sum(map(sum, lane.parts.values())) / 1000 / of["columns"]) for lane in lanes]  # of the window
    names = [f"{lane.name}: {percent(share)}" for lane, share in zip(lanes, shares, strict=True)]
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(title=f"time since the window's begin ({unit})", range=[0, of["wall_ns"] / scale])
    figure.update_yaxes(
        tickvals=[-at - 1 + _FULL / 2 for at in range(len(lanes))], ticktext=names, range=[-len(lanes) - 0.1, 0],
        automargin=True, showgrid=False, zeroline=False,
    )  # fmt: skip
    return figure


def _lanes(of: Mapping[str, Any], on_gpu: bool) -> Iterator[_Lane]:
    """The lanes from top to bottom."""
    for at, device in enumerate(of["devices"]):
        process = f", process {device['pid']}" if len(of["devices"]) > 1 else ""
        name = f"GPU {device['number']}{process}" if on_gpu else "CPU"
        for stream in device["streams"]:
            which = "" if not on_gpu else ", other streams" if stream["stream"] is None else f", stream {stream['stream']}"
            yield _Lane(name + which, stream["busy"], "ph", "", at)
        yield _Lane(f"{name} idle", device["idle"], "cause", "idle: ", at)


def _bars(go: Any, of: Mapping[str, Any], lanes: Sequence[_Lane], scale: float, unit: str) -> Iterator[Any]:
    """A trace for each part of each lane; equal names share a legend entry."""
    wide, named = of["wall_ns"] / of["columns"] / scale, set()
    for at, lane in enumerate(lanes):
        done = [0] * of["columns"]
        for kind in (name for name in of["phases" if lane.css == "ph" else "causes"] if name in lane.parts):
            runs = [*_runs(lane.parts[kind], done)]
            done = [min(low + part, 1000) for low, part in zip(done, lane.parts[kind], strict=True)]
            text = f"{lane.before}{kind.replace('_', ' ')}"
            yield go.Bar(
                x=[(begin + end) / 2 * wide for begin, end, _, _ in runs],
                width=[(end - begin) * wide for begin, end, _, _ in runs],
                base=[-at - 1 + _FULL * low / 1000 for *_, low, _ in runs], y=[_FULL * part / 1000 for *_, part in runs],
                customdata=[[part / 10, begin * wide, end * wide] for begin, end, _, part in runs],
                hovertemplate=f"{lane.name}<br>{text}: %{{customdata[0]}} % of "
                f"%{{customdata[1]:.4~g}} to %{{customdata[2]:.4~g}} {unit}<extra></extra>",
                name=text, legendgroup=text, showlegend=text not in named,
                marker={"color": colours()[f"{lane.css}-{kind}"], "line": {"width": 0}},
            )  # fmt: skip
            named.add(text)


def _runs(part: Sequence[int], done: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Merge equal neighbouring columns: (first, end, height below, share)."""
    begin = 0
    for at in range(1, len(part) + 1):
        if at == len(part) or part[at] != part[begin] or done[at] != done[begin]:
            if part[begin] and done[begin] < 1000:
                yield begin, at, done[begin], min(part[begin], 1000 - done[begin])
            begin = at


def _gaps(go: Any, of: Mapping[str, Any], lanes: Sequence[_Lane], scale: float) -> Iterator[Any]:
    """The longest gaps, as lines above the idle lanes."""
    gaps = of["gaps"]
    lane_of = {lane.device: at for at, lane in enumerate(lanes) if lane.css == "cause"}
    shown = [gap for gap in gaps if gap["device"] in lane_of]
    if not shown:
        return
    about = []
    for gap in shown:
        causes = ", ".join(f"{cause.replace('_', ' ')} {human(ns, 'ns')}" for cause, ns in gap["causes"])
        about.append(hover(f"gap of {human(gap['time_ns'], 'ns')}", [
            ("causes", causes or "na"), ("begins at", human(gap["start_ns"], "ns")),
            ("before it", gap["before"] or "the window's begin"), ("after it", gap["after"] or "the window's end"),
        ]))  # fmt: skip
    yield go.Bar(
        x=[(gap["start_ns"] + gap["time_ns"] / 2) / scale for gap in shown], width=[gap["time_ns"] / scale for gap in shown],
        base=[-lane_of[gap["device"]] - 1 + _FULL + 0.04 for gap in shown], y=[0.1] * len(shown),
        hovertext=about, hoverinfo="text", name="longest gaps",
        marker={"color": _LINES, "line": {"width": 0}},
    )  # fmt: skip


def _steps(go: Any, of: Mapping[str, Any], lanes: int, scale: float) -> Iterator[Any]:
    """A line at each begin and end of a step."""
    edges = sorted({ns for step in of["steps"] for ns in step if 0 < ns < of["wall_ns"]})
    if edges:
        xs, ys = [one for ns in edges for one in (ns / scale, ns / scale, None)], [0, -lanes - 0.1, None] * len(edges)
        line = {"color": _LINES, "width": 1, "dash": "dot"}
        yield go.Scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", name="steps")


def _notes(of: Mapping[str, Any]) -> Iterator[str]:
    if of["devices_left"]:
        yield f"{of['devices_left']} more devices are not drawn"
    if of["gaps_all"] > len(of["gaps"]):
        yield f"the {len(of['gaps'])} longest of {of['gaps_all']:,} gaps have a line of their own"
    if of["steps_left"]:
        yield f"{of['steps_left']:,} later steps are not marked"
