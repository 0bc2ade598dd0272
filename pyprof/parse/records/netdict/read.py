"""Lines of net.dict, pyprof's or the original PyProf's -> Records.

A line of pyprof is decoded into its own numbers and the JSON of everything else, which thousands of lines share and which is
parsed once. Any other line is read as JSON, else as a Python literal; nothing is evaluated.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec.structs import astuple

from pyprof.columns.distinct import distinct_values
from pyprof.columns.types import Array
from pyprof.errors import InputError
from pyprof.model.calltext import parse_call_text
from pyprof.model.markers import UNREADABLE, is_backward_name, read_literal
from pyprof.model.opcall import OpCall, OpRules, sound_text
from pyprof.model.records import COLUMNS, DIRECTIONS, GPU_NUMBERS, PHASES, GpuInfo, MarkedStep, Records, Stack, Unseen
from pyprof.model.trace import COPY_KINDS, ActivityKind, narrowed
from pyprof.parse.records.netdict.derive import Derived, Line, known, whole_number
from pyprof.parse.records.netdict.write import ALWAYS, OPTIONAL, SOMETIMES

_COPY_CODE = {name: code for code, name in COPY_KINDS.items()}
_MAX_INSTANCE = 1 << 62
_MAX_KINDS = 1 << 16  # kinds of lines that are remembered
_MOST_UNKNOWN = 5  # keys that are reported

_Int = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Instance = Annotated[int, msgspec.Meta(lt=_MAX_INSTANCE, ge=-(1 << 63))]
_KEYS = {*ALWAYS, *SOMETIMES, *OPTIONAL}
_OWN_INTEGERS = {key: field.column for key, field in OPTIONAL.items() if not field.shared}
_INSTANCES = ("instance", "fwd_instance")
# Keys whose values each line has for itself (altSeqId follows from others); then keys whose JSON many lines share.
_OWN_KEYS: dict[str, tuple[Any, ...]] = {
    "altSeqId": (msgspec.Raw, msgspec.Raw(b"")),
    "kDuration": (_Int,), "seqMarker": (list[str], ()), "seqId": (list[_Int], ()), "subSeqId": (_Int | str, 0),
    **{key: (_Instance if column in _INSTANCES else _Int, -1) for key, column in _OWN_INTEGERS.items()},
}  # fmt: skip
_SHARED: dict[str, tuple[Any, ...]] = {
    **{key: (msgspec.Raw,) for key in ALWAYS if key not in _OWN_KEYS},
    **{key: (msgspec.Raw, msgspec.Raw(b"")) for key in (*SOMETIMES, *OPTIONAL) if key not in _OWN_KEYS},
}
_Line = msgspec.defstruct(
    "_Line",
    [(key, *kind) for key, kind in (_SHARED | _OWN_KEYS).items()],
    kw_only=True,
    gc=False,
    forbid_unknown_fields=True,
)
# Columns with a number per line, in the order of `rows`, after the kind and the count of sequence numbers.
_OWN = ("dur_ns", "seq", "sub", *_OWN_INTEGERS.values())
_SHARED_END = len(_SHARED)  # where in a decoded line its own values begin
_INTEGERS_BEGIN = _SHARED_END + 5  # after altSeqId, kDuration, seqMarker, seqId, subSeqId
_OF_KIND = tuple(name for name in COLUMNS if name not in _OWN)
_decode = msgspec.json.Decoder(_Line).decode


def read_lines(lines: Iterable[str], name: str, rules: OpRules) -> Records:
    """Records from the lines of a file called `name`.

    Raises InputError with the number of the first line that is not a record.
    """
    reader = _LineReader(rules)
    for number, line in enumerate(lines, 1):
        if reader.take(line) or not line or line.isspace():
            continue
        record = _literal(line)
        if not isinstance(record, dict) or ("kShortName" not in record and "kLongName" not in record):
            raise InputError(
                f"{name}: line {number} is not a record: {line.strip()[:60]!r}",
                "give the output of `python -m pyprof.parse`, or the capture itself",
            )
        try:
            reader.add(record)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            raise InputError(
                f"{name}: line {number} is a damaged record ({type(error).__name__}: {error})", "parse the capture again"
            ) from error
    return reader.records()


def _literal(line: str) -> object:
    """The value of a line; None if it is neither JSON nor a Python literal."""
    for read in (json.loads, read_literal):
        try:
            return read(line.strip())
        except UNREADABLE:
            continue
    return None


def _split(markers: Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """Split markers `name, seq = number` into names and numbers (as text)."""
    pairs = [marker.rpartition(", seq = ") for marker in markers]
    return tuple([name for name, _, _ in pairs]), [number for _, _, number in pairs]


class _LineReader:
    """Collects for each line its kind and its own numbers, for each kind the shared columns, and the pools."""

    def __init__(self, rules: OpRules) -> None:
        self.out = Records({})
        self.kinds: dict[tuple[object, ...], int] = {}
        self.kind_columns = array("q")  # the columns of _OF_KIND, one row per kind
        self.rows = array("q")  # per line: kind, count of sequence numbers, the columns of _OWN
        self.numbers = array("q")  # the sequence numbers of all lines
        self.stacks: dict[Stack, int] = {}  # stack -> code
        self.gpus: dict[GpuInfo, int] = {}
        self.engine_steps: dict[MarkedStep, int] = {}
        self.call_code: dict[str, int] = {}
        self.derived = Derived(rules, self.add_call)
        self.unknown: dict[str, int] = {}  # key that is not read -> lines that have it

    def take(self, line: str) -> bool:
        """Add a line that pyprof wrote; False if it is anything else and `add` must parse it."""
        try:
            values = astuple(_decode(line))
            _, duration_ns, markers, seq_id, sub = values[_SHARED_END:_INTEGERS_BEGIN]
            names, texts = _split(markers)
            numbers = array("q", map(int, texts))
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            return False
        seq = seq_id[0] if seq_id else -1
        key = (b"\0".join(values[:_SHARED_END]), names, *map(seq.__eq__, numbers))
        kind = self.kinds.get(key)
        if kind is None:
            kind = self._learn(key, line)
            if kind is None:
                return False
        first = (kind, len(numbers), duration_ns, seq, sub if isinstance(sub, int) else -1)
        self.rows.extend(first + values[_INTEGERS_BEGIN:])
        self.numbers.extend(numbers)
        return True

    def _learn(self, key: tuple[object, ...], line: str) -> int | None:
        """Number of a new kind, from its first line; None if the line cannot be read this way."""
        if len(self.kinds) >= _MAX_KINDS:
            return None
        try:
            values, _ = self._values(json.loads(line))
        except (*UNREADABLE, KeyError, AttributeError, IndexError):
            return None
        self.kinds[key] = kind = self._add_kind(values)
        return kind

    def _add_kind(self, values: dict[str, int]) -> int:
        self.kind_columns.extend([values[name] for name in _OF_KIND])
        return len(self.kind_columns) // len(_OF_KIND) - 1

    def add(self, record: Line) -> None:
        """Add any record."""
        values, numbers = self._values(record)
        for key in record.keys() - _KEYS:
            self.unknown[key] = self.unknown.get(key, 0) + 1
        if "kind" not in record:
            names, _ = _split(record.get("seqMarker", ()))
            row = len(self.rows) // (2 + len(_OWN))
            values |= self.derived.ops(row, record, tuple(map(sound_text, names)), numbers)
        self.rows.extend((self._add_kind(values), len(numbers), *[values[name] for name in _OWN]))
        self.numbers.extend(numbers)

    def _values(self, record: Line) -> tuple[dict[str, int], list[int]]:
        """All columns of a record, and its sequence numbers."""
        names, texts = _split(record.get("seqMarker", ()))
        numbers = [whole_number(number) for number in texts]
        seq = whole_number(record["seqId"][0]) if record.get("seqId") else -1
        scope = stack = self._stack(record, tuple(map(sound_text, names)), numbers, seq)
        if "opLayer" in record:
            own_scope = Stack(layer=_texts(record, "opLayer"), trace=_texts(record, "opTrace"))
            scope = self.stacks.setdefault(own_scope, len(self.stacks))
        values = self._plain(record) | {"seq": seq, "stack": stack, "scope": scope}
        if "kind" in record:
            ops = ("call", "own", "inner")
            values |= {key: self.call(sound_text(str(record[key]))) if key in record else -1 for key in ops}
            if values["own"] < 0:
                values["own"] = values["call"]
        return values, numbers

    def _plain(self, line: Line) -> dict[str, int]:
        grid, block = (tuple(line.get(k) or (-1, -1, -1)) for k in ("grid", "block"))
        values = dict.fromkeys(COLUMNS, -1)
        values |= {f"grid_{axis}": whole_number(n) for axis, n in zip("xyz", grid, strict=True)}
        values |= {f"block_{axis}": whole_number(n) for axis, n in zip("xyz", block, strict=True)}
        values |= {field.column: whole_number(line[key]) for key, field in OPTIONAL.items() if key in line}
        if max(values["instance"], values["fwd_instance"]) >= _MAX_INSTANCE:
            raise ValueError("not the number of an instance")
        values |= {key: known(line.get(key)) for key in ("tid", "device", "stream")}
        values["name"] = self.out.strings.code(sound_text(str(line.get("kLongName") or line["kShortName"])))
        values["dur_ns"] = whole_number(line["kDuration"])
        values["sub"] = known(line.get("subSeqId", 0))
        values["dir"] = _code(DIRECTIONS, line["dir"])
        values["kind"] = ActivityKind.NAMES.index(line.get("kind", "kernel"))
        values["phase"] = _code(PHASES, line["phase"]) if "phase" in line else values["dir"]
        values["copykind"] = _COPY_CODE.get(line.get("copykind", ""), -1)
        values["by_time"] = whole_number(line.get("byTime", 0))
        if "gpu" in line:
            described = line["gpu"]
            major, _, minor = str(described.get("cc", "")).partition(".")
            cc = (whole_number(major), whole_number(minor)) if major and minor else None
            sizes = (whole_number(described.get(k, -1)) for k in GPU_NUMBERS)
            gpu = GpuInfo(sound_text(str(described.get("name", ""))), cc, *sizes)
            values["gpu"] = self.gpus.setdefault(gpu, len(self.gpus))
        if "engineStep" in line:
            described = line["engineStep"]
            pid, number, begin_ns, end_ns = (whole_number(described[key]) for key in ("pid", "number", "begin_ns", "end_ns"))
            step = MarkedStep(pid, number, begin_ns, end_ns, _texts(described, "texts"))
            values["engine_step"] = self.engine_steps.setdefault(step, len(self.engine_steps))
        return values

    def _stack(self, line: Line, names: tuple[str, ...], numbers: list[int], seq: int) -> int:
        marker = _texts(line, "marker")
        backward = [i for i, name in enumerate(names) if numbers[i] == seq and is_backward_name(name)]
        stack = Stack(
            mod=_texts(line, "mod") if marker else (),
            op=_texts(line, "op") if marker else (),
            marker=marker,
            layer=_texts(line, "layer"),
            trace=_texts(line, "trace"),
            reprs=_texts(line, "reprMarkers"),
            seq_names=names,
            backward_at=backward[-1] if backward else -1,
            ranges=_texts(line, "ranges"),
            open=bool(line.get("open")),
        )
        return self.stacks.setdefault(stack, len(self.stacks))

    def call(self, text: str) -> int:
        return self.call_code[text] if text in self.call_code else self.add_call(text, parse_call_text(text))

    def add_call(self, text: str, call: OpCall) -> int:
        if text not in self.call_code:
            self.call_code[text] = len(self.out.calls)
            self.out.calls.append(call)
        return self.call_code[text]

    def records(self) -> Records:
        """Everything that was added."""
        out = self.out
        rows = np.frombuffer(self.rows, np.int64).reshape(-1, 2 + len(_OWN))
        kinds = np.frombuffer(self.kind_columns, np.int64).reshape(-1, len(_OF_KIND))
        own = {name: rows[:, 2 + at] for at, name in enumerate(_OWN)}
        for name, (dtype, _) in COLUMNS.items():
            if name in own:
                out.columns[name] = narrowed(own[name], dtype).copy()
            else:
                out.columns[name] = narrowed(kinds[:, _OF_KIND.index(name)], dtype)[rows[:, 0]]
        self.derived.finish(out.columns)
        _renumber(out.columns)
        out.seq_offsets = np.concatenate([[0], np.cumsum(rows[:, 1])])
        out.seq_numbers = np.frombuffer(self.numbers, np.int64).copy()
        out.stacks, out.gpus, out.engine_steps = list(self.stacks), list(self.gpus), list(self.engine_steps)
        for key, count in sorted(self.unknown.items(), key=str)[:_MOST_UNKNOWN]:
            out.notes.append(f"the key {key!r} is unknown and was not read: lines of net.dict that have it: {count}")
        out.source = "original" if self.derived.rows else "dict"
        if ((out.columns["kind"] == ActivityKind.CPU) & (out.columns["gpu"] >= 0)).any():
            out.unseen = Unseen("the work of the device is not in these records", "parse a capture that shows it")
        timeless = int((out.columns["dur_ns"] < 0).sum())
        if timeless:
            out.notes.append(f"left out, since they take less than no time (kDuration below 0): {timeless:,} of the lines")
        return out.select(out.columns["dur_ns"] >= 0) if timeless else out


def _renumber(columns: dict[str, Array]) -> None:
    """Renumber instances, in order, if their numbers are far larger than the count of records (lines picked from a long file,
    or a damaged number): other code makes arrays of that length."""
    both = np.stack([columns["instance"], columns["fwd_instance"]])
    if both.max(initial=-1) < 1_000_000 + 16 * both.shape[1]:
        return
    known = distinct_values(both[both >= 0])
    for name in ("instance", "fwd_instance"):
        columns[name] = np.where(columns[name] >= 0, np.searchsorted(known, columns[name]), -1)


def _code(names: tuple[str, ...], text: object) -> int:
    """Index of the text in names, -1 for `na`. Raises ValueError for an unknown text."""
    return -1 if text == "na" else names.index(str(text))


def _texts(line: Line, key: str) -> tuple[str, ...]:
    found = line.get(key, ())
    return tuple(sound_text(str(text)) for text in ((found,) if isinstance(found, str) else found))
