"""A trace of graphs being captured -> the graphs: their launches in the order of capture.

A call that is captured launches nothing at that time: no activity has its correlation id. Where the calls that begin and end a
capture were recorded, a graph is everything between them; where they were not, it is everything inside the engine's annotation
of a capture. Knows nothing of the run.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.types import Ints
from pyprof.model.markers import Kind, graph_capture
from pyprof.model.trace import Strings, Trace

COPY, FILL, UNNAMED = -2, -3, -4
"""In place of the code of a kernel's name: a copy, a fill, a kernel whose name is not recorded."""

_WORK = re.compile(r"(?<!Graph)Launch(?!Host)|(?P<copy>Memcpy)|(?P<fill>Memset)")
_MOSTLY, _SELDOM = 0.25, 0.05  # of ops with tensors of two dimensions or more, those whose first tensor begins with one size
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
_BEGIN, _END = re.compile("StreamBeginCapture"), re.compile("StreamEndCapture")


class GraphTrace(NamedTuple):
    """A trace of graphs being captured. name: for people; batch_size, mode: of its graphs, if a file beside it gives them."""

    name: str
    trace: Trace
    batch_size: int | None = None
    mode: str = ""


class Graph(NamedTuple):
    """One captured graph. rows: its launches in the capture's `launches`; codes: for each the kernel's name in the run's
    strings, or COPY, FILL, UNNAMED; said: hash of the ranges around each launch. Calls with the same hash get the same op,
    shapes, layer and source lines."""

    rows: Ints
    codes: Ints
    said: Ints


class Family(NamedTuple):
    """The graphs of one size in the order of capture, which is the order of replay; one, or several for piecewise graphs.

    source: index of the capture; sizes: all sizes that its name, its list and its shapes give; bounded: whether begins and ends
    were recorded; if not, there is one graph, which may have been replayed in parts; process: of the capture's.
    """

    source: int
    name: str
    sizes: tuple[int, ...]
    mode: str
    graphs: list[Graph]
    bounded: bool
    process: int

    @property
    def unnamed(self) -> bool:
        """Whether no call names its kernel."""
        return not any((graph.codes >= 0).any() for graph in self.graphs)


def families(source: int, given: GraphTrace, strings: Strings, *, itself: bool = False) -> list[Family]:
    """The graphs that a trace shows being captured. strings: the run's; itself: the trace is the run, so only what lies between
    the calls that begin and end a capture counts."""
    trace = given.trace
    rows, codes = _work(trace, strings)
    number, bounded = _captures(trace, rows)
    if not bounded:
        number = np.zeros(len(rows), np.int64) if not itself else np.full(len(rows), -1, np.int64)
    label = _annotations(trace, rows)
    if not bounded and (label >= 0).any():
        number[label < 0] = -1
    inside = number >= 0
    rows, codes, number, label = rows[inside], codes[inside], number[inside], label[inside]
    said, shaped = _ranges_hash(trace, rows), _Shapes(trace)
    process = trace.threads["process"][trace.launches["thread"][rows]]
    _, first, inverse = distinct_rows(*((number,) if bounded else (number, label, process)))
    found: dict[tuple[int | None, int | None, str, int], list[Graph]] = {}
    for index in np.argsort(first, kind="stable").tolist():
        own = inverse == index
        graph = Graph(rows[own], codes[own], said[own])
        size, mode = given.batch_size, given.mode
        if (annotation := int(label[first[index]])) >= 0 and (match := graph_capture(trace.markers[annotation].text)):
            size, mode = int(match[1]), match[2]
        shape = shaped.size(graph) if size is None else None  # of several sizes each graph says its own
        found.setdefault((size, shape, mode, int(process[first[index]])), []).append(graph)
    listed = given.batch_size if len(found) == 1 else None
    result = []
    for (size, _, mode, owner), graphs in found.items():
        sizes = dict.fromkeys(one for one in (size, listed, shaped.other(graphs, size)) if one is not None)
        result.append(Family(source, given.name, tuple(sizes), mode, graphs, bounded, owner))
    return result


class _Shapes:
    """The first dimension of the tensors that a trace's ops take."""

    def __init__(self, trace: Trace) -> None:
        self.start = trace.launches["start_ns"]
        of_label = np.full(len(trace.markers) + 1, -1, np.int64)
        for label, marker in enumerate(trace.markers):
            if marker.kind == Kind.DISPATCH and marker.call is not None:
                shape = next((tensor.shape for tensor in marker.call.tensors), ())
                of_label[label] = shape[0] if len(shape) > 1 else -1
        ranges, sizes = trace.ranges, of_label[trace.ranges["label"]]
        rows = np.flatnonzero(sizes > 0)
        rows = rows[np.argsort(ranges["start_ns"][rows], kind="stable")]
        self.sizes, self.begin, self.end = sizes[rows], ranges["start_ns"][rows], ranges["end_ns"][rows]
        self.thread, self.threads = ranges["thread"][rows], trace.launches["thread"]
        self.until = np.maximum.accumulate(self.end) if len(rows) else self.end

    def size(self, graph: Graph, said: int | None = None) -> int | None:
        """The first dimension that most of a graph's ops have, if it differs from the given size; else None."""
        return self.other([graph], said)

    def other(self, graphs: list[Graph], said: int | None) -> int | None:
        """As `size`, for several graphs together."""
        parts = []
        for rows in (graph.rows for graph in graphs if len(graph.rows)):
            begin, end = self.start[rows].min(), self.start[rows].max()
            own = slice(np.searchsorted(self.until, begin, "right"), np.searchsorted(self.begin, end, "right"))
            parts.append(self.sizes[own][(self.end[own] > begin) & np.isin(self.thread[own], self.threads[rows])])
        values, counts = np.unique(np.concatenate(parts), return_counts=True)
        if not len(values) or counts.max() < _MOSTLY * counts.sum() or counts[values == said].sum() >= _SELDOM * counts.sum():
            return None
        return int(values[counts.argmax()])


def _ranges_hash(trace: Trace, rows: Ints) -> Ints:
    """Hash of the ranges open around each launch: the sum of their hashes."""
    ranges, launches = trace.ranges, trace.launches
    label, src = ranges["label"], ranges["src"]
    of_label, of_source = np.zeros(len(trace.markers) + 1, np.uint64), np.zeros(len(trace.strings) + 1, np.uint64)
    for one in distinct_values(label).tolist():
        marker = trace.markers[one]
        if marker.kind != Kind.STEP and not graph_capture(marker.text):  # these are not taken over
            of_label[one] = _digest(f"{marker.kind} {marker.text} {marker.call}")
    for one in distinct_values(src[src >= 0]).tolist():
        of_source[one] = _digest(trace.strings[one])
    value = of_label[label] + of_source[src] * (of_label[label] > 0) * np.uint64(3)
    result = np.zeros(len(rows), np.uint64)
    for thread in distinct_values(launches["thread"][rows]).tolist():
        mine, own = np.flatnonzero(launches["thread"][rows] == thread), np.flatnonzero(ranges["thread"] == thread)
        when = launches["start_ns"][rows[mine]]
        for edge, sign in (("start_ns", np.uint64(1)), ("end_ns", np.uint64(2**64 - 1))):
            order = own[np.argsort(ranges[edge][own], kind="stable")]
            sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(value[order], dtype=np.uint64)])
            result[mine] += sign * sums[np.searchsorted(ranges[edge][order], when, "right")]
    return result.view(np.int64)


def _digest(text: str) -> np.uint64:
    """Hash of a text without addresses of objects, which differ from call to call."""
    digest = blake2b(_ADDRESS.sub("", text).encode(errors="replace"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "big"))


def _work(trace: Trace, strings: Strings) -> tuple[Ints, Ints]:
    """The calls of a trace that would have launched something and did not, in order of begin, and what each would have.

    A driver call within a runtime call is part of it.
    """
    launches = trace.launches
    code_of: dict[int, int] = {}
    for name in distinct_values(launches["name"]).tolist():
        if (match := _WORK.search(trace.strings[name])) is not None:
            code_of[name] = COPY if match["copy"] else FILL if match["fill"] else UNNAMED
    ran = np.isin(launches["corr"], trace.activities["corr"]) & (launches["corr"] >= 0)
    rows = np.flatnonzero(np.isin(launches["name"], list(code_of)) & ~ran)
    rows = rows[np.lexsort((-launches["end_ns"][rows], launches["start_ns"][rows]))]
    outer = np.ones(len(rows), np.bool_)
    for thread in distinct_values(launches["thread"][rows]).tolist():
        own = np.flatnonzero(launches["thread"][rows] == thread)
        until = np.maximum.accumulate(launches["end_ns"][rows[own]])
        outer[own[1:]] = launches["start_ns"][rows[own[1:]]] >= until[:-1]
    rows = rows[outer]
    codes = np.array([code_of[name] for name in launches["name"][rows].tolist()], np.int64)
    kernel = launches["kernel"][rows]
    own_code = {name: strings.code(trace.strings[name]) for name in distinct_values(kernel[kernel >= 0]).tolist()}
    named = (kernel >= 0) & (codes == UNNAMED)
    codes[named] = [own_code[name] for name in kernel[named].tolist()]
    return rows, codes


def _captures(trace: Trace, rows: Ints) -> tuple[Ints, bool]:
    """Number of the capture that each call lies in, in order of begin, -1 none; and whether begins and ends were recorded."""
    launches = trace.launches
    names = distinct_values(launches["name"]).tolist()
    edges = []
    for pattern in (_BEGIN, _END):
        codes = [name for name in names if pattern.search(trace.strings[name])]
        edges.append(np.flatnonzero(np.isin(launches["name"], codes)))
    begins, ends = edges
    if not len(begins) or not len(ends):
        return np.full(len(rows), -1, np.int64), False
    begins = begins[np.argsort(launches["start_ns"][begins], kind="stable")]
    begin, thread = launches["start_ns"][begins], launches["thread"][begins]
    until = np.full(len(begins), -1, np.int64)
    start, of = launches["start_ns"][rows], launches["thread"][rows]
    result, open_ = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64)
    for one in distinct_values(thread).tolist():
        last = np.sort(launches["start_ns"][ends[launches["thread"][ends] == one]])
        own = np.flatnonzero(thread == one)
        until[own] = np.append(last, -1)[np.searchsorted(last, begin[own])]
        at = np.searchsorted(begin[own], start, "right") - 1
        inside = (at >= 0) & (start < until[own[at]])
        result[inside & ((of == one) | (result < 0))] = own[at][inside & ((of == one) | (result < 0))]
        open_ += inside
    # A call of a thread that captures nothing itself is of the only capture there is then.
    alone = ~np.isin(of, thread)
    result[alone & (open_ != 1)] = -1
    other = ~alone & (result >= 0)
    result[np.flatnonzero(other)[thread[result[other]] != of[other]]] = -1
    return result, True


def _annotations(trace: Trace, rows: Ints) -> Ints:
    """Label of the capture annotation around each call, -1 none."""
    named = [label for label, marker in enumerate(trace.markers) if graph_capture(marker.text)]
    ranges, start = trace.ranges, trace.launches["start_ns"][rows]
    result = np.full(len(rows), -1, np.int64)
    for row in np.flatnonzero(np.isin(ranges["label"], named)).tolist():
        result[(start >= ranges["start_ns"][row]) & (start < ranges["end_ns"][row])] = ranges["label"][row]
    return result
