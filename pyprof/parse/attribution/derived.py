"""Rule 3: facts that a formula asks for and the op's own arguments lack -> additional arguments of its call.

`inside`: the ops that it called, as lists [full name, argument ...] in order of begin, equal ones once. Views and allocations
are left out, except a view of a tensor of three dimensions: it may be the only thing that shows the weights of experts.
`engine_step`: the text of the serving engine's annotation around the launch, for an op of a replayed graph around the replay.

A formula asks by a keyword-only parameter of that name (OpRules.asks). Numpy over ranges and rows; Python only over distinct
sequences of ops and distinct pairs of op and step.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Ints, Rows
from pyprof.engine_steps import read
from pyprof.markers import Kind
from pyprof.opcall import TensorSpec
from pyprof.parse.attribution.ops import OpsAround, nearest
from pyprof.parse.attribution.ranges import CaptureFacts
from pyprof.parse.attribution.run_types import Retyped
from pyprof.parse.sources.trace import Trace

INSIDE, ENGINE_STEP = "inside", "engine_step"
_MOST_INSIDE = 64
_PRIME = np.uint64(0x9E3779B97F4A7C15)


# ---------------------------------------------------------------------------------------------- the ops inside


def with_inside(trace: Trace, around: OpsAround) -> Retyped:
    """Ranges of the ops that ask for the ops inside them, with labels that hold them."""
    label, nested = around.label, around.nested
    asking = around.labels.asks_inside[label]
    owners = np.flatnonzero(asking)
    if not len(owners):
        return Retyped(Rows(owners), owners)
    above = np.append(nearest(nested, asking)[nested.parent], -1)  # of each range the innermost that asks around it
    called = np.flatnonzero((above >= 0) & (around.kind == Kind.DISPATCH) & around.labels.telling[label])
    called = called[np.lexsort((called, above[called]))]  # positions are in order of begin
    bounds = np.searchsorted(above[called], owners), np.searchsorted(above[called], owners, "right")
    place = np.arange(len(called)) - np.repeat(bounds[0], bounds[1] - bounds[0])
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(int(place.max(initial=0)) + 1, _PRIME))
        sums = np.cumsum((label[called].astype(np.int64) + 1).astype(np.uint64) * powers[place], dtype=np.uint64)
    sums = np.append(np.uint64(0), sums)
    hashes = (sums[bounds[1]] - sums[bounds[0]]).view(np.int64) >> 3
    _, example, inverse = distinct_rows(label[owners], bounds[1] - bounds[0], hashes)
    codes = []
    for at in example.tolist():
        own, part = int(label[owners[at]]), label[called[bounds[0][at] : bounds[1][at]]].tolist()
        calls = [call for one in dict.fromkeys(part) if (call := trace.markers[one].call) is not None]
        listed = [[call.name, *map(_without_gradient, call.args)] for call in calls[:_MOST_INSIDE]]
        codes.append(with_argument(trace, own, INSIDE, listed) if listed else own)
    return Retyped(Rows(nested.row[owners]), np.array(codes, np.int64)[inverse])


def _without_gradient(value: object) -> object:
    """The argument; a tensor without its requires_grad, which does not matter for an inner op."""
    return TensorSpec(value.shape, value.dtype, value.strides) if isinstance(value, TensorSpec) else value


def with_argument(trace: Trace, label: int, name: str, value: object) -> int:
    """The label of the same op with one more argument."""
    marker = trace.markers[label]
    assert marker.call is not None
    call = marker.call._replace(kwargs=(*marker.call.kwargs, (name, value)))
    return trace.labels.add((marker.kind, marker.name, repr(call)), marker._replace(call=call))


# ---------------------------------------------------------------------------------------------- the step of an engine


def telling_text(texts: tuple[str, ...]) -> str:
    """The most informative annotation of a step: one with sums over the requests, else one with tokens."""

    def known(text: str) -> int:
        step = read(text)
        return -1 if step is None else sum(value is not None for value in (*step.total, step.phase))

    return max(texts, key=known)


def with_steps(capture: CaptureFacts, labels: Ints, step: Ints, texts: list[str]) -> Ints:
    """Labels of ops, where an op asks for it with the text of its step. step: code into texts."""
    trace, asks = capture.trace, capture.rules.asks
    names = ["" if marker.call is None else marker.call.name for marker in trace.markers]
    asking = {name: bool(name) and ENGINE_STEP in asks(name) for name in set(names)}
    rows = np.flatnonzero(np.array([*map(asking.__getitem__, names), False], np.bool_)[labels] & (step >= 0))
    pairs, _, inverse = distinct_rows(labels[rows], step[rows])
    codes = [with_argument(trace, label, ENGINE_STEP, texts[code]) for label, code in pairs.T.tolist()]
    result = labels.astype(np.int64)
    result[rows] = np.array(codes, np.int64)[inverse]
    return result
