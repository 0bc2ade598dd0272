"""An input file -> a Trace, Records or counters: the list of input formats.

A format is recognised by the first bytes or, in an SQLite file, by the tables. Only its reader is imported.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from pyprof.errors import InputError, NotACapture
from pyprof.memory import Size, foresee
from pyprof.messages import stage
from pyprof.parse.sources.inputs import GZIP, HEAD_BYTES, PICKLE, SQLITE, Input

if TYPE_CHECKING:
    from pyprof.model.allocations import AllocationTrace
    from pyprof.model.opcall import OpRules
    from pyprof.model.records import Records
    from pyprof.model.trace import Trace
    from pyprof.parse.sources.measured.launches import Measured
    from pyprof.parse.sources.sqlite import Database

_FIRST_BYTES = 1 << 14
_PARQUET = b"PAR1"
_NCU, _NCU_NAMES = b"NVR\0", (".ncu-rep", ".ncu-repz")
_REPORT, _REPORT_NAMES = b"NVIDIA Tegra Profiler Report", (".nsys-rep", ".qdrep")
_NVPROF_TABLE = "stringtable"
_ROWS = {
    "activities": r"(?i)^CUPTI_ACTIVITY_KIND_(CONCURRENT_KERNEL|KERNEL|MEMCPY|MEMSET|GRAPH_TRACE)(_?V?\d+)?$",
    "launches": r"(?i)^CUPTI_ACTIVITY_KIND_(RUNTIME|DRIVER)(_?V?\d+)?$",
    "ranges": r"(?i)^(NVTX_EVENTS|CUPTI_ACTIVITY_KIND_MARKER)$",
}
_BLOCK_TIMES = re.compile(rb'"pid"\s*:\s*"[^"]* Core\d+ CTA\d+\b')  # of kernels that Proton instrumented
TIMERS = "pyprof timers {}"
_NSYS_TABLE = re.compile(
    r"(?i)StringIds|META_DATA_EXPORT|ANALYSIS_DETAILS|NVTX_EVENTS|CUPTI_ACTIVITY_KIND_(?:KERNEL|GRAPH_TRACE|MEMCPY|RUNTIME)(?:_?V?\d+)?"
)


class InputFormat(NamedTuple):
    """One input format. sniff: recognise it by head or tables; read: read the input; alone: the result depends on the bytes of
    this file only, so it can be cached; size: how much the file says it holds, None if it does not.

    `parse FOLDER` picks files by suffix: see `parse/records/dataset.py`.
    """

    name: str
    sniff: Callable[[Input], bool]
    read: Callable[[Input], Trace | Records | Measured | AllocationTrace]
    alone: bool = False
    size: Callable[[Input], Size | None] = lambda _: None


def _module(name: str) -> Any:
    """A module of `pyprof.parse`, imported when an input may be of its format."""
    return import_module(f"pyprof.parse.{name}")


def _export_size(database: Database) -> Size:
    """Rows of the large tables of nsys or nvprof, by their largest row numbers."""
    counted = {name: sum(map(database.about_rows, filter(re.compile(pattern).search, database.tables)))
               for name, pattern in _ROWS.items()}  # fmt: skip
    return Size(**counted)


def _json_size(given: Input) -> Size | None:
    """Bytes of a trace, unpacked; gzip stores them modulo 4 GiB at its end, for the last of several members."""
    if not given.is_file:
        return None
    packed = given.path.stat().st_size
    if not given.head.startswith(GZIP):
        return Size(json_bytes=packed)
    with given.path.open("rb") as stream:
        stream.seek(-4, io.SEEK_END)
        unpacked = int.from_bytes(stream.read(), "little")
    return Size(json_bytes=unpacked) if unpacked > 3 * packed else None  # traces pack to a tenth or less


def _parquet_size(given: Input) -> Size | None:
    if not given.folder and not given.is_file:
        return None  # a pipe is read once
    files = _module("records.dataset").stored(given.path) if given.folder else [given.path]
    return Size(records=sum(map(_module("records.parquet").rows_of, files)))


def _is_torch_trace(given: Input) -> bool:
    for most in (_FIRST_BYTES, HEAD_BYTES):  # the first nearly always suffices
        text = given.text(most)
        if given.encoding == "utf-16":
            text = text.decode("utf-16", "replace").encode()
        text = text.lstrip(b"\xef\xbb\xbf \t\r\n")
        if (b'"call_stack"' in text and _is_proton_trace(given)) or _BLOCK_TIMES.search(text):
            return False
        header = sum(key in text for key in (b'"schemaVersion"', b'"deviceProperties"')) > (len(text) <= _FIRST_BYTES)
        listed = text[:1] == b"[" and b'"ph"' in text and b'"ts"' in text
        if listed or (text[:1] == b"{" and (b'"traceEvents"' in text or header)):
            return True
    return False


def _is_proton_trace(given: Input) -> bool:
    return bool(_module("sources.measured.proton").is_chrome_trace(given.decoded()))


def _is_data_set(given: Input) -> bool:
    return given.folder and bool(_module("records.dataset").stored(given.path))


_RECORD_KEY = r"""["']k(?:Short|Long)Name["']\s*:"""  # every record of the original has one of these keys


def _is_records(given: Input) -> bool:
    """Whether the first line is an object with one of the original's keys.

    Any text named .dict or .jsonl, or on standard input, passes too: the reader then names the bad line.
    """
    first, _, _ = given.text(HEAD_BYTES).decode(given.encoding, "replace").lstrip().partition("\n")
    named = given.standard or given.path.suffix in (".dict", ".jsonl")
    found = named or (first.startswith("{") and re.search(_RECORD_KEY, first) is not None)
    if found and given.head.startswith(GZIP):
        raise InputError(f"{given.name}: records are not read compressed", "gunzip -c net.dict.gz | python -m pyprof.prof -")
    return found


def _read_report(given: Input) -> Trace:
    from pyprof.parse.sources import nsys
    from pyprof.parse.sources.nsys_report import exported
    from pyprof.parse.sources.sqlite import Database

    with exported(given.file()[1], given.name) as path, path.open("rb") as stream:
        with closing(Database(stream.fileno(), path, given.name)) as database:
            foresee(given.name, _export_size(database))
            return nsys.read(database)


def _read_folder(given: Input) -> Records:
    from pyprof.model.records import concatenate
    from pyprof.parse.records import parquet
    from pyprof.parse.records.dataset import stored

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
    """Read counters from the input, decompressed if needed."""
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


CAPTURES = (
    InputFormat(
        "nvprof database",
        lambda given: any(table.lower() == _NVPROF_TABLE for table in given.tables),
        lambda given: _module("sources.nvprof").read(given.database),
        alone=True,
        size=lambda given: _export_size(given.database),
    ),
    InputFormat(
        "nsys export",
        lambda given: any(_NSYS_TABLE.fullmatch(table) for table in given.tables),
        lambda given: _module("sources.nsys").read(given.database),
        alone=True,
        size=lambda given: _export_size(given.database),
    ),
    InputFormat(
        "torch.profiler trace",
        _is_torch_trace,
        lambda given: _module("sources.kineto.reader").read(given.stream(), given.path, given.name),
        alone=True,
        size=_json_size,
    ),
    InputFormat(
        "nsys report", lambda given: given.head.startswith(_REPORT) or given.path.suffix in _REPORT_NAMES, _read_report
    ),
)
RECORDS = (
    InputFormat("folder of Parquet files", _is_data_set, _read_folder, size=_parquet_size),
    InputFormat(
        "Parquet file",
        lambda given: given.head.startswith(_PARQUET),
        lambda given: _module("records.parquet").read(given.file()[1]),
        size=_parquet_size,
    ),
    InputFormat("net.dict", _is_records, _read_records),
)
COUNTERS = (
    InputFormat(
        "report of Nsight Compute",
        lambda given: (not given.folder and given.path.suffix in _NCU_NAMES) or given.head.startswith(_NCU),
        lambda given: _module("sources.measured.ncu_report").read(given.file()[1], given.name),
    ),
    InputFormat(
        "CSV of Nsight Compute",
        lambda given: (
            _module("sources.measured.ncu_csv").is_ncu_csv(given.decoded())
            or (given.path.suffix == ".csv" and len(given.text(HEAD_BYTES)) == HEAD_BYTES)
        ),
        _read_ncu_csv,
    ),
    InputFormat(
        "profile of Proton",
        lambda given: _module("sources.measured.proton").is_hatchet(given.decoded()),
        lambda given: _read_measured(given, lambda stream: _module("sources.measured.proton").read_hatchet(stream, given.name)),
    ),
    InputFormat(
        "trace of Proton",
        _is_proton_trace,
        lambda given: _read_measured(
            given, lambda stream: _module("sources.measured.proton").read_chrome_trace(stream, given.name)
        ),
    ),
)


SNAPSHOTS = (
    InputFormat(
        "snapshot of torch's memory",
        lambda given: given.head.startswith(PICKLE) and _module("sources.snapshot_file").is_snapshot(given.head),
        lambda given: _module("sources.snapshot").read(given.stream(), given.name),
        size=lambda given: Size(pickle_bytes=given.path.stat().st_size) if given.is_file else None,
    ),
)


# All are named in the help pages.
FORMAT_NAMES, COUNTER_NAMES, SNAPSHOT_NAMES = (
    tuple(form.name for form in formats) for formats in (CAPTURES + RECORDS, COUNTERS, SNAPSHOTS)
)

Known = Callable[[Path], "Records | None"]


def read(name: str, formats: tuple[InputFormat, ...], known: Known | None = None) -> Trace | Records:
    """Read an input in one of these formats. Raises NotACapture for any other.

    known: look-up in a cache of records; if it finds any, the file is not read.
    """
    return cast("Trace | Records", read_any(name, formats, known))


def read_any(
    name: str, formats: tuple[InputFormat, ...], known: Known | None = None
) -> Trace | Records | Measured | AllocationTrace:
    """As `read`, but the formats may include measured counters and snapshots of memory."""
    with Input(name) as given:
        form = _format(given, formats)
        if known is not None and form.alone and given.is_file and (records := known(given.path)) is not None:
            return records
        foresee(given.name, form.size(given))
        with stage(f"reading {given.name}", given.read_share):
            return form.read(given)


def format_of(given: Input, formats: tuple[InputFormat, ...]) -> str:
    """Name of the format of an input. Raises NotACapture, saying what the input is if that is known."""
    return _format(given, formats).name


def size_of(given: Input, formats: tuple[InputFormat, ...]) -> Size | None:
    """How much an input says it holds, None if it does not. Raises as `format_of`."""
    return _format(given, formats).size(given)


# What people pass by mistake: the first bytes, what that is, what to pass.
_STRANGERS = (
    (rb"version https://git-lfs\.github\.com/", "a pointer of Git LFS, not the file itself", "git lfs pull"),
    (rb"<\?xml", "XML, such as a session of the Visual Profiler, not a capture", "pass the file that `nvprof -o` wrote"),
    (
        rb"PK\x03\x04",
        "a ZIP archive, such as a checkpoint of torch.save, not a capture",
        "pass the capture itself",
    ),
    (rb"\x80[\x02-\x05]", "a pickle, such as a checkpoint, not a capture", "pass the capture itself"),
)
_ROCPROF = "kernels without ops", "record with torch.profiler, which knows AMD's kernels too: pyprof run python PROGRAM.py"
# As above, by the unpacked text.
_STRANGE_TEXTS = (
    (
        rb'\s*\{\s*"displayTimeUnit"\s*:\s*"ns"\s*,\s*"metadata"\s*:\s*\{\s*"highres-ticks"',
        "a trace of JAX or TensorFlow, whose ops are not torch's",
        "pyprof reads programs of torch; for kernels alone record with nsys: pyprof run --tool nsys python PROGRAM.py",
    ),
    (
        rb'"?(Kind"?,"?Agent_Id|Index"?,"?KernelName|Name"?,"?Calls"?,"?TotalDurationNs)\b',
        f"a table of rocprof: {_ROCPROF[0]}",
        _ROCPROF[1],
    ),
    (rb'\s*\{\s*"rocprofiler-sdk-tool"', f"a file of rocprofv3: {_ROCPROF[0]}", _ROCPROF[1]),
)


def is_snapshot(name: str) -> bool:
    """Whether a file is a snapshot of torch's memory."""
    if not Path(name).is_file():
        return False
    with Input(name) as given:
        return SNAPSHOTS[0].sniff(given)


def _format(given: Input, formats: tuple[InputFormat, ...]) -> InputFormat:
    if any(form.sniff(given) for form in SNAPSHOTS):
        if SNAPSHOTS[0] in formats:
            return SNAPSHOTS[0]
        raise NotACapture(f"{given.name}: a snapshot of torch's memory, not a capture", f"pyprof memory {given.path}")
    for pattern, what, hint in _STRANGERS:
        if re.match(pattern, given.head) and given.path.suffix not in (*_NCU_NAMES, *_REPORT_NAMES):
            raise NotACapture(f"{given.name}: {what}", hint)
    for pattern, what, hint in _STRANGE_TEXTS if not given.folder else ():
        if re.match(pattern, given.text(_FIRST_BYTES)):
            raise NotACapture(f"{given.name}: {what}", hint)
    for form in formats:
        if (form.sniff is _is_data_set or not given.folder) and form.sniff(given):  # whatever its name is
            return form
    raise _unknown(given, formats)


def _unknown(given: Input, formats: tuple[InputFormat, ...]) -> InputError:
    """The error that says what an input in none of these formats is."""
    name = str(given.path)
    if any(form.sniff(given) for form in COUNTERS if form not in formats):
        return NotACapture(f"{given.name}: measured counters, not a capture", f"pyprof counters {name} --trace CAPTURE")
    if _BLOCK_TIMES.search(given.text(_FIRST_BYTES)):
        return NotACapture(f"{given.name}: times inside kernels, by Proton, not a capture", TIMERS.format(name))
    if given.folder:
        return InputError(f"{name}: is a directory, not a capture", "name one file in it")
    if given.head.startswith(SQLITE):
        if any(table.startswith("rocpd_") for table in given.tables):
            return NotACapture(f"{given.name}: a database of rocprofv3: {_ROCPROF[0]}", _ROCPROF[1])
        return NotACapture(
            f"{given.name}: an SQLite database, but of neither nsys nor nvprof",
            "pass the file that `nsys export --type sqlite` or `nvprof -o` wrote",
        )
    if given.path.suffix in (".pb", ".pftrace", ".perfetto-trace"):
        what = "a protocol buffer, such as JAX's xplane.pb or a trace of Perfetto, not a capture"
        return NotACapture(f"{given.name}: {what}", "record with torch.profiler or nsys: pyprof run python PROGRAM.py")
    if any(form.sniff(given) for form in RECORDS):
        return NotACapture(f"{given.name}: records, as `pyprof parse` writes them, not a capture", f"pyprof prof {name}")
    if given.text(len(SQLITE)).startswith((SQLITE, b"PAR1")):
        return NotACapture(f"{given.name}: compressed; of captures only traces in JSON are read so", f"gunzip -k {name}")
    return NotACapture(
        f"{given.name}: neither an SQLite capture of nsys or nvprof nor a torch.profiler trace",
        "nsys: `nsys export --type sqlite REPORT`; nvprof: the file of `nvprof -o`; torch.profiler: its .json trace",
    )


def op_rules() -> OpRules:
    """Rules that attribution takes from the formulas: ops with a formula decide where an op instance begins."""
    from pyprof.model.opcall import OpRules
    from pyprof.prof import formulas

    about_ops = formulas.known, formulas.is_copy, formulas.is_structural, formulas.gives_way, formulas.moves, formulas.asks
    return OpRules(*about_ops, formulas.namespaces())
