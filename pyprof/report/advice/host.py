"""Gaps in which a GPU idled because the host launched too late -> what the host did then."""

from __future__ import annotations

import numpy as np

from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.frame import Frame
from pyprof.report.advice.advice import Advice, most
from pyprof.report.idle import HOST, LAUNCH, Activities, find_gaps

__all__ = ["late_launches"]

_TO_HOST = 2  # CUDA's number of a copy from a device to the host
_BEHIND_COPIES = (
    "the device idle behind copies that the host waits for",
    "keep the value on the device, or copy it to pinned memory with non_blocking=True and read it later",
)
_TOO_LATE = (
    "the device idle because the host launched too late",
    'record CUDA graphs (torch.compile(mode="reduce-overhead")), or do less between launches; see pyprof gaps',
)


def late_launches(frame: Frame) -> list[Advice]:
    """Gaps after a copy to the host, which the host waited for; and all others. Each can save at most its own length."""
    records = frame.records
    activities = Activities(records)
    if not len(activities):
        return []
    gaps = find_gaps(activities, None)
    late = np.isin(gaps.reason, (HOST, LAUNCH)) & activities.lines.whole[gaps.line] & (gaps.own > 0)
    copied = (records["kind"][gaps.before] == ActivityKind.MEMCPY) & (records["copykind"][gaps.before] == _TO_HOST)
    pool = [call.op for call in records.calls]
    found = []
    for chosen, preposition, named, texts in (
        (late & copied, "in", gaps.before, _BEHIND_COPIES),
        (late & ~copied, "before", gaps.after, _TOO_LATE),
    ):
        if len(rows := np.flatnonzero(chosen)):
            ops = most(records["call"][named[rows]].astype(np.int64), gaps.own[rows], pool) or "kernels without an op"
            time = int(gaps.own[rows].sum())
            found.append(Advice(*texts, f"{len(rows)} gap{'s' * (len(rows) > 1)}, {preposition} {ops}", time, time))
    return found
