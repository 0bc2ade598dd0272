"""Cells of a page -> sums by op, as the page's script computes them. Unknown is None.

A sum counts as known if more than 99 % of the time has a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyprof.prof.sums import LEAST_KNOWN


@dataclass(eq=False)
class Sum:
    """Cells with the same op, shapes and phase. cell: the one with most time; other fields: sums of the cells' columns."""

    cell: int
    kernels: int = 0
    calls: int = 0
    time_ns: int = 0
    flops: int = 0
    flops_ns: int = 0
    bytes: int = 0
    bytes_ns: int = 0
    lost_ns: int = 0
    lost_of_ns: int = 0
    least_ns: int = 0
    tensor_ns: Counter[str | None] = field(default_factory=Counter)
    bounds_ns: Counter[str] = field(default_factory=Counter)

    def add(self, cells: Mapping[str, Any], at: int) -> None:
        """Add one more cell."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + cells[name][at])
        ns = cells["time_ns"][at]
        self.tensor_ns[cells["verdicts"][cells["verdict"][at]][0]] += ns
        bound = cells["bounds"][cells["bound"][at]]
        if bound is not None:
            self.bounds_ns[bound] += ns

    def _known(self, value: int, ns: int) -> int | None:
        return value if ns > LEAST_KNOWN * self.time_ns or (not self.time_ns and not ns and value > 0) else None

    @property
    def known_flops(self) -> int | None:
        """FLOPs, None if too little is known."""
        return self._known(self.flops, self.flops_ns)

    @property
    def known_bytes(self) -> int | None:
        """Least bytes, None if too little is known."""
        return self._known(self.bytes, self.bytes_ns)

    @property
    def known_lost_ns(self) -> int | None:
        """Time above the roofline, None if too little is known."""
        return self._known(self.lost_ns, self.lost_of_ns)

    @property
    def flops_per_s(self) -> float | None:
        """FLOPs per second, None if unknown."""
        return None if self.known_flops is None or not self.flops_ns else self.flops / self.flops_ns * 1e9

    @property
    def bytes_per_s(self) -> float | None:
        """Least bytes per second, None if unknown."""
        return None if self.known_bytes is None or not self.bytes_ns else self.bytes / self.bytes_ns * 1e9

    @property
    def flops_per_byte(self) -> float | None:
        """Arithmetic intensity."""
        return None if self.known_flops is None or not self.known_bytes else self.flops / self.bytes

    @property
    def peak(self) -> float | None:
        """The least time of its roofline over its time."""
        return None if self.known_lost_ns is None or not self.lost_of_ns else self.least_ns / self.lost_of_ns

    @property
    def bound(self) -> str | None:
        """The limit of most of its time."""
        return max(self.bounds_ns, key=lambda name: self.bounds_ns[name]) if self.bounds_ns else None

    @property
    def tensor(self) -> str | None:
        """Use of Tensor Cores: yes, no, the share of time that did, na; None if it could not."""
        yes, no = self.tensor_ns["1"], self.tensor_ns["0"]
        if not yes and not no:
            return "na" if self.tensor_ns[None] else None
        return "yes" if not no else "no" if not yes else f"{100 * yes / (yes + no):.0f} %"


_SUMMED = (
    "kernels", "calls", "time_ns", "flops", "flops_ns", "bytes", "bytes_ns", "lost_ns", "lost_of_ns", "least_ns",
)  # fmt: skip


def sums_by_op(cells: Mapping[str, Any]) -> list[Sum]:
    """One sum per op, shapes and phase, most time first."""
    found: dict[tuple[int, int], Sum] = {}
    for at, key in enumerate(zip(cells["op"], cells["phase"], strict=True)):
        found.setdefault(key, Sum(at)).add(cells, at)
    return sorted(found.values(), key=lambda one: -one.time_ns)


def layer_path(cells: Mapping[str, Any], node: int) -> str:
    """The full name of a layer; "" for the whole program."""
    parent, name = cells["layers"]["parent"], cells["layers"]["name"]
    text = ""
    while node > 0:
        text, node = name[node] + text, parent[node]
    return text[1:]
