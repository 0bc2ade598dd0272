"""Records <-> net.dict: one line a record, each both a JSON object and a Python dict literal.

The original's 19 keys come first and mean what they meant, for the kernel's own stack. Ours follow; a key of which nothing is
known is left out, an unknown integer among the 19 is "na". Lines are put together from pieces that are made once for each
distinct thing. Reading takes our lines and the original's (tuples, single quotes); nothing is ever evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows, distinct_values
from pyprof.hardware.names import short_name
from pyprof.parse.records.calltext import call_text
from pyprof.parse.records.netdict.original import Sequences, json_text
from pyprof.parse.records.records import COLUMNS, KEYS, PHASES, POOLED, GpuInfo, Records, Stack
from pyprof.parse.sources.trace import COPY_KINDS, ActivityKind

__all__ = ["OPTIONAL", "Field", "keys_text", "lines"]


_ROWS = 1 << 16  # whose pieces are in memory at once


class _Pieces:
    """Parts of lines that are the same for many records."""

    def __init__(self, records: Records) -> None:
        self.records = records
        strings = records.strings
        self.name_of = {code: _name(strings[code]) for code in distinct_values(records["name"]).tolist()}
        self.head = [self._head(stack) for stack in records.stacks]
        self.ranges = [
            (f', "ranges": {json_text(list(s.ranges))}' if s.ranges else "") + (', "open": 1' if s.open else "")
            for s in records.stacks
        ]
        self.scope = [f', "opLayer": {json_text(list(s.layer))}, "opTrace": {json_text(list(s.trace))}' for s in records.stacks]
        self.call = [json_text(call_text(call)) for call in records.calls]
        self.gpu = [_gpu(gpu) for gpu in records.gpus]

    @staticmethod
    def _head(stack: Stack) -> str:
        return (
            f', "layer": {json_text(list(stack.layer))}, "trace": {json_text(list(stack.trace))}, '
            f'"reprMarkers": {json_text(list(stack.reprs))}, "marker": {json_text(list(stack.marker))}, '
        )

    def where(self, rows: slice) -> list[str]:
        """From tid to phase."""
        columns = ("tid", "device", "stream", *_GRID, *_BLOCK, "name", "kind", "phase")
        return self._each(rows, columns, self._where)

    def _where(self, values: list[int]) -> str:
        tid, device, stream, *shape, name, kind, phase = values
        return (
            f', "tid": {_known(tid)}, "device": {_known(device)}, "stream": {_known(stream)}, "grid": {_shape(shape[:3])}, '
            f'"block": {_shape(shape[3:])}, "kLongName": {self.name_of[name][1]}, '
            f'"kind": "{ActivityKind.NAMES[kind]}", "phase": "{PHASES[phase]}"'
        )

    def numbers(self, rows: slice, keys: Sequence[str]) -> list[str]:
        """Integer keys that are the same for many records; those left out that are not known."""
        columns = [OPTIONAL[key].column for key in keys]
        return self._each(rows, columns, lambda values: "".join(map(_optional, keys, values)))

    def ops(self, rows: slice) -> list[str]:
        """From copykind to the end of the line."""
        columns = ("kind", "copykind", "call", "own", "inner", "scope", "by_time", "stack", "gpu")
        return self._each(rows, columns, self._ops)

    def _each(self, rows: slice, columns: Sequence[str], piece: Callable[[list[int]], str]) -> list[str]:
        """The piece of each row, made once for each distinct row of the columns."""
        found = distinct_rows(*(self.records[name][rows] for name in columns))
        pieces = list(map(piece, found.columns.T.tolist()))
        return [pieces[code] for code in found.inverse.tolist()]

    def _ops(self, values: list[int]) -> str:
        kind, copykind, call, own, inner, scope, by_time, stack, gpu = values
        parts = []
        if kind == ActivityKind.MEMCPY:
            parts.append(f', "copykind": "{COPY_KINDS.get(copykind, "other")}"')
        if call >= 0:
            parts.append(f', "call": {self.call[call]}')
        if own >= 0 and own != call:
            parts.append(f', "own": {self.call[own]}')
        if inner >= 0:
            parts.append(f', "inner": {self.call[inner]}')
        if self.scope[scope] != self.scope[stack]:
            parts.append(self.scope[scope])
        if by_time:
            parts.append(', "byTime": 1')
        parts.append(self.ranges[stack])
        if gpu >= 0:
            parts.append(self.gpu[gpu])
        return "".join(parts) + "}\n"


def _name(name: str) -> tuple[str, str]:
    return f'{{"kShortName": {json_text(short_name(name))}, "kDuration": ', json_text(name)


def _gpu(gpu: GpuInfo) -> str:
    known: dict[str, object] = {"name": gpu.name}
    if gpu.cc is not None:
        known["cc"] = f"{gpu.cc[0]}.{gpu.cc[1]}"
    known |= {key: getattr(gpu, key) for key in ("sms", "clock_hz", "dram_bytes_per_s", "l2_bytes") if getattr(gpu, key) > 0}
    return f', "gpu": {json_text(known)}'


class Field(NamedTuple):
    """An integer of a line: its column; shared: whether thousands of lines have the same, so that it is read once for them."""

    column: str
    shared: bool


_GRID, _BLOCK = (tuple(f"{kind}_{axis}" for axis in "xyz") for kind in ("grid", "block"))
# Columns that a line holds in another way than as an integer that is left out where unknown.
_OTHERWISE = {
    "kind", "dur_ns", "tid", "device", "stream", "name", *_GRID, *_BLOCK, "copykind", "dir", "phase", "seq", "sub", "by_time",
    *POOLED,
}  # fmt: skip
_FIRST = ("start_ns", "pid", "rank", "corr", "launch_ns", "launch_dur_ns", "instance", "fwd_instance")
_THEN = ("step", "recomputed", "regs", "smem_bytes", "bytes", "graph_node")
_SHARED = ("pid", "rank", "step", "recomputed", "regs", "smem_bytes")
_IN_ORDER = (*_FIRST, *_THEN, *(name for name in COLUMNS if name not in {*_OTHERWISE, *_FIRST, *_THEN}))
# Our integer keys in the order of the line, left out where unknown. A column that is new in Records is written last and
# read from each line.
OPTIONAL = {KEYS.get(name, name): Field(name, name in _SHARED) for name in _IN_ORDER}
_LAST_KEYS = tuple(OPTIONAL)[len(_FIRST) :]
_MEANINGS = {
    "kShortName": "short name of the kernel",
    "kDuration": "time of the kernel, in ns",
    "layer": "named layers, outermost first; where none was named the user's ranges",
    "trace": "source lines of the call, outermost first",
    "reprMarkers": "printed modules",
    "marker": "texts of the Python-level calls",
    "seqMarker": "ranges with a sequence number: name, seq = number",
    "seqId": "the sequence number that counts, a list of one or none",
    "subSeqId": "n-th kernel in a row of one op and sequence number",
    "altSeqId": "the other sequence numbers",
    "dir": "fprop or bprop",
    "mod": "modules of the Python-level calls",
    "op": "their ops; without any those of the sequence markers",
    "tid": "launching thread",
    "device": "device ordinal",
    "stream": "stream",
    "grid": "blocks: x, y, z",
    "block": "threads of a block: x, y, z",
    "kLongName": "whole name of the kernel",
    "kind": "kernel, graph, memcpy, memset or cpu",
    "phase": "forward, backward, optimizer, communication or copy",
    "copykind": "direction of a copy",
    "call": "the op with its arguments; of a backward kernel its forward's",
    "own": "the op of the instance itself, where it is not `call`",
    "inner": "innermost dispatcher op or autograd function",
    "opLayer": "layers of `call`, where they are not the kernel's own",
    "opTrace": "source lines of `call`, where they are not the kernel's own",
    "byTime": "1: its ranges are those open on the main thread at that time",
    "ranges": "the user's ranges, with their domains",
    "open": "1: some of those were never closed",
    "gpu": "the device: name, cc, sms, clock_hz, dram_bytes_per_s, l2_bytes as far as known",
}


def keys_text() -> str:
    """One line for each key: name and meaning. For `pyprof help formats`."""
    meanings = _MEANINGS | {key: COLUMNS[field.column][1] for key, field in OPTIONAL.items()}
    return "\n".join(f"    {key:14} {meaning}" for key, meaning in meanings.items())


def lines(records: Records) -> Iterator[str]:
    """The lines of all records, each ending in a newline."""
    pieces, sequences = _Pieces(records), Sequences(records.stacks)
    for begin in range(0, len(records), _ROWS):
        yield from _some_lines(records, slice(begin, min(begin + _ROWS, len(records))), pieces, sequences)


def _some_lines(records: Records, rows: slice, pieces: _Pieces, sequences: Sequences) -> Iterator[str]:
    offsets = records.seq_offsets[rows.start : rows.stop + 1]
    numbers = records.seq_numbers[offsets[0] : offsets[-1]].tolist()
    bounds = (offsets - offsets[0]).tolist()
    own = (
        "name", "dur_ns", "stack", "dir", "seq", "sub", "start_ns", "corr", "launch_ns", "launch_dur_ns", "instance",
        "fwd_instance",
    )  # fmt: skip
    columns = (records[name][rows].tolist() for name in own)
    shared = (pieces.where(rows), pieces.numbers(rows, ("pid", "rank")))
    rest = (pieces.numbers(rows, _LAST_KEYS), pieces.ops(rows))
    launched = ("start_ns", "corr", "launch_ns", "launch_dur_ns", "instance")
    whole = np.logical_and.reduce([records[column][rows] >= 0 for column in launched]).tolist()  # as nearly all are
    head, name_of, sequence = pieces.head, pieces.name_of, sequences.text
    for row, low, high, where, process, size, ops, known in zip(
        zip(*columns, strict=True), bounds[:-1], bounds[1:], *shared, *rest, whole, strict=True
    ):
        name, duration, stack, direction, seq, sub, start, corr, launch, launch_dur, instance, forward = row
        if known:
            numbered = (
                f', "start": {start}{process}, "corr": {corr}, "launch": {launch}, "launchdur": {launch_dur}, '
                f'"instance": {instance}'
            )
        else:
            numbered = (
                f"{_optional('start', start)}{process}{_optional('corr', corr)}{_optional('launch', launch)}"
                f"{_optional('launchdur', launch_dur)}{_optional('instance', instance)}"
            )
        served = f', "fwd_instance": {forward}' if forward >= 0 else ""
        yield (
            f"{name_of[name][0]}{duration}{head[stack]}{sequence(stack, direction, numbers[low:high], seq, sub)}{where}"
            f"{numbered}{served}{size}{ops}"
        )


def _optional(key: str, value: int) -> str:
    return f', "{key}": {value}' if value >= 0 else ""


def _known(value: int) -> str:
    return str(value) if value >= 0 else '"na"'


def _shape(sizes: list[int]) -> str:
    return str(sizes) if sizes[0] >= 0 else "[]"
