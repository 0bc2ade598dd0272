"""Processes that read texts of events and work on them, each text in memory that they share.

A text is given to whichever has the least to do; its result comes back pickled. Where memory cannot be shared there are none.
What the events mean and how the text is cut is not known here.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from pyprof.arrays.processes import begun, end, killed
from pyprof.parse.sources.kineto.events import Events, read_block

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Result = TypeVar("Result")

_MOST_PROCESSES = 4  # as many as one core can decompress for, and join the results of
_BEGUN_TOGETHER = 2  # texts that a process has: the next one is there when it has done with one


class Buffer:
    """Memory for a text that is read behind what was left of the text before it.

    before: bytes of that at most; size: bytes that are read. Pages that are not written to take no memory.
    """

    def __init__(self, before: int, size: int) -> None:
        self._memory = memoryview(mmap.mmap(-1, 1 + before + size))
        self._read = 1 + before
        self.clear()

    def clear(self) -> None:
        """Without a text."""
        self._begin = self._end = self._next = self._read
        self._bracket: tuple[int, int] | None = None

    @property
    def text(self) -> memoryview:
        """All of it."""
        return self._memory[self._begin : self._end]

    @property
    def left(self) -> memoryview:
        """What follows the block; all of it without one."""
        return self._memory[self._next : self._end]

    def fill(self, readinto: Callable[[memoryview], int]) -> bool:
        """Read as much as there is room for; whether there was so much."""
        self.clear()
        room = self._memory[self._read :]
        self._end += readinto(room)
        return self._end == len(self._memory)

    def put_before(self, text: memoryview) -> None:
        """Put what was left of another text before this one."""
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
        """Take a block back."""
        if self._bracket is not None:
            at, byte = self._bracket
            self._memory[at] = byte
        self._bracket, self._next = None, self._begin

    def handed(self) -> bytes:
        """The text of the block as it was, with what divides it from the next one."""
        upto = self._next
        self.whole()
        return bytes(self._memory[self._begin : upto])

    def place(self) -> tuple[int, int]:
        """Where in the memory the block is."""
        assert self._bracket is not None
        return self._begin - 1, self._bracket[0] + 1

    def at(self, place: tuple[int, int]) -> memoryview:
        """The block at a place, in whichever process."""
        return self._memory[slice(*place)]


@dataclass(frozen=True, eq=False)
class _Worker(Generic[Result]):
    """A process: its number in the system, the way to it, what it has sent, and the numbers of the buffers it has yet to do."""

    process: int
    way: Connection
    results: deque[Result | None]
    todo: deque[int]


class Team(Generic[Result]):
    """Processes, started when there is enough to do for them. work: begins the work in one; count: how many at most."""

    def __init__(self, work: Callable[[], Callable[[Events], Result]], count: int) -> None:
        self._work, self._count = work, min(count, _MOST_PROCESSES)
        self._workers: list[_Worker[Result]] = []
        self._buffers: list[Buffer] = []

    @property
    def at_work(self) -> bool:
        """Whether there are processes."""
        return len(self._workers) > 0

    def start(self, buffers: list[Buffer], room: Callable[[], Buffer]) -> list[Buffer]:
        """Start the processes, where there are to be any and none were; returns buffers that these need more.

        buffers: those that there are; room: makes one.
        """
        if self._count < 2 or not hasattr(os, "fork") or self._buffers:
            return []
        from multiprocessing.connection import Pipe

        more = [room() for _ in range(_BEGUN_TOGETHER * self._count)]
        self._buffers = [*buffers, *more]
        for _ in range(self._count):
            ours, theirs = Pipe()
            process = begun(partial(self._serve, ours, theirs))
            theirs.close()
            self._workers.append(_Worker(process, ours, deque(), deque()))
        return more

    def send(self, buffer: Buffer) -> int:
        """Let a process do the block of a buffer; returns its number, from 1."""
        number = min(range(len(self._workers)), key=lambda number: len(self._workers[number].todo))
        worker = self._workers[number]
        worker.todo.append(self._buffers.index(buffer))
        try:
            worker.way.send((worker.todo[-1], buffer.place()))
        except OSError as error:  # it has ended; a broken pipe would be taken for that of standard output
            raise killed() from error
        return number + 1

    def has_result(self, number: int) -> bool:
        """Whether a process is done with the first text whose result was not asked for yet."""
        self._receive(0)
        return len(self._workers[number - 1].results) > 0

    def result(self, number: int) -> Result | None:
        """What it made of that, once it is done; None where the text cannot be read.

        Raises what the work raised, ToolError where the process was killed.
        """
        results = self._workers[number - 1].results
        while not results:
            self._receive(None)
        found = results.popleft()
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """End the processes, whatever they do."""
        for worker in self._workers:
            worker.way.close()
            end(worker.process)
        self._workers.clear()

    def _receive(self, wait_s: float | None) -> None:
        from multiprocessing.connection import wait

        ready = wait([worker.way for worker in self._workers], wait_s)
        for worker in self._workers:
            if worker.way in ready:
                try:
                    found = pickle.loads(worker.way.recv_bytes())
                except (EOFError, OSError) as error:
                    raise killed() from error
                worker.results.append(found)
                worker.todo.popleft()

    def _serve(self, ours: Connection, theirs: Connection) -> None:
        """Work on texts as they come, in a process of its own, until there are no more."""
        for way in [ours, *(worker.way for worker in self._workers)]:
            way.close()  # else they would not end with the process at their other end
        work = self._work()
        while True:
            try:
                number, place = theirs.recv()
            except EOFError:
                return
            try:
                events = read_block(self._buffers[number].at(place))
                found: object = None if events is None else work(events)
            except Exception as error:
                found = error
            theirs.send_bytes(pickle.dumps(found, protocol=5))
