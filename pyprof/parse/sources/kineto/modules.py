"""Calls of modules among the Python frames of a torch.profiler trace -> ranges of layers with their paths.

Each frame names the one that called it by id; so each call of a module is known to lie inside another's. Where ids are
missing, its time on the thread shows it. The trace calls modules after classes: a path is `ViT_0.Block_2.Linear_5`, joined
from the outside in, but `blocks.2.mlp.0` where the recorder put the names of the running model beside the events.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows, distinct_values
from pyprof.arrays.nesting import crossing, nest
from pyprof.arrays.types import Bools, Integers, Ints
from pyprof.markers import Kind, Marker
from pyprof.parse.sources.trace import Labels, Table, make_table

MODULE_PREFIX = "nn.Module: "
_DEEPEST = 64  # doublings of the way to the module around a frame, more than any stack needs


class FrameTable(NamedTuple):
    """Python frames: thread; begin and end in ns; code of the name; id and id of the caller, -1 unknown."""

    thread: Integers
    start: Ints
    end: Ints
    name: Integers
    id: Integers
    parent: Integers


class _Path(NamedTuple):
    """Where a module is: number of the outermost module that holds it in the running model, -1 unknown; its path."""

    whole: int
    path: str


def module_ranges(frames: FrameTable, names: list[str], known: object, labels: Labels) -> Table:
    """A row of `ranges` for each call of a module. names: by code; known: the trace's `pyprof_modules`, see `_checked`."""
    is_module = np.array([name.startswith(MODULE_PREFIX) for name in names], np.bool_)[frames.name]
    rows = np.flatnonzero(is_module)
    around = _around(frames, is_module, rows)
    bare = np.flatnonzero(around < 0)
    around[bare] = _around_by_time(frames, rows, bare)
    label = _labels(frames.name[rows], around, names, _checked(known), labels)
    columns = {"start_ns": frames.start[rows], "end_ns": frames.end[rows], "thread": frames.thread[rows], "label": label}
    return make_table("ranges", columns)


def _around(frames: FrameTable, is_module: Bools, rows: Ints) -> Ints:
    """For each call of a module that of the module around it, by ids: place in rows, -1 unknown."""
    order = np.argsort(frames.id, kind="stable")
    sorted_ids = frames.id[order]
    at = np.minimum(np.searchsorted(sorted_ids, frames.parent), max(len(order) - 1, 0))
    found = (frames.parent >= 0) & (sorted_ids[at] == frames.parent)
    up = np.where(found, order[at], -1)
    up[found] = np.where(frames.thread[up[found]] == frames.thread[found], up[found], -1)
    for _ in range(_DEEPEST):  # each time to the caller's caller, as long as no module is met
        plain = np.flatnonzero((up >= 0) & ~is_module[up])
        if not len(plain):
            break
        up[plain] = up[up[plain]]
    up[(up >= 0) & ~is_module[up]] = -1  # ids that go round in a ring
    place = np.full(len(is_module) + 1, -1, np.int64)
    place[rows] = np.arange(len(rows))
    return place[up[rows]]


def _around_by_time(frames: FrameTable, rows: Ints, bare: Ints) -> Ints:
    """The same by time on the thread, for those whose ids do not say it."""
    result = np.full(len(bare), -1, np.int64)
    thread = frames.thread[rows]
    for number in distinct_values(thread[bare]).tolist():
        mine = np.flatnonzero(thread == number)
        own = rows[mine]
        order = np.lexsort((frames.id[own], -frames.end[own], frames.start[own]))
        mine, own = mine[order], own[order]
        aside = crossing(frames.start[own], frames.end[own], np.zeros(len(own), np.bool_))
        mine, own = mine[~aside], own[~aside]
        parent = np.full(len(rows), -1, np.int64)
        forest = nest(frames.start[own], frames.end[own])
        parent[mine] = np.where(forest.parent >= 0, mine[forest.parent], -1)
        here = np.flatnonzero(thread[bare] == number)
        result[here] = parent[bare[here]]
    return result


def _labels(name: Integers, around: Ints, names: list[str], known: dict[str, list[_Path]], labels: Labels) -> Ints:
    """The label of each call, level by level from the outside in; around: place of the call around each, -1 none."""
    paths: list[_Path] = []
    code_of: dict[_Path, int] = {}
    path = np.full(len(name) + 1, -1, np.int64)
    level = np.flatnonzero(around < 0)
    while (path[:-1] < 0).any():
        level = level if len(level) else np.flatnonzero(path[:-1] < 0)[:1]  # ids that go round in a ring: begin anywhere
        found = distinct_rows(path[around[level]], name[level])
        codes = []
        for outer, code in found.columns.T.tolist():
            one = _path(names[code].removeprefix(MODULE_PREFIX), paths[outer] if outer >= 0 else None, known)
            codes.append(code_of.setdefault(one, len(paths)))
            paths += [one] * (codes[-1] == len(paths))
        path[level] = np.array(codes, np.int64)[found.inverse]
        level = np.flatnonzero((path[:-1] < 0) & (around >= 0) & (path[around] >= 0))
    markers = [Marker(Kind.LAYER, one.path, one.path, scope="module") for one in paths]
    return np.array([labels.add(("module", marker.name), marker) for marker in markers], np.int64)[path[:-1]]


def _path(name: str, outer: _Path | None, known: dict[str, list[_Path]]) -> _Path:
    """The path of a module, called after its class, inside that of another."""
    found = known.get(name)
    if not found:
        return _Path(-1, f"{outer.path}.{name}" if outer is not None else name)
    if outer is not None:
        found = [one for one in found if one.whole == outer.whole] or found
        here = outer.path.split(".")
        found = sorted(found, key=lambda one: (-_common(one.path.split("."), here), one.path.count(".")))
    whole, path = found[0]
    return _Path(whole, path or re.sub(r"_\d+$", "", name))


def _common(one: list[str], other: list[str]) -> int:
    """How many parts from the beginning are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _checked(known: object) -> dict[str, list[_Path]]:
    """What the recorder wrote: for the name of each module in the trace pairs of outermost module and path in that."""
    found: dict[str, list[_Path]] = {}
    for name, pairs in known.items() if isinstance(known, dict) else ():
        for pair in pairs if isinstance(pairs, list) else ():
            if isinstance(pair, list) and [*map(type, pair)] == [int, str]:
                found.setdefault(name, []).append(_Path(*pair))
    return found
