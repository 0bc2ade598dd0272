"""The text of a torch.profiler trace -> its events, a block at a time, and the facts at the file's top level.

A block is a few megabytes cut between two events, so that memory does not grow with the file. Text that is not quite JSON
(control characters, bare nan and inf, stray backslashes and commas, bytes that are not UTF-8) is read by a slower reader with
the same result. This module must not know what an event means.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from operator import attrgetter
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from pyprof.errors import InputError, NotACapture
from pyprof.parse.sources.gunzip import MAGIC, DamagedGzip, Gunzip

LAST_US = 4e15
"""The year 2096, beyond which no event of a trace lies; twice this in nanoseconds still fits 64 bits."""

_BLOCK_BYTES = 8 << 20
_MAX_HEAD_BYTES = 64 << 20  # before the events: at most the process groups of a large job
_CUTS_TRIED = 8
_MOST_EVENT_BYTES = 64 << 20  # of one event, and of what follows all events; looking for its end again and again takes time
# From here on a float of microseconds cannot distinguish nanoseconds: epoch times with a fraction.
_EXACT_BELOW_US = float(1 << 43)
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_HINT = "the file is damaged or was cut short: export or copy it again"
# An integer that a column of 64 bits holds: all that Kineto counts, except the sequence number that means none.
Int = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
_NO_ARGS = msgspec.Raw(b"{}")
E = TypeVar("E", bound="Event")
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


class Facts(msgspec.Struct):
    """The values beside the events, as they are in the file: any of them may have any type, and None where it is missing."""

    deviceProperties: object = None
    distributedInfo: object = None
    baseTimeNanoseconds: object = None
    schemaVersion: object = None
    pyprof_modules: object = None
    pyprof: object = None


class _Document(Facts, Generic[E], kw_only=True):
    traceEvents: list[E]


_Decoders = tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]  # with times as floats, and with exact ones
_BLOCK: _Decoders = (msgspec.json.Decoder(list[_Plain]), msgspec.json.Decoder(list[_Exact]))
_DOCUMENT: _Decoders = (msgspec.json.Decoder(_Document[_Plain]), msgspec.json.Decoder(_Document[_Exact]))
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class TraceFile:
    """One trace file: `blocks()` gives its events in lists, once; after that `facts` holds the top-level values.

    stream: the file from its beginning, compressed or not; name: its name for people.
    """

    def __init__(self, stream: io.BufferedReader, name: str, block_bytes: int = 0) -> None:
        self.name = name
        self.block_bytes = block_bytes or _BLOCK_BYTES
        self._stream = stream
        self.facts = Facts()

    def blocks(self) -> Iterator[list[Event]]:
        """All events in the order of the file.

        Raises NotACapture where there are no trace events, InputError where the text is damaged or cut short.
        """
        if self._stream.peek(2)[:2] != MAGIC:
            yield from self._blocks(self._stream)
            return
        with closing(Gunzip(self._stream)) as text:
            try:
                yield from self._blocks(text)
            except DamagedGzip as error:
                raise InputError(f"{self.name}: cannot be decompressed: {error}", _HINT) from error

    def _blocks(self, stream: io.BufferedReader | Gunzip) -> Iterator[list[Event]]:
        head, buffer = self._head(stream)
        while len(more := stream.read(self.block_bytes)) == self.block_bytes:
            if len(buffer) >= self.block_bytes:
                events, buffer = self._cut(buffer)
                yield events
            if len(buffer) > _MOST_EVENT_BYTES:
                most = f"one event of more than {_MOST_EVENT_BYTES >> 20} MiB"
                raise InputError(f"{self.name}: {most}, which no profiler writes", _HINT)
            buffer += more
        yield self._last(head, buffer + more)

    def _head(self, stream: io.BufferedReader | Gunzip) -> tuple[bytes, bytes]:
        """(text before the events, first text of the events)."""
        text = b""
        while len(text) < _MAX_HEAD_BYTES and (more := stream.read(min(self.block_bytes, 1 << 20))):
            text += more
            if (found := _EVENTS.search(text)) is not None:
                return text[: found.end()], text[found.end() :]
            if text.lstrip()[:1] == b"[":  # a bare list of events, which the Chrome format allows too
                return b"", text.lstrip()[1:]
        raise NotACapture(
            f"{self.name}: not a trace of torch.profiler: there are no traceEvents in it",
            "pass the file that prof.export_chrome_trace() or tensorboard_trace_handler() wrote",
        )

    def _cut(self, buffer: bytes) -> tuple[list[Event], bytes]:
        """(events of the longest readable beginning, the text left over)."""
        window, tried = 1 << 18, 0
        upto = len(buffer)
        while upto > 0:
            since = max(upto - window, 0)
            for match in reversed(list(_BETWEEN.finditer(buffer, since, upto))):
                found = _read(b"".join((b"[", memoryview(buffer)[: match.start() + 1], b"]")), _BLOCK)
                if found is not None:
                    return found[0], buffer[match.end() :]
                tried += 1
                if tried == _CUTS_TRIED:
                    raise InputError(f"{self.name}: not valid JSON", _HINT)
            upto, window = since, window * 8
        return [], buffer  # one event longer than a block

    def _last(self, head: bytes, text: bytes) -> list[Event]:
        """The events at the end, and the facts from before and behind all events."""
        found = _read(head + text if head else b'{"traceEvents":[' + text + b"}", _DOCUMENT)
        if found is None:
            raise InputError(f"{self.name}: not valid JSON", _HINT)
        events, self.facts = found
        return events


def _read(text: bytes, decoders: _Decoders) -> tuple[list[Event], Facts] | None:
    """The events and facts of a document, or of a block, which is a list of events; None where it cannot be read at all."""
    try:
        return _strict(text, *decoders)
    except _MALFORMED:
        text = _requoted(text)
    try:
        return _strict(text, *decoders)
    except _MALFORMED:
        found = _tolerant(text)
    document = found if isinstance(found, dict) else {"traceEvents": found}
    events = document.get("traceEvents")
    if not isinstance(events, list):
        return None
    facts = Facts(*(document.get(name) for name in Facts.__struct_fields__))
    return [event for item in events if (event := _event(item)) is not None], facts


def _strict(text: bytes, plain: msgspec.json.Decoder[Any], exact: msgspec.json.Decoder[Any]) -> tuple[list[Event], Facts]:
    """As `_read` of valid text, with exact times where floats would lose nanoseconds."""
    found = plain.decode(text)
    events, facts = (found, Facts()) if isinstance(found, list) else (found.traceEvents, found)
    begins = [e.ts for e in events]
    if float in set(map(type, begins)) and any(type(ts) is float and ts >= _EXACT_BELOW_US for ts in begins):
        found = exact.decode(text)
        events = found if isinstance(found, list) else found.traceEvents
    return events, facts


# ---------------------------------------------------------------------------------------------- text that is not quite JSON

# Kineto wrote names without escaping the quotes in them until July 2026: a record_function with JSON in its name, a frame of
# generated code. A name has a line of its own (today), or ends before `, "pid":` (until 2025).
_NAME_LINE = rb'(?m)^[ \t\r]*"name": "(?P<text>[^\n]*)(?=",?[ \r]*$)'
_NAME_BEGIN, _NAME_END = b'"name": "', b'", "pid": '
_BARE_QUOTE = rb'(?<!\\)"'


def _requoted(text: bytes) -> bytes:
    """The text with the quotes in names escaped, in one pass over it."""
    for names in (_names_of_lines, _names_before_pid):
        parts, done = [], 0
        for begin, end in names(text):
            name = text[begin:end]
            if b'"' in name and b'"ph":' not in name:  # the second: that ran past a name that was well written
                parts += [text[done:begin], re.sub(_BARE_QUOTE, rb'\\"', name)]
                done = end
        text = b"".join([*parts, text[done:]])
    return text


def _names_of_lines(text: bytes) -> Iterator[tuple[int, int]]:
    """Where the names are that have a line of their own."""
    return (match.span("text") for match in re.finditer(_NAME_LINE, text))


def _names_before_pid(text: bytes) -> Iterator[tuple[int, int]]:
    """Where the names are that end before a process's number, on the same line."""
    at, end, line = 0, 0, 0
    while (found := text.find(_NAME_BEGIN, at)) >= 0:
        at = found + len(_NAME_BEGIN)
        # Each end is looked for once, however many names begin before it.
        if end < at and (end := text.find(_NAME_END, at)) < 0:
            return
        if line < at:
            line = text.find(b"\n", at) % (len(text) + 1)
        if end < line:
            yield at, end
            at = end


# A string is passed over whole, so that what follows is never inside one; one that never ends is the rest of the text.
_ODD = (
    r'(?s)"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
    r"|(?P<number>-?\b(?:nan|NaN|inf|Infinity|INF|NAN)\b)"
    r"|(?P<comma>,)(?=\s*[\]}])"
)
_BAD_ESCAPE = r'\\(?:(?P<good>["\\/bfnrt]|u[0-9a-fA-F]{4})|)'


def _repaired(text: str) -> str:
    """The text without what JSON has no place for; only what changes is kept while it is gone over."""
    parts, done = [], 0
    for match in re.finditer(_ODD, text):
        new = _repair(match)
        if new is not None:
            parts += [text[done : match.start()], new]
            done = match.end()
    return "".join([*parts, text[done:]])


def _repair(match: re.Match[str]) -> str | None:
    """What stands for something odd; None: it stays."""
    if match["number"]:
        return "null"
    if match["comma"]:
        return ""
    text = match[0]
    return re.sub(_BAD_ESCAPE, lambda m: m[0] if m["good"] else r"\\", text) if "\\" in text else None


def _tolerant(text: bytes) -> object:
    """The value of the text, read leniently; None where it cannot be read at all."""
    decoded = text.decode("utf-8", "replace")
    for repair in (False, True):
        try:
            candidate = _repaired(decoded) if repair else decoded
            return json.loads(candidate, strict=False, parse_float=Decimal, parse_constant=_nothing)
        except (ValueError, RecursionError):
            continue
    return None


def _nothing(_: str) -> None:
    """The value of NaN and Infinity."""


def _event(item: object) -> Event | None:
    """An event read leniently, at the time nan where it has none; None where it is not an event."""
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
    """The args of events as structs of one kind; a value of a wrong type is left at its default."""
    text = b"[" + b",".join(map(attrgetter("args"), events)) + b"]"
    try:
        return msgspec.json.decode(text, type=list[kind], strict=False)  # type: ignore[valid-type]
    except _MALFORMED:
        return [_decode_one(kind, bytes(e.args)) for e in events]


def _decode_one(kind: type[S], text: bytes) -> S:
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except _MALFORMED:
        found = _tolerant(text)
    usable = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(found, dict) and field.encode_name in found:
            one = json.dumps({field.encode_name: found[field.encode_name]}, default=float).encode()
            try:
                usable[field.name] = getattr(msgspec.json.decode(one, type=kind, strict=False), field.name)
            except _MALFORMED:
                continue
    return kind(**usable)


def nanoseconds(values: Sequence[int | float | Decimal]) -> npt.NDArray[np.int64]:
    """Microseconds as written, within LAST_US -> the nearest whole nanoseconds, exact to the digits of the file."""
    micro = np.array(values, np.float64)
    whole = np.floor(micro)
    result = whole.astype(np.int64) * 1000 + np.rint((micro - whole) * 1000).astype(np.int64)
    if Decimal in set(map(type, values)):
        for row in np.flatnonzero(np.abs(micro) >= _EXACT_BELOW_US).tolist():
            result[row] = int((Decimal(values[row]) * 1000).to_integral_value(ROUND_HALF_EVEN))
    return result
