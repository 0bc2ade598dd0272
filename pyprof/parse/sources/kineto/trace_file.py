"""A torch.profiler trace's file -> its events, a block at a time, in order, and the facts at its top level.

A block is a megabyte or two cut between two events, so that memory does not grow with the file; what is to be done with the
events of a block may be done in other processes. This module must not know what an event means.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Generic, NamedTuple, TypeVar, cast

from pyprof.errors import InputError, NotACapture
from pyprof.parse.sources.gunzip import MAGIC, DamagedGzip, Gunzip
from pyprof.parse.sources.kineto.events import Event, Events, Facts, kept, read_block, read_document
from pyprof.parse.sources.kineto.team import Buffer, Team

Result = TypeVar("Result")
Work = Callable[[Events], Result]

_BLOCK_BYTES = 2 << 20  # larger ones do not stay in the caches of a core
_ALONE_BYTES = 32 << 20  # of text: of less the start of a process takes as long as it saves
_MAX_HEAD_BYTES = 64 << 20  # before the events: at most the process groups of a large job
_CUTS_TRIED = 8
_MOST_EVENT_BYTES = 64 << 20  # of one event, and of what follows all events; looking for its end again and again takes time
_WINDOW_BYTES = 1 << 14  # in which an end of an event is looked for first
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)  # what brackets are counted by
_HINT = "the file is damaged or was cut short: export or copy it again"


class TraceFile:
    """One trace file, to be read once by `blocks` or `worked`; after that `facts` holds the top-level values.

    stream: the file from its beginning, compressed or not; name: its name for people.
    """

    def __init__(self, stream: io.BufferedReader, name: str, block_bytes: int = 0) -> None:
        self.name = name
        self.block_bytes = block_bytes or _BLOCK_BYTES
        self._stream = stream
        self.facts = Facts()

    def blocks(self) -> Iterator[list[Event]]:
        """All events in the order of the file. Raises as `worked` does."""
        return (events for _, events in self.worked(lambda: kept))

    def worked(self, begin: Callable[[], Work[Result]], processes: int = 1) -> Iterator[tuple[int, Result]]:
        """What some work makes of the events of each block, in the order of the file, and the number of the process that did
        it, from 0 for this one. begin: called in each process first, gives the work; the args of events are gone after it.

        Raises NotACapture where there are no trace events, InputError where the text is damaged or cut short, ToolError where
        a process is killed.
        """
        if self._stream.peek(2)[:2] != MAGIC:
            yield from self._worked(self._stream, begin, processes)
            return
        with closing(Gunzip(self._stream)) as text:
            try:
                yield from self._worked(text, begin, processes)
            except DamagedGzip as error:
                raise InputError(f"{self.name}: cannot be decompressed: {error}", _HINT) from error

    def _worked(
        self, stream: io.BufferedReader | Gunzip, begin: Callable[[], Work[Result]], processes: int
    ) -> Iterator[tuple[int, Result]]:
        head, first = self._head(stream)
        work = begin()
        with closing(_Blocks(self, _Text(first, stream), work, Team(begin, processes))) as blocks:
            yield from blocks.results()
            last = blocks.rest()
        yield 0, work(self._last(head, last))

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

    def _last(self, head: bytes, text: bytes) -> Events:
        """The events at the end, and the facts from before and behind all events."""
        found = read_document(head + text if head else b'{"traceEvents":[' + text + b"}")
        if found is None:
            raise InputError(f"{self.name}: not valid JSON", _HINT)
        events, self.facts = found
        return events


class _Text:
    """Text that is read from a stream, some of it given back before."""

    def __init__(self, first: bytes, stream: io.BufferedReader | Gunzip) -> None:
        self._first, self._stream = memoryview(first), stream

    @property
    def given_back(self) -> bool:
        """Whether some of it waits."""
        return len(self._first) > 0

    def give_back(self, text: bytes) -> None:
        """Put text before the rest."""
        self._first = memoryview(text + bytes(self._first))

    def readinto(self, room: memoryview) -> int:
        """Fill the room; returns how many bytes there are, fewer only at the end."""
        size = min(len(self._first), len(room))
        room[:size], self._first = self._first[:size], self._first[size:]
        while size < len(room) and (more := self._stream.readinto(room[size:])):
            size += more
        return size


class _UnderWay(NamedTuple):
    """A block on its way. worker: which process has it, 0: this one, where it is done; result: then."""

    buffer: Buffer
    worker: int
    result: object = None


class _Blocks(Generic[Result]):
    """The text cut into blocks.

    The work on a block is done here or by one of a team, which is given what looks like the end of an event at its end. Where
    it is not one, as within a name, all text from there on is read here, and each end is tried.
    """

    def __init__(self, file: TraceFile, text: _Text, work: Work[Result], team: Team[Result]) -> None:
        self._name, self._bytes = file.name, file.block_bytes
        self._text, self._work, self._team = text, work, team
        self._buffers = [self._buffer() for _ in range(2)]
        self._free = [*self._buffers]
        self._current = self._free.pop()
        self._under_way: deque[_UnderWay] = deque()
        self._handed_bytes = 0
        self._least_bytes = self._bytes  # of text that is worth cutting

    def _buffer(self) -> Buffer:
        return Buffer(_MOST_EVENT_BYTES + self._bytes, self._bytes)

    def close(self) -> None:
        """End the team."""
        self._team.close()

    def rest(self) -> bytes:
        """The text after all blocks, once there are no more results."""
        return bytes(self._current.text)

    def results(self) -> Iterator[tuple[int, Result]]:
        """Those of all blocks."""
        while True:
            following = self._free.pop()
            more = following.fill(self._text.readinto)
            following.put_before(self._handed_on() if more else self._current.text)
            if not self._under_way or self._under_way[-1].buffer is not self._current:
                self._free.append(self._current)
            self._current = following
            yield from self._done(everything=not more)
            if not more and not self._text.given_back:
                return

    def _done(self, everything: bool) -> Iterator[tuple[int, Result]]:
        """The results that are there, in order; waits for what has to be."""
        while self._under_way:
            buffer, worker, result = self._under_way[0]
            if worker:
                if not (everything or not self._free or self._team.has_result(worker)):
                    return
                result = self._team.result(worker)
                if result is None:
                    self._read_again()
                    return
            self._under_way.popleft()
            self._free.append(buffer)
            yield worker, cast("Result", result)

    def _handed_on(self) -> memoryview:
        """Give the first events of the current text to be worked on; returns the text left over."""
        current = self._current
        if len(current.text) < min(self._least_bytes, _MOST_EVENT_BYTES):
            return current.text
        if self._handed_bytes >= _ALONE_BYTES:
            self._free += self._team.start(self._buffers, self._buffer)
        worker, result = 0, None
        if self._team.at_work and (end := next(_ends(current.text), None)) is not None:
            current.block(*end)
            worker = self._team.send(current)
        else:
            result = self._cut()
        self._least_bytes = self._bytes
        if worker or result is not None:
            self._under_way.append(_UnderWay(current, worker, result))
        elif len(current.text) <= _MOST_EVENT_BYTES:
            self._least_bytes = 2 * len(current.text)  # looking for an end again and again takes time
        else:
            most = f"one event of more than {_MOST_EVENT_BYTES >> 20} MiB"
            raise InputError(f"{self._name}: {most}, which no profiler writes", _HINT)
        self._handed_bytes += len(current.text) - len(current.left)
        return current.left

    def _cut(self) -> Result | None:
        """The result of the longest readable beginning of the current text; None where one event is longer than all of it, or
        only what follows all events is left."""
        text, tried = self._current.text, [*islice(_ends(self._current.text), _CUTS_TRIED)]
        for end in tried:
            events = read_block(self._current.block(*end))
            if events is not None:
                return self._work(events)
        self._current.whole()
        if len(tried) < _CUTS_TRIED or (outer := _outer_end(text)) is None:
            return None
        if (events := read_block(self._current.block(*outer))) is None:
            raise InputError(f"{self._name}: not valid JSON", _HINT)
        return self._work(events)

    def _read_again(self) -> None:
        """Read what a process could not, and all that follows it, here."""
        self._team.close()
        buffers = [one.buffer for one in self._under_way]
        self._text.give_back(b"".join([*(buffer.handed() for buffer in buffers), self._current.text]))
        self._current.clear()
        self._free += buffers
        self._under_way.clear()


def _outer_end(text: memoryview) -> tuple[int, int] | None:
    """The last end of an event that another follows, found by counting brackets from the first event on; None where none is."""
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
    """What look like ends of events that another follows, from the last on: where each ends, and the next one begins."""
    window, upto = _WINDOW_BYTES, len(text)
    while upto > 0:
        since = max(upto - window, 0)
        for match in reversed(list(_BETWEEN.finditer(text, since, upto))):
            yield match.start() + 1, match.end()
        upto, window = since, window * 8
