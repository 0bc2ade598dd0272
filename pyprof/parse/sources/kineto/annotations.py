"""What torch's annotations of a captured graph (`torch.cuda.graph(enable_annotations=True)`) say among the args of its kernels
-> `ranges` and `graph_nodes`: the layer in which each node was recorded.

When and on which thread that was is not known: the ranges are on a thread of their own without an id, after all else.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Array
from pyprof.markers import Kind, Marker
from pyprof.parse.sources.trace import Trace, concatenated, make_table

_NS = 1000  # how long each range is


def give_layers(trace: Trace, layer: Array, qualified: set[int]) -> None:
    """Give the nodes of graphs the layers that were written on their kernels.

    layer: of each of the first activities (those after them have none), code into strings of the text, -1 none; qualified:
    which of those are modules' paths from the root.
    """
    node, process = trace.activities["graph_node"], trace.activities["process"]
    node, process = node[: len(layer)], process[: len(layer)]
    rows = np.flatnonzero((layer >= 0) & (node >= 0) & (process >= 0))
    if not len(rows):
        return
    owner, number, text = distinct_rows(process[rows], node[rows], layer[rows]).columns
    new = np.ones(len(owner), np.bool_)
    new[1:] = (np.diff(owner) != 0) | (np.diff(number) != 0)  # of a node that was written twice the first
    owner, number, text = owner[new], number[new], text[new]
    (places, texts), _, at = distinct_rows(owner, text)
    owners = np.unique(places)
    thread = len(trace.threads["tid"]) + np.searchsorted(owners, places)
    ends = [int(table["end_ns"].max(initial=0)) for table in (trace.ranges, trace.launches, trace.activities)]
    start = max(ends) + _NS * (1 + 2 * np.arange(len(texts)))
    labels = [_label(trace, trace.strings[code], "module" if code in qualified else "user") for code in texts.tolist()]
    ranges = make_table("ranges", {"start_ns": start, "end_ns": start + _NS, "thread": thread, "label": np.array(labels)})
    nodes = make_table("graph_nodes", {"node": number, "thread": thread[at], "start_ns": start[at] + 1})
    trace.threads = concatenated([trace.threads, make_table("threads", {"process": owners})])
    trace.ranges = concatenated([trace.ranges, ranges])
    trace.graph_nodes = concatenated([trace.graph_nodes, nodes])


def _label(trace: Trace, name: str, scope: str) -> int:
    return trace.labels.add(("annotation", name, scope), Marker(Kind.LAYER, name, name, scope=scope))
