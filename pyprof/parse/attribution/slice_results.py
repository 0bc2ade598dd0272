"""What attribution finds slice by slice -> columns of the whole capture: of its kernels, of op instances, autograd functions
and forward ranges.

A range that lies in several slices is one: it is put into a pool once. How anything is found is not known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Found", "Pool", "Threads"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


class Pool:
    """A table of ranges that grows; columns: name -> numpy type, of which `row` is the row of `ranges`."""

    def __init__(self, **columns: str) -> None:
        self.types = columns
        self.parts: dict[str, list[Array]] = {name: [np.empty(0, dtype)] for name, dtype in columns.items()}
        self.size = 0
        self._met: dict[int, int] = {}  # row of a range that other slices may have as well -> its place

    def add(self, shared: Bools, **columns: Array) -> Ints:
        """The place of each range; shared: whether another slice may have it too."""
        new = np.ones(len(shared), np.bool_)
        places = np.empty(len(shared), np.int64)
        for index in np.flatnonzero(shared).tolist():
            place = self._met.get(int(columns["row"][index]))
            if place is not None:
                new[index], places[index] = False, place
        count = int(new.sum())
        places[new] = self.size + np.arange(count)
        for index in np.flatnonzero(shared & new).tolist():
            self._met[int(columns["row"][index])] = int(places[index])
        for name, part in self.parts.items():
            part.append((columns[name] if count == len(new) else columns[name][new]).astype(self.types[name]))
        self.size += count
        return places

    def whole(self) -> dict[str, Array]:
        """All columns; the pool is empty then."""
        return {name: np.concatenate(self.parts.pop(name)) for name in self.types}


class Threads:
    """What all of a thread's ranges together say of it.

    low, high: of the sequence numbers of its own ops; runs: it runs backward functions; python: it runs what only the program
    itself runs; again_low, again_high, again: of the numbers inside its functions, and how many there are.
    """

    def __init__(self, threads: int) -> None:
        most = np.iinfo(np.int64).max
        self.low, self.again_low = np.full(threads, most), np.full(threads, most)
        self.high, self.again_high = np.full(threads, -1, np.int64), np.full(threads, -1, np.int64)
        self.runs, self.python = np.zeros(threads, np.bool_), np.zeros(threads, np.bool_)
        self.again = np.zeros(threads, np.int64)

    def own_numbers(self, thread: Array, seq: Ints) -> None:
        """Sequence numbers of ops of these threads."""
        np.minimum.at(self.low, thread, seq)
        np.maximum.at(self.high, thread, seq)

    def numbers_in_functions(self, thread: Array, seq: Ints) -> None:
        """Sequence numbers of ops inside the functions of these threads, each told once."""
        np.minimum.at(self.again_low, thread, seq)
        np.maximum.at(self.again_high, thread, seq)
        self.again += np.bincount(thread, minlength=len(self.again))

    def constant(self) -> Bools:
        """Whether the numbers inside functions stand still."""
        return np.asarray((self.again > 1) & (self.again_low == self.again_high))


class Found:
    """Columns over the rows of a capture (activities, or ops on the CPU), -1 where there is none.

    stack: code of its stack; root: place in `ops`; function: place in `functions`; inner: label; state: see `recompute`;
    step: its training step; in_engine, optimizer: inside a range of autograd's engine, of an optimizer's; by_time: its ranges
    are those of the main thread at that time; range: the row of its innermost range. numbers: (rows, offsets, numbers) of each
    slice: the sequence numbers of each row's stack, outermost first.
    """

    def __init__(self, rows: int, threads: int) -> None:
        self.stack, self.root, self.function, self.inner = (np.full(rows, -1, np.int32) for _ in range(4))
        self.range: Array | None = None
        self.step: Array = np.broadcast_to(np.int64(-1), rows)
        self.state = np.full(rows, -1, np.int8)
        self.in_engine, self.optimizer, self.by_time = (np.zeros(rows, np.bool_) for _ in range(3))
        self.numbers: list[tuple[Array, Array, Array]] = []
        self.ops = Pool(row="i4", start="i8", thread="i4", label="i4", depth="i4")
        self.functions = Pool(row="i4", start="i8", thread="i4", label="i4", seq="i8", hint="i4")
        self.forward = Pool(row="i4", start="i8", thread="i4", label="i4", seq="i8", root="i4", stack="i4")
        self.threads = Threads(threads)

    def forget(self) -> None:
        """Give up all that is in columns of records now."""
        del self.root, self.function, self.inner, self.state, self.in_engine, self.optimizer

    def sequence_numbers(self, order: Ints) -> tuple[Ints, Ints]:
        """The numbers of the rows in an order, as (offsets, numbers); they are given up here."""
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        lengths = np.zeros(len(order) + 1, np.int64)
        for rows, offsets, _ in self.numbers:
            lengths[place[rows] + 1] = np.diff(offsets)
        begin = np.cumsum(lengths)
        numbers = np.empty(int(begin[-1]), np.int64)
        for rows, offsets, part in self.numbers:
            to = np.repeat(begin[place[rows]] - offsets[:-1], np.diff(offsets)) + np.arange(len(part))
            numbers[to] = part
        self.numbers.clear()
        return begin, numbers
