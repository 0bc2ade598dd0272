"""Text of a torch.profiler trace -> its events, and the facts at the file's top level.

Text that is not quite JSON (control characters, bare nan and inf, stray backslashes and commas, bytes that are not UTF-8) is
read by a slower reader with the same result. Knows nothing of what an event means, nor where the text comes from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from operator import attrgetter
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from pyprof.columns.types import Array, Floats, Ints
from pyprof.parse.sources.kineto.odd_text import requoted, tolerant

LAST_US = 4e15
"""The year 2096, beyond which no event of a trace lies; twice this in nanoseconds still fits 64 bits."""

# From here on a float of microseconds cannot distinguish nanoseconds: epoch times with a fraction.
_EXACT_BELOW_US = float(1 << 43)
# An integer that a column of 64 bits holds: all that Kineto counts, except the sequence number that means none.
Int = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
_NO_ARGS = msgspec.Raw(b"{}")
E = TypeVar("E", bound="Event")
Key = TypeVar("Key", bound=Hashable)
S = TypeVar("S", bound=msgspec.Struct)


class Event(msgspec.Struct, gc=False):
    """One event of the Chrome trace format; ts and dur in microseconds as written, args still as text."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: int | float | Decimal = 0
    dur: int | float | Decimal = 0
    id: int | str | None = None
    args: msgspec.Raw = _NO_ARGS


class _Plain(Event, gc=False):
    ts: int | float = 0
    dur: int | float = 0


class _Exact(Event, gc=False):
    ts: Decimal = Decimal(0)
    dur: Decimal = Decimal(0)


class Events(list[Event]):
    """Events in the order of the file. begin_us: their `ts` as floats; None if floats would lose digits of some."""

    begin_us: Floats | None = None


class Facts(msgspec.Struct):
    """The values beside the events as they are in the file: of any type, None if missing."""

    deviceProperties: object = None
    computeProperties: object = None
    distributedInfo: object = None
    baseTimeNanoseconds: object = None
    schemaVersion: object = None
    record_shapes: object = None
    with_stack: object = None
    profile_memory: object = None
    with_flops: object = None
    with_modules: object = None
    pyprof_modules: object = None
    pyprof_memory: object = None
    pyprof: object = None


class _Document(Facts, Generic[E], kw_only=True):
    traceEvents: list[E]


_Decoders = tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]  # with times as floats, and with exact ones
_BLOCK: _Decoders = (msgspec.json.Decoder(list[_Plain]), msgspec.json.Decoder(list[_Exact]))
_DOCUMENT: _Decoders = (msgspec.json.Decoder(_Document[_Plain]), msgspec.json.Decoder(_Document[_Exact]))
_TS = attrgetter("ts")
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_block(text: memoryview) -> Events | None:
    """The events in a JSON list; None if it cannot be read at all. Their args lie in the text."""
    found = _read(text, _BLOCK)
    return None if found is None else found[0]


def read_document(text: bytes) -> tuple[Events, Facts] | None:
    """The events and facts of a whole trace; None if it cannot be read at all."""
    return _read(text, _DOCUMENT)


def _read(text: bytes | memoryview, decoders: _Decoders) -> tuple[Events, Facts] | None:
    try:
        return _strict(text, *decoders)
    except _MALFORMED:
        text = requoted(bytes(text))
    try:
        return _strict(text, *decoders)
    except _MALFORMED:
        found = tolerant(text)
    document = found if isinstance(found, dict) else {"traceEvents": found}
    events = document.get("traceEvents")
    if not isinstance(events, list):
        return None
    facts = Facts(*(document.get(name) for name in Facts.__struct_fields__))
    return Events(event for item in events if (event := _event(item)) is not None), facts


def _strict(
    text: bytes | memoryview, plain: msgspec.json.Decoder[Any], exact: msgspec.json.Decoder[Any]
) -> tuple[Events, Facts]:
    """`_read` for valid text, with exact times where floats would lose nanoseconds."""
    events, facts = _decoded(text, plain)
    begin = as_floats(map(_TS, events), len(events))
    long = begin is None or (len(begin) > 0 and begin.max() >= _EXACT_BELOW_US)
    if long and float in set(map(type, map(_TS, events))):
        return _decoded(text, exact)
    events.begin_us = begin
    return events, facts


def _decoded(text: bytes | memoryview, decoder: msgspec.json.Decoder[Any]) -> tuple[Events, Facts]:
    found = decoder.decode(text)
    return (Events(found), Facts()) if isinstance(found, list) else (Events(found.traceEvents), found)


def _event(item: object) -> Event | None:
    """An event read leniently, with the time nan if it has none; None if it is not an event."""
    if not isinstance(item, dict):
        return None
    ts, dur = _number(item.get("ts", 0)), _number(item.get("dur", 0))
    ph, cat, name = (_clean(item.get(key, "")) for key in ("ph", "cat", "name"))
    if ts is None or dur is None:
        return Event(ph, cat, name, ts=math.nan)
    args = item.get("args")
    raw = json.dumps(args, default=float).encode() if isinstance(args, dict) else b"{}"
    number = item.get("id")
    return Event(
        ph, cat, name, _id(item.get("pid")), _id(item.get("tid")), ts, dur,
        number if isinstance(number, int) else _clean(number), msgspec.Raw(raw),
    )  # fmt: skip


def _clean(value: object) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _id(value: object) -> int | str:
    return value if isinstance(value, int) else _clean(value)


def _number(value: object) -> int | Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        return None
    try:
        number = Decimal(value) if isinstance(value, str) else value
    except InvalidOperation:
        return None
    return number if isinstance(number, int) or number.is_finite() else None


# ---------------------------------------------------------------------------------------------- values


def decode_args(kind: type[S], events: list[Event]) -> list[S]:
    """The args of events as structs of one kind; a value of a wrong type keeps its default."""
    text = b"[" + b",".join(map(attrgetter("args"), events)) + b"]"
    try:
        return msgspec.json.decode(text, type=list[kind], strict=False)  # type: ignore[valid-type]
    except _MALFORMED:
        return [_decode_one(kind, bytes(e.args)) for e in events]


def _decode_one(kind: type[S], text: bytes) -> S:
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except _MALFORMED:
        found = tolerant(text)
    usable = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(found, dict) and field.encode_name in found:
            one = json.dumps({field.encode_name: found[field.encode_name]}, default=float).encode()
            try:
                usable[field.name] = getattr(msgspec.json.decode(one, type=kind, strict=False), field.name)
            except _MALFORMED:
                continue
    return kind(**usable)


def whole_numbers(structs: Sequence[object], name: str) -> Ints:
    """A column from a field that holds integers of 64 bits."""
    return np.fromiter(map(attrgetter(name), structs), np.int64, len(structs))


def as_floats(values: Iterable[int | float], count: int) -> Floats | None:
    """A column of the first `count` numbers; None if one has too many digits."""
    try:
        return np.fromiter(values, np.float64, count)
    except OverflowError:
        return None


def microseconds(values: Sequence[int | float | Decimal]) -> Array:
    """Times as written, as a column of integers or floats, or of objects if some are Decimals or beyond 64 bits."""
    found = np.array(values) if values else np.empty(0)
    return found if found.dtype.kind in "if" else np.array(values, np.object_)


def floats(micro: Array) -> Array:
    """The times of `microseconds` as numbers that can be compared; nan for anything that is no time."""
    if micro.dtype.kind != "O":
        return micro
    return np.array([value if abs(value) < LAST_US else math.nan for value in micro.tolist()], np.float64)


def nanoseconds(values: Sequence[int | float | Decimal] | Array) -> Ints:
    """Microseconds as written, or as `microseconds` returns them, within LAST_US -> the nearest whole nanoseconds, exact to the
    digits of the file."""
    given = values if isinstance(values, np.ndarray) else microseconds(values)
    if given.dtype.kind == "i":
        return given * np.int64(1000)
    micro = given.astype(np.float64, copy=False)
    whole = np.floor(micro)
    result = whole.astype(np.int64) * 1000 + np.rint((micro - whole) * 1000).astype(np.int64)
    if given.dtype.kind == "O":
        for row in np.flatnonzero(np.abs(micro) >= _EXACT_BELOW_US).tolist():
            result[row] = int((Decimal(given[row]) * 1000).to_integral_value(ROUND_HALF_EVEN))
    return result


class Codes(dict[Key, int]):
    """Codes of things that many rows share. The function gives the code of a thing that is met first; without one, things are
    numbered in the order in which they are met."""

    def __init__(self, code: Callable[[Key], int] | None = None) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, key: Key) -> int:
        self[key] = code = len(self) if self._code is None else self._code(key)
        return code

    def of(self, keys: Iterable[Key], count: int) -> Array:
        """The codes of `count` keys."""
        return np.fromiter(map(self.__getitem__, keys), np.int32, count)


class Span(NamedTuple):
    """Begin and end of events, in ns; an end is never before its begin."""

    start: Ints
    end: Ints

    def take(self, rows: Array) -> Span:
        return Span(self.start[rows], self.end[rows])

    def columns(self) -> dict[str, Array]:
        return {"start_ns": self.start, "end_ns": self.end}
