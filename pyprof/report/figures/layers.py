"""A section of the page -> a figure of its time by layer > op > kernel; width is time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyprof.report.figures.base import empty, framed, hover, percent, plotly, shown
from pyprof.report.figures.sums import layer_path
from pyprof.report.page.colours import colours
from pyprof.report.page.data import Section
from pyprof.tables.units import human

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ROW = 26  # pixels
_DEEPEST = 18  # rows drawn at once; a click shows deeper ones


@dataclass
class _Node:
    """A part of the icicle with everything inside it. parent: number, -1 for the root; about: rows beside the pointer."""

    parent: int
    name: str
    colour: str
    about: tuple[tuple[str, str | None], ...] = ()
    time_ns: int = 0
    kernels: int = 0


def layers(section: Section) -> Figure:
    """An icicle; a click on a part zooms in. Raises ToolError if plotly is not installed."""
    go, title = plotly(), f"Layer > op > kernel of {section.summary.file.rpartition('/')[2]}"
    cells = section.charts["cells"]
    nodes = _nodes(cells)
    if not nodes[0].time_ns:
        return empty(title, "No kernel took any time, so there is nothing to divide.")
    keep = {at: node for at, node in enumerate(nodes) if node.time_ns}
    depths, rest = {-1: 0}, cells["rest"]
    for at, node in keep.items():
        depths[at] = depths[node.parent] + 1
    whole = nodes[0].time_ns
    shares = [f"{human(node.time_ns, 'ns')}, {percent(node.time_ns / whole)}" for node in keep.values()]
    about = [
        hover(node.name, [*node.about, ("time", share), ("kernels", f"{node.kernels:,}")])
        for node, share in zip(keep.values(), shares, strict=True)
    ]
    icicle = go.Icicle(
        ids=[str(at) for at in keep], parents=["" if node.parent < 0 else str(node.parent) for node in keep.values()],
        labels=[shown(node.name) for node in keep.values()], values=[node.time_ns for node in keep.values()],
        text=shares, textinfo="label+text", branchvalues="total", sort=True,
        hovertext=about, hoverinfo="text", maxdepth=_DEEPEST,
        tiling={"orientation": "v", "pad": 1}, marker={"colors": [node.colour for node in keep.values()]},
    )  # fmt: skip
    rows = min(max(depths.values()), _DEEPEST)
    groups = f"{rest['kernels']:,} kernels in {rest['cells']:,} groups, each shorter than any that is shown"
    notes = [f"smaller groups: {groups}"] if rest["cells"] else []
    figure = framed([icicle], title, section.sentences["layers"], notes, 40 + _ROW * max(rows, 4))
    figure.update_layout(uniformtext={"minsize": 9, "mode": "hide"}, margin={"l": 20})
    return figure


def _nodes(cells: Mapping[str, Any]) -> list[_Node]:
    """The page's layers under their numbers (the first is everything), then ops by phase and their kernels. Parents come before
    children."""
    colour, parents, names = colours(), cells["layers"]["parent"], cells["layers"]["name"]
    nodes = [_Node(parent, name[1:] or "all", colour["layer"]) for parent, name in zip(parents, names, strict=True)]
    inside: dict[tuple[object, ...], int] = {}

    def node_of(key: tuple[object, ...], node: _Node) -> int:
        if key not in inside:
            inside[key] = len(nodes)
            nodes.append(node)
        return inside[key]

    for at, (path, op, phase, kernel) in enumerate(zip(*(cells[n] for n in ("layer", "op", "phase", "kernel")), strict=True)):
        layer, name, of_phase = cells["layers"]["node"][path], cells["ops"][op][0] or "no op known", cells["phases"][phase]
        about, (short, whole) = (("phase", of_phase), ("in", layer_path(cells, layer) or None)), cells["names"][kernel]
        of_op = node_of((layer, phase, name), _Node(layer, name, colour[f"ph-{of_phase}"], about))
        more = (("op", name), *about, ("name", whole if whole != short else None))
        leaf = node_of((layer, phase, name, kernel), _Node(of_op, short, colour[f"ph-{of_phase}"], more))
        _count(nodes, leaf, cells["time_ns"][at], cells["kernels"][at])
    if cells["rest"]["time_ns"]:
        nodes.append(_Node(0, "smaller groups", colour["ph-unknown"]))
        _count(nodes, len(nodes) - 1, cells["rest"]["time_ns"], cells["rest"]["kernels"])
    return nodes


def _count(nodes: list[_Node], at: int, time_ns: int, kernels: int) -> None:
    """Add to a node and all its ancestors."""
    while at >= 0:
        nodes[at].time_ns += time_ns
        nodes[at].kernels += kernels
        at = nodes[at].parent
