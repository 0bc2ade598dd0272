"""A survey -> the tables of the report: ranks, clocks, steps, collectives, bandwidth, stragglers, matrix.

Times are microseconds; of a rank they are those of a step on average, so that ranks with other numbers of steps compare.
Nothing is computed from records here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.report.ranks.busy import MEASURES
from pyprof.report.ranks.collectives import bus_factor
from pyprof.report.ranks.survey import Survey, how_aligned
from pyprof.report.ranks.tables import Field, Table, micro
from pyprof.tables.table import Fractions, Integers, Texts

__all__ = ["TABLES", "matrix_of", "slowest_ranks", "table_named"]

Ints = npt.NDArray[np.int64]
_NAMED = 3  # ranks whose causes are looked for


def _texts(values: Sequence[str]) -> Texts:
    pool = {text: code for code, text in enumerate(dict.fromkeys(values))}
    return Texts(np.array([pool[text] for text in values], np.int64), list(pool))


def _per_rank(whole: Survey, values: npt.NDArray[np.int64]) -> Ints:
    """Sums by rank of a column of `waits`."""
    return np.bincount(whole.rank_of[whole.waits.unit], values, len(whole.ranks)).astype(np.int64)


def _steps_of_rank(whole: Survey) -> Ints:
    return np.bincount(whole.rank_of, [len(busy.steps) for busy in whole.busy], len(whole.ranks)).astype(np.int64)


def slowest_ranks(whole: Survey) -> list[int]:
    """Rows of the ranks that others waited for, longest first."""
    caused = _per_rank(whole, whole.waits.caused)
    order = np.argsort(-caused, kind="stable")
    return [row for row in order.tolist() if caused[row] > 0]


def _ranks(whole: Survey) -> Table:
    times = np.zeros((len(whole.ranks), len(MEASURES)))
    for row, busy in zip(whole.rank_of.tolist(), whole.busy, strict=True):
        times[row] += busy.times.sum(axis=0)
    steps = _steps_of_rank(whole)
    mean = times / steps[:, None]
    wait, caused, late, met = (_per_rank(whole, getattr(whole.waits, name)) for name in ("wait", "caused", "late", "met"))
    compared = met > 0
    meaning = {
        "span": "from the step's first activity to the next step's",
        "compute": "kernels that are no communication",
        "communication": "kernels of communication, waiting included",
        "exposed": "communication without a kernel beside it",
        "overlap": "communication with a kernel beside it",
        "copy": "only copies or fills",
        "idle": "nothing at all",
    }
    fields = [
        Field("rank", "Rank", "rank in the job", Integers.from_zero(np.array(whole.ranks))),
        Field("steps", "Steps", "steps recorded", Integers.from_zero(steps)),
    ]
    for at, name in enumerate(MEASURES):
        fields.append(Field(f"{name}_us", f"{name.capitalize()}(us)", meaning[name], micro(mean[:, at])))
    for key, value, text in (
        ("wait", wait, "waiting in collectives for later ranks"),
        ("caused", caused, "waiting of all others for this rank, where it came last"),
    ):
        fields.append(Field(f"{key}_us", f"{key.capitalize()}(us)", text, micro(np.where(compared, value / steps, np.nan))))
    fields += [
        Field("late", "Late", "collectives to which it came last", Integers.from_zero(np.where(compared, late, -1))),
        Field("met", "Met", "collectives compared with other ranks", Integers.from_zero(met)),
        Field(
            "left_out",
            "Left_out",
            "collectives that could not be compared",
            Integers.from_zero(_per_rank(whole, whole.waits.left_out)),
        ),
    ]
    return Table("ranks", "ranks, times of a step on average", tuple(fields))


def _clocks(whole: Survey) -> Table:
    order = np.argsort(whole.rank_of, kind="stable")
    units = order.tolist()
    spread = whole.clocks.spread[order]
    how = [how_aligned(whole, unit) for unit in units]
    offset = np.where(np.array(how) == "not", np.nan, whole.clocks.offset[order])
    fields = (
        Field("rank", "Rank", "rank in the job", Integers.from_zero(np.array(whole.ranks)[whole.rank_of[order]])),
        Field(
            "offset_us",
            "Offset(us)",
            "by how much its clock is ahead, from the session's start (unknown: the first record)",
            micro(offset),
        ),
        Field("spread_us", "Spread(us)", "what ends of collectives still differ, median", micro(spread)),
        Field("aligned", "Aligned", "by what: collectives, session, file, or not", _texts(how)),
        Field(
            "place",
            "Place",
            "file, and process and device where it holds several",
            _texts([whole.units[u].name for u in units]),
        ),
    )
    return Table("clocks", "clocks", fields)


def _step_numbers(whole: Survey) -> Ints:
    """The step of each number of `meetings.steps`; -1 unknown."""
    return np.array([step for _, step in whole.meetings.steps], np.int64)


def _steps(whole: Survey) -> Table:
    found, number = whole.arrivals, whole.meetings.step_of()
    together = found.ranks > 1
    count = len(whole.meetings.steps)
    skew = np.zeros(count, np.int64)
    np.maximum.at(skew, number[together], (found.last - found.first)[together])
    met = np.bincount(number[together], minlength=count)
    wait = np.bincount(number[together], found.wait[together], count)
    caused = np.zeros((count, 2), np.int64)  # most that one rank caused, and which
    slow = whole.rank_of[np.maximum(found.slowest, 0)]
    pairs = distinct_rows(number[together], slow[together])
    sums = np.bincount(pairs.inverse, found.wait[together], pairs.columns.shape[1]).astype(np.int64)
    for (step, rank), total in zip(pairs.columns.T.tolist(), sums.tolist(), strict=True):
        if total > caused[step, 0]:
            caused[step] = total, rank
    rows = np.flatnonzero(met)
    rows = rows[np.argsort(_step_numbers(whole)[rows], kind="stable")]
    who = np.where(caused[rows, 0] > 0, np.array(whole.ranks)[caused[rows, 1]], -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(wait[rows] > 0, 100 * caused[rows, 0] / wait[rows], np.nan)
    fields = (
        Field("step", "Step", "training step", Integers.from_zero(_step_numbers(whole)[rows])),
        Field("collectives", "Collectives", "collectives compared", Integers.from_zero(met[rows])),
        Field("wait_us", "Wait(us)", "waiting of all ranks together", micro(wait[rows])),
        Field("skew_us", "Skew(us)", "most time from the first arrival at a collective to the last", micro(skew[rows])),
        Field("slowest", "Slowest", "the rank that the others waited longest for", Integers.from_zero(who)),
        Field("share", "Share(%)", "its part of the waiting", Fractions.not_nan(share, 1)),
    )
    return Table("steps", "steps", fields)


def _collectives(whole: Survey) -> Table:
    found = whole.arrivals
    rows = np.flatnonzero(found.ranks > 1)
    keys = list(whole.meetings.keys)
    key = whole.meetings.key_of()[rows]
    step = _step_numbers(whole)[whole.meetings.step_of()[rows]]
    rows = rows[order := np.lexsort((rows, found.last[rows], step))]
    key, step = key[order], step[order]
    slow = np.array(whole.ranks)[whole.rank_of[found.slowest[rows]]]
    wait = found.wait[rows]
    fields = (
        Field("step", "Step", "training step", Integers.from_zero(step)),
        Field("kind", "Kind", "what it is", Texts(key, [k.kind for k in keys])),
        Field("group", "Group", "process group", Texts(key, [k.group or "na" for k in keys])),
        Field(
            "turn",
            "Turn",
            "how many of its kind, size and group came before it in the step",
            Integers.from_zero(whole.meetings.turn_of()[rows]),
        ),
        Field("bytes", "Bytes", "NCCL's S, largest of all ranks", Integers.from_zero(found.nbytes[rows])),
        Field("ranks", "Ranks", "ranks that took part", Integers.from_zero(found.ranks[rows])),
        Field("slowest", "Slowest", "the rank that came last", Integers.from_zero(slow)),
        Field("skew_us", "Skew(us)", "from the first arrival to the last", micro((found.last - found.first)[rows])),
        Field("wait_us", "Wait(us)", "waiting of all others together", micro(wait)),
        Field("time_us", "Time(us)", "the last rank's own time: the transfer without waiting", micro(found.time[rows])),
    )
    return Table("collectives", "collectives", fields)


def _bandwidth(whole: Survey) -> Table:
    found = whole.arrivals
    keys = list(whole.meetings.keys)
    kinds = {kind: code for code, kind in enumerate(sorted({k.kind for k in keys}))}
    rows = np.flatnonzero(found.ranks > 0)
    of_key = np.array([[kinds[k.kind], k.group_size or -1] for k in keys] or [[0, 0]], np.int64)[whole.meetings.key_of()[rows]]
    distinct = distinct_rows(of_key[:, 0], of_key[:, 1], found.nbytes[rows], found.ranks[rows] > 1)
    kind, size, nbytes, met = distinct.columns
    order = np.lexsort((found.time[rows], distinct.inverse))
    first = np.flatnonzero(np.diff(distinct.inverse[order], prepend=-1))
    time = np.array(
        [np.median(part) for part in np.split(found.time[rows][order], first[1:])] if len(order) else [], np.float64
    )
    rate = np.where((nbytes > 0) & (time > 0), nbytes / np.maximum(time, 1), np.nan)
    names = list(kinds)
    factor = [bus_factor(names[k], n if n > 0 else None) for k, n in zip(kind.tolist(), size.tolist(), strict=True)]
    bus = rate * np.array([np.nan if f is None else f for f in factor], np.float64)
    fields = (
        Field("kind", "Kind", "what it is", Texts(kind, names)),
        Field("ranks", "Ranks", "ranks of the process group", Integers.from_zero(size)),
        Field(
            "bytes", "Bytes", "NCCL's S: of an all_gather its output, of a reduce_scatter its input", Integers.from_zero(nbytes)
        ),
        Field("count", "Count", "collectives", Integers.from_zero(np.bincount(distinct.inverse, minlength=len(kind)))),
        Field("time_us", "Time(us)", "median", micro(time)),
        Field("waiting", "Waiting", "whether waiting for other ranks is in that time", Texts(1 - met, ["without", "with"])),
        Field("algbw_gbs", "Algbw(GB/s)", "bytes over time", Fractions.not_nan(rate, 3)),
        Field("busbw_gbs", "Busbw(GB/s)", "what each link carried, by NCCL's definition", Fractions.not_nan(bus, 3)),
    )
    return Table("bandwidth", "bandwidth of collectives", fields)


def _stragglers(whole: Survey) -> Table:
    slow = slowest_ranks(whole)[:_NAMED]
    found = whole.work.compare(whole.rank_of, len(whole.ranks), slow) if len(whole.ranks) > 1 else []
    own, median = (np.array([row[at] for row in found], np.float64) for at in (2, 3))
    fields = (
        Field(
            "rank",
            "Rank",
            "one of the ranks that others waited for",
            Integers.from_zero(np.array([whole.ranks[r[0]] for r in found], np.int64)),
        ),
        Field("layer", "Layer", "named layers around the op", _texts([row[1][0] for row in found])),
        Field("op", "Op", "the op; (launched late): the GPU had nothing to do yet", _texts([row[1][1] for row in found])),
        Field("time_us", "Time(us)", "time a step on this rank", micro(own)),
        Field("median_us", "Median(us)", "the same on the median rank", micro(median)),
        Field("more_us", "More(us)", "the difference", micro(own - median)),
    )
    return Table("stragglers", "what takes the slowest ranks longer than the median rank, a step", fields)


def _matrix(whole: Survey) -> Table:
    """One row a rank and step."""
    unit = np.repeat(np.arange(len(whole.busy)), [len(busy.steps) for busy in whole.busy])
    step = np.concatenate([busy.steps for busy in whole.busy])
    times = np.concatenate([busy.times for busy in whole.busy]).astype(np.float64)
    numbers = _step_numbers(whole) if whole.meetings.steps else np.empty(0, np.int64)
    of = {
        (u, int(numbers[s])): (w, c)
        for u, s, w, c in zip(*(getattr(whole.waits, n).tolist() for n in ("unit", "step", "wait", "caused")), strict=True)
        if s >= 0
    }
    more = np.array([of.get(at, (np.nan, np.nan)) for at in zip(unit.tolist(), step.tolist(), strict=True)], np.float64)
    order = np.lexsort((step, whole.rank_of[unit]))
    columns = np.concatenate([times, more.reshape(-1, 2)], axis=1)[order]
    fields = [
        Field("rank", "Rank", "rank in the job", Integers.from_zero(np.array(whole.ranks)[whole.rank_of[unit[order]]])),
        Field("step", "Step", "training step", Integers.from_zero(step[order])),
    ]
    for at, name in enumerate((*MEASURES, "wait", "caused")):
        fields.append(Field(f"{name}_us", f"{name.capitalize()}(us)", "as in the table of ranks", micro(columns[:, at])))
    return Table("matrix", "ranks and steps", tuple(fields))


def matrix_of(whole: Survey, measure: str) -> Table:
    """Ranks down, steps across: one measure of the matrix."""
    long = _matrix(whole)
    of = {field.key: field.values for field in long.fields}
    rank, step, values = of["rank"], of["step"], of[f"{measure}_us"]
    if not (isinstance(rank, Integers) and isinstance(step, Integers) and isinstance(values, Fractions)):
        raise TypeError("the matrix holds numbers")
    steps, across = np.unique(step.values, return_inverse=True)
    table = np.full((len(whole.ranks), len(steps)), np.nan)
    table[np.searchsorted(np.array(whole.ranks), rank.values), across.ravel()] = values.values
    fields = [Field("rank", "Rank", "rank in the job", Integers.from_zero(np.array(whole.ranks)))]
    for at, number in enumerate(steps.tolist()):
        name = str(number) if number >= 0 else "all"
        fields.append(Field(f"step_{name}", name, f"{measure} in that step", Fractions.not_nan(table[:, at], 3)))
    return Table(f"matrix of {measure}", f"{measure}(us) of ranks (down) and steps (across)", tuple(fields))


TABLES: dict[str, Callable[[Survey], Table]] = {
    "ranks": _ranks,
    "clocks": _clocks,
    "steps": _steps,
    "collectives": _collectives,
    "bandwidth": _bandwidth,
    "stragglers": _stragglers,
    "matrix": _matrix,
}


def table_named(whole: Survey, name: str) -> Table:
    """One of TABLES."""
    return TABLES[name](whole)
