"""A name -> Records, and the Trace they were made from. All commands read captures and records through this module.

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
from pyprof.loading.formats import CAPTURES, COUNTERS, RECORDS, SNAPSHOTS, TIMERS, op_rules, read, read_any
from pyprof.messages import stage
from pyprof.model import ledger

if TYPE_CHECKING:
    from pyprof.model.allocations import AllocationTrace
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
    """Inside, loading uses the cache of records (--cache). Raises ToolError without pyarrow."""
    from pyprof.parse.records.cache import check

    check()
    token = _CACHED.set(True)
    try:
        yield
    finally:
        _CACHED.reset(token)


@contextmanager
def graphs_from(name: str) -> Iterator[None]:
    """Inside, loading takes traces of graph captures from this file or folder unless it is given others (--graphs)."""
    token = _GRAPHS.set(name)
    try:
        yield
    finally:
        _GRAPHS.reset(token)


class _Kept:
    """The cache entry of one file and its records; None if the file is not cached."""

    def __init__(self, graphs: str | None) -> None:
        from pyprof.prof.formulas.user import any_loaded

        self.asked = _CACHED.get() and graphs is None and _GRAPHS.get() is None and not any_loaded()
        self.entry: Entry | None = None
        self.records: Records | None = None

    def find(self, path: Path) -> Records | None:
        """The cached records of a file, or None."""
        if self.asked:
            from pyprof.parse.records.cache import entry_of

            self.entry = entry_of(path)
            self.records = None if self.entry is None else self.entry.find()
        return self.records

    def only_find(self, path: Path) -> None:
        """Look for cached records, for a caller that reads the file in any case."""
        self.find(path)

    def keep(self, records: Records) -> None:
        """Cache new records."""
        if self.entry is not None and self.records is None:
            self.entry.keep(records)


def load(name: str, graphs: str | None = None, *, with_host: bool = False) -> Records:
    """Records of a capture, or of a file or folder that parse wrote; `-` is standard input.

    graphs: file or folder with traces of the graphs' capture; traces beside the capture are found without it. with_host: also
    what the host did, which reports need.
    Raises PyprofError if the input is empty or cannot be read, InputError if `graphs` explains none of its replays.
    """
    if "://" in name:
        return load_with_trace(name, graphs)[0]
    kept = _Kept(graphs)
    found = [_with_graphs(read(name, CAPTURES + RECORDS, kept.find), name, graphs, kept)]
    records = _attributed(found, name, kept, with_host=with_host)
    return _with_ledger(records, name) if with_host else records


def load_with_trace(name: str, graphs: str | None = None, *, whole: bool = False) -> tuple[Records, Trace | None]:
    """As `load`, and the capture's tables (None for stored records). whole: the tables include those of its graphs' captures,
    placed after everything else in time."""
    if "://" in name:
        from pyprof.parse.records.locations import fetched, locate

        with fetched(locate(name)) as path:
            return load_with_trace(str(path), graphs, whole=whole)
    from pyprof.model.trace import Trace

    kept = _Kept(graphs)
    found = read(name, CAPTURES + RECORDS, kept.only_find)
    known = _with_graphs(found, name, graphs, kept)
    trace = known if whole else found
    records = _with_ledger(_attributed([known], name, kept, with_host=True), name)
    return records, trace if isinstance(trace, Trace) else None


def load_capture(path: Path, graphs: str | None = None, *, with_host: bool = True) -> Records:
    """Records of a capture, with its host side. Raises as `load`, and NotACapture for anything else."""
    return _attributed([_with_graphs(read(str(path), CAPTURES), str(path), graphs)], str(path), with_host=with_host)


def load_everything(
    name: str, graphs: str | None = None
) -> tuple[Records, Trace | None, Measured | None, AllocationTrace | None]:
    """As `load_with_trace`, and measured counters or a snapshot of memory if the file has them; it has no records then."""
    from pyprof.model.allocations import AllocationTrace
    from pyprof.parse.sources.measured.launches import Measured

    if "://" in name:
        return *load_with_trace(name, graphs), None, None
    found = read_any(name, CAPTURES + RECORDS + COUNTERS + SNAPSHOTS)
    if isinstance(found, AllocationTrace):
        from pyprof.model.records import empty

        return empty(found.source), None, None, found
    if isinstance(found, Measured):
        from pyprof.model.records import empty

        return empty(found.tool), None, found, None
    from pyprof.model.trace import Trace

    trace = found if isinstance(found, Trace) else None
    records = _with_ledger(_attributed([_with_graphs(found, name, graphs)], name, with_host=True), name)
    return records, trace, trace.measured if trace is not None else None, None


def load_allocations(name: str) -> AllocationTrace | Trace | None:
    """A snapshot of memory, or the tables of a capture; None for records. Raises as `load`."""
    from pyprof.model.records import Records

    if "://" in name:
        from pyprof.parse.records.locations import fetched, locate

        with fetched(locate(name)) as path:
            return load_allocations(str(path))
    found = read_any(name, SNAPSHOTS + CAPTURES + RECORDS)
    return None if isinstance(found, Records) else cast("AllocationTrace | Trace", found)


def load_counters(name: str) -> tuple[Measured, Trace | None]:
    """Measured launches, and the trace if the file is one. Raises as `load`.

    A trace that has only samples gives no launches.
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
        for note in trace.notes:
            if " by number, without names" in note:  # of nvprof
                raise NotACapture(f"{name}: {note.partition(': ')[0]}", note.partition(": ")[2])
        raise NotACapture(f"{name}: there are no counters in it", _NO_COUNTERS)
    return trace.measured or Measured("torch.profiler", [], {}, {}), trace


def open_trace(path: Path) -> Trace:
    """The tables of a capture. Raises as `load_capture`, and ToolError if an nsys report needs an nsys that is missing."""
    return read(str(path), CAPTURES)  # type: ignore[return-value]  # captures give no records


def _attributed(found: list[Trace | Records], name: str, kept: _Kept | None = None, *, with_host: bool = False) -> Records:
    """The records of the one item of a list; takes it out, so that columns without another owner are freed once used.

    with_host: include the host side, which reports need."""
    from pyprof.model.trace import Trace

    known = None if kept is None else kept.records
    if known is None and not isinstance(found[0], Trace):
        return found[0]
    with_host |= kept is not None and kept.entry is not None  # the cache serves every command
    if known is None:
        from pyprof.parse.attribution.attribute import attribute

        try:
            with stage("finding ops"):
                records = attribute(cast("Trace", found.pop()), op_rules(), with_host=with_host)
        except InputError as error:
            raise type(error)(f"{name}: {error}", error.hint) from error
    else:
        records = known
    if kept is not None:
        kept.keep(records)
    if records.host is not None and not records.host.compiled and (kept_beside := ledger.beside(name)) is not None:
        records.host.compiled = ledger.compilations(kept_beside)
    return _with_lines(records, Path(name)) if records.source == "kineto" else records


def _with_ledger(records: Records, name: str) -> Records:
    """Add the ledger of the run, if it is beside the file."""
    path = ledger.beside(name)
    records.ledger = None if path is None else ledger.read(path)
    return records


def _with_lines(records: Records, path: Path) -> Records:
    """Add source lines to the kernels that Inductor compiled, if its file of them is beside the capture."""
    from pyprof.parse.sources import kernel_information

    if lines := kernel_information.beside(path):
        if count := _give_lines(records, lines):
            records.notes.append(f"kernels with source lines from {kernel_information.NAME}: {count:,}")
    return records


def _give_lines(records: Records, lines: dict[str, tuple[str, ...]]) -> int:
    """Set the source lines of kernels by name; returns the number of kernels."""
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
    """A capture whose graph replays are explained by named traces of the graphs' capture, else by traces beside it or itself.

    kept: its cache entry, dropped if the result depends on other files. Raises InputError if the named traces explain none of
    its replays.
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
    """Traces of graph captures, named or beside a run, and notes on unusable ones. Raises InputError if the named file or
    folder has none."""
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
    """The records of a trace that the caller keeps. Raises InputError as `load`."""
    return _attributed([_with_graphs(trace, name, graphs)], name, with_host=True)
