"""A survey of a job's ranks -> the rank that others wait for, what that costs and what it did meanwhile. Prints nothing.

`straggler(survey(files_of([folder])))` gives a Straggler, or None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.parse.attribution.pauses import LOADING, PYTHON
from pyprof.report.ranks.causes import ALL_WORK, BEGUN, FIRST, Cause
from pyprof.report.ranks.pipeline import lines as pipeline_lines
from pyprof.report.ranks.survey import Survey, how_aligned
from pyprof.report.ranks.timeline import APART, LATE, NOT_RECORDED

_WORTH = 0.1  # of what the most costly rank costs
_ENTERED = 8  # ranks whose entry to a collective is shown
_LEAST_OF_WALL = 0.01  # savings below this are noise
_FAR_MORE = 10
_MORE_THAN_OTHERS = 3  # times what the other ranks cost on average, else none is the straggler


class Straggler(NamedTuple):
    """The rank whose lateness costs most.

    rank: its number; ranks: of the job; saves_ns: wall time that goes if it enters each collective together with the
    next-to-last, each delay counted once although later collectives wait for it as well; time_ns: how long each of the other
    ranks waited for it on average; waited_ns: all of them together; collectives: how often it was the last, of `met` compared.

    The collective where it lost most: kind; step (None: not marked); earliest, second: the first and the next-to-last rank
    there; second_ns, last_ns: when the next-to-last and this rank entered, after the earliest; entered: (rank, ns after the
    earliest) of all that took part, in order.

    cause: "compute", "host", "begin" (it began its recording or its first step later; of records without their capture, its
    first launch came later) or "communication" (with ranks that are not recorded, or from one rank to another), None if
    nothing recorded explains a tenth of the delay; meanwhile: the same in words; share: of the delay that it explains; layer,
    op, src: where, None unknown.
    """

    rank: int
    ranks: int
    saves_ns: int
    time_ns: int
    waited_ns: int
    collectives: int
    met: int
    kind: str
    step: int | None
    earliest: int
    second: int
    second_ns: int
    last_ns: int
    entered: tuple[tuple[int, int], ...]
    cause: str | None
    meanwhile: str | None
    share: float
    layer: str | None
    op: str | None
    src: str | None


def straggler(survey: Survey) -> Straggler | None:
    """The rank to look at first. None if nothing could be compared or no rank is late beyond noise: it must save at least 1 %
    of the job's time and three times the other ranks' average, and be late in most steps or once by far more than any other."""
    saves = survey.saves
    if len(survey.ranks) < 2 or not saves.any():
        return None
    row = int(saves.argmax())
    wall = max(int(busy.times[:, 0].sum()) for busy in survey.busy)
    others = (saves.sum() - saves[row]) / (len(saves) - 1)
    if saves[row] < _LEAST_OF_WALL * wall or saves[row] < _MORE_THAN_OTHERS * others:
        return None
    return described(survey, row) if _stands_out(survey, row) or _always_late(survey, row) else None


def _stands_out(survey: Survey, row: int) -> bool:
    """Whether its largest delay is ten times the median at the other calls, or its delays together ten times the spread of
    the other ranks there."""
    found, delays = survey.arrivals, survey.delays
    mine = (delays > 0) & (survey.rank_of[found.slowest] == row)
    most = int(np.where(mine, delays, 0).argmax())
    rest = np.delete(delays, most)[np.delete(found.ranks, most) > 1]
    apart = (found.next - found.first)[mine].sum() if (found.ranks[mine] > 2).all() else np.inf
    return bool(delays[most] >= _FAR_MORE * (np.median(rest) if len(rest) else 0) or delays[mine].sum() >= _FAR_MORE * apart)


def _always_late(survey: Survey, row: int) -> bool:
    """Whether it comes later than the others by more than it varies: a t-test at about 1 %. A sample is the mean of a step,
    since a delay is carried along within one; with fewer than three steps, a call."""
    found, step = survey.arrivals, survey.calls.step_of()
    sample = step if len(np.unique(step)) > 2 else np.arange(len(step))
    sums = np.zeros((3, len(survey.ranks)))  # number of samples, sum, and sum of squares
    for number, unit in enumerate(survey.calls.units):
        inside = np.flatnonzero(unit.call >= 0)
        inside = inside[found.ranks[unit.call[inside]] > 1]
        at = unit.call[inside]
        late = unit.start[inside] - survey.clocks.offset[number] - found.first[at]
        which = np.unique(sample[at], return_inverse=True)[1].ravel()
        mean = np.bincount(which, late) / np.bincount(which)
        sums[:, survey.rank_of[number]] += len(mean), mean.sum(), (mean**2).sum()
    count, total, squares = sums
    mean, n = total / np.maximum(count, 1), count[row]
    others = mean[(count > 0) & (np.arange(len(mean)) != row)]
    if n < 3 or not len(others):
        return False
    deviation = np.sqrt(max(squares[row] - n * mean[row] ** 2, 0.0) / (n - 1) / n)
    return bool(mean[row] - others.mean() >= (2.3 + 9 / (n - 1)) * deviation)


def described(survey: Survey, row: int) -> Straggler:
    """All that is known of a rank that others waited for; row: its index in `survey.ranks`."""
    found = survey.arrivals
    late = np.flatnonzero((found.ranks > 1) & (survey.rank_of[found.slowest] == row))
    worst = int(late[np.argmax(survey.delays[late])])
    met = int(survey.waits.met[survey.rank_of[survey.waits.unit] == row].sum())
    first, second = (int(survey.rank_numbers[units[worst]]) for units in (found.earliest, found.second))
    step = list(survey.calls.steps)[survey.calls.step_of()[worst]][1]
    cause = next(iter(survey.causes(row)), None)
    layer, op, src = (None, None, None) if cause is None else _place(survey, cause)
    return Straggler(
        rank=survey.ranks[row], ranks=len(survey.ranks), saves_ns=int(survey.saves[row]),
        time_ns=int((found.wait[late] // (found.ranks[late] - 1)).sum()), waited_ns=int(found.wait[late].sum()),
        collectives=len(late), met=met, kind=list(survey.calls.keys)[survey.calls.key_of()[worst]].kind,
        step=step if step >= 0 else None, earliest=first, second=second,
        second_ns=int(found.next[worst] - found.first[worst]), last_ns=int(found.last[worst] - found.first[worst]),
        entered=_entered(survey, worst),
        cause=None if cause is None else _kind(cause), meanwhile=None if cause is None else in_words(cause),
        share=0.0 if cause is None else cause.share, layer=layer, op=op, src=src,
    )  # fmt: skip


def _entered(survey: Survey, call: int) -> tuple[tuple[int, int], ...]:
    """(rank, ns after the first) of all ranks of a collective call, in order."""
    first = int(survey.arrivals.first[call])
    found = []
    for number, unit in enumerate(survey.calls.units):
        start = unit.start[unit.call == call] - survey.clocks.offset[number] - first
        found += [(int(survey.rank_numbers[number]), at) for at in start.tolist()]
    return tuple(sorted(found, key=lambda one: (one[1], one[0])))


def _kind(cause: Cause) -> str:
    if cause.work in (BEGUN, FIRST):
        return "begin"
    return "communication" if cause.work == APART else "host" if cause.work[1] == LATE else "compute"


def _place(survey: Survey, cause: Cause) -> tuple[str | None, str | None, str | None]:
    """Layer, op and source line of what was computed longer."""
    layer, op = cause.work
    if _kind(cause) != "compute":
        return None, None, None
    lines = survey.timelines
    return None if layer == "-" else layer, None if op.startswith("(") else op, lines.src.get(lines.work.get(cause.work, -1))


def in_words(cause: Cause) -> str:
    """Cause of a delay in words, with the rank's time and the median of the others."""
    where, op = cause.work
    own, median = (f"{time / 1e6:.3f} ms" for time in (cause.own, cause.median))
    if cause.work == BEGUN:
        return f"began its recording or step {own} after the first rank, the others {median} (median)"
    if cause.work == FIRST:
        return f"launched its first work {own} after the first rank, the others {median} (median); why is not in the records"
    times = f"{own}, the others {median} (median)"
    if cause.work == APART:
        return f"communicated longer with ranks that are not recorded, or from one rank to another: {times}"
    if cause.work == ALL_WORK:
        return f"computed longer in all layers: {times}"
    if op != LATE:
        what = op if where == "-" else f"{where}" if op.startswith("(") else f"{op} in {where}"
        return f"computed longer: {what}, {times}"
    doing = {
        "-": "in many places",
        PYTHON: "in Python outside of ops",
        LOADING: "while loading data",
        NOT_RECORDED: "what the host did was not recorded",
    }
    return f"launched late, {doing.get(where, f'in {where}')}: {times}"


# ---------------------------------------------------------------------- in words


def lines(whole: Survey) -> Iterator[str]:
    """The findings of a survey, most important first, a line each."""
    met = int((whole.arrivals.ranks > 1).sum())
    steps = len({step for busy in whole.busy for step in busy.steps.tolist() if step >= 0})
    named = ((len(whole.ranks), "rank"), (steps, "step"), (met, "collective"))
    counts = [f"{number or 'no'} {name}{'' if number == 1 else 's'}" for number, name in named]
    yield f"{', '.join(counts)} compared"
    aligned = [unit for unit in range(len(whole.units)) if how_aligned(whole, unit) == "collectives"]
    if aligned:
        moved = np.abs(whole.clocks.offset[aligned]).max()
        spread = float(np.median(whole.clocks.spread[aligned]))
        yield f"clocks: moved by at most {moved / 1e3:.3f} us to agree on collectives; left over {spread / 1e3:.3f} us"
    if (pipeline := whole.pipeline) is not None:
        yield from pipeline_lines(pipeline)
    total = int(whole.waits.caused.sum())
    if not met or not total:
        return
    communication = sum(int(busy.times[:, 2].sum()) for busy in whole.busy)
    share = f", {100 * total / communication:.1f} % of their communication" if communication and whole.ends else ""
    yield f"waiting: {total / 1e6:.3f} ms of all ranks together{share}"
    for row in whole.slowest:
        if whole.saves[row] >= _WORTH * whole.saves.max():
            yield from _late(described(whole, row), total)
            causes = [in_words(cause) for cause in whole.causes(row)[:2]]
            yield from (f"    {text}" for text in causes or ["nothing recorded explains a tenth of its delay"])


def _late(one: Straggler, total: int) -> Iterator[str]:
    """Lines on a rank that others waited for; total: ns of all waiting."""
    share = f"{100 * one.waited_ns / total:.1f} % of all waiting"
    times = f"last at {one.collectives} of {one.met} collectives"
    yield f"rank {one.rank}: {times}; the others waited {one.waited_ns / 1e6:.3f} ms for it, {share}"
    step = "" if one.step is None else f" of step {one.step}"
    after = f"{one.last_ns / 1e6:.3f} ms after rank {one.earliest}"
    if one.second != one.earliest:
        after += f", {(one.last_ns - one.second_ns) / 1e6:.3f} ms after rank {one.second}, the next-to-last"
    yield f"    most at {one.kind}{step}: {after}"
    shown = [f"{rank} {ns / 1e6:.3f}" for rank, ns in one.entered]
    if len(shown) > _ENTERED:
        shown[_ENTERED // 2 : -_ENTERED // 2] = ["..."]
    yield f"    entered there, rank and ms: {', '.join(shown)}"
    yield f"    saves {one.saves_ns / 1e6:.3f} ms in all if it enters with the next-to-last"
