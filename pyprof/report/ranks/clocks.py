"""When ranks left the collectives that they had in common -> by how much each rank's clock is ahead.

A collective ends for all its ranks at one time, so what differs is their clocks. Of each process group some collectives are
sampled; the offset of a rank in it is the median over these of its end less the median end of all ranks. Groups with common
ranks are combined by least squares. A rank without common collectives keeps the clock of its session. One unit at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pyprof.columns.types import Floats, Ints
from pyprof.report.ranks.collective_calls import Attended

_SAMPLES = 255  # collectives of a process group: enough for a good median
_ROUNDS = 5000


class Clocks(NamedTuple):
    """offset: ns that each unit's clock is ahead; spread: the median difference of its ends that is left then, NaN if it met
    no other unit; component: the same number for units that collectives connect."""

    offset: Ints
    spread: Floats
    component: Ints


def sample(group: Ints) -> Ints:
    """Numbers of the collective calls to compare, group after group, evenly spaced in each. group: the group of each call."""
    chosen = []
    for one in np.unique(group).tolist():
        members = np.flatnonzero(group == one)
        chosen.append(members[np.unique(np.linspace(0, len(members) - 1, min(_SAMPLES, len(members))).astype(np.int64))])
    return np.concatenate([np.empty(0, np.int64), *chosen])


def align(units: Iterable[Attended], group: Ints) -> Clocks:
    """Offsets of the units; group: the process group of each collective call."""
    taken = sample(group)
    sampled = np.full(len(group) + 1, -1, np.int64)  # number within its group, -1 not sampled
    sampled[taken] = np.arange(len(taken)) - np.searchsorted(group[taken], group[taken])
    ends: dict[int, list[Floats]] = {}
    who: dict[int, list[int]] = {}
    number = 0
    for number, unit in enumerate(units, 1):
        inside = sampled[unit.call] >= 0
        call, end = unit.call[inside], unit.end[inside]
        for one in np.unique(group[call]).tolist():
            own = group[call] == one
            row = np.full(_SAMPLES, np.nan)
            row[sampled[call[own]]] = end[own]
            ends.setdefault(one, []).append(row)
            who.setdefault(one, []).append(number - 1)
    tables, component = [], np.arange(number)
    for one, parts in ends.items():
        rows = np.stack(parts)
        rows = rows[:, (~np.isnan(rows)).sum(axis=0) > 1]  # collectives that at least two ranks left
        some = ~np.isnan(rows).all(axis=1)  # and ranks that left one of those
        members = np.array(who[one])[some]
        if len(members) > 1:
            tables.append((members, rows[some]))
            component[np.isin(component, component[members])] = component[members].min()
    offset = np.zeros(number)
    for _ in range(2):  # the second time the ends are close together, and so is their median
        offset += _solve(number, [(members, rows - offset[members, None]) for members, rows in tables], component)
    return Clocks(np.rint(offset).astype(np.int64), _spread(number, tables, offset), component)


def _solve(count: int, tables: list[tuple[Ints, Floats]], component: Ints) -> Floats:
    """Offsets with the least squares to those that each group gives its members; in each component their median is 0."""
    unit, group, ahead = [], [], []
    for number, (members, rows) in enumerate(tables):
        unit.append(members)
        group.append(np.full(len(members), number))
        ahead.append(np.nanmedian(rows - np.nanmedian(rows, axis=0), axis=1))
    offset = np.zeros(count)
    if not tables:
        return offset
    units, groups, measured = np.concatenate(unit), np.concatenate(group), np.concatenate(ahead)
    in_unit = np.maximum(np.bincount(units, minlength=count), 1)
    in_group = np.bincount(groups, minlength=len(tables))
    middle = np.zeros(len(tables))  # of each group, on the clock of all
    for _ in range(_ROUNDS):
        before = offset
        offset = np.bincount(units, measured + middle[groups], count) / in_unit
        middle = np.bincount(groups, offset[units] - measured, len(tables)) / in_group
        if np.abs(offset - before).max() < 0.1:
            break
    for one in np.unique(component).tolist():
        own = component == one
        offset[own] -= np.median(offset[own])
    return offset


def _spread(count: int, tables: list[tuple[Ints, Floats]], offset: Floats) -> Floats:
    found = np.full(count, np.nan)
    for members, rows in tables:
        left = rows - offset[members, None]
        own = np.nanmedian(np.abs(left - np.nanmedian(left, axis=0)), axis=1)
        found[members] = np.fmax(found[members], own)
    return found
