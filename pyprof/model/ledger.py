"""The ledger of a run, `net.steps.jsonl` beside its capture -> its steps, and what torch.compile compiled anew.

The recorder appends a line of JSON when a step ends, and for each recompile, graph break and skipped CUDA graph; a later line
of a step replaces earlier ones. Steps may be marked in several ways; those of the last kind in MARKERS that occurs count.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof.columns.types import Bools, Ints

SCHEMA = 1
SUFFIX = ".steps.jsonl"
MARKERS = ("module", "loader", "profiler", "optimizer", "step")
RECOMPILE, GRAPH_BREAK, CUDA_GRAPH_SKIPPED = COMPILE_KINDS = ("recompile", "graph_break", "cuda_graph_skipped")
_ENDINGS = (".gz", ".json", ".jsonl", ".sqlite", ".nsys-rep", ".dict", ".parquet", ".pt.trace")
_WINDOW = re.compile(r"rank\d+_step\d+")
_NUMBERS = ("step", "begin_ns", "wall_ns", "device_ns", "allocated", "reserved", "peak", "tokens")


class CompileEvent(NamedTuple):
    """A recompile, graph break or skipped CUDA graph. step: in which it happened, -1 unknown; kind: one of COMPILE_KINDS;
    frame: the function, "" unknown; reason: torch's own words; file, line: where in the program, "" and 0 unknown."""

    step: int
    kind: str
    frame: str
    reason: str
    file: str
    line: int


@dataclass(frozen=True)
class Ledger:
    """The steps of one process, in order; -1 is unknown in all columns.

    begin_ns: since torch was imported; wall_ns: until the next step begins, without the recorder's own work between them;
    device_ns: between CUDA events at both ends; allocated, reserved: bytes at its end, peak: the most allocated until then;
    recorded: whether it is in the capture; traced: whether a profiler slowed it down although it is not; ended: False for the
    one in which the program ended. by: one of MARKERS.
    """

    by: str
    step: Ints
    begin_ns: Ints
    wall_ns: Ints
    device_ns: Ints
    allocated: Ints
    reserved: Ints
    peak: Ints
    tokens: Ints
    recorded: Bools
    traced: Bools
    ended: Bools
    compiled: tuple[CompileEvent, ...] = ()

    def __len__(self) -> int:
        return len(self.step)


def beside(name: str | Path) -> Path | None:
    """The ledger beside a capture or its records, None if there is none. One ledger serves all windows in a run's folder."""
    path = Path(name)
    if path.name.endswith(SUFFIX):
        return path if os.path.isfile(path) else None
    stem = path.name
    while ending := next((one for one in _ENDINGS if stem.endswith(one)), ""):
        stem = stem.removesuffix(ending)
    found = path.with_name(stem + SUFFIX)
    if _WINDOW.fullmatch(stem):
        folder = path.absolute().parent
        found = found if os.path.isfile(found) else folder.with_name(folder.name + SUFFIX)
    return found if os.path.isfile(found) else None  # pathlib raises for a name that is too long


def read(path: Path) -> Ledger | None:
    """The ledger in a file; None if no line of it is one of a ledger. A line that is cut off or of another kind is left out."""
    steps: dict[str, dict[int, dict[str, Any]]] = {}
    compiled: list[CompileEvent] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found = json.loads(line)
            if found.get("compile") in COMPILE_KINDS:
                frame, reason, file = (str(found.get(name) or "") for name in ("frame", "reason", "file"))
                step, at = _number(found.get("step")), max(_number(found.get("line")), 0)
                compiled.append(CompileEvent(step, found["compile"], frame, reason, file, at))
            elif found.get("by") in MARKERS and {type(found["step"]), type(found["wall_ns"])} == {int}:
                steps.setdefault(found["by"], {})[found["step"]] = found
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    if not steps and not compiled:
        return None
    by = max(steps, key=MARKERS.index, default=MARKERS[0])
    rows = [row for _, row in sorted(steps.get(by, {}).items())]
    numbers = {name: np.array([_number(row.get(name)) for row in rows], np.int64) for name in _NUMBERS}
    flags = [np.array([row.get(name) is True for row in rows], np.bool_) for name in ("recorded", "traced", "open")]
    return Ledger(by, **numbers, recorded=flags[0], traced=flags[1], ended=~flags[2], compiled=tuple(compiled))


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 63 else -1


def compilations(path: Path) -> list[CompileEvent]:
    """The recompiles, graph breaks and skipped CUDA graphs that a ledger holds, in order."""
    found = read(path)
    return [] if found is None else [*found.compiled]
