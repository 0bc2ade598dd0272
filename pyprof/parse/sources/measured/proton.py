"""A profile of Triton's Proton (`.hatchet`, a tree of scopes, or `.chrome_trace`, kernel by kernel) -> Measured.

A row is a kernel, in a tree with the number of its launches below one scope, its time, and the FLOPs and bytes from its launch
hook (`flops16`, `bytes`), which its author claims; they are not counted. A scope with such figures is a row as well, with the
time of the kernels below it. Knows nothing of what metrics mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import IO

import msgspec

from pyprof.errors import InputError
from pyprof.model.trace import integer
from pyprof.parse.sources.measured.launches import Builder, Launch, Measured

_TIME, _TIME_METRIC = "time (ns)", "gpu__time_duration.sum"
_MOST_DEEP = 900  # scopes
_ROOT = "ROOT"


class _Frame(msgspec.Struct):
    name: str = ""


class _ScopeNode(msgspec.Struct):
    frame: _Frame = msgspec.field(default_factory=_Frame)
    metrics: dict[str, object] = msgspec.field(default_factory=dict)
    children: list[_ScopeNode] = msgspec.field(default_factory=list)


def is_hatchet(head: str) -> bool:
    """Whether a text with this beginning is a tree of Proton."""
    text = head.lstrip()
    return text.startswith("[") and '"children"' in text and '"frame"' in text


def read_hatchet(stream: IO[bytes], name: str) -> Measured:
    """All kernels of a tree. Raises InputError if it is damaged or holds none."""
    try:
        parts = msgspec.json.decode(stream.read(), type=list[msgspec.Raw])
        root = msgspec.json.decode(parts[0], type=_ScopeNode)
        devices = msgspec.json.decode(parts[1], type=dict[str, dict[str, dict[str, object]]]) if len(parts) > 1 else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise InputError(f"{name}: not a profile of Proton: {error}", "write it again: triton.profiler.finalize()") from error
    rows = _Rows()
    for scopes, node in _nodes(root):
        if "device_id" in node.metrics:
            rows.add_kernel(_launch(node, scopes, devices), _number(node.metrics.get(_TIME)), node.metrics)
        else:
            rows.add_scope((*scopes, node.frame.name), node.metrics)
    return rows.built(name)


def _nodes(root: _ScopeNode) -> Iterator[tuple[tuple[str, ...], _ScopeNode]]:
    """All nodes, each with the scopes around it, outermost first; the root is no scope."""
    pending: list[tuple[tuple[str, ...], _ScopeNode]] = [((), child) for child in reversed(root.children)]
    while pending:
        scopes, node = pending.pop()
        yield scopes, node
        inside = (*scopes, node.frame.name)[-_MOST_DEEP:]
        pending += [(inside, child) for child in reversed(node.children)]


def _launch(node: _ScopeNode, scopes: tuple[str, ...], devices: Mapping[str, Mapping[str, Mapping[str, object]]]) -> Launch:
    ordinal, kind = str(node.metrics.get("device_id", "")), str(node.metrics.get("device_type", ""))
    arch = re.fullmatch(r"(\d+)(\d)[a-z]?", str(devices.get(kind, {}).get(ordinal, {}).get("arch", "")))
    count = _number(node.metrics.get("count"))
    times = int(count) if count is not None and 0 <= count < 1 << 53 else 1
    return Launch(
        node.frame.name, device=integer(ordinal), cc=f"{arch[1]}.{arch[2]}" if arch else "", scopes=scopes, times=times
    )


# ---------------------------------------------------------------------------------------------- .chrome_trace


class _Arguments(msgspec.Struct):
    name: str = ""
    call_stack: list[str] = msgspec.field(default_factory=list)
    metrics: dict[str, object] = msgspec.field(default_factory=dict)


class _Event(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ph: str = ""
    ts: float = 0
    dur: float = 0
    tid: int | str = -1
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _Events(msgspec.Struct):
    traceEvents: list[_Event]


def is_chrome_trace(head: str) -> bool:
    """Whether a text with this beginning is a trace of Proton, and not one of times inside kernels, which Proton writes too."""
    return re.match(r'\s*\{\s*"displayTimeUnit"\s*:\s*"us"', head) is not None and '"call_stack"' in head


def read_chrome_trace(stream: IO[bytes], name: str) -> Measured:
    """All kernels of a trace, in order of begin. Raises InputError if it is damaged or holds none.

    Older versions write a line of JSON for each stream.
    """
    data = stream.read()
    try:
        try:
            parts = [msgspec.json.decode(data, type=_Events)]
        except msgspec.DecodeError:
            parts = msgspec.json.Decoder(_Events).decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{name}: not a trace of Proton: {error}", "write it again: triton.profiler.finalize()") from error
    events = [event for part in parts for event in part.traceEvents]
    lanes = {event.tid: event.args.name for event in events if event.ph == "M" and event.name == "thread_name"}
    rows = _Rows()
    for event in sorted(events, key=lambda event: event.ts):
        stack = tuple(event.args.call_stack)
        stack = stack[1:] if stack[:1] == (_ROOT,) else stack
        if event.cat == "kernel" and event.ph == "X":
            stream_of = re.search(r"(\d+)$", lanes.get(event.tid, str(event.tid)))
            launch = Launch(event.name, stream=integer(stream_of[1]) if stream_of else -1, scopes=stack[:-1][-_MOST_DEEP:])
            rows.add_kernel(launch, event.dur * 1e3, event.args.metrics)
        elif event.args.metrics:
            rows.add_scope(stack, event.args.metrics)
    return rows.built(name)


# ---------------------------------------------------------------------------------------------- both


class _Rows:
    """Kernels as they come, and then the scopes with figures of their own."""

    def __init__(self) -> None:
        self._builder = Builder()
        self._kernels: list[tuple[tuple[str, ...], int, float | None]] = []
        self._scopes: dict[tuple[str, ...], dict[str, float]] = {}

    def add_kernel(self, launch: Launch, time_ns: float | None, metrics: Mapping[str, object]) -> None:
        row = self._builder.launch(launch)
        self._kernels.append((launch.scopes, launch.times, time_ns))
        for metric, value in ((_TIME_METRIC, time_ns), *_given(metrics).items()):
            self._builder.put(row, metric, value)

    def add_scope(self, scope: tuple[str, ...], metrics: Mapping[str, object]) -> None:
        """Figures of a scope, summed over all times that it was entered."""
        for metric, value in _given(metrics).items():
            sums = self._scopes.setdefault(scope, {})
            sums[metric] = sums.get(metric, 0.0) + value

    def built(self, name: str) -> Measured:
        if not self._kernels:
            raise InputError(f"{name}: no kernel ran in it", "see that proton.start() came before the first launch")
        for scope, sums in self._scopes.items():
            inside = [(times, time) for scopes, times, time in self._kernels if scopes[: len(scope)] == scope]
            launch = Launch(scope[-1], scopes=scope[:-1], times=sum(times for times, _ in inside), is_scope=True)
            row = self._builder.launch(launch)
            known = [time for _, time in inside if time is not None]
            self._builder.put(row, _TIME_METRIC, sum(known) if known and len(known) == len(inside) else None)
            for metric, value in sums.items():
                self._builder.put(row, metric, value)
        return self._builder.built("proton", {})


def _given(metrics: Mapping[str, object]) -> dict[str, float]:
    """FLOPs and bytes; a trace has them as texts."""
    found = {metric: _number(value) for metric, value in metrics.items() if metric.startswith(("flops", "bytes"))}
    return {metric: value for metric, value in found.items() if value is not None}


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except (ValueError, OverflowError):
        return None
