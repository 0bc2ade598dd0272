"""A name -> Records, and the Trace that they were made from: the only door for what is read, be it a capture or records.

A name is a file, a folder of records, a pipe, `-` for standard input, or a URL. Its format is decided here, by one list, from
its first bytes or, in an SQLite file, its tables. Only the module that reads this format is imported.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from pyprof.arrays.spool import columns_on_disk
from pyprof.errors import InputError, NotACapture
from pyprof.inputs import GZIP, HEAD_BYTES, SQLITE, Input
from pyprof.progress import stage

if TYPE_CHECKING:
    from pyprof.opcall import OpRules
    from pyprof.parse.attribution.captured import GraphTrace
    from pyprof.parse.records.records import Records
    from pyprof.parse.sources.measured.launches import Measured
    from pyprof.parse.sources.trace import Trace

_FIRST_BYTES = 1 << 14
_PARQUET = b"PAR1"
_NCU, _NCU_NAMES = b"NVR\0", (".ncu-rep", ".ncu-repz")
_REPORT, _REPORT_NAMES = b"NVIDIA Tegra Profiler Report", (".nsys-rep", ".qdrep")
_NVPROF_TABLE = "StringTable"
_NO_COUNTERS = "give what `ncu --csv` or `ncu -o` wrote; `pyprof counters --metrics` prints the command line"
_BLOCK_TIMES = re.compile(rb'"pid"\s*:\s*"[^"]* Core\d+ CTA\d+\b')  # of kernels that Proton instrumented
_TIMERS = "pyprof timers {}"
_NSYS_TABLES = {
    "StringIds", "META_DATA_EXPORT", "ANALYSIS_DETAILS", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME",
}  # fmt: skip


class Format(NamedTuple):
    """One input format. sniff: whether an input has it, by its head or tables; read: its contents; imports its module itself.

    `parse FOLDER` takes the files whose names end as captures do: see `parse/records/dataset.py`.
    """

    name: str
    sniff: Callable[[Input], bool]
    read: Callable[[Input], Trace | Records | Measured]


def _is_torch_trace(given: Input) -> bool:
    for most in (_FIRST_BYTES, HEAD_BYTES):  # the fewer nearly always suffice
        text = given.text(most).lstrip(b"\xef\xbb\xbf \t\r\n")
        if (b'"call_stack"' in text and _is_proton_trace(given)) or _BLOCK_TIMES.search(text):
            return False
        header = sum(key in text for key in (b'"schemaVersion"', b'"deviceProperties"')) > (len(text) <= _FIRST_BYTES)
        listed = text[:1] == b"[" and b'"ph"' in text and b'"ts"' in text
        if listed or (text[:1] == b"{" and (b'"traceEvents"' in text or header)):
            return True
    return False


def _is_data_set(given: Input) -> bool:
    if not given.folder:
        return False
    from pyprof.parse.records.dataset import stored

    return bool(stored(given.path))


_RECORD_KEY = r"""["']k(?:Short|Long)Name["']\s*:"""  # of the original's keys those that every record has


def _is_records(given: Input) -> bool:
    """An object with one of the original's keys in the first line.

    Other text under the name of records, or on standard input, passes too, so that the error names the line that is wrong.
    """
    first, _, _ = given.text(HEAD_BYTES).decode(given.encoding, "replace").lstrip().partition("\n")
    named = given.standard or given.path.suffix in (".dict", ".jsonl")
    found = named or (first.startswith("{") and re.search(_RECORD_KEY, first) is not None)
    if found and given.head.startswith(GZIP):
        raise InputError(f"{given.name}: records are not read compressed", "gunzip -c net.dict.gz | python -m pyprof.prof -")
    return found


def _read_nsys(given: Input) -> Trace:
    from pyprof.parse.sources import nsys

    return nsys.read(given.database)


def _read_nvprof(given: Input) -> Trace:
    from pyprof.parse.sources import nvprof

    return nvprof.read(given.database)


def _read_report(given: Input) -> Trace:
    from pyprof.parse.sources import nsys
    from pyprof.parse.sources.nsys_report import exported
    from pyprof.parse.sources.sqlite import Database

    with exported(given.file()[1], given.name) as path, path.open("rb") as stream:
        with closing(Database(stream.fileno(), path, given.name)) as database:
            return nsys.read(database)


def _read_torch_trace(given: Input) -> Trace:
    from pyprof.parse.sources.kineto import reader

    return reader.read(given.stream(), given.path, given.name)


def _read_parquet(given: Input) -> Records:
    from pyprof.parse.records import parquet

    return parquet.read(given.file()[1])


def _read_folder(given: Input) -> Records:
    from pyprof.parse.records import parquet
    from pyprof.parse.records.dataset import stored
    from pyprof.parse.records.records import concatenate

    return concatenate([parquet.read(file) for file in stored(given.path)])


def _read_records(given: Input) -> Records:
    from pyprof.parse.records.netdict.read import read_lines

    text = io.TextIOWrapper(given.stream(), given.encoding, "replace")
    records = read_lines(text, given.name, op_rules())
    text.detach()  # the stream is not ours to close
    if not len(records):
        raise InputError(
            f"{given.name}: no records in it", "give the output of `python -m pyprof.parse`, or the capture itself"
        )
    return records


def _read_measured(given: Input, read: Callable[[IO[bytes]], Measured]) -> Measured:
    """What a module reads from the decompressed bytes."""
    import gzip
    import zlib

    try:
        return read(gzip.GzipFile(fileobj=given.stream()) if given.head.startswith(GZIP) else given.stream())  # type: ignore[arg-type]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{given.name}: damaged gzip data: {error}", "write or copy the file again") from error


def _read_ncu_csv(given: Input) -> Measured:
    from pyprof.parse.sources.measured.ncu_csv import read

    def decoded(stream: IO[bytes]) -> Measured:
        text = io.TextIOWrapper(stream, given.encoding, "replace", newline="")
        found = read(text, given.name)
        text.detach()
        return found

    return _read_measured(given, decoded)


def _read_ncu_report(given: Input) -> Measured:
    from pyprof.parse.sources.measured.ncu_report import read

    return read(given.file()[1], given.name)


def _is_ncu_report(given: Input) -> bool:
    return (not given.folder and given.path.suffix in _NCU_NAMES) or given.head.startswith(_NCU)


def _is_ncu_csv(given: Input) -> bool:
    from pyprof.parse.sources.measured.ncu_csv import is_ncu_csv

    return is_ncu_csv(given.decoded()) or (given.path.suffix == ".csv" and len(given.text(HEAD_BYTES)) == HEAD_BYTES)


CAPTURES = (
    Format("nvprof database", lambda given: _NVPROF_TABLE in given.tables, _read_nvprof),
    Format("nsys export", lambda given: not _NSYS_TABLES.isdisjoint(given.tables), _read_nsys),
    Format("torch.profiler trace", _is_torch_trace, _read_torch_trace),
    Format("nsys report", lambda given: given.head.startswith(_REPORT) or given.path.suffix in _REPORT_NAMES, _read_report),
)
RECORDS = (
    Format("folder of Parquet files", _is_data_set, _read_folder),
    Format("Parquet file", lambda given: given.head.startswith(_PARQUET), _read_parquet),
    Format("net.dict", _is_records, _read_records),
)


def _is_hatchet(given: Input) -> bool:
    from pyprof.parse.sources.measured.proton import is_hatchet

    return is_hatchet(given.decoded())


def _read_hatchet(given: Input) -> Measured:
    from pyprof.parse.sources.measured.proton import read_hatchet

    return _read_measured(given, lambda stream: read_hatchet(stream, given.name))


def _is_proton_trace(given: Input) -> bool:
    from pyprof.parse.sources.measured.proton import is_chrome_trace

    return is_chrome_trace(given.decoded())


def _read_proton_trace(given: Input) -> Measured:
    from pyprof.parse.sources.measured.proton import read_chrome_trace

    return _read_measured(given, lambda stream: read_chrome_trace(stream, given.name))


COUNTERS = (
    Format("report of Nsight Compute", _is_ncu_report, _read_ncu_report),
    Format("CSV of Nsight Compute", _is_ncu_csv, _read_ncu_csv),
    Format("profile of Proton", _is_hatchet, _read_hatchet),
    Format("trace of Proton", _is_proton_trace, _read_proton_trace),
)
FORMAT_NAMES, COUNTER_NAMES = (tuple(form.name for form in formats) for formats in (CAPTURES + RECORDS, COUNTERS))


def _read(name: str, formats: tuple[Format, ...]) -> Trace | Records:
    """What an input of one of these formats holds. Raises NotACapture where it has none of them."""
    return cast("Trace | Records", _read_any(name, formats))


@columns_on_disk()
def _read_any(name: str, formats: tuple[Format, ...]) -> Trace | Records | Measured:
    with Input(name) as given:
        form = _format(given, formats)
        with stage(f"reading {given.name}", given.read_share):
            return form.read(given)


def format_of(given: Input, formats: tuple[Format, ...]) -> str:
    """The name of the one of these formats that an input has. Raises NotACapture, with what it is where that is known."""
    return _format(given, formats).name


def _format(given: Input, formats: tuple[Format, ...]) -> Format:
    for form in formats:
        if (form.sniff is _is_data_set or not given.folder) and form.sniff(given):  # whatever the folder is called
            return form
    name = str(given.path)
    if any(form.sniff(given) for form in COUNTERS if form not in formats):
        raise NotACapture(f"{given.name}: measured counters, not a capture", f"pyprof counters {name} --trace CAPTURE")
    if _BLOCK_TIMES.search(given.text(_FIRST_BYTES)):
        raise NotACapture(f"{given.name}: times inside kernels, by Proton, not a capture", _TIMERS.format(name))
    if given.folder:
        raise InputError(f"{name}: is a directory, not a capture", "name one file in it")
    if given.head.startswith(SQLITE):
        raise NotACapture(
            f"{given.name}: an SQLite database, but of neither nsys nor nvprof",
            "pass the file that `nsys export --type sqlite` or `nvprof -o` wrote",
        )
    raise NotACapture(
        f"{given.name}: neither an SQLite capture of nsys or nvprof nor a torch.profiler trace",
        "nsys: `nsys export --type sqlite REPORT`; nvprof: the file of `nvprof -o`; torch.profiler: its .json trace",
    )


# ---------------------------------------------------------------------------------------------- what callers get

_GRAPHS: ContextVar[str | None] = ContextVar("graphs", default=None)


@contextmanager
def graphs_from(name: str) -> Iterator[None]:
    """Whatever is read inside has its graphs explained by the traces in this file or folder, where it is not given others."""
    token = _GRAPHS.set(name)
    try:
        yield
    finally:
        _GRAPHS.reset(token)


def load(name: str, graphs: str | None = None) -> Records:
    """Records of a capture, or of a file or folder that parse wrote; `-` is standard input.

    graphs: traces of the capture of the graphs that it replays, a file or a folder; those beside it are found without.
    Raises PyprofError where it cannot be read or holds nothing, InputError where graphs are others than those that it replays.
    """
    if "://" in name:
        return load_with_trace(name, graphs)[0]
    return _attributed([_with_graphs(_read(name, CAPTURES + RECORDS), name, graphs)], name)


def load_with_trace(name: str, graphs: str | None = None, *, whole: bool = False) -> tuple[Records, Trace | None]:
    """As `load`, and with the records of a capture the tables that they were made from; whole: with those of the captures of
    its graphs, after all else in time."""
    if "://" in name:
        from pyprof.parse.records.locations import fetched, locate

        with fetched(locate(name)) as path:
            return load_with_trace(str(path), graphs, whole=whole)
    from pyprof.parse.sources.trace import Trace

    found = _read(name, CAPTURES + RECORDS)
    known = _with_graphs(found, name, graphs)
    trace = known if whole else found
    return _attributed([known], name), trace if isinstance(trace, Trace) else None


def load_capture(path: Path, graphs: str | None = None) -> Records:
    """Records of a capture only. Raises as `load` does, and NotACapture where it is none."""
    return _attributed([_with_graphs(_read(str(path), CAPTURES), str(path), graphs)], str(path))


def load_everything(name: str, graphs: str | None = None) -> tuple[Records, Trace | None, Measured | None]:
    """As `load_with_trace`, and measured counters where the file holds them; a file of nothing else has no records."""
    from pyprof.parse.sources.measured.launches import Measured

    if "://" in name:
        return *load_with_trace(name, graphs), None
    found = _read_any(name, CAPTURES + RECORDS + COUNTERS)
    if isinstance(found, Measured):
        from pyprof.parse.records.records import empty

        return empty(found.tool), None, found
    from pyprof.parse.sources.trace import Trace

    trace = found if isinstance(found, Trace) else None
    records = _attributed([_with_graphs(found, name, graphs)], name)
    return records, trace, trace.measured if trace is not None else None


def load_counters(name: str) -> tuple[Measured, Trace | None]:
    """Measured launches, and the trace that holds them where it holds more. Raises as `load` does.

    Of a trace with samples only there are no launches.
    """
    from pyprof.parse.sources.measured.launches import Measured

    if "://" in name:
        from pyprof.parse.records.locations import fetched, locate

        with fetched(locate(name)) as path:
            return load_counters(str(path))
    try:
        found = _read_any(name, (*COUNTERS, *CAPTURES))
    except NotACapture as error:
        if error.hint == _TIMERS.format(name):
            raise
        raise NotACapture(f"{name}: there are no counters in it", _NO_COUNTERS) from error
    if isinstance(found, Measured):
        return found, None
    trace = cast("Trace", found)
    if trace.measured is None and trace.samples is None:
        raise NotACapture(f"{name}: there are no counters in it", _NO_COUNTERS)
    return trace.measured or Measured("torch.profiler", [], {}, {}), trace


def open_trace(path: Path) -> Trace:
    """The tables of a capture. Raises as `load_capture` does, ToolError where an nsys report needs an nsys that is missing."""
    return _read(str(path), CAPTURES)  # type: ignore[return-value]  # captures give no records


@columns_on_disk()
def _attributed(found: list[Trace | Records], name: str) -> Records:
    """The records of the one thing in a list, which is taken out: columns that nobody else has are freed as they are used."""
    from pyprof.parse.sources.trace import Trace

    if not isinstance(found[0], Trace):
        return found[0]
    from pyprof.parse.attribution.attribute import attribute

    compiled = found[0].source == "kineto"
    try:
        with stage("finding ops"):
            records = attribute(cast("Trace", found.pop()), op_rules())
    except InputError as error:
        raise type(error)(f"{name}: {error}", error.hint) from error
    return _with_lines(records, Path(name)) if compiled else records


def _with_lines(records: Records, path: Path) -> Records:
    """Records of a program that Inductor compiled with the lines that it says its kernels were made from, where it does."""
    from pyprof.parse.sources import kernel_information

    if lines := kernel_information.beside(path):
        from pyprof.parse.attribution.provenance import give_lines

        if count := give_lines(records, lines):
            records.notes.append(f"kernels with source lines from {kernel_information.NAME}: {count:,}")
    return records


def _with_graphs(run: Trace | Records, name: str, graphs: str | None) -> Trace | Records:
    """A capture with what it replays of graphs: from the traces that were named, else from those beside it or in itself.

    Raises InputError where those that were named explain none of its replays.
    """
    from pyprof.parse.sources.trace import Trace

    graphs = _GRAPHS.get() if graphs is None else graphs
    if not isinstance(run, Trace) or (graphs is None and not (run.activities["graph_node"] >= 0).any()):
        return run
    from pyprof.parse.attribution.graphs import explained, unexplained

    captures, notes = _captures(name, graphs) if graphs is not None or unexplained(run).any() else ([], [])
    found = explained(run, captures)
    if graphs is not None and not found.kernels:
        raise InputError((found.refused or notes)[0], "give the trace of the capture of the graphs that this run replays")
    notes += found.notes
    return replace(found.trace, notes=[*found.trace.notes, *notes]) if notes else found.trace


def _captures(name: str, graphs: str | None) -> tuple[list[GraphTrace], list[str]]:
    """Traces of captures, named or beside a run, and notes on the others. Raises InputError where what was named holds none."""
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
    return _attributed([_with_graphs(trace, name, graphs)], name)


def op_rules() -> OpRules:
    """What attribution must know of ops, from the formulas: which ops have one decides where an op instance begins."""
    from pyprof.opcall import OpRules
    from pyprof.prof import formulas

    return OpRules(formulas.known, formulas.is_copy, formulas.is_structural, formulas.gives_way, formulas.moves, formulas.asks)
