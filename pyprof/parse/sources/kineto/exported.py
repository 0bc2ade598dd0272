"""The parts of a Trace that events of a timeline do not hold <-> values that `pyprof trace` writes beside them.

The value `pyprof` at the top level of the file holds the distinct markers and texts, threads, processes, devices and nodes of
graphs; the list `pyprof` among an event's args holds codes into them. So a capture of any tool that was written as a timeline
is read back unchanged. Knows nothing of how events are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pyprof.columns.distinct import distinct_values
from pyprof.columns.types import Ints
from pyprof.errors import InputError
from pyprof.model.calltext import call_text, parse_call_text
from pyprof.model.markers import Kind, Marker, decode
from pyprof.model.opcall import sound_text
from pyprof.model.trace import TABLES, Strings, Table, Trace, make_table
from pyprof.parse.sources.kineto.events import Int

VERSION = 1
_TABLES = ("threads", "processes", "devices", "graph_nodes")  # small, or without an event of their own
_CODES = ("name", "domain", "src")  # columns of codes into strings
_TIMES = ("start_ns", "end_ns", "time_ns")


class RangeCodes(msgspec.Struct, array_like=True, gc=False):
    """Codes of a range: its marker, the text of its domain, whether open and free, the row of its forward thread, the text of
    its source line. Trailing unknown ones are left out."""

    label: Int
    domain: Int = -1
    open: Int = 0
    free: Int = 0
    fwd_thread: Int = -1
    src: Int = -1


class ActivityCodes(msgspec.Struct, array_like=True, gc=False):
    """Codes of a GPU activity: the row of its process, the kind of its copy."""

    process: Int = -1
    copykind: Int = -1


class MarkerFields(msgspec.Struct, omit_defaults=True):
    """A marker. Without a kind, decoding the text gives all of it."""

    text: str
    keyed: bool = False
    numbered: bool = False
    kind: int | None = None
    name: str = ""
    call: str | None = None
    described: bool = True
    src: list[str] = []
    scope: str = ""
    own: bool = False
    step: int | None = None
    cls: str = ""

    @classmethod
    def of(cls, marker: Marker) -> MarkerFields:
        """The fewest fields from which a marker can be made again."""
        for keyed, numbered in ((False, False), (True, False), (True, True)):
            if repr(decode(marker.text, keyed=keyed, numbered=numbered)) == repr(marker):  # where nan is equal to nan
                return cls(marker.text, keyed, numbered)
        made = marker.call
        call = None if made is None else call_text(made._replace(described=True))  # its facts are kept
        return cls(
            marker.text, kind=int(marker.kind), name=marker.name, call=call, described=made is None or made.described,
            src=[*map(sound_text, marker.src)], scope=marker.scope, own=marker.own, step=marker.step,
            cls=sound_text(marker.cls),
        )  # fmt: skip

    def marker(self) -> Marker:
        """The marker. Raises ValueError for an unknown kind."""
        if self.kind is None:
            return decode(self.text, keyed=self.keyed, numbered=self.numbered)
        call = None if self.call is None else parse_call_text(self.call)._replace(described=self.described)
        kind = Kind(self.kind)
        src = tuple(self.src)
        return Marker(kind, self.text, self.name, call, src, self.scope, self.own, self.step, cls=self.cls)


class Exported(msgspec.Struct):
    """The value `pyprof`. since_ns: offset of the times of events; tracks: pid and tid of events, and the row of `threads` for
    which they stand (-1: none)."""

    version: int
    source: str
    tool: str
    since_ns: Int
    session_end_ns: Int
    utc_ns: Int
    notes: list[str]
    texts: list[str]
    markers: list[MarkerFields]
    tables: dict[str, dict[str, list[Int]]]
    tracks: list[tuple[Int, Int, Int]]

    @classmethod
    def of(cls, trace: Trace, texts: Strings, labels: Ints, since_ns: int, tracks: list[tuple[int, int, int]]) -> Exported:
        """The value for a trace; labels: rows of the markers that are written, in the order of their new codes."""
        tables = {}
        for name in _TABLES:
            table = {column: values.tolist() for column, values in getattr(trace, name).items()}
            for column in table.keys() & set(_CODES):
                table[column] = [texts.code(sound_text(trace.strings[code])) if code >= 0 else -1 for code in table[column]]
            tables[name] = table
        markers = [MarkerFields.of(trace.markers[label]) for label in labels.tolist()]
        return cls(
            VERSION, trace.source, trace.version, since_ns, trace.session_end_ns, trace.utc_ns, [*map(sound_text, trace.notes)],
            texts.values, markers, tables, tracks,
        )  # fmt: skip

    def restore(self, trace: Trace, numbers: Sequence[tuple[int, int]]) -> None:
        """Complete a trace that holds the columns of its events; numbers: pid and tid of each of its threads so far.

        Raises ValueError if a code refers to nothing.
        """
        trace.source, trace.version, trace.notes = self.source, self.tool, self.notes
        trace.session_end_ns, trace.utc_ns = self.session_end_ns, self.utc_ns
        codes = np.array([*map(trace.strings.code, self.texts), -1], np.int64)
        for name in _TABLES:
            table = {column: np.array(values, np.int64) for column, values in self.tables.get(name, {}).items()}
            setattr(trace, name, make_table(name, _with_texts(table, codes)))
        for number, fields in enumerate(self.markers):
            trace.labels.add(number, fields.marker())
        row_of = {(pid, tid): row for pid, tid, row in self.tracks}
        row = np.array([*(row_of.get(key, -1) for key in numbers), -1], np.int64)
        for name in ("activities", "launches", "ranges", "memory", "frames"):
            table = getattr(trace, name)
            table |= {column: np.asarray(table[column] + self.since_ns) for column in table.keys() & set(_TIMES)}
            if "thread" in table:
                table["thread"] = row.astype(np.int32)[table["thread"]]
        if trace.samples is not None:
            trace.samples = trace.samples._replace(time_ns=trace.samples.time_ns + self.since_ns)
        trace.ranges = make_table("ranges", _with_texts(trace.ranges, codes, ("domain", "src")))
        _check(trace)


def given(value: object, name: str) -> Exported | None:
    """The value of a file, None if it has none. Raises InputError if pyprof did not write it so."""
    if value is None:
        return None
    try:
        found = msgspec.convert(value, Exported)
    except (msgspec.ValidationError, ValueError) as error:
        raise damaged(name, error) from error
    if found.version != VERSION:
        raise InputError(f"{name}: a timeline of another version of pyprof ({found.version})", "write it again with this one")
    return found


def damaged(name: str, error: Exception) -> InputError:
    """The error for a file whose own tables were changed."""
    return InputError(f"{name}: not as `pyprof trace` wrote it: {error}", "write the timeline again from the capture")


def range_columns(codes: Sequence[RangeCodes | None]) -> Table | None:
    """Columns of `ranges` from the codes of events; None if these have none, as in a trace of torch.profiler itself."""
    known = [one for one in codes if one is not None]
    if not known or len(known) < len(codes):
        return None
    columns = {name: [getattr(one, name) for one in known] for name in RangeCodes.__struct_fields__}
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def _with_texts(table: Table, codes: Ints, names: Sequence[str] = _CODES) -> Table:
    """The table with codes into the trace's strings instead of the file's texts."""
    changed = {}
    for name in table.keys() & set(names):
        if len(values := table[name]) and not -1 <= values.min() <= values.max() < len(codes) - 1:
            raise ValueError(f"no text has the number in {name}")
        changed[name] = codes[values]
    return {**table, **changed}


def _check(trace: Trace) -> None:
    """Raise ValueError if a row refers to a missing one."""
    rows = {"thread": len(trace.threads["tid"]), "process": len(trace.processes["pid"]), "label": len(trace.markers)}
    rows["fwd_thread"] = rows["thread"]
    for name in TABLES:
        table = getattr(trace, name)
        for column in table.keys() & rows.keys():
            least = 0 if column == "label" else -1
            values = distinct_values(table[column])
            if len(values) and not least <= values[0] <= values[-1] < rows[column]:
                raise ValueError(f"{name}: there is no {column} {values[-1]}")
