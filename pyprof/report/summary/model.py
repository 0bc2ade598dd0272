"""The figures of a summary (one capture's window, or means over the ranks of a job) -> their JSON.

Times are in ns, shares from 0 to 1, unknown is None. The JSON has the same names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import msgspec

from pyprof.model.host import MemoryPeak
from pyprof.model.records import Unseen
from pyprof.report.advice.base import Advice
from pyprof.report.run_steps import RunPart, RunSteps
from pyprof.report.time.overview import Window

SCHEMA = 1
ALONE = ("warmup", "record_cuda")  # kinds of advice beside which there is no other


class Device(NamedTuple):
    """One device. name: None unknown; pid, number: process and ordinal, -1 for a CPU; peaks: dense FLOP/s by precision;
    dram_bytes_per_s: memory bandwidth; busy_ns: in the window, None where its work was not recorded; idle_ns: in the window, by
    cause."""

    name: str | None
    pid: int
    number: int
    peaks: Mapping[str, float]
    dram_bytes_per_s: float | None
    busy_ns: int | None
    idle_ns: Mapping[str, int]


@dataclass(frozen=True)
class Slowest:
    """The slowest step. index: from 0; part: what took longer than in the median step, (`idle`, cause) or (`busy`, phase),
    None if no part explains half of the difference; more_ns: how much longer; op: the op with most of that."""

    index: int
    time_ns: int
    part: tuple[str, str] | None
    op: str | None
    more_ns: int | None


@dataclass(frozen=True)
class StepTimes:
    """The complete steps. kind: what marks them; name: the first one's; spread_ns: the longest less the shortest."""

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
    """Kernels (on a CPU: ops) under one name; None: without a name. share: of all kernels' time; calls: executions of ops;
    flops, lost_ns: None if too little is known, flops_min and lost_ns_min are lower bounds then; known: the share of its time
    whose FLOPs are known, None if it took none; inside: one level deeper; cls: of a layer, None unknown or in its name."""

    name: str | None
    time_ns: int
    share: float
    calls: int
    kernels: int
    flops: int | None
    flops_min: int | None
    lost_ns: int | None
    lost_ns_min: int | None
    known: float | None
    inside: tuple[Share, ...] = ()
    cls: str | None = None


class LostPlace(NamedTuple):
    """A place that loses time against the roofline. layer: `*` stands for numbers that differ; bound: what limits most of its
    time; time_ns: of its kernels; lost_ns: the part above the roofline; peak: least possible time over time."""

    layer: str | None
    op: str | None
    shape: str | None
    bound: str
    kernels: int
    time_ns: int
    lost_ns: int
    peak: float


class Utilised(NamedTuple):
    """How well the peaks were used. mfu, hfu: None if products are unknown; flops, their rates over busy and wall time: None if
    too little is known; each has a lower bound then, under its name with _min; peak_flops_per_s: the peak that MFU is relative
    to, summed over devices; precisions: shares of the products' time."""

    mfu: float | None
    hfu: float | None
    mfu_min: float | None
    hfu_min: float | None
    flops: int | None
    flops_min: int | None
    flops_per_busy_s: float | None
    flops_per_busy_s_min: float | None
    flops_per_wall_s: float | None
    flops_per_wall_s_min: float | None
    peak_flops_per_s: float | None
    precisions: Mapping[str, float]


class StepPhase(NamedTuple):
    """The steps of a serving engine in one step phase.

    phase: prefill, decode, mixed, idle, None if the engine does not tell, or `outside` for kernels launched outside of steps;
    requests, tokens, generated: summed over the steps (see `pyprof help terms`); time_ns: of the steps, each up to the begin of
    the next; tokens_per_s: generated tokens in decode, else computed ones; kernels, kernel_ns: launched in the steps; flops,
    bytes: None if too little is known, flops_min and bytes_min are lower bounds then; known_flops, known_bytes: shares of
    kernel_ns where they are known; peak: share of the roofline that kernels with both reach.
    """

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
    flops_min: int | None
    bytes: int | None
    bytes_min: int | None
    known_flops: float | None
    known_bytes: float | None
    peak: float | None


class RangeTimes(NamedTuple):
    """All ranges of one name inside those around them (joined by `:`). time_ns: of all; min_ns, max_ns: of one."""

    name: str | None
    number: int
    time_ns: int
    min_ns: int
    max_ns: int


class Known(NamedTuple):
    """Shares of the kernels' time with a known op, shapes, FLOPs and bytes."""

    op: float
    shapes: float
    flops: float
    bytes: float


@dataclass(frozen=True)
class Figures:
    """The figures of one capture or job. ranks: of a job; wall_ns with its parts, steps and utilisation are means over them.

    wall_ns is exactly busy_ns plus the sum of idle_ns, and busy_ns the sum of busy: means over the devices, None and empty if
    the records have no times, or do not show the device's work (`unseen` says why). kernel_ns, phases, ops, layers, families
    and lost are sums over the kernels of all devices (without a device: the ops on the CPU). around: the layer around most of
    `layers`, or "", and its class; by_kernel: time by kernel, where most of it has no op; ranges: of a capture that holds
    nothing else; run: the steps of the whole run, None without its ledger; memory: the peak of each device, where allocations
    were recorded.
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
    around_cls: str | None
    families: tuple[Share, ...]
    lost: tuple[LostPlace, ...]
    known: Known | None
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    ranks: int | None = None
    step_phases: tuple[StepPhase, ...] = ()
    unseen: Unseen | None = None
    ranges: tuple[RangeTimes, ...] = ()
    run: RunSteps | None = None
    memory: tuple[MemoryPeak, ...] = ()
    by_kernel: tuple[Share, ...] = ()

    def a_step(self, time_ns: int | None) -> int | None:
        """The part of one step of a time of the window; None if there are not several."""
        return None if time_ns is None or self.steps is None or self.steps.count < 2 else time_ns // self.steps.count

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, None if unknown."""
        return self.utilised.mfu

    @property
    def without_mfu(self) -> str:
        """Why there is neither MFU nor a bound of it, '' where the device's work is not known."""
        if self.unseen is not None or self.wall_ns is None:
            return ""
        peak = "--gpu NAME gives the peak" if self.on_gpu else "pyprof doctor --calibrate measures the peak"
        if self.on_gpu and self.devices and not any(one.peaks for one in self.devices):
            return peak
        known = self.utilised.precisions and (self.flops or self.utilised.flops_min)
        return peak if known else "no matrix product is known"

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilisation, None if unknown."""
        return self.utilised.hfu

    @property
    def flops(self) -> int | None:
        """All FLOPs, None if too few are known."""
        return self.utilised.flops

    def to_dict(self) -> dict[str, Any]:
        """The JSON as dicts and lists."""
        found: dict[str, Any] = json.loads(self.json())
        return found

    def json(self) -> str:
        """The JSON of `pyprof summary --format json`."""
        names: dict[str, Any] = {
            "schema": SCHEMA, "file": self.file, "source": self.source, "ranks": self.ranks, "window": self.window._asdict(),
            "unseen": None if self.unseen is None else self.unseen._asdict(),
            "wall_ns": self.wall_ns, "busy_ns": self.busy_ns, "idle_ns": dict(self.idle_ns), "busy": dict(self.busy),
            "kernel_ns": self.kernel_ns, "kernels": self.kernels, "devices": _dicts(self.devices),
            "steps": None if self.steps is None else asdict(self.steps), "step_phases": _dicts(self.step_phases),
            **self.utilised._asdict(), "phases": dict(self.phases),
        }  # fmt: skip
        for level in ("ops", "layers", "families"):
            singular = {"families": "family"}.get(level, level[:-1])
            names[level] = [_share(one, singular, level) for one in getattr(self, level)]
        advice = [one.to_dict() for one in self.advice]
        known = None if self.known is None else self.known._asdict()
        names |= {"lost": _dicts(self.lost), "known": known, "advice": advice, "notes": list(self.notes)}
        names["run"] = None if self.run is None else {**self.run._asdict(), "over": _dicts(self.run.over)}
        memory = [msgspec.structs.asdict(one) for one in self.memory]
        names |= {
            "ranges": _dicts(self.ranges),
            "memory": [{key: peak[key] for key in peak if key != "held"} for peak in memory],
        }
        return json.dumps(names, ensure_ascii=False, indent=1, allow_nan=False)


def _dicts(some: Iterable[Device | StepPhase | LostPlace | RangeTimes | RunPart]) -> list[dict[str, Any]]:
    return [one._asdict() for one in some]


def _share(one: Share, name: str, inside: str) -> dict[str, Any]:
    fields = one._asdict()
    cls = fields.pop("cls")
    found = {name: fields.pop("name"), **fields}
    del found["inside"]
    if name == "layer":
        found["class"] = cls
    if inside == "layers":
        found[inside] = [_share(each, name, "") for each in one.inside]
    return found
