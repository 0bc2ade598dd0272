"""A torch.profiler trace's file -> its events, block by block, in order, and the facts at its top level.

A block is a megabyte or two cut between two events, so that memory does not grow with the file. Knows nothing of what an event
means.
"""

from __future__ import annotations

import codecs
import io
import json
import mmap
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import islice

from pyprof.errors import InputError, NotACapture
from pyprof.parse.sources.gunzip import MAGIC, CutGzip, DamagedGzip, Gunzip
from pyprof.parse.sources.kineto.events import Events, Facts, read_block, read_document

_BLOCK_BYTES = 2 << 20  # larger ones do not stay in the caches of a core
_MAX_HEAD_BYTES = 64 << 20  # before the events: at most the process groups of a large job
_CUTS_TRIED = 8
_MOST_EVENT_BYTES = 64 << 20  # of one event, and of what follows all events; looking for its end again and again takes time
_DECODED_BYTES = 1 << 18  # of UTF-16 at a time
_WINDOW_BYTES = 1 << 14  # in which an end of an event is looked for first
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)  # what brackets are counted by
_TO_THE_END = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[][{}]', re.DOTALL)  # as _TOKENS, with a string that never ends
_HINT = "the file is damaged: export or copy it again"


class TraceFile:
    """One trace file, to be read once by `blocks`; after that `facts` holds the top-level values, `notes` what was odd.

    stream: the file from its beginning, compressed or not; name: its name for people.
    """

    def __init__(self, stream: io.BufferedReader, name: str, block_bytes: int = 0) -> None:
        self.name = name
        self.block_bytes = block_bytes or _BLOCK_BYTES
        self._stream = stream
        self.facts, self.notes = Facts(), list[str]()
        self._events = 0  # so far

    def blocks(self) -> Iterator[Events]:
        """All events in the order of the file; their args are valid until the next block.

        A text that ends in the middle is read up to its last whole event, with a note. Raises NotACapture if there are no trace
        events, InputError if the text is damaged.
        """
        if self._stream.peek(2)[:2] != MAGIC:
            yield from self._blocks(_Text(b"", self._stream))
            return
        with closing(Gunzip(self._stream)) as text:
            try:
                yield from self._blocks(_Text(b"", text))
            except DamagedGzip as error:
                raise InputError(f"{self.name}: cannot be decompressed: {error}", _HINT) from error

    def _blocks(self, stream: _Text) -> Iterator[Events]:
        text = _in_utf8(stream)
        head, first = self._head(text)
        text.put_back(first)
        current, following = (BlockBuffer(_MOST_EVENT_BYTES + self.block_bytes, self.block_bytes) for _ in range(2))
        least = self.block_bytes  # of text that is worth cutting
        while following.fill(text):
            if len(current.text) >= min(least, _MOST_EVENT_BYTES):
                events, least = self._cut(current, text.size - self.block_bytes), self.block_bytes
                if events is not None:
                    self._events += len(events)
                    yield events
                elif len(current.text) <= _MOST_EVENT_BYTES:
                    least = 2 * len(current.text)  # looking for an end again and again takes time
                else:
                    most = f"one event of more than {_MOST_EVENT_BYTES >> 20} MiB"
                    raise InputError(f"{self.name}: {most}, which no profiler writes", _HINT)
            following.put_before(current.left)
            current, following = following, current
        following.put_before(current.text)
        rest = bytes(following.text)
        found = read_document(head + rest if head else b'{"traceEvents":[' + rest + b"}")
        if found is None and (last := _cut_short(rest, bool(head))) is not None:
            found = read_document((head or b'{"traceEvents":[') + rest[:last] + b"]}")
            if found is not None and self._events + len(found[0]):
                self.notes.append(
                    f"the file ends in the middle: read are the {self._events + len(found[0]):,} events before byte "
                    f"{text.size - len(rest) + last:,} of {text.size:,}"
                )
            elif found is not None:
                raise InputError(f"{self.name}: cut short before the end of the first event", "export or copy it again")
        if found is None:
            raise self._invalid(rest, text.size - len(rest))
        events, self.facts = found
        yield events

    def _invalid(self, text: bytes, begin: int) -> InputError:
        """The error for events that cannot be read; begin: where their text begins in the file."""
        where, why = begin, "not valid JSON"
        try:
            json.JSONDecoder(strict=False).raw_decode("[" + text.decode("latin-1"))
        except json.JSONDecodeError as error:
            where, why = begin + error.pos - 1, f"not valid JSON ({error.msg[:1].lower()}{error.msg[1:]})"
        except RecursionError:
            why = "not valid JSON (lists in lists too deep)"
        except ValueError:  # of Python: thousands of digits
            why = "not valid JSON (a number too long)"
        line = self._line_of(where)
        return InputError(f"{self.name}: {why} at byte {where:,}" + (f", line {line:,}" if line else ""), _HINT)

    def _line_of(self, byte: int) -> int | None:
        """The number of the line with a byte of a file that can be read again; None for others."""
        if not self._stream.seekable():
            return None
        self._stream.seek(0)
        if self._stream.peek(2)[:2] == MAGIC:
            return None
        text, line = _in_utf8(_Text(b"", self._stream)), 1
        while byte > 0 and (piece := text.read(min(byte, 1 << 20))):
            line, byte = line + piece.count(b"\n"), byte - len(piece)
        return line

    def _cut(self, current: BlockBuffer, end: int) -> Events | None:
        """The events of the longest readable beginning of a text; None if one event is longer than all of it, or only the text
        behind all events is left. end: where the text ends in the file."""
        text = current.text
        tried = [*islice(_ends(text), _CUTS_TRIED)]
        for one in tried:
            if (events := read_block(current.block(*one))) is not None:
                return events
        current.whole()
        if len(tried) < _CUTS_TRIED or (outer := _outer_end(text)) is None:
            return None
        if (events := read_block(current.block(*outer))) is None:
            current.whole()
            raise self._invalid(bytes(current.text), end - len(current.text))
        return events

    def _head(self, stream: _Text) -> tuple[bytes, bytes]:
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


class _Text:
    """Text that continues with a stream after some that was read before; size: bytes that were read so far.

    Compressed data that ends too early is the end of the text.
    """

    def __init__(self, first: bytes, stream: io.BufferedReader | Gunzip) -> None:
        self._first, self._stream = memoryview(first), stream
        self.size = 0

    def put_back(self, text: bytes) -> None:
        """Read this text next."""
        self._first = memoryview(text + bytes(self._first))
        self.size -= len(text)

    def readinto(self, room: memoryview) -> int:
        """Fill the room; returns the number of bytes, fewer only at the end."""
        size = min(len(self._first), len(room))
        room[:size], self._first = self._first[:size], self._first[size:]
        while size < len(room) and (more := self._more(room[size:])):
            size += more
        self.size += size
        return size

    def read(self, size: int) -> bytes:
        """`size` bytes, fewer only at the end."""
        room = bytearray(size)
        return bytes(memoryview(room)[: self.readinto(memoryview(room))])

    def _more(self, room: memoryview) -> int:
        try:
            return self._stream.readinto(room) or 0
        except CutGzip:
            return 0


class _Utf16Text(_Text):
    """The text of a stream in UTF-16, as UTF-8."""

    def __init__(self, first: bytes, stream: io.BufferedReader | Gunzip) -> None:
        super().__init__(b"", stream)
        self._decode = codecs.getincrementaldecoder("utf-16")("replace").decode
        self._raw, self._ready = first, b""

    def _more(self, room: memoryview) -> int:
        while not self._ready:
            piece = bytearray(_DECODED_BYTES)
            raw, self._raw = self._raw or bytes(piece[: super()._more(memoryview(piece))]), b""
            self._ready = self._decode(raw, not raw).encode()
            if not raw and not self._ready:
                return 0
        size = min(len(self._ready), len(room))
        room[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def _in_utf8(text: _Text) -> _Text:
    """The text without a byte order mark, in UTF-8."""
    first = text.read(len(codecs.BOM_UTF8))
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _Utf16Text(first, text._stream)
    text.put_back(first.removeprefix(codecs.BOM_UTF8))
    text.size = 0
    return text


def _cut_short(text: bytes, in_object: bool) -> int | None:
    """The end of the last whole event of a text that ends too early; None if it does not. in_object: whether the list of events
    stands in an object, whose end must follow."""
    depth = end = 0
    listed = True
    for token in _TO_THE_END.finditer(text):
        byte = text[token.start()]
        if byte in b"{[":
            depth += 1
        elif byte in b"}]":
            depth -= 1
            listed &= depth >= 0
            if not depth and listed:
                end = token.end()
    return end if depth > -1 - in_object else None


class BlockBuffer:
    """Memory for a text that is read behind the rest of the text before it.

    before: most bytes of that rest; size: bytes that are read. Pages that are not written to take no memory.
    """

    def __init__(self, before: int, size: int) -> None:
        self._memory = memoryview(mmap.mmap(-1, 1 + before + size))
        self._read = 1 + before
        self._begin = self._end = self._next = self._read
        self._bracket: tuple[int, int] | None = None

    @property
    def text(self) -> memoryview:
        return self._memory[self._begin : self._end]

    @property
    def left(self) -> memoryview:
        """The text behind the block; all of it without one."""
        return self._memory[self._next : self._end]

    def fill(self, text: _Text) -> bool:
        """Read as much as there is room for, in place of the former text; returns whether there was enough."""
        self._bracket = None
        self._begin = self._next = self._read
        self._end = self._read + text.readinto(self._memory[self._read :])
        return self._end == len(self._memory)

    def put_before(self, text: memoryview) -> None:
        """Put the rest of another text before this one."""
        self._begin = self._next = self._read - len(text)
        self._memory[self._begin : self._read] = text

    def block(self, end: int, next_one: int) -> memoryview:
        """A list of the events in the text up to an end, behind which the next event begins."""
        self.whole()
        at = self._begin + end
        self._bracket = at, self._memory[at]
        self._memory[self._begin - 1], self._memory[at] = ord("["), ord("]")
        self._next = self._begin + next_one
        return self._memory[self._begin - 1 : at + 1]

    def whole(self) -> None:
        """Undo `block`: its text counts as unread again."""
        if self._bracket is not None:
            at, byte = self._bracket
            self._memory[at] = byte
        self._bracket, self._next = None, self._begin


def _outer_end(text: memoryview) -> tuple[int, int] | None:
    """The last end of an event that another follows, found by counting brackets from the first event on; None if there is
    none."""
    depth, at, end = 0, None, None
    for token in _TOKENS.finditer(text):
        byte = text[token.start()]
        if byte in b"{[":
            if not depth and at is not None and (between := _BETWEEN.match(text, at)) is not None:
                end = at + 1, between.end()
            depth += 1
        elif byte in b"}]":
            depth -= 1
            if depth < 0:  # of the list of events
                break
            if not depth:
                at = token.start()
    return end


def _ends(text: memoryview) -> Iterator[tuple[int, int]]:
    """Probable ends of events that another follows, from the last on: (end of the event, begin of the next)."""
    window, upto = _WINDOW_BYTES, len(text)
    while upto > 0:
        since = max(upto - window, 0)
        for match in reversed(list(_BETWEEN.finditer(text, since, upto))):
            yield match.start() + 1, match.end()
        upto, window = since, window * 8
