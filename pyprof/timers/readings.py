"""A filled buffer -> its readings as columns, and tables of them: blocks, and the lanes of each sorted by their time.

Ticks are less the timer's own cost; readings of two lanes are compared only where all lanes read one clock.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from pyprof.columns.intervals import quantiles
from pyprof.columns.sorting import places_in_runs
from pyprof.columns.types import Bools, Floats, Ints
from pyprof.tables.formats import write_aligned
from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, Values, texts
from pyprof.timers.clocks import EMPTY, wrapped

_SHORT_TICKS = 64  # where the timer's cost is unknown: no clock here takes longer to read


class Lane(NamedTuple):
    """Where a lane is shown: process (a kernel, an SM) and thread."""

    process: str
    thread: str


class Readings(NamedTuple):
    """One row a reading, ordered by lane, then as read. Unknown times are NaN.

    block, lane: codes into names and lanes; ticks: less the timer's cost; ns: the same as time; start_ns: its begin, from the
    first begin of all lanes where `together`, else of its own lane. names: (kernel, block) of each block; flags: of each block;
    whole: of each block the ticks that its share is of; notes: what a reader should know of the whole.
    """

    block: Ints
    iteration: Ints
    lane: Ints
    ticks: Ints
    ns: Floats
    start_ns: Floats
    names: list[tuple[str, str]]
    lanes: list[Lane]
    flags: list[list[str]]
    whole: Floats
    together: bool
    notes: list[str]


_MOST_TICKS = 1 << 62  # a cost beyond it was invented


class Filled(Protocol):
    """The part of a `Buffer` that is used here."""

    names: dict[int, str]
    shape: tuple[int, int, int]
    clock: str
    bits: int
    kernel: str
    whole: int | None
    hz: float | None

    def array(self, name: str = "ticks") -> Ints | None:
        """One of the arrays on the host, None if it was never used."""

    def timer_cost(self) -> float | None:
        """Ticks between two readings with nothing between them, None unknown."""


def readings_of(buffer: Filled) -> Readings:
    """The readings of a buffer, in ticks, and in ns where the clock's rate is known."""
    raw = buffer.array()
    assert raw is not None
    numbers, notes = list(buffer.names), []
    raw, cost = np.where(raw == EMPTY, EMPTY, raw % (1 << 32)) if buffer.bits == 32 else raw, buffer.timer_cost()
    usable = raw > 0 if buffer.clock != "globaltimer" else raw >= 0
    # By lane, iteration, block: as the kernel read them if its blocks are numbered in their order.
    lane, iteration, block = np.nonzero(usable[numbers].transpose(2, 1, 0))
    at = (np.array(numbers, np.int64)[block], iteration, lane)
    measured = raw[at]
    ticks = np.maximum(measured - min(round(cost or 0), _MOST_TICKS), 0)
    clock_works = bool(len(measured))
    flags = []
    for row, fine in ((raw[number], usable[number]) for number in numbers):
        zeros = bool((row == 0).any()) and buffer.clock != "globaltimer" and not clock_works
        unread = [] if fine.any() else ["unsupported" if zeros else "not reached"]
        flags.append(["backwards"] * bool(((row < 0) & (row != EMPTY)).any()) + unread)
    for code in np.flatnonzero(short(block, measured, len(numbers), cost)).tolist():
        flags[code].append("removed?")
    if cost is None:
        notes.append(
            f"the timer's own cost is unknown: nothing is subtracted, and blocks of at most {_SHORT_TICKS} ticks are flagged"
        )
    if any("unsupported" in found for found in flags):
        notes.append("every reading is 0: this device's clock is unsupported, so nothing was measured")
    if buffer.hz is None:
        notes.append("the clock is not calibrated: give --hz, or Buffer.calibrate before save")
    medians = lane_medians(block, lane, ticks, (len(numbers), buffer.shape[2]))
    whole, of_what = _whole(buffer, _totals(block, lane, medians), numbers)
    notes.append(f"share is of {of_what}")
    ns = ticks * (1e9 / buffer.hz if buffer.hz else np.nan)
    start, together = _starts(buffer, at)
    names = [(buffer.kernel, buffer.names[number]) for number in numbers]
    whole_of = np.full(len(numbers), whole)
    sms = buffer.array("sms")
    on_sm = [-1] * buffer.shape[2] if sms is None else sms.tolist()
    threads = [f"lane {lane}" + f" (SM {sm})" * (sm >= 0) for lane, sm in enumerate(on_sm)]
    shown = [Lane(buffer.kernel or "block timers", thread) for thread in threads]
    return Readings(block, iteration, lane, ticks, ns, start, names, shown, flags, whole_of, together, notes)


def short(block: Ints, ticks: Ints, count: int, cost: float | None) -> Bools:
    """Whether at least half of a block's readings take at most twice as long as reading the clock."""
    limit = _SHORT_TICKS if cost is None else 2 * cost
    return np.asarray(quantiles(block, ticks, count, 0.5)[0] <= limit, np.bool_)


def _whole(buffer: Filled, ticks: Floats, numbers: Sequence[int]) -> tuple[float, str]:
    """(ticks that count as 100 % of shares, in words: of what)."""
    if buffer.whole is not None:
        return float(ticks[numbers.index(buffer.whole)]), f"the block {buffer.names[buffer.whole]}"
    pairs, raw = buffer.array("pairs"), buffer.array()
    if pairs is not None and raw is not None:
        ran = (raw != EMPTY).any(axis=(0, 1))
        if (pairs[:, 0, ran] != EMPTY).all():
            return float(wrapped(pairs[1, 0, ran] - pairs[0, 0, ran], buffer.bits).sum()), "the kernel, by its pairs of clocks"
    return float(ticks.sum()), "all blocks together"


def _starts(buffer: Filled, at: tuple[Ints, Ints, Ints]) -> tuple[Floats, bool]:
    """When each reading began, in ns, and whether lanes compare. NaN if begins or the clock's rate are unknown."""
    starts, pairs, lane = buffer.array("starts"), buffer.array("pairs"), at[2]
    if starts is None or not buffer.hz or not len(lane) or (starts[at] == EMPTY).any():
        return np.full(len(lane), np.nan), False
    read = starts[at]
    first = np.zeros(buffer.shape[2], np.int64)
    first[lane[::-1]] = read[::-1]
    base_ns = np.zeros(buffer.shape[2])
    together = buffer.clock != "counter"
    if pairs is not None and (pairs[0][:, lane] != EMPTY).all():
        first, together = pairs[0, 0], True
        base_ns = (pairs[0, 1] - pairs[0, 1][lane].min()).astype(np.float64)
    elif together:
        base_ns = (first - first[lane].min()) * (1e9 / buffer.hz)
    start = base_ns[lane] + wrapped(read - first[lane], buffer.bits) * (1e9 / buffer.hz)
    least = np.full(buffer.shape[2], start.min() if together else np.inf)
    if not together:
        np.minimum.at(least, lane, start)
    return start - least[lane], together


def _texts(values: Sequence[str]) -> Texts:
    return texts(np.arange(len(values)), list(values))


def _times(key: str, text: str, about: str) -> list[Header]:
    """Headers of a duration in ticks and in ns."""
    ticks = Header(f"{key}_ticks", f"{text}(ticks)", f"{about}, in ticks of the clock", "ticks", 10, detail=True)
    return [ticks, Header(f"{key}_ns", f"{text}(ns)", f"{about}, as time", "ns", 10)]


_BLOCK = (Header("kernel", "Kernel", "kernel of the block", empty="-"), Header("block", "Block", "name of the block", width=12))
_COUNT = Header("count", "Count", "how many were measured")


def lane_medians(block: Ints, lane: Ints, values: Ints, shape: tuple[int, int]) -> Floats:
    """The median of each block in each lane; NaN if nothing was measured."""
    return quantiles(block * shape[1] + lane, values, shape[0] * shape[1], 0.5).reshape(shape)


def _totals(block: Ints, lane: Ints, medians: Floats) -> Floats:
    """Ticks of each block in all lanes, every reading counted as its lane's median: an interruption, which can take a
    thousand times as long as the block, is not the block's time."""
    count = np.bincount(block * medians.shape[1] + lane, minlength=medians.size).reshape(medians.shape)
    total: Floats = np.where(count > 0, count * medians, 0).sum(axis=1)
    return total


def _imbalance(medians: Floats) -> Floats:
    """Per block: the slowest lane's median over the median of all lanes; NaN for fewer than two lanes."""
    found = np.full(len(medians), np.nan)
    for block, row in enumerate(medians):
        row = row[~np.isnan(row)]
        if len(row) > 1 and np.median(row) > 0:
            found[block] = row.max() / np.median(row)
    return found


def blocks(readings: Readings) -> Table:
    """A row for each block, in their order."""
    block, count = readings.block, len(readings.names)
    ticks, ns = (quantiles(block, part, count, 0.5, 0.99) for part in (readings.ticks, readings.ns))
    times = [ticks[0], ns[0], ticks[1], ns[1]]
    medians = lane_medians(block, readings.lane, readings.ticks, (count, len(readings.lanes)))
    total, measured = _totals(block, readings.lane, medians), np.bincount(block, minlength=count)
    share = np.where((measured > 0) & (readings.whole > 0), 100 * total / np.maximum(readings.whole, 1), np.nan)
    headers = [
        *_BLOCK,
        _COUNT,
        *_times("median", "Median", "median of all readings, less the timer's own cost"),
        *_times("p99", "P99", "one reading in a hundred is longer"),
        Header(
            "share",
            "Share(%)",
            "of the kernel: of its clock pairs, of the block around all others, or of all blocks",
            "%",
            share=True,
        ),
        Header("imbalance", "Imbalance", "median of the slowest lane over the median lane's; 1 is balanced"),
        Header("flags", "Flags", "removed?: no longer than reading the clock; unsupported, not reached, backwards", empty="-"),
    ]
    values: list[Values] = [
        *map(_texts, zip(*readings.names, strict=True)),
        Integers.known(measured.astype(np.int64)),
        *(Fractions.not_nan(time, 1) for time in times),
        Fractions.not_nan(share, 1),
        Fractions.not_nan(_imbalance(medians), 2),
        _texts([",".join(found) for found in readings.flags]),
    ]
    return Table(headers, values, "blocks")


def lanes(readings: Readings) -> Table:
    """A row for each block and lane, the fastest lane of a block first: a curve."""
    count = len(readings.lanes)
    groups, code = np.unique(readings.block * count + readings.lane, return_inverse=True)
    block, lane = np.divmod(groups, max(count, 1))
    ticks, ns = (quantiles(code.ravel(), part, len(groups), 0.5)[0] for part in (readings.ticks, readings.ns))
    order = np.lexsort((lane, ticks, block))
    place = np.arange(len(order)) - np.searchsorted(block, np.arange(len(readings.names)))[block]
    of_place = _sorted_in_iterations(readings)
    headers = [
        *_BLOCK,
        Header("place", "Place", "of the lane among those of the block, the fastest first"),
        Header("lane", "Lane", "name of the lane", width=8),
        _COUNT,
        *_times("median", "Median", "median of this lane's readings"),
        Header("sorted_ticks", "Sorted(ticks)", "median, over iterations, of the lane at this place of each: where it "
               "stays far from the median column, other lanes are slow in other iterations", "ticks"),
    ]  # fmt: skip
    names = [[name[part] for name in readings.names] for part in (0, 1)]
    shown = [
        f"{lane.process} {lane.thread}" if len({one.process for one in readings.lanes}) > 1 else lane.thread
        for lane in readings.lanes
    ]
    values: list[Values] = [
        *(texts(block[order], list(pool)) for pool in names),
        Integers.known(place),
        texts(lane[order], list(shown)),
        Integers.known(np.bincount(code.ravel(), minlength=len(groups))[order].astype(np.int64)),
        *(Fractions.not_nan(part[order], 1) for part in (ticks, ns)),
        Fractions.not_nan(of_place[block * count + place] if count else of_place, 1),
    ]
    return Table(headers, values, "lanes")


def _sorted_in_iterations(readings: Readings) -> Floats:
    """For each block and place the median over iterations of the reading at this place of each iteration, sorted."""
    lanes, (block, iteration, ticks) = len(readings.lanes), (readings.block, readings.iteration, readings.ticks)
    order = np.lexsort((ticks, iteration, block))
    place = places_in_runs((np.diff(block[order], prepend=-1) | np.diff(iteration[order], prepend=-1)) != 0)
    found: Floats = quantiles(block[order] * lanes + place, ticks[order], len(readings.names) * lanes, 0.5)[0]
    return found


def text(readings: Readings) -> str:
    """The table of blocks, with the notes under it."""
    stream = io.StringIO()
    write_aligned(blocks(readings), stream)
    return stream.getvalue() + "".join(f"note: {note}\n" for note in readings.notes)
