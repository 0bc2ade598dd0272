"""A survey -> the tables of the report: ranks, clocks, steps, collectives, bandwidth, stragglers, pipeline, matrix.

Times are microseconds; of a rank they are the mean of its steps, so that ranks with different numbers of steps compare. Nothing
is computed from records here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Ints
from pyprof.report.ranks.busy import MEASURES
from pyprof.report.ranks.collectives import bus_factor
from pyprof.report.ranks.pipeline import NO_PIPELINE
from pyprof.report.ranks.survey import Survey, how_aligned
from pyprof.tables.screen import Cells, joined, listed
from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, texts

PER_STEP = (*MEASURES, "wait", "caused")  # what the matrix has of each rank and step
_RANK = Header("rank", "Rank", "rank in the job", width=2)
_STEP = Header("step", "Step", "training step", width=2)


def _micro(key: str, nanoseconds: npt.ArrayLike, about: str) -> tuple[Header, Fractions]:
    """A column in microseconds with three digits; NaN is unknown."""
    values = Fractions.not_nan(np.asarray(nanoseconds, np.float64) / 1e3, 3)
    return Header(f"{key}_us", f"{key.capitalize()}(us)", about, "us", 2), values


def _count(key: str, values: Ints, about: str) -> tuple[Header, Integers]:
    """A column of whole numbers; below 0 is unknown."""
    return Header(key, key.capitalize(), about, "B" * (key == "bytes"), 2), Integers.from_zero(values)


def _detail(cell: tuple[Header, Integers]) -> tuple[Header, Integers]:
    """A column that a narrow screen can do without."""
    return cell[0]._replace(detail=True), cell[1]


def _texts(key: str, values: Iterable[str], about: str) -> tuple[Header, Texts]:
    return Header(key, key.capitalize(), about, width=2), listed(values)


def by_rank(whole: Survey, values: Ints) -> Ints:
    """Sums by rank of a column of `waits`."""
    return np.bincount(whole.rank_of[whole.waits.unit], values, len(whole.ranks)).astype(np.int64)


def _ranks(whole: Survey) -> Table:
    times = np.zeros((len(whole.ranks), len(MEASURES)))
    for row, busy in zip(whole.rank_of.tolist(), whole.busy, strict=True):
        times[row] += busy.times.sum(axis=0)
    steps = np.bincount(whole.rank_of, [len(busy.steps) for busy in whole.busy], len(whole.ranks)).astype(np.int64)
    mean = times / steps[:, None]
    wait, caused, late, met, left_out = (by_rank(whole, column) for column in whole.waits[2:])
    compared = met > 0
    cells: Cells = [
        (_RANK, Integers.known(np.array(whole.ranks))),
        _detail(_count("steps", steps, "steps recorded")),
        *(_micro(name, mean[:, at], about) for at, (name, about) in enumerate(MEASURES.items())),
        _micro("wait", np.where(compared, wait / steps, np.nan), "waiting in collectives for later ranks"),
        _micro("caused", np.where(compared, caused / steps, np.nan), "waiting of all others for this rank, where it came last"),
        _micro("saves", np.where(compared, whole.saves / steps, np.nan), "of the job, had it come with the next-to-last"),
        _count("late", np.where(compared, late, -1), "collectives to which it came last"),
        _detail(_count("met", met, "collectives compared with other ranks")),
        _detail(_count("left_out", left_out, "collectives that could not be compared")),
    ]
    return joined("ranks", cells, "ranks, times of a step on average")


def _clocks(whole: Survey) -> Table:
    order = np.argsort(whole.rank_of, kind="stable")
    units = order.tolist()
    how = [how_aligned(whole, unit) for unit in units]
    offset = np.where(np.array(how) == "not", np.nan, whole.clocks.offset[order])
    cells: Cells = [
        (_RANK, Integers.known(whole.rank_numbers[order])),
        _micro("offset", offset, "by how much its clock is ahead, from the session's start (unknown: the first record)"),
        _micro("spread", whole.clocks.spread[order], "what ends of collectives still differ, median"),
        _texts("aligned", how, "by what: collectives, session, file, or not"),
        _texts("place", [whole.units[u].name for u in units], "file, and process and device where it holds several"),
    ]
    return joined("clocks", cells, "clocks")


def _step_numbers(whole: Survey) -> Ints:
    """The step of each number of `calls.steps`; -1 unknown."""
    return np.array([step for _, step in whole.calls.steps], np.int64)


def _steps(whole: Survey) -> Table:
    found, number = whole.arrivals, whole.calls.step_of()
    together = found.ranks > 1
    count = len(whole.calls.steps)
    skew = np.zeros(count, np.int64)
    np.maximum.at(skew, number[together], (found.last - found.first)[together])
    met = np.bincount(number[together], minlength=count)
    wait = np.bincount(number[together], found.wait[together], count)
    caused = np.zeros((count, 2), np.int64)  # the most that one rank caused, and which
    pairs = distinct_rows(number[together], whole.rank_of[np.maximum(found.slowest, 0)][together])
    sums = np.bincount(pairs.inverse, found.wait[together], pairs.columns.shape[1]).astype(np.int64)
    for (step, rank), total in zip(pairs.columns.T.tolist(), sums.tolist(), strict=True):
        if total > caused[step, 0]:
            caused[step] = total, rank
    rows = np.flatnonzero(met)
    rows = rows[np.argsort(_step_numbers(whole)[rows], kind="stable")]
    who = np.where(caused[rows, 0] > 0, np.array(whole.ranks)[caused[rows, 1]], -1)
    share = 100 * caused[rows, 0] / np.where(wait[rows] > 0, wait[rows], np.nan)
    cells: Cells = [
        (_STEP, Integers.from_zero(_step_numbers(whole)[rows])),
        _count("collectives", met[rows], "collectives compared"),
        _micro("wait", wait[rows], "waiting of all ranks together"),
        _micro("skew", skew[rows], "most time from the first arrival at a collective to the last"),
        _count("slowest", who, "the rank that the others waited longest for"),
        (Header("share", "Share(%)", "its part of the waiting", "%", 2, share=True), Fractions.not_nan(share, 1)),
    ]
    return joined("steps", cells, "steps")


def _collectives(whole: Survey) -> Table:
    found = whole.arrivals
    rows = np.flatnonzero(found.ranks > 1)
    step = _step_numbers(whole)[whole.calls.step_of()[rows]]
    order = np.lexsort((rows, found.last[rows], step))
    rows, step = rows[order], step[order]
    key, keys = whole.calls.key_of()[rows], list(whole.calls.keys)
    cells: Cells = [
        (_STEP, Integers.from_zero(step)),
        (Header("kind", "Kind", "what it is", width=2), Texts(key, [k.kind for k in keys])),
        (Header("group", "Group", "process group", width=2), texts(key, [k.group or None for k in keys])),
        _count("turn", whole.calls.turn_of()[rows], "how many of its kind, size and group came before it in the step"),
        _count("bytes", found.nbytes[rows], "NCCL's S, largest of all ranks"),
        _count("ranks", found.ranks[rows], "ranks that took part"),
        _count("slowest", whole.rank_numbers[found.slowest[rows]], "the rank that came last"),
        _count("second", whole.rank_numbers[found.second[rows]], "the rank that came before it"),
        _count("first", whole.rank_numbers[found.earliest[rows]], "the rank that came first"),
        _micro("late", (found.last - found.next)[rows], "from the next-to-last arrival to the last"),
        _micro("new", whole.delays[rows], "of that what it had not been late before"),
        _micro("skew", (found.last - found.first)[rows], "from the first arrival to the last"),
        _micro("wait", found.wait[rows], "waiting of all others together"),
        _micro(
            "time", np.where(whole.ends, found.time[rows], np.nan), "the last rank's own time: the transfer without waiting"
        ),
    ]
    return joined("collectives", cells, "collectives")


def _bandwidth(whole: Survey) -> Table:
    found = whole.arrivals
    keys = list(whole.calls.keys)
    kinds = {kind: code for code, kind in enumerate(sorted({k.kind for k in keys}))}
    rows = np.flatnonzero(found.ranks > 0)
    sizes = [k.group_size or (whole.groups.get(k.group, -1) if k.group else 0) for k in keys]  # 0: of a group without a name
    of_key = np.array([[kinds[k.kind], size] for k, size in zip(keys, sizes, strict=True)] or [[0, 0]], np.int64)
    of_key = of_key[whole.calls.key_of()[rows]]
    everyone = np.where(found.ranks[rows] == whole.groups.get("", -1), found.ranks[rows], -1)  # where all ranks of the job met
    size_of = np.where(of_key[:, 1] == 0, everyone, of_key[:, 1])
    distinct = distinct_rows(of_key[:, 0], size_of, found.nbytes[rows], found.ranks[rows] > 1)
    kind, size, nbytes, met = distinct.columns
    order = np.lexsort((found.time[rows], distinct.inverse))
    parts = np.split(found.time[rows][order], np.flatnonzero(np.diff(distinct.inverse[order])) + 1)
    time = np.array([np.median(part) for part in parts if len(part)], np.float64)
    time = np.where(whole.ends, time, np.nan)
    rate = np.where((nbytes > 0) & (time > 0), nbytes / np.maximum(time, 1), np.nan)
    names = list(kinds)
    factor = [bus_factor(names[k], n if n > 0 else None) for k, n in zip(kind.tolist(), size.tolist(), strict=True)]
    bus = rate * np.array([np.nan if f is None else f for f in factor], np.float64)
    waiting = "whether waiting for other ranks is in that time"
    cells: Cells = [
        (Header("kind", "Kind", "what it is", width=2), Texts(kind, names)),
        _count("ranks", size, "ranks of the process group"),
        _count("bytes", nbytes, "NCCL's S: of an all_gather its output, of a reduce_scatter its input"),
        _count("count", np.bincount(distinct.inverse, minlength=len(kind)), "collectives"),
        _micro("time", time, "median"),
        (Header("waiting", "Waiting", waiting, width=2), Texts(1 - met, ["without", "with"])),
        (Header("algbw_gbs", "Algbw(GB/s)", "bytes over time", "GB/s", 2), Fractions.not_nan(rate, 3)),
        (Header("busbw_gbs", "Busbw(GB/s)", "of each link, by NCCL's definition", "GB/s", 2), Fractions.not_nan(bus, 3)),
    ]
    return joined("bandwidth", cells, "bandwidth of collectives")


def _stragglers(whole: Survey) -> Table:
    found = whole.all_causes if len(whole.ranks) > 1 else []
    steps = np.bincount(whole.rank_of, whole.timelines.steps, len(whole.ranks))
    each = steps[[row.rank for row in found]] if found else np.ones(0)
    own, median = (np.array([getattr(row, name) for row in found], np.float64) / each for name in ("own", "median"))
    share = np.array([100 * row.share for row in found], np.float64)
    cells: Cells = [
        _count("rank", np.array([whole.ranks[row.rank] for row in found], np.int64), "one of the ranks that others waited for"),
        _texts("layer", [row.work[0] for row in found], "layers around the op; of a late launch what the host did"),
        _texts("op", [row.work[1] for row in found], "the op; (launched late): the GPU had nothing to do yet"),
        _micro("time", own, "time a step on this rank before collectives to which it came late"),
        _micro("median", median, "the same on the median of the other ranks"),
        _micro("more", own - median, "the difference"),
        (Header("share", "Share(%)", "of its delay that this explains", "%", 2, share=True), Fractions.not_nan(share, 1)),
    ]
    return joined("stragglers", cells, "what takes late ranks longer than the others, a step: a tenth of their delay or more")


def _pipeline(whole: Survey) -> Table:
    found = whole.pipeline or NO_PIPELINE
    number = np.array(found.rank, np.int64)
    rows = np.argsort(number, kind="stable")
    unknown = np.full(len(rows), -1, np.int64)
    forward, backward, weight, _ = found.parts[rows].T
    share = 100 * found.bubble[rows] / found.span[rows]
    microbatches = unknown if found.microbatches is None else unknown + 1 + found.microbatches
    ideal = np.full(len(rows), np.nan if found.ideal is None else 100 * found.ideal)
    named: list[str | None] = [",".join(map(str, found.stages[row])) or None for row in rows.tolist()]
    cells: Cells = [
        (_RANK, Integers.known(number[rows])),
        (Header("stages", "Stages", "stages of the rank, as numbered in its ranges", width=2), listed(named)),
        _count("microbatches", microbatches, "of a step, by its ranges"),
        _micro("forward", forward, "computing of forward actions"),
        _micro("backward", backward, "computing of backward actions, of inputs alone where that of weights is apart"),
        _micro("weight", weight, "computing of backward actions of weights"),
        _micro("microbatch", found.microbatch[rows], "computing of one microbatch in all stages of the rank"),
        _micro("bubble", found.bubble[rows], "nothing runs but a send or receive that ends before the next activity"),
        (Header("share", "Share(%)", "the bubble's part of the step", "%", 2, share=True), Fractions.not_nan(share, 1)),
        (Header("ideal", "Ideal(%)", "the same in the schedule with even stages", "%", 2), Fractions.not_nan(ideal, 1)),
        (
            Header("schedule", "Schedule", "which the order of the actions proves", width=2),
            listed([found.schedule] * len(rows)),
        ),
    ]
    return joined("pipeline", cells, "pipeline, times of a step on average")


def _per_step(whole: Survey) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """(index of the rank, step, ns of each of PER_STEP) for each rank and step; NaN unknown."""
    unit = np.repeat(np.arange(len(whole.busy)), [len(busy.steps) for busy in whole.busy])
    step = np.concatenate([busy.steps for busy in whole.busy])
    numbers = _step_numbers(whole).tolist()
    waits = {
        (u, numbers[s]): (w, c) for u, s, w, c in zip(*(column.tolist() for column in whole.waits[:4]), strict=True) if s >= 0
    }
    more = [waits.get(at, (np.nan, np.nan)) for at in zip(unit.tolist(), step.tolist(), strict=True)]
    times = np.concatenate([busy.times for busy in whole.busy]).astype(np.float64)
    order = np.lexsort((step, whole.rank_of[unit]))
    columns = np.concatenate([times, np.array(more, np.float64).reshape(-1, 2)], axis=1)
    return whole.rank_of[unit[order]], step[order], columns[order]


def _matrix(whole: Survey) -> Table:
    """One row a rank and step."""
    rank, step, times = _per_step(whole)
    cells: Cells = [
        (_RANK, Integers.known(np.array(whole.ranks)[rank])),
        (_STEP, Integers.from_zero(step)),
        *(_micro(name, times[:, at], "as in the table of ranks") for at, name in enumerate(PER_STEP)),
    ]
    return joined("matrix", cells, "ranks and steps")


def matrix_of(whole: Survey, measure: str) -> Table:
    """Ranks down, steps across: one of PER_STEP."""
    rank, step, times = _per_step(whole)
    steps, across = np.unique(step, return_inverse=True)
    table = np.full((len(whole.ranks), len(steps)), np.nan)
    table[rank, across.ravel()] = times[:, PER_STEP.index(measure)]
    cells: Cells = [(_RANK, Integers.known(np.array(whole.ranks)))]
    for at, number in enumerate(steps.tolist()):
        name = str(number) if number >= 0 else "all"
        values = Fractions.not_nan(table[:, at] / 1e3, 3)
        cells.append((Header(f"step_{name}", name, f"{measure} in that step", "us", 2), values))
    return joined(f"matrix of {measure}", cells, f"{measure}(us) of ranks (down) and steps (across)")


TABLES: dict[str, Callable[[Survey], Table]] = {
    "ranks": _ranks, "clocks": _clocks, "steps": _steps, "collectives": _collectives, "bandwidth": _bandwidth,
    "stragglers": _stragglers, "pipeline": _pipeline, "matrix": _matrix,
}  # fmt: skip
