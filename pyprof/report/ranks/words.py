"""A survey of a job's ranks -> what matters most in it, a line each: who is late, what that costs, what it did meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.report.ranks.advice import Straggler, described, in_words
from pyprof.report.ranks.results import by_rank
from pyprof.report.ranks.survey import Survey, how_aligned

_WORTH = 0.1  # of what the most costly rank costs
_ENTERED = 8  # ranks whose entry to a collective is shown


def lines(whole: Survey) -> Iterator[str]:
    """What matters most, a line each."""
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
    total = by_rank(whole, whole.waits.caused).sum()
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
    """What a rank that others waited for costs; total: ns of all waiting."""
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
