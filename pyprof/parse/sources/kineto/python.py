"""Python frames of a torch.profiler trace (`with_stack=True`) -> the source line of each op.

A frame is `file.py(117): func`. The number is the line at which the function begins, except for frames that were open when
recording started: Kineto records calls, not lines. Files come as paths relative to whatever entry of sys.path holds them.
"""

from __future__ import annotations

import re
import sys

import numpy as np

from pyprof.columns.distinct import Growing, narrowest
from pyprof.columns.nesting import Forest, by_thread
from pyprof.columns.types import Array, Integers, Ints
from pyprof.model.trace import Strings, Table, make_table
from pyprof.parse.sources.kineto.events import Codes
from pyprof.parse.sources.kineto.modules import FrameTable, nested

# Patterns are compiled when they are first used: most traces have no frames.
_FRAME = r"(?s)(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.*)"
_SITE = r"(?:site|dist)-packages[/\\]"
# Parts of torch, which distinguish a source checkout of it from a user's folder that happens to be called torch.
_TORCH_PART = (
    r"(?:^|[/\\])torch[/\\](?:__init__\.py|nn|autograd|optim|utils|cuda|distributed|profiler|jit|fx|amp|func|compiler|ao|export"
    r"|library\.py|functional\.py|overrides\.py|serialization\.py|random\.py|multiprocessing|_\w+(?:\.py)?)(?:[/\\]|$)"
)
_OURS = r"(?:^|[/\\])pyprof[/\\](?:nvtx|recording|capture)[/\\]"
# libraries that launch what others wrote
_LAUNCHER = r"(?:^|[/\\])(?:quadrants|cupy|cupy_backends|numba|triton[/\\](?:backends|compiler|runtime))[/\\]"
_STDLIB_FOLDER = r"[/\\]lib(?:64)?[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages)"
USER, LIBRARY, NEVER = 2, 1, 0  # which frames may give the source line: the first kind that the stack has


def rank_of(name: str) -> tuple[int, str]:
    """(USER, LIBRARY or NEVER, `file:line`) of a frame. LIBRARY: Python's own, and libraries that launch; NEVER: torch, pyprof,
    and frames without a file."""
    found = re.fullmatch(_FRAME, name)
    if found is None or name.startswith("<"):
        return NEVER, ""
    file = found["file"]
    site = re.split(_SITE, file)[-1]
    if re.search(_OURS, file) or re.match(r"torch[/\\]", site) or re.search(_TORCH_PART, file):
        return NEVER, ""
    top = re.split(r"[/\\.]", site)[0]
    standard = re.search(_STDLIB_FOLDER, file) or (top in sys.stdlib_module_names and not file.startswith(("/", "\\")))
    return LIBRARY if standard or re.search(_LAUNCHER, file) else USER, f"{file}:{found['line']}"


def source_of_stack(stack: str) -> str:
    """The source line in a `Call stack` of releases before 1.11: frames joined by `;`, innermost first; empty if unknown."""
    origins = [rank_of(frame.strip()) for frame in stack.split(";")]
    for wanted in (USER, LIBRARY):
        for origin, source in origins:
            if origin == wanted:
                return source
    return ""


class Frames:
    """All Python frames."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self.names: Codes[str] = Codes()  # distinct ones in the order of their codes
        self._growing = [*map(Growing, (np.int32, np.int64, np.int64, np.int32, np.int32, np.int32))]  # as in FrameTable
        self._table: FrameTable | None = None

    def add(self, columns: Table) -> None:
        """Add frames, by the columns of `FrameTable`. Ids order the outer before the inner of two at one time."""
        for column, name in zip(self._growing, FrameTable._fields, strict=True):
            column.append(narrowest(columns[name]) if name in ("id", "parent") else columns[name])

    def table(self) -> FrameTable | None:
        """All frames, None if there are none; none can be added afterwards."""
        if self._table is None and self.names:
            self._table = FrameTable(*(column.whole() for column in self._growing))
        return self._table

    def as_trace_table(self) -> Table:
        frames = self.table()
        if frames is None:
            return make_table("frames")
        codes = np.array([self._strings.code(name) for name in self.names], np.int32)
        columns = {"start_ns": frames.start, "end_ns": frames.end, "thread": frames.thread, "name": codes[frames.name]}
        return make_table("frames", columns)

    def sources(self, thread: Integers, start: Ints) -> Array:
        """Code into strings of the source line at each (thread, time): the innermost user frame open then; -1 none."""
        result = np.full(len(start), -1, np.int32)
        frames = self.table()
        if frames is None or not len(start):
            return result
        origins = [rank_of(name) for name in self.names]
        origin = np.array([origin for origin, _ in origins], np.int64)
        source = np.array([self._strings.code(text) if origin != NEVER else -1 for origin, text in origins], np.int64)
        asked = by_thread(thread, np.arange(len(start)))
        for number, rows, forest in nested(frames.intervals()):
            if (wanted := asked.get(number)) is not None:
                name = frames.name[rows]
                result[wanted] = _innermost(forest, origin[name], source[name], start[wanted])
        return result


def _innermost(forest: Forest, origin: Ints, source: Ints, times: Ints) -> Ints:
    """At each time the source of the innermost open frame, of the user before libraries."""
    nearest = {wanted: np.full(len(origin), -1, np.int64) for wanted in (USER, LIBRARY)}
    for level in forest.by_depth:
        above = forest.parent[level]
        for wanted, found in nearest.items():
            found[level] = np.where(origin[level] == wanted, level, np.where(above >= 0, found[above], -1))
    at = forest.innermost(times)
    if not len(origin):
        return at
    best = np.where(nearest[USER][at] >= 0, nearest[USER][at], nearest[LIBRARY][at])
    return np.where((at >= 0) & (best >= 0), source[best], -1)
