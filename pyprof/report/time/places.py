"""Idle time and where the host was in it -> for each cause the places of its time, as deep as the capture shows them.

A gap that a cause takes half of is placed whole, in the proportions in which its places share it. What is not placed is told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import summed
from pyprof.columns.types import Floats, Ints
from pyprof.model.host import PLACE_KINDS, Whereabouts
from pyprof.report.time.causes import Idle
from pyprof.report.time.division import Division

FUNCTION = re.compile(r"(?s)(?P<file>.+?)\((?P<line>\d+)\): (?P<name>.*)")
"""The name of a place that is a function of Python."""
_MOST_OF = 0.8  # of a place's time: it is the place inside that has so much


class HostPlace(NamedTuple):
    """A range, function, op or API call. whole_ns: with what is inside of it; number: how often it was open; inside_of: places
    around it, outermost first."""

    kind: str
    name: str
    own_ns: int
    whole_ns: int
    number: int
    inside_of: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class HostPlaces:
    """The places of some idle time. total_ns: all of it, over all devices; own_ns, number: of each place of the tree."""

    tree: Whereabouts
    total_ns: int
    own_ns: Ints
    number: Ints

    @cached_property
    def whole_ns(self) -> Ints:
        """Time of each place with what is inside of it."""
        whole = self.own_ns.copy()
        for node in range(len(whole) - 1, -1, -1):
            if self.tree.node_parent[node] >= 0:
                whole[self.tree.node_parent[node]] += whole[node]
        return whole

    @property
    def placed_ns(self) -> int:
        """How much of the time has a place."""
        return int(self.own_ns.sum())

    def deepest(self) -> HostPlace | None:
        """The place in which most of the time is spent, and none inside of it has nearly all of that; None if no place has half
        of the time."""
        parent, whole = np.array(self.tree.node_parent, np.int64), self.whole_ns
        node, left = -1, float(self.total_ns)
        while len(inside := np.flatnonzero(parent == node)):
            best = int(inside[np.argmax(whole[inside])])
            if whole[best] <= (_MOST_OF if node >= 0 else 0.5) * left:
                break
            node, left = best, float(whole[best])
        return None if node < 0 else self.place(node)

    def place(self, node: int) -> HostPlace:
        """One place of the tree."""
        tree, around, at = self.tree, list[str](), self.tree.node_parent[node]
        while at >= 0:
            around.insert(0, tree.names[tree.node_name[at]])
            at = tree.node_parent[at]
        kind, name = PLACE_KINDS[tree.node_kind[node]], tree.names[tree.node_name[node]]
        own, whole, number = (int(column[node]) for column in (self.own_ns, self.whole_ns, self.number))
        return HostPlace(kind, name, own, whole, number, tuple(around))

    def by_name(self) -> list[HostPlace]:
        """Every place by its name, with what is around the first of them, the one with most time of its own first."""
        keys: dict[tuple[int, int], HostPlace] = {}
        for node in np.flatnonzero(self.whole_ns).tolist():
            found, key = self.place(node), (self.tree.node_kind[node], self.tree.node_name[node])
            nested = found.name in found.inside_of  # of a place inside of itself the time counts once
            before = keys.get(key, found._replace(own_ns=0, whole_ns=0, number=0))
            keys[key] = before._replace(
                own_ns=before.own_ns + found.own_ns, whole_ns=before.whole_ns + (0 if nested else found.whole_ns),
                number=before.number + found.number,
            )  # fmt: skip
        return sorted(keys.values(), key=lambda one: (-one.own_ns, -one.whole_ns, one.name))


def host_places(division: Division, idle: Idle, tree: Whereabouts, cause: str | None = None) -> HostPlaces:
    """The places of the time of one cause, or of all idle time."""
    gaps, every = idle.gaps, np.arange(len(idle.gaps))
    rows, own = (every, gaps.time_ns) if cause is None else idle.rows_of(cause)
    total = int(own.sum())
    most = own * 2 >= gaps.time_ns[rows]
    rows, own = rows[most], own[most]
    share = own / np.maximum(gaps.time_ns[rows], 1)
    at = _times_of(tree, division.pids[gaps.device[rows]], gaps.start_ns[rows], gaps.end_ns[rows])
    weight: Floats = np.zeros(len(tree.pid))
    np.add.at(weight, at[at >= 0], share[at >= 0])
    time, node = np.array(tree.time, np.int64), np.array(tree.node, np.int64)
    used = weight[time] > 0
    spent = np.floor(np.array(tree.ns, np.int64)[used] * weight[time[used]]).astype(np.int64)
    count = np.array(tree.number, np.int64)[used]
    nodes = len(tree.node_name)
    return HostPlaces(tree, total, summed(node[used], spent, nodes), summed(node[used], count, nodes))


def _times_of(tree: Whereabouts, pid: Ints, begin: Ints, end: Ints) -> Ints:
    """The time of the tree that each gap is, -1 none."""
    columns = (tree.pid, pid), (tree.begin_ns, begin), (tree.end_ns, end)
    code = distinct_rows(*(np.concatenate([np.array(one, np.int64), other]) for one, other in columns)).inverse
    known, asked = np.split(code, [len(tree.pid)])
    at = np.full(int(code.max(initial=0)) + 1, -1, np.int64)
    at[known] = np.arange(len(known))
    found: Ints = at[asked]
    return found
