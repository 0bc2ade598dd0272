"""Records -> before which of them the device waited for the launch: all that had begun there ended before the call returned.

A kernel that is queued behind others costs its launch nothing, however long the call took. Some records are looked at after
others, in order of begin: of what ran before no more is kept than when each device was done with it. No costs, no peaks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.sorting import ascending
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind
from pyprof.tables.table import PART_ROWS

_NEVER = np.iinfo(np.int64).min
_LAUNCHED = ("launch_ns", "launch_dur_ns", "graph_node")


def waited_for_launch(records: Records, whole: Records) -> Bools:
    """For each record whether its process's device, all streams together, was done with all before when the launch returned.

    whole: what the records were chosen from, which shows all that the device did. False where it is not known: without a launch
    of its own (the kernels of a CUDA graph have one in common), or with nothing before it on the device.
    """
    result = np.zeros(len(records), np.bool_)
    begin, start = _InOrder(whole["start_ns"]), _InOrder(records["start_ns"])
    busy_until: dict[tuple[int, int], int] = {}
    done = 0
    for at in range(0, len(whole), PART_ROWS):
        end = min(at + PART_ROWS, len(whole))
        # What begins no later than the last of these has all that begins before it among these and those before.
        upto = len(records) if end == len(whole) else start.count(begin.at(end - 1))
        rows = start.rows(done, upto)
        some = {name: records.of_rows(name, rows) for name in (*_LAUNCHED, "pid", "device", "start_ns")}
        ran = {name: whole.of_rows(name, begin.rows(at, end)) for name in ("pid", "device", "kind", "start_ns", "dur_ns")}
        result[rows] = _waited(some, ran, busy_until)
        done = upto
        if done == len(records):  # what began later keeps none of them waiting
            break
    return result


class _InOrder:
    """The rows of a column in ascending order; it is in order already, but of several captures in one table."""

    def __init__(self, values: Ints) -> None:
        self._order = None if ascending(values) else np.argsort(values, kind="stable")
        self._values = values if self._order is None else values[self._order]

    def at(self, place: int) -> int:
        """The value at a place of the order."""
        return int(self._values[place])

    def count(self, value: int) -> int:
        """How many are no larger."""
        return int(np.searchsorted(self._values, value, "right"))

    def rows(self, begin: int, end: int) -> slice | Ints:
        """The rows at some places of the order."""
        return slice(begin, end) if self._order is None else self._order[begin:end]


def _waited(records: dict[str, Array], ran: dict[str, Array], busy_until: dict[tuple[int, int], int]) -> Bools:
    """The same of some records. ran: what began up to the last of them; busy_until: of each process and device when it was done
    with all before these, brought up to date."""
    result = np.zeros(len(records["pid"]), np.bool_)
    known = (records["launch_ns"] >= 0) & (records["launch_dur_ns"] >= 0) & (records["graph_node"] < 0)
    on_device = (ran["kind"] != ActivityKind.CPU) & (ran["start_ns"] >= 0)
    for device, there, chosen in _by_device(ran, on_device, records, known):
        begin, before = ran["start_ns"][there], busy_until.get(device, _NEVER)
        # Of each place among what began here when all before it had ended.
        ended = np.maximum.accumulate(np.append(before, begin + ran["dur_ns"][there]))
        until = ended[np.searchsorted(begin, records["start_ns"][chosen], "left")]
        returned = records["launch_ns"][chosen] + records["launch_dur_ns"][chosen]
        result[chosen] = (until != _NEVER) & (until <= returned)
        busy_until[device] = int(ended[-1])
    return result


def _by_device(
    ran: dict[str, Array], on_device: Bools, records: dict[str, Array], known: Bools
) -> Iterator[tuple[tuple[int, int], slice | Ints, slice | Ints]]:
    """Each process and device with what ran on it, of that which did on any, and with its records, of those that are known."""
    there, mine = (slice(None) if mask.all() else np.flatnonzero(mask) for mask in (on_device, known))
    pids, devices = (np.concatenate([ran[name][there], records[name][mine]]) for name in ("pid", "device"))
    if len(pids) and (pids == pids[0]).all() and (devices == devices[0]).all():
        yield (int(pids[0]), int(devices[0])), there, mine
        return
    (pids, devices), _, code = distinct_rows(pids, devices)
    ran_on, launched_on = np.split(code, [int(on_device.sum())])
    there, mine = np.flatnonzero(on_device), np.flatnonzero(known)
    for number, device in enumerate(zip(pids.tolist(), devices.tolist(), strict=True)):
        yield device, there[ran_on == number], mine[launched_on == number]
