"""Summaries of a job's ranks, and its straggler -> one summary of the job.

Wall time and its parts, steps and utilisation are means over the ranks; kernels, FLOPs and rates are sums, as over the devices
of one capture. Time spent waiting for a late rank counts for the straggler, that for another stage
of a pipeline for its bubble, neither for exposed communication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from os.path import basename
from typing import Any

import numpy as np

from pyprof.model.scheduler_steps import DECODE
from pyprof.prof.sums import added
from pyprof.report.advice import pipeline_bubble, straggler
from pyprof.report.advice.base import LEAST_SHARE, Advice
from pyprof.report.ranks.advice import Straggler
from pyprof.report.ranks.pipeline import Pipeline
from pyprof.report.ranks.pipeline import lines as lines_on
from pyprof.report.summary.model import Known, LostPlace, Share, StepPhase, StepTimes, Utilised
from pyprof.report.summary.notes import notes_of_job
from pyprof.report.summary.screen import Summary
from pyprof.report.time.division import mean_parts

_PLACES = 10


def job_of(
    name: str,
    ranks: Sequence[Summary],
    late: Straggler | None,
    notes: Sequence[str] = (),
    pipeline: Pipeline | None = None,
) -> Summary:
    """The summary of a job. late: the rank that the others wait for, None: no rank stands out; notes: further ones."""
    first = ranks[0]
    busy, idle, wall = _wall(ranks)
    unseen = next((one.unseen for one in ranks if one.unseen is not None), None)
    advice, used = _advice(ranks, late, pipeline, wall or 0), _utilised(ranks)
    if unseen is not None:  # of one rank: of the job no rate, and nothing else to advise
        advice = tuple(one for one in advice if one.kind == "record_cuda")
        used = Utilised(**{**dict.fromkeys(Utilised._fields), "precisions": {}, **_added([used], "flops")})
    names = dict.fromkeys(name for one in ranks for name in one.phases)
    total = sum(one.kernel_ns for one in ranks)
    each = [(one.known, one.kernel_ns) for one in ranks if one.known is not None]
    shares = (sum(getattr(one, name) * ns for one, ns in each) / total for name in Known._fields) if each else ()
    said = [
        *([] if late is None else [straggler.in_words(late, f"rank {late.rank}")]),
        *(lines_on(pipeline)[:1] if pipeline else []),
        *notes,
    ]
    return replace(
        first, run=None, file=name, ranks=len(ranks), wall_ns=wall,
        devices=tuple(device for one in ranks for device in one.devices),
        busy_ns=None if wall is None else sum(busy.values()), busy=busy, idle_ns=idle, kernel_ns=total,
        kernels=sum(one.kernels for one in ranks), steps=_steps(ranks), utilised=used,
        phases={name: sum(one.phases.get(name, 0) for one in ranks) for name in names},
        ops=_shares([one.ops for one in ranks], total), layers=_shares([one.layers for one in ranks], total),
        families=_shares([one.families for one in ranks], total), lost=_lost(ranks), known=Known(*shares) if each else None,
        step_phases=_step_phases(ranks), advice=advice, notes=notes_of_job(advice, said, [one.notes for one in ranks]),
        unseen=unseen, ranges=(), by_kernel=_shares([one.by_kernel for one in ranks], total),
    )  # fmt: skip


def _wall(ranks: Sequence[Summary]) -> tuple[dict[str, int], dict[str, int], int | None]:
    """(busy, idle by cause, wall time): means over the ranks that still add up."""
    walls = [one.wall_ns for one in ranks if one.wall_ns is not None]
    if len(walls) < len(ranks):
        return {}, {}, None
    wall = sum(walls) // len(walls)
    names = [*ranks[0].busy, *ranks[0].idle_ns]
    parts = np.array([[{**one.busy, **one.idle_ns}[name] for one in ranks] for name in names], np.int64)
    found = dict(zip(names, mean_parts(parts, wall), strict=True))
    return {name: found[name] for name in ranks[0].busy}, {name: found[name] for name in ranks[0].idle_ns}, wall


def _steps(ranks: Sequence[Summary]) -> StepTimes | None:
    """The mean of each step over the ranks; None if a rank has no steps or another number of them."""
    each = [one.steps for one in ranks if one.steps is not None]
    if len(each) < len(ranks) or len({one.count for one in each}) != 1:
        return None
    times = np.array([one.times_ns for one in each]).mean(axis=0).round().astype(np.int64)
    low, high = int(times.min()), int(times.max())
    return replace(
        each[0], median_ns=round(float(np.median(times))), spread_ns=high - low, min_ns=low, max_ns=high, slowest=None,
        times_ns=tuple(times.tolist()),
    )  # fmt: skip


def _step_phases(ranks: Sequence[Summary]) -> tuple[StepPhase, ...]:
    """The step phases of all ranks together: times are means, work is summed; empty if the ranks' steps differ."""
    if len({tuple((one.phase, one.steps, one.requests, one.tokens) for one in rank.step_phases) for rank in ranks}) > 1:
        return ()
    found = []
    for some in zip(*(rank.step_phases for rank in ranks), strict=True):
        total = sum(one.kernel_ns for one in some)
        known = [one for one in some if one.peak is not None]
        times = [one.time_ns for one in some if one.time_ns is not None]
        time = sum(times) // len(some) if len(times) == len(some) else None
        counted = some[0].generated if some[0].phase == DECODE else some[0].tokens
        shares = (
            sum((getattr(one, name) or 0.0) * one.kernel_ns for one in some) / total if total else None
            for name in ("known_flops", "known_bytes")
        )
        of_known = sum(one.kernel_ns for one in known)
        found.append(
            some[0]._replace(
                time_ns=time, tokens_per_s=counted / time * 1e9 if counted is not None and time else None,
                kernels=sum(one.kernels for one in some), kernel_ns=total, **_added(some, "flops", "bytes"),
                **dict(zip(("known_flops", "known_bytes"), shares, strict=True)),
                peak=sum((one.peak or 0.0) * one.kernel_ns for one in known) / of_known if of_known else None,
            )
        )  # fmt: skip
    return tuple(found)


def _utilised(ranks: Sequence[Summary]) -> Utilised:
    each = [one.utilised for one in ranks]
    whole = all(one.mfu is not None for one in each)

    def mean(value: Callable[[Utilised], float | None]) -> float | None:
        found = [number for one in each if (number := value(one)) is not None]
        return sum(found) / len(found) if len(found) == len(each) else None

    peaks = [one.peak_flops_per_s for one in each if one.peak_flops_per_s is not None]
    return Utilised(
        mfu=mean(lambda one: one.mfu), hfu=mean(lambda one: one.hfu),
        mfu_min=None if whole else mean(lambda one: one.mfu_min if one.mfu is None else one.mfu),
        hfu_min=None if whole else mean(lambda one: one.hfu_min if one.hfu is None else one.hfu),
        **_added(each, "flops", "flops_per_busy_s", "flops_per_wall_s"),
        peak_flops_per_s=sum(peaks) if len(peaks) == len(each) else None, precisions=each[0].precisions,
    )  # fmt: skip


def _shares(ranks: Sequence[Sequence[Share]], total: int) -> tuple[Share, ...]:
    """The shares of all ranks, equal names summed."""
    alike: dict[str | None, list[Share]] = {}
    for one in (share for shares in ranks for share in shares):
        alike.setdefault(one.name, []).append(one)
    found = [
        Share(
            name, time := sum(one.time_ns for one in some), time / (total or 1), sum(one.calls for one in some),
            sum(one.kernels for one in some), **_added(some, "flops", "lost_ns"),
            known=sum((one.known or 0.0) * one.time_ns for one in some) / time if time else None,
            inside=_shares([one.inside for one in some], total), cls=some[0].cls,
        )
        for name, some in alike.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.time_ns, one.name or "")))


def _added(some: Sequence[Utilised | Share | StepPhase], *names: str) -> dict[str, Any]:
    """Sums of these fields with their lower bounds."""
    found: dict[str, Any] = {}
    for name in names:
        pair = added([(getattr(one, name), getattr(one, f"{name}_min")) for one in some])
        found |= dict(zip((name, f"{name}_min"), pair, strict=True))
    return found


def _lost(ranks: Sequence[Summary]) -> tuple[LostPlace, ...]:
    """The places that lose most, each summed over the ranks that have it."""
    alike: dict[tuple[str | None, ...], list[LostPlace]] = {}
    for one in (place for rank in ranks for place in rank.lost):
        alike.setdefault((one.layer, one.op, one.shape), []).append(one)
    found = []
    for some in alike.values():
        time, peak = sum(one.time_ns for one in some), sum(one.peak * one.time_ns for one in some)
        kernels, lost = sum(one.kernels for one in some), sum(one.lost_ns for one in some)
        found.append(some[0]._replace(kernels=kernels, time_ns=time, lost_ns=lost, peak=peak / time))
    return tuple(sorted(found, key=lambda one: -one.lost_ns)[:_PLACES])


def _advice(ranks: Sequence[Summary], late: Straggler | None, pipeline: Pipeline | None, wall: int) -> tuple[Advice, ...]:
    """Advice of all ranks, each kind once with its mean saving; the straggler comes before communication."""
    alike: dict[str, list[tuple[int, Advice]]] = {}
    for number, rank in enumerate(ranks):
        for one in rank.advice:
            alike.setdefault(one.kind, []).append((number, one))
    waited = 0 if late is None else late.waited_ns // len(ranks)
    waited += 0 if pipeline is None else pipeline.bubble_ns
    found = []
    for kind, some in alike.items():
        one = _mean(kind, some, ranks)
        if kind == "exposed_communication" and one.saves_ns is not None:
            one = one._replace(saves_ns=max(one.saves_ns - waited, 0), alone_ns=max((one.alone_ns or 0) - waited, 0))
        if one.saves_ns is None or max(one.saves_ns, one.alone_ns or 0) > LEAST_SHARE * wall:
            found.append(one)
    if late is not None:
        do = straggler.DO.get(late.cause or "", straggler.LISTS)
        words = straggler.in_words(late, f"rank {late.rank}")
        found.append(Advice("straggler", None, late.time_ns, words, do, (), late.saves_ns, late.saves_ns))
    uneven = None if pipeline is None else pipeline_bubble.advice_of(pipeline)
    if uneven is not None and (uneven.saves_ns or 0) > LEAST_SHARE * wall:
        found.append(uneven)
    ahead = max((one.saves_ns or 0 for one in found if one.kind == "straggler"), default=None)

    # What a rank says before all that saves, as to record again, the job says first as well.
    leads = {kind for kind, some in alike.items() if 2 * sum(_leads(ranks[at], kind) for at, _ in some) > len(ranks)}

    def order(one: Advice) -> tuple[bool, bool, int, bool]:
        after = ahead is not None and one.kind == "exposed_communication"
        return (
            one.kind not in leads,
            one.saves_ns is None,
            -min(one.saves_ns or 0, ahead or 0) if after else -(one.saves_ns or 0),
            after,
        )

    return tuple(sorted(found, key=order))


def _leads(rank: Summary, kind: str) -> bool:
    """Whether a rank's advice of this kind, about its capture, stands before one that saves."""
    before = [*takewhile(lambda one: one.saves_ns is None, rank.advice)]
    return len(before) < len(rank.advice) and any(one.kind == kind for one in before)


def _mean(kind: str, some: Sequence[tuple[int, Advice]], ranks: Sequence[Summary]) -> Advice:
    """One kind of advice on several ranks: the evidence of the rank that it saves most, the means over all ranks."""
    number, most = max(some, key=lambda pair: pair[1].saves_ns or 0)
    evidence = f"on {len(some)} of {len(ranks)} ranks, most on that of {basename(ranks[number].file)}: {most.evidence}"
    saves, alone, time = (
        None if getattr(most, name) is None else sum(getattr(one, name) or 0 for _, one in some) // len(ranks)
        for name in ("saves_ns", "alone_ns", "time_ns")
    )
    return most._replace(time_ns=time, evidence=evidence, saves_ns=saves, alone_ns=alone)
