"""A profile of Triton's Proton (`.hatchet`, a tree of scopes) -> Measured.

A row is a kernel below one scope: its time, its number of launches, and the FLOPs and bytes that its launch hook gave
(`flops16`, `bytes`), which are what its author says, not what was counted. Must not know what metrics mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO

import msgspec

from pyprof.errors import InputError
from pyprof.parse.sources.measured.launches import Builder, Launch, Measured

_TIME = "time (ns)"
_MOST_DEEP = 900  # scopes


class _Frame(msgspec.Struct):
    name: str = ""


class _Node(msgspec.Struct):
    frame: _Frame = msgspec.field(default_factory=_Frame)
    metrics: dict[str, float | str | None] = msgspec.field(default_factory=dict)
    children: list[_Node] = msgspec.field(default_factory=list)


def is_hatchet(head: str) -> bool:
    """Whether a text, by its beginning, is a tree of Proton."""
    text = head.lstrip()
    return text.startswith("[") and '"children"' in text and '"frame"' in text


def read_hatchet(stream: IO[bytes], name: str) -> Measured:
    """All kernels of a tree. Raises InputError where it is damaged or holds none."""
    try:
        parts = msgspec.json.decode(stream.read(), type=list[msgspec.Raw])
        root = msgspec.json.decode(parts[0], type=_Node)
        devices = msgspec.json.decode(parts[1], type=dict[str, dict[str, dict[str, object]]]) if len(parts) > 1 else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise InputError(f"{name}: not a profile of Proton: {error}", "write it again: triton.profiler.finalize()") from error
    builder = Builder()
    for scopes, node in _kernels(root):
        row = builder.launch(_launch(node, scopes, devices))
        time = node.metrics.get(_TIME)
        builder.put(row, "gpu__time_duration.sum", time if isinstance(time, (int, float)) else None)
        for metric, value in node.metrics.items():
            if metric.startswith(("flops", "bytes")) and isinstance(value, (int, float)):
                builder.put(row, metric, float(value))
    found = builder.built("proton", {})
    if not len(found):
        raise InputError(f"{name}: no kernel ran in it", "see that proton.start() came before the first launch")
    return found


def _kernels(root: _Node) -> Iterator[tuple[tuple[str, ...], _Node]]:
    """The nodes that ran on a device, each with the scopes around it, outermost first; the root is no scope."""
    pending: list[tuple[tuple[str, ...], _Node]] = [((), child) for child in reversed(root.children)]
    while pending:
        scopes, node = pending.pop()
        if not node.children and "device_id" in node.metrics:
            yield scopes, node
        inside = (*scopes, node.frame.name)[-_MOST_DEEP:]
        pending += [(inside, child) for child in reversed(node.children)]


def _launch(node: _Node, scopes: tuple[str, ...], devices: Mapping[str, Mapping[str, Mapping[str, object]]]) -> Launch:
    ordinal, kind = str(node.metrics.get("device_id", "")), str(node.metrics.get("device_type", ""))
    arch = str(devices.get(kind, {}).get(ordinal, {}).get("arch", ""))
    cc = f"{arch[:-1]}.{arch[-1]}" if arch.isdecimal() and len(arch) > 1 else ""
    count = node.metrics.get("count")
    times = int(count) if isinstance(count, (int, float)) and 0 <= count < 1 << 53 else 1
    device = int(ordinal) if ordinal.isdecimal() and len(ordinal) < 9 else -1
    return Launch(node.frame.name, device=device, cc=cc, scopes=scopes, times=times)
