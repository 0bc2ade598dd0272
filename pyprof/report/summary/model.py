"""What a summary holds: the figures of one capture's window, or means over the ranks of a job, and their JSON.

Times are in ns, shares from 0 to 1, unknown is None. `to_dict` gives what the JSON holds, under the same names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from pyprof.report.advice.base import Advice
from pyprof.report.time.overview import Window

SCHEMA = 1


class Device(NamedTuple):
    """One device. name: None unknown; pid, number: its process and ordinal, -1 for a CPU; peaks: FLOP/s, dense, by precision;
    dram_bytes_per_s: its memory's; busy_ns, idle_ns: of the window, by cause."""

    name: str | None
    pid: int
    number: int
    peaks: Mapping[str, float]
    dram_bytes_per_s: float | None
    busy_ns: int
    idle_ns: Mapping[str, int]


@dataclass(frozen=True)
class Slowest:
    """The slowest step. index: from 0 among the steps; part: what took longer than in the median step, (`idle`, a cause) or
    (`busy`, a phase), None where none explains half of the difference; more_ns: by so much; op: that takes most of it."""

    index: int
    time_ns: int
    part: tuple[str, str] | None
    op: str | None
    more_ns: int | None


@dataclass(frozen=True)
class StepTimes:
    """The complete steps. kind: what marks them; name: of the first; spread_ns: from the shortest to the longest."""

    kind: str
    name: str
    count: int
    median_ns: int
    spread_ns: int
    min_ns: int
    max_ns: int
    times_ns: tuple[int, ...]
    slowest: Slowest | None


class Share(NamedTuple):
    """Kernels (ops on a CPU) that have a name in common, None: that have none. time_ns: their sum; share: of all kernels' time;
    calls: executions of ops; flops, lost_ns: None where too little of them is known; inside: one level further down."""

    name: str | None
    time_ns: int
    share: float
    calls: int
    kernels: int
    flops: int | None
    lost_ns: int | None
    inside: tuple[Share, ...] = ()


class LostPlace(NamedTuple):
    """A place where time is lost against the roofline. layer: numbers in which the places differ are `*`; bound: what limits
    most of it; time_ns: of its kernels; lost_ns: of that, what lies above the roofline; peak: least time over time."""

    layer: str | None
    op: str | None
    shape: str | None
    bound: str
    kernels: int
    time_ns: int
    lost_ns: int
    peak: float


class Utilised(NamedTuple):
    """How well the peaks were used. mfu, hfu: None where products are not known, mfu_min, hfu_min: what they are at least then;
    flops: of all that is known; flops_per_busy_s, flops_per_wall_s: their rates; peak_flops_per_s: what MFU is held against,
    the sum over the devices; precisions: their shares of the products' time."""

    mfu: float | None
    hfu: float | None
    mfu_min: float | None
    hfu_min: float | None
    flops: int | None
    flops_per_busy_s: float | None
    flops_per_wall_s: float | None
    peak_flops_per_s: float | None
    precisions: Mapping[str, float]


class StepPhase(NamedTuple):
    """The steps of a serving engine that are of one step phase. phase: prefill, decode, mixed, idle, None where the engine does
    not say it, or `outside`: kernels launched outside of all steps; steps: how many; requests, tokens, generated: of all steps
    together, what they computed and what requests that generate got (see `pyprof help terms`); time_ns: of the steps, each to
    the begin of the next; tokens_per_s: in decode the generated ones, else those computed, over time_ns; kernels, kernel_ns:
    launched in the steps; flops, bytes: of the kernels of which they are known, whose shares of kernel_ns are known_flops and
    known_bytes; peak: share of the roofline, least time over time of the kernels of which both are known."""

    phase: str | None
    steps: int
    requests: int | None
    tokens: int | None
    generated: int | None
    time_ns: int | None
    tokens_per_s: float | None
    kernels: int
    kernel_ns: int
    flops: int | None
    bytes: int | None
    known_flops: float | None
    known_bytes: float | None
    peak: float | None


class Known(NamedTuple):
    """Shares of the kernels' time of which these are known."""

    op: float
    shapes: float
    flops: float
    bytes: float


@dataclass(frozen=True)
class Figures:
    """One capture, or a job (ranks: how many; then wall_ns and its parts, steps and utilisation are means over them).

    wall_ns = busy_ns + the sum of idle_ns, exactly, and busy_ns is the sum of busy: means over the devices; None and empty
    where the records do not say when they ran. kernel_ns, phases, ops, layers, families, lost are sums over the kernels of all
    devices (without a device, over the ops on the CPU). around: the layer that is around `layers`, empty where none is.
    """

    file: str
    source: str
    on_gpu: bool
    window: Window
    devices: tuple[Device, ...]
    wall_ns: int | None
    busy_ns: int | None
    busy: Mapping[str, int]
    idle_ns: Mapping[str, int]
    kernel_ns: int
    kernels: int
    steps: StepTimes | None
    utilised: Utilised
    phases: Mapping[str, int]
    ops: tuple[Share, ...]
    layers: tuple[Share, ...]
    around: str
    families: tuple[Share, ...]
    lost: tuple[LostPlace, ...]
    known: Known | None
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    ranks: int | None = None
    step_phases: tuple[StepPhase, ...] = ()

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, None where it is not known."""
        return self.utilised.mfu

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilisation, None where it is not known."""
        return self.utilised.hfu

    @property
    def flops(self) -> int | None:
        """FLOPs of all records of which they are known."""
        return self.utilised.flops

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds: numbers, texts, None, lists and dicts."""
        found: dict[str, Any] = json.loads(self.json())
        return found

    def json(self) -> str:
        """The JSON of `pyprof summary --format json`."""
        names: dict[str, Any] = {
            "schema": SCHEMA, "file": self.file, "source": self.source, "ranks": self.ranks, "window": self.window._asdict(),
            "wall_ns": self.wall_ns, "busy_ns": self.busy_ns, "idle_ns": dict(self.idle_ns), "busy": dict(self.busy),
            "kernel_ns": self.kernel_ns, "kernels": self.kernels, "devices": _dicts(self.devices),
            "steps": None if self.steps is None else asdict(self.steps), "step_phases": _dicts(self.step_phases),
            **self.utilised._asdict(), "phases": dict(self.phases),
        }  # fmt: skip
        for level in ("ops", "layers", "families"):
            singular = {"families": "family"}.get(level, level[:-1])
            names[level] = [_share(one, singular, level) for one in getattr(self, level)]
        advice = [{**one._asdict(), "places": [place._asdict() for place in one.places]} for one in self.advice]
        known = None if self.known is None else self.known._asdict()
        names |= {"lost": _dicts(self.lost), "known": known, "advice": advice, "notes": list(self.notes)}
        return json.dumps(names, ensure_ascii=False, indent=1, allow_nan=False)


def _dicts(some: Iterable[Device | StepPhase | LostPlace]) -> list[dict[str, Any]]:
    return [one._asdict() for one in some]


def _share(one: Share, name: str, inside: str) -> dict[str, Any]:
    fields = one._asdict()
    found = {name: fields.pop("name"), **fields}
    del found["inside"]
    if inside == "layers":
        found[inside] = [_share(each, name, "") for each in one.inside]
    return found
