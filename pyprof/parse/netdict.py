"""Records <-> net.dict: one line a record, each both a JSON object and a Python dict literal.

The original's 19 keys come first and mean what they meant, for the kernel's own stack. Ours follow; a key that has nothing to
say is left out, an unknown integer among the 19 is "na". Lines are put together from pieces that are made once for each
distinct thing. Reading takes our lines and the original's (tuples, single quotes); nothing is ever evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyprof.hardware.names import normalise, short_name
from pyprof.opcall import sound_text
from pyprof.parse.calltext import call_text
from pyprof.parse.legacy import legacy_view
from pyprof.parse.records import DIRECTIONS, PHASES, GpuInfo, Records, Stack
from pyprof.parse.trace import COPY_KINDS, ActivityKind

__all__ = ["OPTIONAL", "lines"]


def _json(value: Any) -> str:
    """JSON that is a Python literal as well: no escapes that Python reads differently, no lone surrogates."""
    return sound_text(json.dumps(value, ensure_ascii=False, allow_nan=False))


class _Pieces:
    """Parts of lines that are the same for many records."""

    def __init__(self, records: Records) -> None:
        self.records = records
        strings = records.strings
        self.name_of: dict[int, tuple[str, str]] = {}
        for code in set(records["name"].tolist()):
            name = strings[code]
            self.name_of[code] = (_json(short_name(normalise(name))), _json(name))
        self.stack_head = [self._head(stack) for stack in records.stacks]
        self.ranges = [
            (f', "ranges": {_json(list(s.ranges))}' if s.ranges else "") + (', "open": 1' if s.open else "")
            for s in records.stacks
        ]
        self.scope = [f', "opLayer": {_json(list(s.layer))}, "opTrace": {_json(list(s.trace))}' for s in records.stacks]
        self.call = [_json(call_text(call)) for call in records.calls]
        self.gpu = [_gpu(gpu) for gpu in records.gpus]
        self.plain: dict[int, str] = {}

    @staticmethod
    def _head(stack: Stack) -> str:
        return (
            f'"layer": {_json(list(stack.layer))}, "trace": {_json(list(stack.trace))}, '
            f'"reprMarkers": {_json(list(stack.reprs))}, "marker": {_json(list(stack.marker))}'
        )

    def sequence(self, row: int, code: int, seq: int, sub: int, direction: str) -> str:
        """From seqMarker to op; without sequence numbers the same for every record of a stack but `sub` and `dir`."""
        view = legacy_view(self.records.stacks[code], self.records.numbers(row), seq)
        return (
            f'"seqMarker": {_json(view.seq_marker)}, "seqId": {view.seq_id}, "subSeqId": {sub}, "altSeqId": {view.alt_seq_id}, '
            f'"dir": "{direction}", "mod": {_json(view.mod)}, "op": {_json(view.op)}'
        )


def _gpu(gpu: GpuInfo) -> str:
    known: dict[str, Any] = {"name": gpu.name}
    if gpu.cc is not None:
        known["cc"] = f"{gpu.cc[0]}.{gpu.cc[1]}"
    known |= {key: getattr(gpu, key) for key in ("sms", "clock_hz", "dram_bytes_per_s", "l2_bytes") if getattr(gpu, key) > 0}
    return f', "gpu": {_json(known)}'


# Our integer keys: key in the line -> column; left out where unknown.
OPTIONAL = {
    "start": "start_ns", "pid": "pid", "rank": "rank", "corr": "corr", "launch": "launch_ns", "instance": "instance",
    "fwd_instance": "fwd_instance", "step": "step", "regs": "regs", "smem": "smem_bytes", "bytes": "bytes",
    "graph_node": "graph_node",
}  # fmt: skip


def lines(records: Records) -> Iterator[str]:
    """The lines of all records, each ending in a newline."""
    pieces = _Pieces(records)
    column = {name: values.tolist() for name, values in records.columns.items()}
    for row in range(len(records)):
        yield _line(row, column, pieces)


def _line(row: int, column: dict[str, list[int]], pieces: _Pieces) -> str:
    short, name = pieces.name_of[column["name"][row]]
    stack, direction = column["stack"][row], DIRECTIONS[column["dir"][row]]
    seq = pieces.sequence(row, stack, column["seq"][row], column["sub"][row], direction)
    parts = [
        f'{{"kShortName": {short}, "kDuration": {column["dur_ns"][row]}, {pieces.stack_head[stack]}, {seq}, '
        f'"tid": {_known(column["tid"][row])}, "device": {_known(column["device"][row])}, '
        f'"stream": {_known(column["stream"][row])}, "grid": {_shape("grid", column, row)}, '
        f'"block": {_shape("block", column, row)}, "kLongName": {name}, '
        f'"kind": "{ActivityKind.NAMES[column["kind"][row]]}", "phase": "{PHASES[column["phase"][row]]}"'
    ]
    parts += [f', "{key}": {column[source][row]}' for key, source in OPTIONAL.items() if column[source][row] >= 0]
    if column["kind"][row] == ActivityKind.MEMCPY:
        parts.append(f', "copykind": "{COPY_KINDS.get(column["copykind"][row], "other")}"')
    call, own, inner = column["call"][row], column["own"][row], column["inner"][row]
    if call >= 0:
        parts.append(f', "call": {pieces.call[call]}')
    if own >= 0 and own != call:
        parts.append(f', "own": {pieces.call[own]}')
    if inner >= 0:
        parts.append(f', "inner": {pieces.call[inner]}')
    if column["scope"][row] != stack:
        parts.append(pieces.scope[column["scope"][row]])
    if column["by_time"][row]:
        parts.append(', "byTime": 1')
    parts.append(pieces.ranges[stack])
    if column["gpu"][row] >= 0:
        parts.append(pieces.gpu[column["gpu"][row]])
    return "".join(parts) + "}\n"


def _known(value: int) -> str:
    return str(value) if value >= 0 else '"na"'


def _shape(kind: str, column: dict[str, list[int]], row: int) -> str:
    x, y, z = (column[f"{kind}_{axis}"][row] for axis in "xyz")
    return f"[{x}, {y}, {z}]" if x >= 0 else "[]"
