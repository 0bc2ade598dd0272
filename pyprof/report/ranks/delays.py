"""Arrivals -> how much earlier a job would have ended, had the last rank of each collective call come with the next-to-last.

A rank that is late once is late at each following call until the others have been held up by it: one delay, which counts once.
Calls are gone through in order of time, with the ns by which each unit would be earlier without the delays so far (its
advance). If the next-to-last stood still until the last came, all members leave the call earlier; if it computed or launched
meanwhile, they stay where they were, and the last is late again.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.intervals import ascending_times
from pyprof.columns.types import Ints
from pyprof.report.ranks.arrivals import Arrivals, Units
from pyprof.report.ranks.timeline import UNKNOWN, Timeline, Timelines

_ALL = 1 << 62
_USUAL = 3  # times the pause between launches that 5 % exceed


def delays(found: Arrivals, units: Units, timelines: Timelines, offset: Ints, group: Ints) -> Ints:
    """For each collective call the ns by which its last unit came after the next-to-last and was not late before.

    offset: ns that each unit's clock is ahead; group: the process group of each call.
    """
    members: dict[int, list[int]] = {}
    still = np.zeros(len(group), np.int64)
    for number, (unit, line) in enumerate(zip(units, timelines.units, strict=True)):
        inside = unit.call >= 0
        call, start = unit.call[inside], unit.start[inside]
        for one in np.unique(group[call]).tolist():
            members.setdefault(one, []).append(number)
        mine = found.second[call] == number
        still[call[mine]] = _still(line, start[mine], found.last[call[mine]] + offset[number])
    return _taken_away(found, still, group, {one: np.array(own) for one, own in members.items()}, len(offset))


def _still(line: Timeline, came: Ints, last: Ints) -> Ints:
    """How long a unit had done nothing when the last came to each of some calls, ns; came: when it came itself.

    Where its host had launched the next communication already, the device decides when this unit comes there: it stood still
    since its last kernel, but comes there no earlier than it was launched. Where it had not, the host decides, and stood still
    if it launched nothing for longer than is usual.
    """
    computes, talks = line.work >= 0, line.work < 0
    before = _latest(line.start[computes], np.maximum.accumulate(line.end[computes]), last)
    launch = ascending_times(line.launch[line.launch > UNKNOWN])
    launched = _latest(launch, launch, last)
    next_launch = np.append(launch, -UNKNOWN)[np.searchsorted(launch, last, "right")]
    usual = _USUAL * _long_pause(launch, np.sort(line.end[talks]))
    silent = next_launch - launched > usual  # silent before the first launch and after the last
    at = np.searchsorted(line.start[talks], came, "right")
    following, begun = (np.append(times[talks], UNKNOWN)[at] for times in (line.launch, line.start))
    by_host = following > last
    before = np.where(by_host, np.maximum(before, np.where(silent, launched, last)), before)
    still = np.clip(last - np.maximum(before, came), 0, None)
    return np.where(by_host | (following == UNKNOWN), still, np.minimum(still, np.maximum(begun - following, 0)))


def _latest(times: Ints, values: Ints, until: Ints) -> Ints:
    """For each query the value of the last time before it; UNKNOWN if there is none. times: ascending."""
    found: Ints = np.concatenate([[UNKNOWN], values])[np.searchsorted(times, until, "left")]
    return found


def _long_pause(launch: Ints, left: Ints) -> float:
    """95th percentile, in ns, of the time between launches, leaving out pairs between which a collective ended (the host may
    have waited for it); launch, left: ascending; 0 without any."""
    pauses = np.sort(np.diff(launch)[np.diff(np.searchsorted(left, launch)) == 0])
    at, share = divmod(0.95 * max(len(pauses) - 1, 0), 1)
    around = pauses[int(at) : int(at) + 2]
    return float(around[0] + (around[-1] - around[0]) * share) if len(around) else 0.0


def _taken_away(found: Arrivals, still: Ints, group: Ints, members: dict[int, Ints], units: int) -> Ints:
    new = np.zeros(len(group), np.int64)
    advance = np.zeros(units, np.int64)
    rows = np.flatnonzero(found.ranks > 1)
    rows = rows[np.argsort(found.last[rows], kind="stable")]
    late = (found.last - found.next)[rows]
    columns = (rows, found.slowest[rows], found.second[rows], late, still[rows], group[rows])
    for call, last, second, more, stood, one in zip(*(column.tolist() for column in columns), strict=True):
        new[call] = taken = min(max(0, more - int(advance[last] - advance[second])), more)
        advance[last] += taken
        leave = min(int(advance[last]), int(advance[second]) + more)  # by how much the call ends earlier
        if stood:
            others = members[one][members[one] != last]
            most = stood if stood < more else _ALL  # who stood still since it came leaves with the others
            advance[others] += np.clip(leave - advance[others], -most, most)
    return new
