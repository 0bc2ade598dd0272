"""Kernels of a window -> their time by op, family and layer, and the places where most is lost against the roofline."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pyprof.arrays.columns import distinct_places, distinct_rows, distinct_values
from pyprof.arrays.intervals import summed
from pyprof.arrays.spool import computed, kept, pieces, row_type, taken
from pyprof.arrays.types import Ints
from pyprof.hardware import cpus
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.columns import RecordTable
from pyprof.prof.frame import Frame, params
from pyprof.prof.group import LEAST_KNOWN, exact_sum, layer_names
from pyprof.prof.roofline import BOUNDS
from pyprof.report.summary.model import Lost, Share
from pyprof.tables.table import Texts

_PLACES = 10
_NUMBER = re.compile(
    r"(?<=[._])\d+(?=[.:]|$)|^\d+(?=[.:]|$)"
)  # of a layer in a list (`.3`), or called after its class (`Linear_12`)
_WHOLE = 0.99  # of the time in layers: what holds as much is around all of them


class Kernels:
    """Some records of a frame with their times. time_ns: 0 where unknown; lost_ns: above the roofline, -1 unknown."""

    def __init__(self, frame: Frame, rows: Ints) -> None:
        dur_ns = frame.records["dur_ns"]
        self.frame, self.rows = frame, kept(rows)
        self.time_ns: Ints = computed(len(rows), np.int64, lambda part: np.maximum(dur_ns[rows[part]], 0))
        self.total_ns = int(self.time_ns.sum())
        self.lost_ns: Ints = taken(frame.roofline.lost_ns, rows)
        if cpus.peak() is None:  # what does nothing loses all its time on any machine; that alone says little of this one
            self.lost_ns[frame.records["kind"][rows] == ActivityKind.CPU] = -1

    def shares(self, group: Ints, names: Sequence[str | None]) -> list[Share]:
        """One share for each group of rows; group: of each row, -1 none."""
        rows: Ints | slice = slice(None) if (group >= 0).all() else np.flatnonzero(group >= 0)
        group, count = group[rows], len(names)
        total = summed(group, self.time_ns[rows], count)
        flops, lost = (self._sums(values[rows], group, rows, total) for values in (self._flops, self.lost_ns))
        calls, kernels = self._calls(group, rows, count), np.bincount(group, minlength=count).tolist()
        numbers = zip(names, total.tolist(), calls, kernels, flops, lost, strict=True)
        return [Share(name, ns, ns / (self.total_ns or 1), *others) for name, ns, *others in numbers]

    def _calls(self, group: Ints, rows: Ints | slice, count: int) -> list[int]:
        """How many executions of ops each group has a part of; a row of none is one of its own."""
        instance = self.frame.records["instance"][self.rows[rows]]
        alone = np.bincount(group[instance < 0], minlength=count)
        size = int(instance.max(initial=0)) + 1
        pair = (group * size + instance)[instance >= 0]
        pair.sort()
        new = pair[np.append(True, pair[1:] != pair[:-1])[: len(pair)]]
        found: list[int] = (alone + np.bincount(new // size, minlength=count)).tolist()
        return found

    @property
    def _flops(self) -> Ints:
        return taken(self.frame.costs.flops, self.rows)

    def _sums(self, values: Ints, group: Ints, rows: Ints | slice, total: Ints) -> list[int | None]:
        """Sums of numbers of which those below 0 are unknown; None where too little of a group's time is known."""
        of_known, often, sums = (np.zeros(len(total), np.int64) for _ in range(3))
        time_ns = self.time_ns[rows]
        for part in pieces(len(values)):
            known, own = values[part] >= 0, group[part]
            of_known += summed(own, np.where(known, time_ns[part], 0), len(total))
            often += np.bincount(own[known], minlength=len(total))
            sums = sums + exact_sum(np.where(known, values[part], 0), own, len(total))
        enough = (of_known > LEAST_KNOWN * total) & (often > 0)
        return [number if good else None for number, good in zip(sums.tolist(), enough.tolist(), strict=True)]

    def by(self, column: str) -> tuple[Share, ...]:
        """Time by the text that a column of `pyprof prof` holds, the longest first."""
        values = RecordTable(self.frame).of(column)
        assert isinstance(values, Texts)
        codes = _codes([text or None for text in values.pool])
        names = [None, *dict.fromkeys(text for text in values.pool if text)]
        return _longest(self.shares(codes[values.codes[self.rows]], names))

    def by_layer(self) -> tuple[tuple[Share, ...], str]:
        """(time by layer, two levels below what is around nearly all of them, and outside of any; what that is)."""
        paths, path = self._paths()
        around = self._around(paths, path)
        depth = [len(around) if one[: len(around)] == around else 0 for one in paths]
        outer, outer_code = _level(paths, [at + 1 for at in depth])
        inner, inner_code = _level(paths, [at + 2 for at in depth])
        inside: dict[tuple[str, ...], list[Share]] = {}
        for name, share in zip(inner, self.shares(inner_code[path], [*map(_text, inner)]), strict=True):
            inside.setdefault(name[:-1], []).append(share)
        outer_code[outer_code < 0] = len(outer)
        found = self.shares(outer_code[path], [*map(_text, outer), None])
        whole = [share._replace(inside=_longest(inside.get(name, []))) for name, share in zip([*outer, ()], found, strict=True)]
        return _longest(whole) if len(paths) > 1 else (), _text(around)

    def _paths(self) -> tuple[list[tuple[str, ...]], Ints]:
        """(the distinct paths of layers, first that of none; of each row its number)."""
        known: dict[tuple[str, ...], int] = {(): 0}
        codes = [known.setdefault(layer_names(stack.layer), len(known)) for stack in self.frame.records.stacks]
        number, scope = np.array([*codes, 0], np.int64), self.frame.records["scope"]
        of_row = computed(len(self.rows), row_type(len(known)), lambda part: number[scope[self.rows[part]]])
        used, place = distinct_places(of_row, len(known))
        paths = list(known)
        if not len(used) or used[0]:  # that of none is there always
            used, place = np.append(0, used), place + 1
        return [paths[at] for at in used.tolist()], place

    def _around(self, paths: Sequence[tuple[str, ...]], path: Ints) -> tuple[str, ...]:
        """The deepest layer that nearly all that lies in any layer lies in, and in one of its own layers too."""
        spent = summed(path, self.time_ns, len(paths)).tolist()
        least = _WHOLE * sum(spent[1:])
        around: tuple[str, ...] = ()
        while True:
            inside: dict[tuple[str, ...], int] = {}
            deeper = 0
            for one, ns in zip(paths[1:], spent[1:], strict=True):
                if one[: len(around)] == around and len(one) > len(around) + 1:
                    deeper += ns
                    inside[one[: len(around) + 1]] = inside.get(one[: len(around) + 1], 0) + ns
            if not inside or not deeper >= least or max(inside.values()) < least:
                return around
            around = max(inside, key=inside.__getitem__)

    def most_lost(self) -> tuple[Lost, ...]:
        """The places where most time is lost against the roofline: one for each op, shape, and layer but for its numbers."""
        known = np.flatnonzero(self.lost_ns >= 0)
        rows, (of_op, of_shape, of_layer) = self.rows[known], self._places
        call, scope = (self.frame.records[name][rows] for name in ("call", "scope"))
        (first, place) = distinct_rows(of_op[call], of_shape[call], of_layer[scope])[1:]
        lost = summed(place, self.lost_ns[known], len(first))
        most = [at for at in np.argsort(-lost, kind="stable")[:_PLACES].tolist() if lost[at]]
        return tuple(self._lost(known[place == at]) for at in most)

    @property
    def _places(self) -> tuple[Ints, Ints, Ints]:
        """(of each call the number of its op, and of its shapes; of each stack that of its layer)."""
        records = self.frame.records
        layers = [_NUMBER.sub("*", _text(layer_names(stack.layer))) or None for stack in records.stacks]
        return _codes([one.op for one in records.calls]), _codes([*map(params, records.calls)]), _codes(layers)

    def _lost(self, mine: Ints) -> Lost:
        """One place. mine: its rows."""
        records, rows, limits = self.frame.records, self.rows[mine], self.frame.roofline
        scopes = distinct_values(records["scope"][rows]).tolist()
        layers = {_text(layer_names(records.stacks[code].layer)) for code in scopes if code >= 0}
        layer = layers.pop() if len(layers) == 1 else _NUMBER.sub("*", min(layers)) if layers else ""
        time, lost = self.time_ns[mine], self.lost_ns[mine]
        bound = np.bincount(limits.bound[rows] + 1, lost, len(BOUNDS) + 1)[1:]
        peak = float((limits.peak[rows] / 100 * time).sum() / time.sum())
        call = records["call"][rows[0]]
        op, shape = (records.calls[call].op, params(records.calls[call])) if call >= 0 else (None, None)
        return Lost(layer or None, op, shape, BOUNDS[int(bound.argmax())], len(mine), int(time.sum()), int(lost.sum()), peak)


def _longest(found: Sequence[Share]) -> tuple[Share, ...]:
    """Those that have rows, the longest first."""
    there = [one for one in found if one.kernels]
    return tuple(sorted(there, key=lambda one: (-one.time_ns, one.name is None, one.name or "")))


def _level(paths: Sequence[tuple[str, ...]], depth: Sequence[int]) -> tuple[list[tuple[str, ...]], Ints]:
    """(layers, for each path which of them it lies in at its depth, -1 none)."""
    names: dict[tuple[str, ...], int] = {}
    codes = [names.setdefault(one[:at], len(names)) if len(one) >= at else -1 for one, at in zip(paths, depth, strict=True)]
    return list(names), np.array(codes, np.int64)


def _text(path: tuple[str, ...]) -> str:
    return "".join(path)[1:]


def _codes(texts: Sequence[str | None]) -> Ints:
    """A number for each distinct text, and at the end that of what has none."""
    known: dict[str | None, int] = {None: 0}
    return np.array([*(known.setdefault(text, len(known)) for text in texts), 0], np.int64)
