"""Kernels of a window -> their time by op, family and layer, and the places where most is lost against the roofline."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np

from pyprof.columns.distinct import distinct_places, distinct_rows, distinct_values, repeated
from pyprof.columns.intervals import spans, summed
from pyprof.columns.types import Ints
from pyprof.hardware import cpus
from pyprof.model.trace import ActivityKind
from pyprof.prof.columns import RecordTable
from pyprof.prof.frame import Frame, params
from pyprof.prof.group import layer_names
from pyprof.prof.roofline import BOUNDS
from pyprof.prof.sums import sums_of
from pyprof.report.advice.base import IN_PART, without_numbers
from pyprof.report.summary.model import LostPlace, Share
from pyprof.tables.table import Texts

_PLACES = 10
_MOST = 0.8  # of the time in layers: in one with more it is told by the layers inside
_NUMBER = re.compile(r"(?<![A-Za-z0-9])\d+(?![A-Za-z0-9])")  # of a layer in a list, after its class, or of a user's range
_SIBLINGS = 3  # this many layers of one class that differ only in their number count as one


class Kernels:
    """Kernels of a window: their times (0 where unknown) and time above the roofline (-1 where unknown), summed per group.

    rows: positions in the frame; code: group of like records of each; class_ns, class_count: per group; flops, bytes, lost:
    sums per group.
    """

    def __init__(self, frame: Frame, rows: Ints) -> None:
        self.frame, self.rows, self.classes = frame, rows, frame.classes
        self.code = self.classes.code[rows]
        self.time_ns = np.maximum(frame.records["dur_ns"][rows], 0).astype(np.int64, copy=False)
        size = len(self.classes)
        self.class_ns = summed(self.code, self.time_ns, size)
        self.class_count = np.bincount(self.code, minlength=size)
        self.total_ns = int(self.class_ns.sum())
        self.lost_ns: Ints = frame.roofline.lost_ns[rows]
        if cpus.peak() is None:  # without a measured peak only ops that compute nothing seem to lose time
            on_cpu = self.classes.records["kind"] == ActivityKind.CPU
            if on_cpu.any():
                self.lost_ns[on_cpu[self.code]] = -1

        amounts = frame.costs.sure_flops_of(rows), frame.costs.of("bytes", rows), self.lost_ns
        self.flops, self.bytes, self.lost = (sums_of(values, self.time_ns, self.code, size) for values in amounts)

    def shares(self, group: Ints, names: Sequence[str | None]) -> list[Share]:
        """One share for each name. group: place of each group of like records among the names, -1 none."""
        mine, count = np.flatnonzero((group >= 0) & (self.class_count > 0)), len(names)
        own = group[mine]
        flops, lost = (sums.take(mine).by(own, count) for sums in (self.flops, self.lost))
        numbers = zip(
            names, flops.all_ns.tolist(), self._calls(group, count), flops.rows.tolist(), flops.amounts(), lost.amounts(),
            flops.shares(), strict=True,
        )  # fmt: skip
        return [
            Share(name, ns, ns / (self.total_ns or 1), calls, number, flop.value, flop.least, above.value, above.least, known)
            for name, ns, calls, number, flop, above, known in numbers
        ]

    def _calls(self, group: Ints, count: int) -> list[int]:
        """How many executions of ops have kernels under each name. A record without an op counts as one."""
        alone, instance, code = self._executions
        there = group >= 0
        found = summed(group[there], alone[there], count)
        number = group[code]
        pairs = distinct_rows(instance[number >= 0], number[number >= 0]).columns
        return [*map(int, found + np.bincount(pairs[1], minlength=count))]

    @cached_property
    def _executions(self) -> tuple[Ints, Ints, Ints]:
        """(executions with one record, and records without an op, per group; executions with several records and the groups
        of these, each pair once)."""
        instance = self.frame.records["instance"][self.rows]
        several = repeated(instance)
        marked = np.zeros(int(several.max(initial=0)) + 2, np.bool_)  # the last stays False: for -1 and larger numbers
        marked[several[several >= 0]] = True
        shared = marked[np.clip(instance, -1, len(marked) - 1)]
        alone = np.bincount(self.code[~shared], minlength=len(self.classes))
        pairs = distinct_rows(instance[shared], self.code[shared]).columns
        return alone, pairs[0], pairs[1]

    def by(self, column: str) -> tuple[Share, ...]:
        """Time by the text of a column of `pyprof prof`, the longest first."""
        values = RecordTable(self.frame.of_classes).of(column)
        assert isinstance(values, Texts)
        codes = _codes([text or None for text in values.pool])
        names = [None, *dict.fromkeys(text for text in values.pool if text)]
        return _longest(self.shares(codes[values.codes], names))

    def by_layer(self) -> tuple[tuple[Share, ...], str, str | None]:
        """(time by layer, two levels deep below the layer around most, and outside of layers; that layer; its class)."""
        paths, path = self._paths()
        known = {} if self.frame.records.host is None else self.frame.records.host.classes
        folded, classes = folded_layers(paths, known)
        around = self._around(folded, path)
        depth = [1 + sum(accumulate((a == b for a, b in zip(one, around, strict=False)), min)) for one in folded]
        outer, outer_code = _level(folded, [at - (len(one) < at and at > 1) for one, at in zip(folded, depth, strict=True)])
        inner, inner_code = _level(folded, [at + 1 for at in depth])
        inside: dict[tuple[str, ...], list[Share]] = {}
        for name, share in zip(inner, self.shares(inner_code[path], [*map(_text, inner)]), strict=True):
            inside.setdefault(name[:-1], []).append(share._replace(cls=classes.get(name)))
        outer_code[outer_code < 0] = len(outer)
        found = self.shares(outer_code[path], [*map(_text, outer), None])
        whole = [
            share._replace(inside=_longest(inside.get(name, []) if around[: len(name)] != name else []), cls=classes.get(name))
            for name, share in zip([*outer, ()], found, strict=True)
        ]
        return _longest(whole) if len(paths) > 1 else (), _text(around), classes.get(around)

    def _paths(self) -> tuple[list[tuple[str, ...]], Ints]:
        """(the distinct layer paths, the empty one first; the path of each group of like records)."""
        known: dict[tuple[str, ...], int] = {(): 0}
        codes = [known.setdefault(layer_names(stack.layer), len(known)) for stack in self.frame.records.stacks]
        of_class = np.array([*codes, 0], np.int64)[self.classes.records["scope"]]
        of_class[self.class_count == 0] = 0
        used, place = distinct_places(of_class, len(known))
        paths = list(known)
        if not len(used) or used[0]:  # the empty path is always there
            used, place = np.append(0, used), place + 1
        return [paths[at] for at in used.tolist()], place

    def _around(self, paths: Sequence[tuple[str, ...]], path: Ints) -> tuple[str, ...]:
        """The deepest layer with layers in it that holds most of the time of layers."""
        spent = summed(path, self.class_ns, len(paths)).tolist()
        least = _MOST * sum(spent[1:])
        around: tuple[str, ...] = ()
        while True:
            inside, deeper = dict[tuple[str, ...], int](), set[tuple[str, ...]]()
            for one, ns in zip(paths, spent, strict=True):
                if one[: len(around)] == around and len(one) > len(around):
                    child = one[: len(around) + 1]
                    inside[child] = inside.get(child, 0) + ns
                    deeper |= {child} if ns and len(one) > len(child) else set()
            most = max(inside, key=inside.__getitem__, default=())
            if most not in deeper or inside[most] <= least:
                return around
            around = most

    def most_lost(self) -> tuple[LostPlace, ...]:
        """The places that lose most time against the roofline, one per op, shape and layer; numbers in layers do not count."""
        records, alike, lost_ns = self.frame.records, self.classes.records, self.lost
        distinct = dict.fromkeys(stack.layer for stack in records.stacks)
        of_layer = {layer: without_numbers(_text(layer_names(layer)), IN_PART) or None for layer in distinct}
        there = np.flatnonzero(lost_ns.number > 0)
        call, scope = alike["call"][there], alike["scope"][there]
        _, first, place = distinct_rows(
            _codes([one.op for one in records.calls])[call],
            _codes([*map(params, records.calls)])[call],
            _codes([of_layer[stack.layer] for stack in records.stacks])[scope],
        )
        lost = summed(place, lost_ns.total[there].astype(np.int64), len(first))
        earliest = spans(place, self.classes.first[there], self.classes.first[there], len(first))[0]
        most = [at for at in np.lexsort((earliest, -lost))[:_PLACES].tolist() if lost[at]]
        number = np.full(len(self.classes), -1, np.int8)
        for at, one in enumerate(most):
            number[there[place == one]] = at
        lossy = np.flatnonzero((number[self.code] >= 0) & (self.lost_ns >= 0))
        own = number[self.code[lossy]]
        return tuple(self._lost(lossy[own == at]) for at in range(len(most)))

    def _lost(self, mine: Ints) -> LostPlace:
        """One place, from its rows."""
        records, rows, limits = self.frame.records, self.rows[mine], self.frame.roofline
        scopes = distinct_values(records["scope"][rows]).tolist()
        layers = {_text(layer_names(records.stacks[code].layer)) for code in scopes if code >= 0}
        layer = layers.pop() if len(layers) == 1 else without_numbers(min(layers), IN_PART) if layers else ""
        time, lost = self.time_ns[mine], self.lost_ns[mine]
        bound = np.bincount(limits.bound[rows] + np.int64(1), lost, len(BOUNDS) + 1)[1:]
        peak = float((limits.peak[rows] / 100 * time).sum() / time.sum())
        call = records["call"][rows[0]]
        op, shape = (records.calls[call].op, params(records.calls[call])) if call >= 0 else (None, None)
        found = int(time.sum()), int(lost.sum()), peak
        return LostPlace(layer or None, op, shape, BOUNDS[int(bound.argmax())], len(mine), *found)


def folded_layers(
    paths: Sequence[tuple[str, ...]], known: Mapping[str, str]
) -> tuple[list[tuple[str, ...]], dict[tuple[str, ...], str]]:
    """(paths in which siblings of one class that differ only in their number are one, as in `.blocks`, `.0..11`; classes of
    such paths, where their names do not say them). known: classes of modules by their paths.

    Without a class, layers in a list are alike where the layers in them have the same names."""
    result: list[tuple[str, ...]] = [()] * len(paths)
    classes: dict[tuple[str, ...], str] = {}
    for depth in range(max(map(len, paths), default=0)):
        siblings: dict[tuple[str, ...], dict[str, list[int]]] = {}
        for at, path in enumerate(paths):
            if len(path) > depth:
                siblings.setdefault(result[at], {}).setdefault(path[depth], []).append(at)
        for around, parts in siblings.items():
            alike: dict[tuple[str | None, object], list[str]] = {}
            for part, rows in parts.items():
                pattern = _NUMBER.sub("*", part)
                cls = known.get("".join(paths[rows[0]][: depth + 1]).rpartition(":")[2])
                names = frozenset(_NUMBER.sub("*", paths[at][depth + 1]) for at in rows if len(paths[at]) > depth + 1)
                like = pattern if cls or pattern not in (".*", ":*") else names or part
                alike.setdefault((cls, (pattern, like)), []).append(part)
            for (cls, _), some in alike.items():
                whole = _one_name(some) if len(some) >= _SIBLINGS else None
                for part in some:
                    name = whole or part
                    if cls and cls not in name:
                        classes[(*around, name)] = cls
                    for at in parts[part]:
                        result[at] = (*around, name)
    return result, classes


def _one_name(names: Sequence[str]) -> str:
    """One name for several that differ in their numbers: `blocks_0..3`, or `step * to *` where several numbers differ."""
    columns = [sorted(map(int, some)) for some in zip(*map(_NUMBER.findall, names), strict=True)]
    several = sum(some[0] != some[-1] for some in columns) > 1
    texts = iter("*" if several else f"{some[0]}..{some[-1]}" if some[0] != some[-1] else str(some[0]) for some in columns)
    return _NUMBER.sub(lambda _: next(texts), names[0])


def _longest(found: Sequence[Share]) -> tuple[Share, ...]:
    """The shares with kernels, the longest first."""
    there = [one for one in found if one.kernels]
    return tuple(sorted(there, key=lambda one: (-one.time_ns, one.name is None, one.name or "")))


def _level(paths: Sequence[tuple[str, ...]], depth: Sequence[int]) -> tuple[list[tuple[str, ...]], Ints]:
    """(the distinct layers at these depths; for each path the layer it lies in, -1 none)."""
    names: dict[tuple[str, ...], int] = {}
    codes = [names.setdefault(one[:at], len(names)) if len(one) >= at else -1 for one, at in zip(paths, depth, strict=True)]
    return list(names), np.array(codes, np.int64)


def _text(path: tuple[str, ...]) -> str:
    return "".join(path)[1:]


def _codes(texts: Sequence[str | None]) -> Ints:
    """A number for each text, equal for equal texts; the last is for what has no text."""
    known: dict[str | None, int] = {None: 0}
    return np.array([*(known.setdefault(text, len(known)) for text in texts), 0], np.int64)
