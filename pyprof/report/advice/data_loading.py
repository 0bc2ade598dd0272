"""Devices that idle while the host prepares inputs -> prepare them in other processes, ahead of time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyprof.columns.types import Ints
from pyprof.report.advice.base import Advice, IdleTime, counted, idle_time, told
from pyprof.report.advice.host_code import described
from pyprof.report.time.overview import Overview

_LEAST = 0.01  # of the wall time
_INFERRED = 0.05  # of it where no DataLoader says that inputs are what the host prepared
_OF_A_GAP = 0.9  # gaps that make up so much of the time are the ones to name
_MOST_WORKERS = 16
_DO = {
    "single": "{loader}: it has no workers now, so that nothing is loaded while the device computes",
    "several": "more or faster workers: {loader}; decode and augment less in them, or cache what they made",
    "none": "prepare the next batch while the device computes: torch.utils.data.{loader}",
}
_WHERE = {
    "single": "is in a DataLoader without workers",
    "several": "waits for the workers of a DataLoader",
    "none": "loads data",
}


def find(overview: Overview) -> Advice | None:
    """Where the devices wait for inputs."""
    idle = idle_time(overview, "data_loading")
    how = "none" if overview.host is None else overview.host.loader
    how = how if how in _WHERE else "none"
    if not len(idle.rows) or idle.saves_ns <= (_INFERRED if how == "none" else _LEAST) * overview.division.wall_ns:
        return None
    own = np.sort(idle.own_ns)[::-1]
    many = int(np.searchsorted(np.cumsum(own), _OF_A_GAP * own.sum())) + 1
    least, most = own[many - 1], own[0]
    span = told(most) if told(least) == told(most) else f"{told(least)} to {told(most)}"
    evidence = f"{counted(many, 'gap')} of {span} in which the host {_WHERE[how]}: "
    evidence += f"{told(idle.time_ns)} of {told(overview.division.wall_ns)}"
    places = overview.host_places("data_loading")
    if places is not None and (place := places.deepest()) is not None and "enumerate(DataLoader)" not in place.name:
        evidence += f", {told(place.whole_ns / max(overview.division.count, 1))} in {described(place)}"
    do = _DO[how].format(loader=_loader(overview, how, idle.time_ns))
    before, before_ns = _loaded(overview, idle)
    change = replace(idle.change, before=before, before_ns=before_ns)
    return Advice("data_loading", change, idle.time_ns, evidence, do)


def _loaded(overview: Overview, idle: IdleTime) -> tuple[Ints, Ints]:
    """The records that were launched next after the host had loaded data, and how long that took, behind work of the device
    too; in gaps without what occurs only in the first step."""
    records, gaps, division = overview.records, overview.division.gaps, overview.division
    took = np.zeros(len(records) + 1, np.int64)
    for one in [] if overview.host is None else overview.host.work.get("loading", []):
        begin, end = np.maximum(np.array([one.begin_ns, one.end_ns], np.int64), division.begin_ns)
        launched = division.row[(records["pid"][division.row] == one.pid) & (records["launch_ns"][division.row] >= 0)]
        launched = launched[np.argsort(records["launch_ns"][launched], kind="stable")]
        after = np.searchsorted(records["launch_ns"][launched], end)
        np.add.at(took, np.append(launched, -1)[after], end - begin)
    took = took[:-1]
    own, usual = np.zeros((2, len(records)), np.int64)
    after = gaps.after[idle.rows]
    np.maximum.at(own, after[after >= 0], idle.own_ns[after >= 0])
    np.maximum.at(usual, after[after >= 0], idle.usual_ns[after >= 0])
    rows = np.flatnonzero(took > own)
    return rows, usual[rows] + took[rows] - own[rows]


def _loader(overview: Overview, how: str, loading_ns: int) -> str:
    """The call that makes a loader with as many workers as load in the rest of the time what one loads now, and one more."""
    number = min(-(-loading_ns // max(overview.division.wall_ns - loading_ns, 1)) + 1, _MOST_WORKERS)
    workers = "..." if how == "several" else str(number)  # how many it has is not known
    pinned = "pin_memory=True, " if overview.division.on_gpu else ""
    return f"DataLoader(..., num_workers={workers}, {pinned}persistent_workers=True, prefetch_factor=4)"
