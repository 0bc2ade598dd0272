"""An SQLite capture of nsys or nvprof -> a new one with the numbers of the tables that readers use, and only the texts that
reports show, without names of people and machines.

The lists name what to keep, since newer tools add tables with unknown contents. The new file is built from scratch, so it
has no free pages and no deleted data.
"""

from __future__ import annotations

import re
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pyprof.errors import InputError
from pyprof.parse.sources.sqlite import Database, uri_of
from pyprof.scrub.identities import Identities

Columns: TypeAlias = dict[str, dict[str, str]]  # of each table each column with its declared type


class Kept(NamedTuple):
    """Contents of one tool's databases that are kept.

    tables: their names; texts, blobs: (table, column) of each whose texts or blobs are kept; strings: the table of texts that
    others refer to, its columns, and the columns that refer to it; dropped: columns that identify a device.
    """

    tables: re.Pattern[str]
    texts: frozenset[tuple[str, str]]
    blobs: frozenset[tuple[str, str]]
    strings: tuple[str, str, str]
    references: frozenset[str]
    dropped: frozenset[str]


_STEPS = 100_000  # of SQLite's machine between two looks for signals: some milliseconds
_VERSIONS = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # of these tables only rows called EXPORT_..._VERSION are kept
NSYS = Kept(
    tables=re.compile(
        r"StringIds|NVTX_\w+|ThreadNames|ANALYSIS_DETAILS|META_DATA_EXPORT|EXPORT_META_DATA|CUDA_GRAPH\w*_EVENTS|ENUM_\w+"
        r"|CUPTI_ACTIVITY_KIND_\w+|CUDNN_EVENTS|CUBLAS_EVENTS|TARGET_INFO_(GPU|CUDA_DEVICE|CUDA_STREAM|SESSION_START_TIME)"
    ),
    texts=frozenset(
        [("NVTX_EVENTS", "text"), ("TARGET_INFO_GPU", "name"), ("TARGET_INFO_GPU", "chipName")]
        + [(table, column) for table in _VERSIONS for column in ("name", "value")]
    ),
    blobs=frozenset(),
    strings=("StringIds", "id", "value"),
    references=frozenset({"textId", "jsonTextId", "nameId", "demangledName", "shortName", "mangledName", "name"}),
    dropped=frozenset({"uuid", "busLocation"}),
)
NVPROF = Kept(
    tables=re.compile(
        r"StringTable|Version|CUPTI_ACTIVITY_KIND_((CONCURRENT_|CDP_)?KERNEL|MEMCPY2?|MEMSET|RUNTIME|DRIVER|MARKER|DEVICE|CONTEXT"
        r"|NAME|OVERHEAD|SYNCHRONIZATION|STREAM)"
    ),
    texts=frozenset(),
    blobs=frozenset([("CUPTI_ACTIVITY_KIND_MARKER", "objectId"), ("CUPTI_ACTIVITY_KIND_NAME", "objectId")]),
    strings=("StringTable", "_id_", "value"),
    references=frozenset({"name", "domain"}),
    dropped=frozenset({"uuid"}),
)


def scrub_database(path: Path, name: str, kept: Kept, identities: Identities, out: Path) -> None:
    """Write the scrubbed database into the empty file `out`. Raises InputError if the capture cannot be read."""
    with path.open("rb") as stream, closing(Database(stream.fileno(), path, name)) as source:
        columns: Columns = {}
        for table in filter(kept.tables.fullmatch, source.tables):
            schema = source.schema(table)  # None for a virtual table
            key = {schema.alias: "INTEGER PRIMARY KEY"} if schema is not None and schema.alias else {}
            columns[table] = {} if schema is None else schema.affinities | key
        _find_names(source, identities)
        with closing(sqlite3.connect(out, isolation_level=None, uri=True)) as target:
            try:
                with _ended_by_signals(target):
                    _fill(target, path, columns, kept, identities)
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE")):  # Python 3.11
                    raise OSError(str(error)) from error  # not the capture is at fault but where the copy goes
                raise InputError(f"{name}: cannot be copied: {error}", "export it again") from error


@contextmanager
def _ended_by_signals(target: sqlite3.Connection) -> Iterator[None]:
    """Let an interrupt or a termination end the statement that runs, and take effect then.

    sqlite3 makes an error of its own of whatever is raised in a function that SQL calls, and a statement that calls none would
    run to its end before Python saw the signal.
    """
    came: list[int] = []

    def note(number: int, _frame: object) -> None:
        came.append(number)
        target.interrupt()

    if threading.current_thread() is not threading.main_thread():  # only that one takes signals
        yield
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    target.set_progress_handler(lambda: bool(came), _STEPS)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _find_names(source: Database, identities: Identities) -> None:
    """Look for names in every text of the capture, kept or not; rows of names and values say what a value is."""
    for table in source.tables:
        schema = source.schema(table)
        for column in schema.affinities if schema is not None else ():
            cell = _quoted(column)
            for (text,) in source.rows(f"SELECT DISTINCT {cell} FROM {_quoted(table)} WHERE typeof({cell}) = 'text'"):
                identities.find(str(text))
        if source.has(table, "name", "value"):
            for key, value in source.rows(f"SELECT name, value FROM {_quoted(table)} WHERE typeof(value) = 'text'"):
                identities.find(f"{key!s}={value!s}")


def _fill(target: sqlite3.Connection, source: Path, columns: Columns, kept: Kept, identities: Identities) -> None:
    """Copy the listed tables; shared strings last, and only those that copied rows reference."""

    def scrubbed(value: object) -> str:
        return identities.scrubbed(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))

    for pragma in ("journal_mode = OFF", "synchronous = OFF", "trusted_schema = OFF"):
        target.execute(f"PRAGMA {pragma}")
    target.create_function("scrubbed", 1, scrubbed, deterministic=True)
    target.execute("ATTACH DATABASE ? AS source", (uri_of(source),))
    for table, declared in columns.items():
        listed = ", ".join(f"{_quoted(column)} {kind}" for column, kind in declared.items())
        target.execute(f"CREATE TABLE {_quoted(table)} ({listed})")
        if table != kept.strings[0]:
            values = ", ".join(_value(table, column, kept) for column in declared)
            versions = table in _VERSIONS and {"name", "value"} <= declared.keys()
            where = "WHERE name LIKE 'EXPORT_%VERSION%'" if versions else ""
            target.execute(f"INSERT INTO {_quoted(table)} SELECT {values} FROM source.{_quoted(table)} {where}")
    if "globalTid" in columns.get("ThreadNames", ()):  # names of threads on which nothing was recorded: other programs'
        busy = [table for table, declared in columns.items() if "globalTid" in declared and table != "ThreadNames"]
        used = " UNION ".join(f"SELECT globalTid FROM main.{_quoted(table)}" for table in busy) or "SELECT NULL"
        target.execute(f"DELETE FROM main.ThreadNames WHERE globalTid NOT IN ({used})")
    _copy_strings(target, columns, kept)
    target.execute("DETACH DATABASE source")
    target.execute("VACUUM")


def _value(table: str, column: str, kept: Kept) -> str:
    """SQL for a kept cell: numbers, and the texts and blobs on the lists."""
    cell = _quoted(column)
    if column in kept.dropped:
        return "NULL"
    text = f"scrubbed({cell})" if (table, column) in kept.texts or table.startswith("ENUM_") else "NULL"
    blob = cell if (table, column) in kept.blobs else "NULL"
    return f"CASE typeof({cell}) WHEN 'text' THEN {text} WHEN 'blob' THEN {blob} ELSE {cell} END"


def _copy_strings(target: sqlite3.Connection, columns: Columns, kept: Kept) -> None:
    """Copy only the strings that copied rows reference."""
    table, *names = kept.strings
    if not {*names} <= columns.get(table, {}).keys():
        return
    key, value = map(_quoted, names)
    references = [
        f"SELECT {_quoted(column)} FROM main.{_quoted(other)}"
        for other, declared in columns.items()
        for column in (sorted(declared.keys() & kept.references) if other != table else ())
    ]
    used = " UNION ".join(references) or "SELECT NULL"
    target.execute(
        f"INSERT INTO {_quoted(table)} ({key}, {value}) "
        f"SELECT {key}, scrubbed({value}) FROM source.{_quoted(table)} WHERE {key} IN ({used}) ORDER BY {key}"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
