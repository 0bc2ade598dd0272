"""Rule 3: what an op's cost depends on and its own range lacks -> labels that hold it.

Types, under autocast: where the dispatcher's ops are recorded with their types, an op that autocast treats appears twice:
called with the types that the program gave and, directly inside and after the casts, with the types in which it runs. emit_nvtx
records sizes without types; there the marker around a cast knows both.

More arguments, if the op's formula asks by a keyword-only parameter of that name (OpRules.asks). `inside`: the ops that it
called, as lists [full name, argument ...] in order of begin, equal ones once. Views and allocations are left out, except a view
of a tensor of three dimensions: it may be the only thing that shows the weights of experts. `engine_step`: the text of the
serving engine's annotation around the launch, for an op of a replayed graph around the replay.

Local sizes: a DTensor calls an op a second time with the part that this process holds, a nested tensor with its buffer. The op
then has an argument `ran`, the calls that did the work in the form of `inside`; its cost is theirs.

On a CPU, where ops are seen and no kernels, an op may have computed nothing: see `not_run`.

Numpy over ranges and rows; Python only over distinct pairs of labels, sequences of ops, pairs of op and step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.types import Array, Bools, Integers, Ints, Positions, Rows
from pyprof.model.autocast import is_mixed, parts_are_cast
from pyprof.model.dtypes import lookup
from pyprof.model.markers import TAKEN_OVER, Kind, Marker, is_compiler
from pyprof.model.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec
from pyprof.model.scheduler_steps import read
from pyprof.model.trace import Trace
from pyprof.parse.attribution.ops import OpsAround, nearest, outermost
from pyprof.parse.attribution.ranges import CaptureFacts

_FP32 = 6  # c10's number of the type, as it is recorded among an op's arguments
INSIDE, ENGINE_STEP, RAN, INFERRED = "inside", "engine_step", "ran", "inferred"
_MOST_INSIDE = 64
_PRIME = np.uint64(0x9E3779B97F4A7C15)


class Retyped(NamedTuple):
    """Ranges of ops, and the labels with the types in which they ran."""

    row: Rows
    label: Ints


def retyped(trace: Trace, around: OpsAround) -> Retyped:
    """All ops that ran otherwise than their own range says."""
    # Ops that called themselves with other types, or whose parts did.
    parent, label = around.nested.parent, around.label
    name = around.labels.name[label]
    inner = np.flatnonzero((name[:-1] >= 0) & (name[:-1] == name[parent]) & (label[:-1] != label[parent]))
    outer = parent[inner].astype(np.int64)
    root = np.where(around.formula_root[outer] >= 0, around.formula_root[outer], outer)
    called_again = _replaced(trace, root, (label[root], label[outer], label[inner]), _ran)
    position, changed = map(np.concatenate, zip(called_again, _casts(trace, around), strict=True))
    return Retyped(Rows(around.nested.row[position]), changed)


def _ran(markers: list[Marker], root: int, outer: int, inner: int) -> OpCall | None:
    """How an op ran if one of its ops (or itself) called itself again with other types; None if it ran as it was called.

    The types of the inner op hold for the outer one if its casts are those that autocast makes for the outer one, and if the
    outer one only passes its tensors on (`nll_loss_nd` to `nll_loss`, `pad` to `reflection_pad1d`).
    """
    called, made, ran = (markers[label].call for label in (root, outer, inner))
    if called is None or made is None or ran is None:
        return None
    options = [pair for pair in zip_longest(made.args, ran.args) if pair[0] != pair[1]]
    if root == outer and options and all(a is None and b == _FP32 for a, b in options):
        return called._replace(kwargs=(*called.kwargs, ("dtype", DTypeArg("float32"))))
    pairs = list(zip(made.tensors, ran.tensors, strict=False))
    if len(pairs) != max(len(made.tensors), len(ran.tensors)) or any(a.shape != b.shape for a, b in pairs):
        return None
    changed = {a.dtype: b.dtype for a, b in pairs if a.dtype != b.dtype}
    if not changed or not all(map(_is_float, (*changed, *changed.values()))):
        return None
    if root == outer:
        return ran
    if is_mixed(called):
        return called.map_tensors(lambda t: replace(t, dtype=None) if _is_float(t.dtype) else t)
    if not parts_are_cast(called) and called.tensors != made.tensors:  # else cast within it
        return None
    return called.map_tensors(lambda t: replace(t, dtype=changed.get(t.dtype, t.dtype)))


def _is_float(dtype: str | None) -> bool:
    found = lookup(dtype)
    return found is not None and found.kind == "float"


def _casts(trace: Trace, around: OpsAround) -> tuple[Array, Ints]:
    """Positions of casts that were recorded with sizes only, and labels with the types that the marker around them knows."""
    labels, label = around.labels, around.label
    if not (labels.bare_cast.any() and labels.makes_casts.any()):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    parent = np.append(around.nested.parent, -1)
    cast = np.flatnonzero(labels.bare_cast[label] & (around.formula_root == np.arange(len(label))))
    op = parent[cast]
    # Autocast casts before it calls the op again; an op that it asks for another dtype casts by itself.
    again = labels.name[label[op]] == labels.name[label[parent[op]]]
    outer = parent[np.where(again, parent[op], op)]
    known = (op >= 0) & labels.makes_casts[label[outer]]
    cast, outer, again = cast[known], outer[known], again[known]
    return _replaced(trace, cast, (label[cast], label[outer], again), _cast)


def _cast(markers: list[Marker], cast: int, outer: int, again: int) -> OpCall | None:
    """A cast with the types of the one that autocast made of a tensor of its size; None if it may be another one.

    again: whether it lies in the op as autocast called it.
    """
    call, made_for = markers[cast].call, markers[outer].call
    if call is None or made_for is None or again != any(key == "dtype" for key, _ in made_for.kwargs):
        return None
    shape = call.tensors[0].shape
    found = {made for made in markers[outer].casts if made.tensor.shape == shape}
    if len(found) != 1:
        return None
    tensor, dtype = found.pop()
    return call._replace(args=(tensor, DTypeArg(dtype)), flat=False)


def not_run(trace: Trace, around: OpsAround) -> Retyped:
    """Ops of a CPU of which nothing says that they computed, with labels that say so: those that torch.compile traces, on fake
    tensors, and those that a mode of Python's took over without calling an op."""
    label, nested = around.label, around.nested
    compiles = np.array([*(is_compiler(marker.name) for marker in trace.markers), False], np.bool_)
    takes = np.array([*(marker.name == TAKEN_OVER for marker in trace.markers), False], np.bool_)
    is_op, calls = np.isin(around.kind, (Kind.OP, Kind.DISPATCH)), np.zeros(len(label), np.bool_)
    for level, above in reversed(nested.levels):
        calls[above[is_op[level] | calls[level]]] = True
        calls[-1] = False
    traced = np.flatnonzero(is_op & (nearest(nested, compiles[label]) >= 0))
    ends = Positions(np.flatnonzero(takes[label] & ~calls))
    root = np.append(around.root(Positions(traced)), around.root(ends))
    root = distinct_values(root[root >= 0])
    labels, _, inverse = distinct_rows(label[root])
    codes = [code if trace.markers[code].call is None else with_argument(trace, code, RAN, []) for code in labels[0].tolist()]
    return Retyped(Rows(nested.row[root]), np.array(codes, np.int64)[inverse])


def _replaced(
    trace: Trace, position: Array, labels: tuple[Integers, ...], call_of: Callable[..., OpCall | None]
) -> tuple[Array, Ints]:
    """The positions for which `call_of` returns a call, and the labels of those calls. labels: the arguments of `call_of`."""
    distinct, _, inverse = distinct_rows(*labels)
    codes = np.full(distinct.shape[1], -1, np.int64)
    for index, key in enumerate(distinct.T.tolist()):
        call = call_of(trace.markers, *key)
        if call is not None:
            marker = trace.markers[key[0]]
            codes[index] = trace.labels.add((marker.kind, marker.name, repr(call)), marker._replace(call=call))
    found = codes[inverse]
    return position[found >= 0], found[found >= 0]


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
    return _with_calls(trace, around, INSIDE, above[called], called, label)


def with_local_sizes(trace: Trace, around: OpsAround) -> Retyped:
    """Ranges of the ops whose work was done by a second call of an op in them with other sizes, with labels that hold it."""
    label, name = around.label, around.labels.name[around.label]
    caller = np.append(around.last_op[around.nested.parent], -1)
    works = around.labels.candidate[label] | around.labels.copy[label]
    inner = np.flatnonzero(works & (name >= 0) & (name == name[caller]) & (label != label[caller]))
    wrapped = around.labels.wrapper[
        label[around.nested.parent[inner]]
    ]  # torch says itself that a subclass of tensors called the op again
    ran = _alike(trace, _ran_in, label[caller[inner]], label[inner], wrapped)
    inner, wrapped = inner[ran], wrapped[ran]
    # Without torch's word several may share the work of an op that ran itself.
    inner = inner[wrapped | (np.bincount(caller[inner], minlength=len(label))[caller[inner]] == 1)]
    inner = inner[~np.isin(inner, caller[inner])]  # of a chain of calls the last
    batched, split = _batched(trace, around, caller, works)
    root = around.formula_root[caller[inner]]
    inner, root = inner[~split[root]], root[~split[root]]
    inner, root = np.append(inner, batched), np.append(root, around.formula_root[batched])
    order = np.lexsort((inner, root))
    order = order[root[order] >= 0]
    inner, root, first, how = inner[order], root[order], inner[order], label.astype(np.int64)
    while (up := (caller[first] >= 0) & (name[caller[first]] == name[inner])).any():
        first = np.where(up, caller[first], first)
    stacked, own = _replaced(trace, inner, (label[inner], label[first]), _last_arguments)
    how[stacked] = own
    return _with_calls(trace, around, RAN, root, inner, how)


def _batched(trace: Trace, around: OpsAround, caller: Array, works: Bools) -> tuple[Array, Bools]:
    """The ops that did the work of ops under vmap, and which ops called them.

    vmap calls an op again as it is, and inside that one ops with tensors of one more dimension: of all samples at once. Inside
    an op that did so somewhere, what ran is the outermost ops that did not.
    """
    label, nested = around.label, around.nested
    again = (caller >= 0) & (around.labels.name[label] >= 0) & (label == label[caller])
    split, calls_again = np.zeros((2, len(label)), np.bool_)
    calls_again[caller[again]] = True
    within = (nearest(nested, again) >= 0)[caller] & (caller >= 0)
    called = np.flatnonzero(within & (label != label[caller]))
    found = _alike(trace, _is_batched, label[caller[called]], label[called], calls_again[called])
    if not found.any():
        return np.empty(0, np.int64), split
    split[caller[called[found]]] = True
    for level, above in reversed(nested.levels):
        split[above[split[level]]] = True
    split[-1] = False
    whole = works & ~split
    ran = np.flatnonzero(outermost(nested, whole, around.kind == Kind.BACKWARD) == np.arange(len(label)))
    return ran[split[around.formula_root[ran]]], split


def _alike(trace: Trace, holds: Callable[..., bool], outer: Integers, inner: Integers, *flags: Bools) -> Bools:
    """For each pair of labels whether `holds` is true for their calls, asked once per distinct pair."""
    keys, _, kind = distinct_rows(outer, inner, *flags)
    found = [holds(*(trace.markers[code].call for code in key[:2]), *map(bool, key[2:])) for key in keys.T.tolist()]
    return np.array(found, np.bool_)[kind]


def _ran_in(outer: OpCall | None, inner: OpCall | None, sure: bool) -> bool:
    """Whether a call of an op in itself did the work: it is known to be one of a subclass and has other sizes or types (local
    sizes, those of a nested tensor's buffer, a quantised weight's), or as many tensors with as many dimensions, some of which
    are smaller and none larger."""
    if outer is None or inner is None or not inner.tensors:
        return False
    before, after = ([tensor.shape for tensor in call.tensors] for call in (outer, inner))
    if sure and before == after:
        return [tensor.dtype for tensor in outer.tensors] != [tensor.dtype for tensor in inner.tensors]
    if sure or before == after:
        return sure
    sizes = [pair for a, b in zip(before, after, strict=False) for pair in zip(a, b, strict=False)]
    return [*map(len, before)] == [*map(len, after)] and all(a >= b for a, b in sizes)


def _is_batched(outer: OpCall | None, inner: OpCall | None, again: bool) -> bool:
    """Whether one call has the other's tensors with one more dimension in front (a batch): the inner one of `again`, an op that
    calls itself, at least one of them; else the outer one all that differ."""
    if outer is None or inner is None:
        return False
    before, after = ([tensor.shape for tensor in call.tensors] for call in (outer, inner))
    if again:
        return any(shape and shape[0] > 1 and shape[1:] in before and shape not in before for shape in after)
    pairs = [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]]
    return len(before) == len(after) and bool(pairs) and all(b and b[0] > 1 and b[1:] == a for a, b in pairs)


def _last_arguments(markers: list[Marker], inner: int, first: int) -> OpCall | None:
    """A call without the arguments that were recorded before its own, those of the first call of the op, as torch.func does."""
    call, before = markers[inner].call, markers[first].call
    if call is None or before is None:
        return None
    count = len(before.args)
    again = len(call.args) == 2 * count and call.args[:count] == before.args
    return call._replace(args=call.args[count:]) if again else None


def _with_calls(trace: Trace, around: OpsAround, name: str, owner: Array, called: Array, label: Integers) -> Retyped:
    """Ranges of the owners, and labels with the calls of each as one more argument. owner: position of the op that each call
    belongs to; called: positions of the calls in order of begin; label: of each position how it ran."""
    order = np.argsort(owner, kind="stable")
    owner, called = owner[order], called[order]
    owners, first, count = np.unique(owner, return_index=True, return_counts=True)
    place = np.arange(len(called)) - np.repeat(first, count)
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(int(place.max(initial=0)) + 1, _PRIME))
        sums = np.cumsum((label[called].astype(np.int64) + 1).astype(np.uint64) * powers[place], dtype=np.uint64)
    sums = np.append(np.uint64(0), sums)
    hashes = (sums[first + count] - sums[first]).view(np.int64) >> 3
    _, example, inverse = distinct_rows(around.label[owners], count, hashes)
    codes = []
    for at in example.tolist():
        own, part = int(around.label[owners[at]]), label[called[first[at] :][: count[at]]].tolist()
        part = part if name == RAN else dict.fromkeys(part)  # what ran is added up
        calls = [call for one in part if (call := trace.markers[one].call) is not None]
        most = None if name == RAN else _MOST_INSIDE
        listed = [[call.name, *map(_without_gradient, call.args)] for call in calls[:most]]
        codes.append(with_argument(trace, own, name, listed) if listed else own)
    return Retyped(Rows(around.nested.row[owners]), np.array(codes, np.int64)[inverse])


def _without_gradient(value: object) -> object:
    """The argument; a tensor without its requires_grad, which does not matter for an inner op."""
    return TensorSpec(value.shape, value.dtype, value.strides) if isinstance(value, TensorSpec) else value


def with_argument(trace: Trace, label: int, name: str, value: object) -> int:
    """The label of the same op with one more argument."""
    marker = trace.markers[label]
    assert marker.call is not None
    call = marker.call._replace(kwargs=(*marker.call.kwargs, (name, value)))
    return trace.labels.add((marker.kind, marker.name, repr(call)), marker._replace(call=call))


# ---------------------------------------------------------------------------------------------- the forward op


def with_sums(trace: Trace, labels: Array, forward: Array) -> Array:
    """Labels of ops that the engine ran beside a backward function; a sum whose dimensions were not recorded gets those that
    the forward op tells. forward: labels of the function's forward op, -1 where nothing is to be told."""
    calls = [marker.call for marker in trace.markers]
    lacks = np.array([*(call is not None and call.op == "sum" and UNKNOWN in call.args for call in calls), False], np.bool_)
    rows = np.flatnonzero(lacks[labels] & (forward >= 0))
    if not len(rows):
        return labels
    pairs, _, inverse = distinct_rows(labels[rows], forward[rows])
    codes = pairs[0].copy()
    for index, (own, of) in enumerate(pairs.T.tolist()):
        marker, call = trace.markers[own], trace.markers[of].call
        filled = summed(marker.call, call) if marker.call is not None and call is not None else None
        if filled is not None:
            codes[index] = trace.labels.add((marker.kind, marker.name, repr(filled)), marker._replace(call=filled))
    result = labels.astype(np.int64)
    result[rows] = codes[inverse]
    return result


def summed(own: OpCall, forward: OpCall) -> OpCall | None:
    """A gradient is summed to the shape of the one forward input that was broadcast to the gradient's shape."""
    gradient = own.tensors[0] if own.tensors else None
    if gradient is None or len(own.args) < 3:
        return None
    found = {dims for t in forward.tensors if (dims := _broadcast_dims(t.shape, gradient.shape))}
    return with_value(own, 1, list(found.pop()), "dim") if len(found) == 1 else None


def _broadcast_dims(small: tuple[int, ...], large: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions along which `small` was broadcast to `large`; empty if it was not."""
    if len(small) > len(large):
        return ()
    padded = (1,) * (len(large) - len(small)) + small
    if any(a not in (1, b) for a, b in zip(padded, large, strict=True)):
        return ()
    leading = len(large) - len(small)
    return tuple(i for i, (a, b) in enumerate(zip(padded, large, strict=True)) if i < leading or a != b)


def with_value(own: OpCall, place: int, value: object, name: str) -> OpCall:
    """The call with one more argument known. name: of the inferred argument."""
    args = (*own.args[:place], value, *own.args[place + 1 :])
    return own._replace(args=args, kwargs=(*own.kwargs, (INFERRED, name)))


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
