"""Calls of modules among the Python frames of a torch.profiler trace -> ranges of layers with their paths.

Each frame has the id of the one that called it, so each call of a module is known to lie inside another's. Without ids its time
on the thread shows it. The trace calls modules after classes: a path is `ViT_0.Block_2.Linear_5`, joined from the outside in,
but `blocks.2.mlp.0` if the recorder put the names of the running model beside the events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.nesting import Forest, by_thread, crossing, nest
from pyprof.columns.sorting import matching_rows
from pyprof.columns.types import Array, Bools, Integers, Ints
from pyprof.model.markers import Kind, Marker
from pyprof.model.trace import Labels, Table

MODULE_PREFIX = "nn.Module: "
_DEEPEST = 64  # doublings of the way to the module around a frame, more than any stack needs


class Intervals(NamedTuple):
    """Times on threads, in ns; rank: of two with equal begin and end the lower is the outer."""

    thread: Integers
    start: Ints
    end: Ints
    rank: Integers

    def take(self, rows: Array) -> Intervals:
        return Intervals(*(column[rows] for column in self))


def nested(rows: Intervals) -> Iterator[tuple[int, Ints, Forest]]:
    """(thread, its rows in order of begin, their forest) of each thread, without rows that cross others."""
    for thread, own in by_thread(rows.thread, np.arange(len(rows.thread))).items():
        own = own[np.lexsort((rows.rank[own], -rows.end[own], rows.start[own]))]
        start, end = rows.start[own], rows.end[own]
        forest = nest(start, end)
        aside = crossing(start, end, np.zeros(len(own), np.bool_), forest)
        if aside.any():
            own, forest = own[~aside], nest(start[~aside], end[~aside])
        yield thread, own, forest


def open_at(rows: Intervals, thread: Integers, times: Ints) -> Bools:
    """Whether one of these rows is open on each thread at each time."""
    result = np.zeros(len(times), np.bool_)
    asked = by_thread(thread, np.arange(len(times)))
    for number, own in by_thread(rows.thread, np.arange(len(rows.thread))).items():
        if (wanted := asked.get(number)) is not None:
            own = own[np.argsort(rows.start[own])]
            ends = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, rows.end[own]))
            result[wanted] = ends[np.searchsorted(rows.start[own], times[wanted], "right")] > times[wanted]
    return result


class FrameTable(NamedTuple):
    """Python frames. start, end: ns; name: code; id, parent: of the frame and of its caller, -1 unknown."""

    thread: Integers
    start: Ints
    end: Ints
    name: Integers
    id: Integers
    parent: Integers

    def intervals(self) -> Intervals:
        """Their times. Ids order the outer before the inner of two at one time."""
        return Intervals(self.thread, self.start, self.end, self.id)


class _Path(NamedTuple):
    """Path of a module, and its class. whole: number of the outermost module that holds it in the running model, -1 unknown."""

    whole: int
    path: str
    cls: str = ""


def module_ranges(frames: FrameTable, names: Sequence[str], known: object, labels: Labels) -> Table | None:
    """Columns of `ranges` for each call of a module, None without one. names: by code; known: the trace's `pyprof_modules`, see
    `_checked`."""
    of_module = np.array([name.startswith(MODULE_PREFIX) for name in names], np.bool_)
    rows = np.flatnonzero(of_module[frames.name])
    if not len(rows):
        return None
    around = _around(frames, of_module, rows)
    # By time on the thread for those whose ids do not say it.
    for _, places, forest in nested(frames.intervals().take(rows)):
        inside = np.flatnonzero((around[places] < 0) & (forest.parent >= 0))
        around[places[inside]] = places[forest.parent[inside]]
    label = _labels(frames.name[rows], around, names, _checked(known), labels)
    return {"start_ns": frames.start[rows], "end_ns": frames.end[rows], "thread": frames.thread[rows], "label": label}


def _around(frames: FrameTable, of_module: Bools, rows: Ints) -> Array:
    """For each call of a module the place in `rows` of the module call around it, by ids, -1 unknown."""
    thread, name, parent = frames.thread, frames.name, frames.parent
    up = matching_rows(frames.id, parent)
    up[(parent < 0) | (thread[up] != thread)] = -1
    for _ in range(_DEEPEST):  # each time to the caller's caller, as long as no module is met
        plain = np.flatnonzero((up >= 0) & ~of_module[name[up]])
        if not len(plain):
            break
        up[plain] = up[up[plain]]
    # Ids that go round in a ring lead to no module.
    up = up[rows]
    return matching_rows(rows, np.where(of_module[name[up]], up, -1))


def _labels(name: Integers, around: Array, names: Sequence[str], known: dict[str, list[_Path]], labels: Labels) -> Array:
    """The label of each call, level by level from the outside in; around: place of the call around each, -1 none."""
    level = _levels(around)
    paths: list[_Path] = []
    code_of: dict[_Path, int] = {}
    path = np.full(len(name), -1, np.int32)
    for number in range(int(level.max(initial=-1)) + 1):
        chosen = np.flatnonzero(level == number)
        outer = around[chosen]
        pairs = distinct_rows(np.where(outer >= 0, path[outer], -1), name[chosen])
        codes = []
        for of_outer, code in pairs.columns.T.tolist():
            one = _path(names[code].removeprefix(MODULE_PREFIX), paths[of_outer] if of_outer >= 0 else None, known)
            codes.append(code_of.setdefault(one, len(paths)))
            paths += [one] * (code_of[one] == len(paths))
        path[chosen] = np.array(codes, np.int32)[pairs.inverse]
    markers = [Marker(Kind.LAYER, one.path, one.path, scope="module", cls=one.cls) for one in paths]
    return np.array([labels.add(("module", marker.name), marker) for marker in markers], np.int32)[path]


def _levels(around: Array) -> Array:
    """Number of calls around each. Ids that form a ring are counted from any of it."""
    level = np.where(around < 0, np.int32(0), np.int32(-1))
    number, missing = 0, int((level < 0).sum())
    if missing == len(around) > 0:
        level[0], missing = 0, missing - 1
    while missing:
        number += 1
        following = np.flatnonzero((level < 0) & (around >= 0) & (level[around] == number - 1))
        if not len(following):  # ids that go round in a ring: begin anywhere
            following = np.flatnonzero(level < 0)[:1]
        level[following] = number
        missing -= len(following)
    return level


def _path(name: str, outer: _Path | None, known: dict[str, list[_Path]]) -> _Path:
    """The path of a module, named after its class, below its parent's path."""
    found, cls = known.get(name), re.sub(r"_\d+$", "", name)
    if not found:
        return _Path(-1, f"{outer.path}.{name}" if outer is not None else name, cls)
    if outer is not None:
        found = [one for one in found if one.whole == outer.whole] or found
        here = outer.path.split(".")
        common = {one: [a == b for a, b in zip(one.path.split("."), here, strict=False)] for one in found}  # part by part
        found = sorted(found, key=lambda one: (-[*common[one], False].index(False), one.path.count(".")))
    return _Path(found[0].whole, found[0].path or cls, cls)


def _checked(known: object) -> dict[str, list[_Path]]:
    """The recorder's list: for the name of each module in the trace pairs of outermost module and path in that."""
    found: dict[str, list[_Path]] = {}
    for name, pairs in known.items() if isinstance(known, dict) else ():
        for pair in pairs if isinstance(pairs, list) else ():
            if isinstance(pair, list) and [*map(type, pair)] == [int, str]:
                found.setdefault(name, []).append(_Path(*pair))
    return found
