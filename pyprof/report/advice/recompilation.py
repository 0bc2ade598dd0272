"""Frames that torch.compile compiles again and again while the program runs -> which, how often, why, and how to compile once.

A first compilation of each frame is one-off work and not counted. Reasons and graph breaks are in the ledger that
`pyprof run` keeps beside the capture; without it the trace tells only how often and how long.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from pyprof.model.host import Compilation
from pyprof.model.ledger import GRAPH_BREAK, RECOMPILE, CompileEvent
from pyprof.report.advice.base import Advice, counted, idle_time, is_worth, told
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change

_LEAST = 0.05  # of the wall time
_SIZE = re.compile(r"size mismatch at index (\d+)[^0-9]*(\d+)\D+(\d+)|\.size\(\)\[(\d+)\]|\.shape\[(\d+)\]")
_DYNAMIC = "torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic(x, {axis}) before the call; or pad to a few sizes"
_UNKNOWN = (
    'TORCH_LOGS="recompiles,graph_breaks" says why (or pyprof run, which keeps the reasons); where it is a size: '
    "torch.compile(model, dynamic=True) or torch._dynamo.mark_dynamic(x, 0)"
)
_GUARD = "keep equal between calls what the guard names, or take it out of the compiled function: {reason}"


def find(overview: Overview) -> Advice | None:
    """Where compiling takes a good part of the window, again for frames that were compiled before."""
    host, window = overview.host, overview.window
    if host is None:
        return None
    inside = [one for one in host.compilations if window.begin_ns <= one.begin_ns < window.end_ns]
    again = [one for one in inside if _is_again(one, host.compilations)]
    if not again:
        return None
    idle = idle_time(overview, "compilation")
    share = sum(one.end_ns - one.begin_ns for one in again) / max(sum(one.end_ns - one.begin_ns for one in inside), 1)
    if not is_worth(overview, int(idle.time_ns * share), _LEAST):
        return None
    times = Counter(one.frame for one in inside)
    frames = f"{counted(len(times), 'frame')} {_times(times)}" if "" not in times else "frames"
    wall = overview.division.wall_ns
    evidence = f"torch.compile compiles {frames}: {told(idle.time_ns)} of {told(wall)} ({100 * idle.time_ns / wall:.0f} %)"
    events = [one for one in host.compiled if one.kind == RECOMPILE]
    if events:
        evidence += f"; {_reasons(events)}"
    if breaks := [one for one in host.compiled if one.kind == GRAPH_BREAK]:
        first = breaks[0]
        where = f"{first.file.rpartition('/')[2]}:{first.line}" if first.file else first.frame or "an unknown line"
        evidence += f"; {counted(len(breaks), 'graph break')}, first at {where}: {_short(first.reason)}"
    change = Change(gaps=idle.rows, gap_ns=(idle.own_ns * share).astype(np.int64), cause=idle.cause)
    return Advice("recompilation", change, idle.time_ns, evidence, _do(events))


def _is_again(one: Compilation, all_of_them: list[Compilation]) -> bool:
    """Whether this frame was compiled before. Without its number: whether anything was compiled several times before."""
    if one.frame:
        return one.attempt > 0
    return sum(other.begin_ns < one.begin_ns for other in all_of_them) >= 8


def _times(times: Counter[str]) -> str:
    """`4 times each`, `once`, or `2 to 8 times`."""
    least, most = min(times.values()), max(times.values())
    if least < most:
        return f"{least} to {most} times"
    return ("once" if most == 1 else f"{most} times") + (" each" if len(times) > 1 else "")


def _reasons(events: list[CompileEvent]) -> str:
    """The frames that were compiled anew most often, with the line and torch's reason."""
    often = Counter((one.frame, one.file.rpartition("/")[2], one.line) for one in events)
    texts = []
    for (frame, file, line), number in often.most_common(3):
        reason = next(one.reason for one in events if (one.frame, one.line) == (frame, line))
        where = f" ({file}:{line})" if file else ""
        texts.append(f"{number} x {frame or 'a frame'}{where}, first since {_short(reason)}")
    return "; ".join(texts)


def _short(reason: str) -> str:
    """The last line of torch's reason without the number of its guard."""
    lines = [line.strip(" -\t") for line in reason.splitlines() if line.strip()]
    return re.sub(r"^\d+/\d+: ", "", lines[-1])[:120] if lines else "of an unknown guard"


def _do(events: list[CompileEvent]) -> str:
    if not events:
        return _UNKNOWN
    axes = [match for one in events if (match := _SIZE.search(one.reason))]
    if len(axes) * 2 < len(events):
        return _GUARD.format(reason=_short(events[0].reason))
    axis = next((group for group in (axes[0][1], axes[0][4], axes[0][5]) if group is not None), "0")
    return _DYNAMIC.format(axis=axis)
