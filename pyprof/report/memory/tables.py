"""A memory report -> the tables of `pyprof memory`: what is in use, each block, each segment, each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pyprof.columns.types import Ints
from pyprof.model.allocations import AllocationSite
from pyprof.report.memory.device import BY, DeviceMemory
from pyprof.report.memory.kinds import KINDS
from pyprof.report.memory.pieces import gaps
from pyprof.report.memory.report import MemoryReport
from pyprof.tables.screen import Cells, joined, listed
from pyprof.tables.table import Fractions, Header, Integers, Table

_DEVICE = Header("device", "Device", "GPU and its ordinal, or CPU", width=6)
_FILE = Header("file", "File", "recording", width=8)


def _bytes(key: str, text: str) -> Header:
    return Header(key, f"{key.replace('_', ' ').title().replace(' ', '')}(B)", text, "B", 10)


def _whole(values: Sequence[int | None]) -> Integers:
    """A column of integers; None is unknown."""
    known = np.array([0 if one is None else one for one in values], np.int64)
    return Integers(known, np.array([one is None for one in values], np.bool_))


def peak(reports: Sequence[MemoryReport]) -> Table:
    """Memory in use at the peak (or at --at) by kind, layer, op, line, phase."""
    rows = [
        (report.file, device.name, what, one, device.total)
        for report in reports for device in report.devices for what in BY for one in device.by(what)
    ]  # fmt: skip
    sizes = np.array([one.bytes for *_, one, _ in rows], np.int64)
    share = 100 * sizes / np.array([total or np.nan for *_, total in rows], np.float64)
    return _named("peak", reports, [file for file, *_ in rows], [
        (_DEVICE, listed(device for _, device, *_ in rows)),
        (Header("by", "By", "kind, layer, op, line or phase", width=5), listed(what for _, _, what, *_ in rows)),
        (Header("name", "Name", "which", width=12, grow=True), listed(one.name for *_, one, _ in rows)),
        (_bytes("bytes", "in use, by requested size where it is known"), Integers.known(sizes)),
        (Header("blocks", "Blocks", "how many", width=6), _whole([one.blocks for *_, one, _ in rows])),
        (Header("share", "Share(%)", "of all that is in use", "%", share=True), Fractions.not_nan(share, 1)),
    ])  # fmt: skip


def blocks(reports: Sequence[MemoryReport]) -> Table:
    """Each block in use at the peak (or at --at), the largest first."""
    parts, files = list[_Blocks](), list[str]()
    for report in reports:
        for device in report.devices:
            parts.append(_Blocks(device))
            files += [report.file] * len(parts[-1].rows)

    def column(key: str) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *(getattr(one, key) for one in parts)])

    sites = [site for one in parts for site in one.sites]
    texts = (
        ("kind", "Kind", "what it is for", [KINDS[code] for code in column("kind").tolist()]),
        ("phase", "Phase", "in which it was allocated", [one.phase for one in sites]),
        ("layer", "Layer", "that allocated it", [one.layer for one in sites]),
        ("op", "Op", "that allocated it", [one.op for one in sites]),
        ("line", "Line", "source line that allocated it", [one.line for one in sites]),
        ("metadata", "Metadata", "what the program set with _set_memory_metadata", [one.metadata for one in sites]),
    )
    return _named("blocks", reports, files, [
        (_DEVICE, listed(one.device.name for one in parts for _ in one.rows)),
        (Header("address", "Address", "in memory", width=14), listed(hex(one) for one in column("address").tolist())),
        (_bytes("bytes", "as the program asked for it, where that is known"), Integers.known(column("size"))),
        (_bytes("allocated", "as the allocator gave it, at least"), Integers.known(column("allocated"))),
        *((Header(key, head, said, width=6, grow=key in ("layer", "line")), listed(of)) for key, head, said, of in texts),
        (Header("step", "Step", "in which it was allocated", width=4), Integers.from_zero(column("step"))),
        (Header("event", "Event", "that allocated it; unknown: an older one", width=6), Integers.from_zero(column("alloc"))),
        (Header("free", "FreedBy", "event after which it is free; unknown: none of the recording", width=6),
         Integers.from_zero(column("free"))),
        (Header("start", "Start(ns)", "when it was allocated", "ns", 10, moment=True), Integers.from_zero(column("start_ns"))),
        (Header("stream", "Stream", "of the allocation", width=6), Integers.from_zero(column("stream"))),
    ])  # fmt: skip


class _Blocks:
    """Columns of a device's blocks in use at its moment."""

    def __init__(self, device: DeviceMemory) -> None:
        lives, trace, count = device.replay.lives, device.trace, len(device.trace)
        rows = np.flatnonzero(device.alive)
        rows = rows[np.argsort(-lives.size[rows], kind="stable")]
        self.device, self.rows = device, rows.tolist()
        self.sites = [trace.places[code] if code >= 0 else AllocationSite() for code in lives.place[rows].tolist()]
        self.kind, self.size, self.allocated, self.stream = (
            column[rows] for column in (device.kind, lives.size, lives.allocated, lives.stream)
        )
        self.address, self.alloc = lives.address[rows].astype(np.int64), lives.alloc[rows]
        self.free = np.where(lives.free[rows] < count, lives.free[rows], -1)
        self.step, self.start_ns = (np.append(column, -1)[self.alloc] for column in (trace.step, trace.time_ns))


def segments(reports: Sequence[MemoryReport]) -> Table:
    """Each segment that the allocator holds at the end, with what is free in it."""
    rows, files = list[tuple[str, str, int, int, int, str, str, int, int, int]](), list[str]()
    for report in reports:
        for device in report.devices:
            held, inside = device.trace.segments, device.trace.blocks
            if held is None:
                continue
            order = np.argsort(held.address, kind="stable")
            _, length, of = gaps(held.address[order], held.size[order], inside.address, inside.size)
            used, count, most = np.zeros((3, len(order)), np.int64)
            np.add.at(used, inside.segment, inside.size)
            np.add.at(count, inside.segment, 1)
            np.maximum.at(most, order[of], length)
            for at in order.tolist():
                pool = "private" if held.private[at] else "shared"
                kind = "expandable" if held.expandable[at] else "large" if held.large[at] else "small"
                size = int(held.size[at])
                rows.append((device.name, hex(int(held.address[at])), size, int(used[at]), size - int(used[at]), kind, pool,
                             int(most[at]), int(count[at]), int(held.stream[at])))  # fmt: skip
                files.append(report.file)
    return _named("segments", reports, files, [
        (_DEVICE, listed([one[0] for one in rows])),
        (Header("address", "Address", "in memory", width=14), listed([one[1] for one in rows])),
        (_bytes("bytes", "its size"), _whole([one[2] for one in rows])),
        (_bytes("used", "in blocks that are not free"), _whole([one[3] for one in rows])),
        (_bytes("free", "cached and free"), _whole([one[4] for one in rows])),
        (_bytes("largest_free", "largest free piece"), _whole([one[7] for one in rows])),
        (Header("blocks", "Blocks", "that are not free", width=6), _whole([one[8] for one in rows])),
        (Header("kind", "Kind", "small: for blocks up to 1 MiB; large; expandable", width=6), listed([one[5] for one in rows])),
        (Header("pool", "Pool", "private: as of a CUDA graph, not for others", width=7), listed([one[6] for one in rows])),
        (Header("stream", "Stream", "for blocks of this stream", width=6), _whole([one[9] for one in rows])),
    ])  # fmt: skip


def steps(reports: Sequence[MemoryReport]) -> Table:
    """Each step that the recording marks: its peak, and what stayed."""
    rows = [(report.file, device.name, one) for report in reports for device in report.devices for one in device.steps]
    found = [one for *_, one in rows]
    return _named("steps", reports, [file for file, *_ in rows], [
        (_DEVICE, listed(name for _, name, _ in rows)),
        (Header("step", "Step", "number of the step", width=4), _whole([one.number for one in found])),
        (_bytes("peak", "most in use, by requested size where it is known"), _whole([one.peak_bytes for one in found])),
        (_bytes("allocated", "allocated then"), _whole([one.allocated_bytes for one in found])),
        (_bytes("reserved", "held by the allocator then"), _whole([one.reserved_bytes for one in found])),
        (_bytes("end", "in use at its end"), _whole([one.end_bytes for one in found])),
        (_bytes("stayed", "more in use at its end than at its begin"), _whole([one.stayed_bytes for one in found])),
        (Header("line", "Line", "where most of what it allocated and never freed comes from", width=12, grow=True),
         listed(one.stayed_line for one in found)),
        (_bytes("line_bytes", "allocated there and never freed"), _whole([one.stayed_line_bytes for one in found])),
    ])  # fmt: skip


def _named(name: str, reports: Sequence[MemoryReport], files: Sequence[str], cells: Cells) -> Table:
    """A table; of several recordings with their names first."""
    return joined(name, [(_FILE, listed(files)), *cells] if len(reports) > 1 else cells)


TABLES: dict[str, Callable[[Sequence[MemoryReport]], Table]] = {
    "peak": peak, "blocks": blocks, "segments": segments, "steps": steps,
}  # fmt: skip
