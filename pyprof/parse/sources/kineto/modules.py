"""Calls of modules among the Python frames of a torch.profiler trace -> ranges of layers with their paths.

Each frame names the one that called it by id; so each call of a module is known to lie inside another's. Where ids are
missing, its time on the thread shows it. The trace calls modules after classes: a path is `ViT_0.Block_2.Linear_5`, joined
from the outside in, but `blocks.2.mlp.0` where the recorder put the names of the running model beside the events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.joining import first_rows, rows_where
from pyprof.arrays.spool import computed, full, pieces, release, taken
from pyprof.arrays.types import Array, Bools, Integers, Ints
from pyprof.markers import Kind, Marker
from pyprof.parse.sources.kineto.parts import Intervals, NestedParts
from pyprof.parse.sources.trace import Labels, Table

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

    def intervals(self) -> Intervals:
        """Their times. Ids order the outer before the inner of two at one time."""
        return Intervals(self.thread, self.start, self.end, self.id)


class _Path(NamedTuple):
    """Where a module is: number of the outermost module that holds it in the running model, -1 unknown; its path."""

    whole: int
    path: str


def module_ranges(frames: FrameTable, names: list[str], known: object, labels: Labels) -> Iterator[Table]:
    """Columns of `ranges` for each call of a module, some at a time. names: by code; known: the trace's `pyprof_modules`, see
    `_checked`."""
    of_module = np.array([name.startswith(MODULE_PREFIX) for name in names], np.bool_)
    rows = rows_where(len(frames.name), lambda part: of_module[frames.name[part]])
    if not len(rows):
        return
    around = _around(frames, of_module, rows)
    _give_around_by_time(frames, rows, around)
    label = _labels(taken(frames.name, rows), around, names, _checked(known), labels)
    for part in pieces(len(rows)):
        own = rows[part]
        columns = {"start_ns": frames.start[own], "end_ns": frames.end[own], "thread": frames.thread[own]}
        yield columns | {"label": label[part]}
        release()


def _around(frames: FrameTable, of_module: Bools, rows: Array) -> Array:
    """For each call of a module that of the module around it, by ids: place in rows, -1 unknown."""
    thread, name, parent = frames.thread, frames.name, frames.parent
    up = first_rows(frames.id, parent)
    for part in pieces(len(up)):
        row = up[part]
        up[part] = np.where((row >= 0) & (parent[part] >= 0) & (thread[row] == thread[part]), row, -1)
    for _ in range(_DEEPEST):  # each time to the caller's caller, as long as no module is met
        changed = False
        for part in pieces(len(up)):
            row = up[part]
            plain = np.flatnonzero((row >= 0) & ~of_module[name[row]])
            row[plain] = up[row[plain]]
            changed = changed or len(plain) > 0
        release()
        if not changed:
            break
    # Ids that go round in a ring lead to no module.
    at = computed(len(rows), up.dtype, lambda part: np.where(of_module[name[up[rows[part]]]], up[rows[part]], -1))
    return first_rows(rows, at)


def _give_around_by_time(frames: FrameTable, rows: Array, around: Array) -> None:
    """The same by time on the thread, for those whose ids do not say it."""
    for _, places, forest in NestedParts(frames.intervals().take(rows)):
        own = around[places]
        inside = np.flatnonzero((own < 0) & (forest.parent >= 0))
        around[places[inside]] = places[forest.parent[inside]]


def _labels(name: Integers, around: Array, names: list[str], known: dict[str, list[_Path]], labels: Labels) -> Array:
    """The label of each call, level by level from the outside in; around: place of the call around each, -1 none."""
    level = _levels(around)
    paths: list[_Path] = []
    code_of: dict[_Path, int] = {}
    path = full(len(name), -1, np.int32)
    for number in range(max((int(level[part].max()) for part in pieces(len(level))), default=-1) + 1):
        chosen = rows_where(len(level), lambda part, number=number: level[part] == number)  # type: ignore[misc]
        pairs = set[tuple[int, int]]()
        for part in pieces(len(chosen)):
            pairs |= {*map(tuple, distinct_rows(*_outer_and_name(path, around, name, chosen[part])).columns.T.tolist())}
        code_of_pair = {}
        for outer, code in sorted(pairs):
            one = _path(names[code].removeprefix(MODULE_PREFIX), paths[outer] if outer >= 0 else None, known)
            code_of_pair[outer, code] = code_of.setdefault(one, len(paths))
            paths += [one] * (code_of[one] == len(paths))
        for part in pieces(len(chosen)):
            found = distinct_rows(*_outer_and_name(path, around, name, chosen[part]))
            codes = [code_of_pair[outer, code] for outer, code in found.columns.T.tolist()]
            path[chosen[part]] = np.array(codes, np.int32)[found.inverse]
        release()
    markers = [Marker(Kind.LAYER, one.path, one.path, scope="module") for one in paths]
    label = np.array([labels.add(("module", marker.name), marker) for marker in markers], np.int32)
    return computed(len(path), np.int32, lambda part: label[path[part]])


def _outer_and_name(path: Array, around: Array, name: Integers, rows: Array) -> tuple[Array, Array]:
    """The path around each of these calls, -1 none, and its name."""
    outer = around[rows]
    return np.where(outer >= 0, path[outer], -1), name[rows]


def _levels(around: Array) -> Array:
    """How many calls are around each, where ids go round in a ring from any of it on."""
    level = full(len(around), -1, np.int32)
    number = 0
    missing = len(around)
    for part in pieces(len(around)):
        level[part][around[part] < 0] = 0
        missing -= int((around[part] < 0).sum())
    if missing == len(around) > 0:
        level[0], missing = 0, missing - 1
    while missing:
        number += 1
        found = 0
        for part in pieces(len(around)):
            outer = around[part]
            next_ = (level[part] < 0) & (outer >= 0) & (level[outer] == number - 1)
            level[part][next_] = number
            found += int(next_.sum())
        release()
        if not found:  # ids that go round in a ring: begin anywhere
            row = next(part.start + int(np.argmax(level[part] < 0)) for part in pieces(len(level)) if (level[part] < 0).any())
            level[row], found = number, 1
        missing -= found
    return level


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
