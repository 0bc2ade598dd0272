"""The ledger of a run -> what its steps took: percentiles, the slowest, drift, recorded steps beside the others.

Judged are complete steps after warm-up that no profiler slowed down, nor the end of its recording just before; where there are
fewer than LEAST of these, the recorded ones; a run that is recorded from its start to its end has traced ones alone. What the
ledger does not hold is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.columns.types import Bools, Ints
from pyprof.model.ledger import COMPILE_KINDS, Ledger
from pyprof.tables.units import human

LEAST = 8  # steps without a profiler, to judge the run by them
WARM = 2  # steps that are not judged
_DRIFT = 40  # steps from which on the first and last tenth are compared
_DRAWN = 240  # parts of the run in a drawing
_NOUNS = {"module": ("call of the model", "calls of the model"), "loader": ("batch", "batches")}  # marks that are no steps


class RunPart(NamedTuple):
    """Steps one after another. step: the first one's number; p50_ns, max_ns: of their times; recorded: whether one of them is
    in the capture."""

    step: int
    p50_ns: int
    max_ns: int
    recorded: bool


class RunSteps(NamedTuple):
    """The steps of a run. by: what marks them, as in the ledger; steps: complete ones; judged: those of which the percentiles
    are; slowest: number of the slowest of these; drift: median of their last tenth over that of the first, less 1; recorded: in
    the capture, with their median, and slowdown: over that of the others; device_ns: median; peak: bytes allocated at most;
    tokens_per_s: over judged steps; compiled: recompiles, graph breaks and skipped CUDA graphs; over: the run in parts."""

    by: str
    steps: int
    judged: int
    p50_ns: int | None
    p90_ns: int | None
    p99_ns: int | None
    slowest: int | None
    slowest_ns: int | None
    drift: float | None
    recorded: int
    recorded_ns: int | None
    slowdown: float | None
    device_ns: int | None
    peak: int | None
    tokens_per_s: float | None
    compiled: dict[str, int]
    over: tuple[RunPart, ...]


def free(ledger: Ledger) -> Bools:
    """Mask of complete steps after warm-up whose time no profiler changed."""
    slowed = ledger.recorded | ledger.traced
    mine = ledger.ended & (ledger.wall_ns >= 0) & (ledger.step >= WARM)
    return np.asarray(mine & ~slowed & ~np.append(False, slowed)[:-1])


def run_steps(ledger: Ledger | None) -> RunSteps | None:
    """The figures of a ledger; None without a complete step."""
    if ledger is None or not ledger.ended.any():
        return None
    mask = free(ledger)
    enough = mask.sum() >= LEAST
    within = ledger.recorded if enough or ledger.recorded.any() else ledger.traced & (ledger.step >= WARM)
    mask = mask if enough else ledger.ended & within
    times, numbers = ledger.wall_ns[mask], ledger.step[mask]
    slowest = (int(numbers[times.argmax()]), int(times.max())) if len(times) else (None, None)
    p50_ns = _quantile(times, 0.5)
    recorded = ledger.wall_ns[within & ledger.ended]
    recorded_ns = _quantile(recorded, 0.5)
    device, tokens = ledger.device_ns[mask], ledger.tokens[mask]
    known = bool(len(tokens)) and bool((tokens >= 0).all()) and bool(times.sum())
    kinds = Counter(one.kind for one in ledger.compiled)
    return RunSteps(
        ledger.by, int(ledger.ended.sum()), len(times), p50_ns, _quantile(times, 0.9), _quantile(times, 0.99),
        slowest[0], slowest[1],
        _drift(times), len(recorded), recorded_ns, recorded_ns / p50_ns if enough and recorded_ns and p50_ns else None,
        _quantile(device[device >= 0], 0.5),
        int(ledger.peak.max()) if (ledger.peak >= 0).any() else None,
        float(tokens.sum() / times.sum() * 1e9) if known else None,
        {kind: kinds[kind] for kind in COMPILE_KINDS if kinds[kind]}, tuple(_parts(ledger)),
    )  # fmt: skip


def _quantile(times: Ints, level: float) -> int | None:
    return round(float(np.quantile(times, level))) if len(times) else None


def _drift(times: Ints) -> float | None:
    if len(times) < _DRIFT:
        return None
    some = len(times) // 10
    first, last = float(np.median(times[:some])), float(np.median(times[-some:]))
    return last / first - 1 if first else None


def _parts(ledger: Ledger) -> Iterator[RunPart]:
    rows = np.flatnonzero(ledger.ended & (ledger.step >= WARM))
    for part in np.array_split(rows, min(_DRAWN, len(rows)) or 1):
        if len(part):
            times = ledger.wall_ns[part]
            yield RunPart(
                int(ledger.step[part[0]]), round(float(np.median(times))), int(times.max()), bool(ledger.recorded[part].any())
            )


def sentences(run: RunSteps) -> Iterator[str]:
    """The run in a few words, its steps first."""
    one, several = _NOUNS.get(run.by, ("step", "steps"))
    timed = " timed" if run.by == "module" else ""  # the first is not
    steps = f"{run.steps:,} {several if run.steps != 1 else one}{timed} in the whole run"
    if run.p50_ns is None:
        yield f"{steps}, too few to judge it"
        return
    of = "" if run.slowdown is not None or not run.recorded else f", {run.judged} of them recorded and judged"
    levels = ", ".join(f"p{level} {human(ns, 'ns')}" for level, ns in ((50, run.p50_ns), (90, run.p90_ns), (99, run.p99_ns)))
    yield f"{steps}{of}: {levels}, slowest {human(run.slowest_ns, 'ns')} ({one.partition(' ')[0]} {run.slowest})"
    facts = []
    if run.slowdown is not None:
        many = f"the {run.recorded} recorded {several}" if run.recorded > 1 else f"the recorded {one}"
        facts.append(f"{many} took {run.slowdown:.{1 if run.slowdown < 9.95 else 0}f} x as long as the others")
    if run.drift is not None:
        facts.append(f"drift {run.drift:+.1%} from its first tenth to its last")
    if run.tokens_per_s is not None:
        facts.append(f"{run.tokens_per_s:,.0f} tokens/s")
    if run.device_ns is not None:
        facts.append(f"device {human(run.device_ns, 'ns')} a {one.partition(' ')[0]}")
    if run.peak is not None:
        facts.append(f"peak memory {human(run.peak, 'B')}")
    facts += [f"{number} {kind.replace('_', ' ')}{'s' * (number != 1)} in all" for kind, number in run.compiled.items()]
    if facts:
        yield ", ".join(facts)
