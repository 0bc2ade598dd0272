"""A name -> Records, and the Trace that they were made from: every command reads captures and records through this module.

A name is a file, a folder of records, a pipe, `-` for standard input, or a URL. `formats` lists the formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyprof.errors import InputError, NotACapture
from pyprof.loading.formats import CAPTURES, COUNTERS, RECORDS, TIMERS, op_rules, read, read_any
from pyprof.messages import stage

if TYPE_CHECKING:
    from pyprof.model.records import Records
    from pyprof.model.trace import Trace
    from pyprof.parse.attribution.captured import GraphTrace
    from pyprof.parse.records.cache import Entry
    from pyprof.parse.sources.measured.launches import Measured

_NO_COUNTERS = "give what `ncu --csv` or `ncu -o` wrote; `pyprof counters --metrics` prints the command line"

_GRAPHS: ContextVar[str | None] = ContextVar("graphs", default=None)
_CACHED: ContextVar[bool] = ContextVar("records of captures are kept", default=False)


@contextmanager
def cached() -> Iterator[None]:
    """Whatever is read inside is looked for among the records that were kept, and kept. Raises ToolError without pyarrow."""
    from pyprof.parse.records.cache import check

    check()
    token = _CACHED.set(True)
    try:
        yield
    finally:
        _CACHED.reset(token)


@contextmanager
def graphs_from(name: str) -> Iterator[None]:
    """Whatever is read inside has its graphs explained by the traces in this file or folder, where it is not given others."""
    token = _GRAPHS.set(name)
    try:
        yield
    finally:
        _GRAPHS.reset(token)


class _Kept:
    """The cache entry of one file and the records in it; both None if the file is not cached."""

    def __init__(self, graphs: str | None) -> None:
        from pyprof.prof.formulas.user import any_loaded

        self.asked = _CACHED.get() and graphs is None and _GRAPHS.get() is None and not any_loaded()
        self.entry: Entry | None = None
        self.records: Records | None = None

    def find(self, path: Path) -> Records | None:
        """Look the file up; returns its cached records or None."""
        if self.asked:
            from pyprof.parse.records.cache import entry_of

            self.entry = entry_of(path)
            self.records = None if self.entry is None else self.entry.find()
        return self.records

    def only_find(self, path: Path) -> None:
        """Look the file up but return nothing, for callers that need the file's tables anyway."""
        self.find(path)

    def keep(self, records: Records) -> None:
        """Store records in the cache, unless they came from it."""
        if self.entry is not None and self.records is None:
            self.entry.keep(records)


def load(name: str, graphs: str | None = None, *, with_host: bool = False) -> Records:
    """Records of a capture, or of a file or folder that parse wrote; `-` is standard input.

    graphs: a file or folder with traces of the capture of its CUDA graphs; traces beside the capture are found anyway.
    with_host: also what the host did, which reports need.
    Raises PyprofError if it cannot be read or is empty, InputError if the traces are not of the graphs that it replays.
    """
    if "://" in name:
        return load_with_trace(name, graphs)[0]
    kept = _Kept(graphs)
    found = [_with_graphs(read(name, CAPTURES + RECORDS, kept.find), name, graphs, kept)]
    return _attributed(found, name, kept, with_host=with_host)


def load_with_trace(name: str, graphs: str | None = None, *, whole: bool = False) -> tuple[Records, Trace | None]:
    """As `load`, with the Trace that the records were made from, None for stored records; whole: the Trace also holds the
    captures of its graphs, placed after everything else in time."""
    if "://" in name:
        from pyprof.parse.records.locations import fetched, locate

        with fetched(locate(name)) as path:
            return load_with_trace(str(path), graphs, whole=whole)
    from pyprof.model.trace import Trace

    kept = _Kept(graphs)
    found = read(name, CAPTURES + RECORDS, kept.only_find)
    known = _with_graphs(found, name, graphs, kept)
    trace = known if whole else found
    return _attributed([known], name, kept, with_host=True), trace if isinstance(trace, Trace) else None


def load_capture(path: Path, graphs: str | None = None, *, with_host: bool = True) -> Records:
    """Records of a capture only, with what its host did. Raises as `load` does, and NotACapture if it is none."""
    return _attributed([_with_graphs(read(str(path), CAPTURES), str(path), graphs)], str(path), with_host=with_host)


def load_everything(name: str, graphs: str | None = None) -> tuple[Records, Trace | None, Measured | None]:
    """As `load_with_trace`, plus the measured counters of the file; a file of counters alone has no records."""
    from pyprof.parse.sources.measured.launches import Measured

    if "://" in name:
        return *load_with_trace(name, graphs), None
    found = read_any(name, CAPTURES + RECORDS + COUNTERS)
    if isinstance(found, Measured):
        from pyprof.model.records import empty

        return empty(found.tool), None, found
    from pyprof.model.trace import Trace

    trace = found if isinstance(found, Trace) else None
    records = _attributed([_with_graphs(found, name, graphs)], name, with_host=True)
    return records, trace, trace.measured if trace is not None else None


def load_counters(name: str) -> tuple[Measured, Trace | None]:
    """The measured launches of a file, and its Trace if it is a capture too. Raises as `load` does.

    A trace with samples only has no launches.
    """
    from pyprof.parse.sources.measured.launches import Measured

    if "://" in name:
        from pyprof.parse.records.locations import fetched, locate

        with fetched(locate(name)) as path:
            return load_counters(str(path))
    try:
        found = read_any(name, (*COUNTERS, *CAPTURES))
    except NotACapture as error:
        if error.hint == TIMERS.format(name):
            raise
        raise NotACapture(f"{name}: there are no counters in it", _NO_COUNTERS) from error
    if isinstance(found, Measured):
        return found, None
    trace = cast("Trace", found)
    if trace.measured is None and trace.samples is None:
        raise NotACapture(f"{name}: there are no counters in it", _NO_COUNTERS)
    return trace.measured or Measured("torch.profiler", [], {}, {}), trace


def open_trace(path: Path) -> Trace:
    """The tables of a capture. Raises as `load_capture` does, ToolError if an nsys report needs an nsys that is missing."""
    return read(str(path), CAPTURES)  # type: ignore[return-value]  # captures give no records


def _attributed(found: list[Trace | Records], name: str, kept: _Kept | None = None, *, with_host: bool = False) -> Records:
    """The records of the one thing in a list, which is taken out: columns that nobody else has are freed as they are used.

    with_host: with what the host did, which reports need."""
    from pyprof.model.trace import Trace

    known = None if kept is None else kept.records
    if known is None and not isinstance(found[0], Trace):
        return found[0]
    with_host |= kept is not None and kept.entry is not None  # what is kept serves every command
    records = _made(found, name, with_host) if known is None else known
    if kept is not None:
        kept.keep(records)
    return _with_lines(records, Path(name)) if records.source == "kineto" else records


def _made(found: list[Trace | Records], name: str, with_host: bool) -> Records:
    """The records of the trace in a list, which is taken out."""
    from pyprof.parse.attribution.attribute import attribute

    try:
        with stage("finding ops"):
            return attribute(cast("Trace", found.pop()), op_rules(), with_host=with_host)
    except InputError as error:
        raise type(error)(f"{name}: {error}", error.hint) from error


def _with_lines(records: Records, path: Path) -> Records:
    """Records of a program that Inductor compiled with the lines that it says its kernels were made from, where it does."""
    from pyprof.parse.sources import kernel_information

    if lines := kernel_information.beside(path):
        if count := _give_lines(records, lines):
            records.notes.append(f"kernels with source lines from {kernel_information.NAME}: {count:,}")
    return records


def _give_lines(records: Records, lines: dict[str, tuple[str, ...]]) -> int:
    """Give kernels of these names the lines that they were made from; returns how many kernels."""
    import numpy as np

    from pyprof.columns.distinct import distinct_rows
    from pyprof.model.records import Stack

    codes = [code for code, text in enumerate(records.strings.values) if text in lines]
    rows = np.flatnonzero(np.isin(records["name"], codes))
    if not len(rows):
        return 0
    pairs, _, inverse = distinct_rows(records["scope"][rows], records["name"][rows])
    new = []
    for scope, name in pairs.T.tolist():
        new.append(len(records.stacks))
        stack = records.stacks[scope] if scope >= 0 else Stack()
        records.stacks.append(replace(stack, trace=lines[records.strings[name]]))
    column = records["scope"].copy()
    column[rows] = np.array(new, column.dtype)[inverse]
    records.columns["scope"] = column
    return len(rows)


def _with_graphs(run: Trace | Records, name: str, graphs: str | None, kept: _Kept | None = None) -> Trace | Records:
    """A capture joined with the recording of the graphs that it replays: from the given traces, else those beside or inside it.

    kept: its cache entry, given up if other files were used.
    Raises InputError if those that were named explain none of its replays.
    """
    from pyprof.model.trace import Trace

    graphs = _GRAPHS.get() if graphs is None else graphs
    if not isinstance(run, Trace) or (graphs is None and not (run.activities["graph_node"] >= 0).any()):
        return run
    from pyprof.parse.attribution.graphs import explained, unexplained

    outside = graphs is not None or bool(unexplained(run).any())
    captures, notes = _captures(name, graphs) if outside else ([], [])
    if outside and kept is not None:
        kept.entry = None
    found = explained(run, captures)
    if graphs is not None and not found.kernels:
        raise InputError((found.refused or notes)[0], "give the trace of the capture of the graphs that this run replays")
    notes += found.notes
    return replace(found.trace, notes=[*found.trace.notes, *notes]) if notes else found.trace


def _captures(name: str, graphs: str | None) -> tuple[list[GraphTrace], list[str]]:
    """Traces of captures, named or beside a run, and notes on the others. Raises InputError if what was named holds none."""
    from pyprof.parse.attribution.captured import GraphTrace
    from pyprof.parse.sources import graph_captures

    where = "it stands beside the capture" if graphs is None else "it is among those of --graphs"
    found, notes = list[GraphTrace](), list[str]()
    try:
        files = graph_captures.beside(Path(name)) if graphs is None else graph_captures.given(Path(graphs), Path(name))
        for one in files:
            try:
                found.append(GraphTrace(str(one.path), open_trace(one.path), *one[1:]))
            except InputError as error:
                notes.append(f"{error}: {where} and was not used")
    except InputError as error:  # the list of them
        if graphs is not None:
            raise
        notes.append(f"{error}: {where} and was not used")
    return found, notes


def attributed(trace: Trace, name: str, graphs: str | None = None) -> Records:
    """The records of a trace that is kept. Raises InputError as `load` does."""
    return _attributed([_with_graphs(trace, name, graphs)], name, with_host=True)
