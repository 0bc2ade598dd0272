"""Records -> net.dict: one line a record, each both a JSON object and a Python dict literal.

The original's 19 keys come first with their old meaning, for the kernel's own stack; an unknown integer among them is "na".
Our keys follow, without those that are unknown. Lines are joined from pieces of text made once per distinct value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby, pairwise, repeat
from typing import Any, NamedTuple

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.hardware.names import short_name
from pyprof.model.calltext import call_text
from pyprof.model.records import COLUMNS, GPU_NUMBERS, KEYS, PHASES, POOLED, Records
from pyprof.model.trace import COPY_KINDS, ActivityKind
from pyprof.parse.records.netdict.original import Sequences, json_text

Members = dict[str, Any]
_ROWS = 1 << 16  # rows of a chunk, the most whose text is in memory


class _Pieces:
    """Pieces of lines that many records share."""

    def __init__(self, records: Records) -> None:
        self.records = records
        names = {code: records.strings[code] for code in distinct_values(records["name"]).tolist()}
        self.begin = {code: f'{{"kShortName": {json_text(short_name(name))}, "kDuration": ' for code, name in names.items()}
        self.name = {code: json_text(name) for code, name in names.items()}
        self.stacks: list[Members] = [
            {
                **{key: json_text(getattr(stack, name)) for key, name in _OF_STACK.items()},
                "ranges": json_text(stack.ranges) if stack.ranges else None,
                "open": 1 if stack.open else None,
            }
            for stack in records.stacks
        ]
        self.head = [_members({key: stack[key] for key in _OF_STACK}) + ", " for stack in self.stacks]
        self.calls = [*(json_text(call_text(call)) for call in records.calls), None]
        self.gpus: list[str | None] = []
        for gpu in records.gpus:
            cc = {} if gpu.cc is None else {"cc": "{}.{}".format(*gpu.cc)}
            numbers = {key: getattr(gpu, key) for key in GPU_NUMBERS if getattr(gpu, key) > 0}
            self.gpus.append(json_text({"name": gpu.name, **cc, **numbers}))
        self.gpus.append(None)
        self.engine_steps = [*(json_text(asdict(step)) for step in records.engine_steps), None]

    def where(self, rows: slice) -> list[str]:
        """The text of each row from tid to phase."""

        def piece(values: list[int]) -> str:
            tid, device, stream, name, kind, phase, *sizes = values
            places = {"tid": tid, "device": device, "stream": stream}
            known = {key: value if value >= 0 else '"na"' for key, value in places.items()}
            shapes = {"grid": sizes[:3] if sizes[0] >= 0 else [], "block": sizes[3:] if sizes[3] >= 0 else []}
            codes = {"kind": f'"{ActivityKind.NAMES[kind]}"', "phase": f'"{(*PHASES, "na")[phase]}"'}
            return _members({**known, **shapes, "kLongName": self.name[name], **codes})

        return self._each(rows, ("tid", "device", "stream", "name", "kind", "phase", *_GRID, *_BLOCK), piece)

    def numbers(self, rows: slice, keys: Sequence[str]) -> list[str]:
        """The text of integers that many records share; unknown ones are left out."""
        columns = [OPTIONAL[key].column for key in keys]
        return self._each(rows, columns, lambda values: _members({k: v for k, v in zip(keys, values, strict=True) if v >= 0}))

    def ops(self, rows: slice) -> list[str]:
        """The text of each row from copykind to the end of the line."""
        columns = ("kind", "copykind", "call", "own", "inner", "scope", "by_time", "stack", "gpu", "engine_step")
        return self._each(rows, columns, self._ops)

    def _ops(self, values: list[int]) -> str:
        kind, copykind, call, own, inner, scope, by_time, stack, gpu, engine_step = values
        ours, of_call = self.stacks[stack], self.stacks[scope]
        moved = ours["layer"] != of_call["layer"] or ours["trace"] != of_call["trace"]
        members = {
            "copykind": f'"{COPY_KINDS.get(copykind, "other")}"' if kind == ActivityKind.MEMCPY else None,
            "call": self.calls[call],
            "own": self.calls[own] if own != call else None,
            "inner": self.calls[inner],
            "opLayer": of_call["layer"] if moved else None,
            "opTrace": of_call["trace"] if moved else None,
            "byTime": 1 if by_time else None,
            "ranges": ours["ranges"],
            "open": ours["open"],
            "gpu": self.gpus[gpu],
            "engineStep": self.engine_steps[engine_step],
        }
        return _members(members) + "}\n"

    def _each(self, rows: slice, columns: Sequence[str], piece: Callable[[list[int]], str]) -> list[str]:
        """The piece of each row, made once per distinct row of the columns."""
        found = distinct_rows(*(self.records[name][rows] for name in columns))
        pieces = list(map(piece, found.columns.T.tolist()))
        return [pieces[code] for code in found.inverse.tolist()]


def _members(values: Members) -> str:
    """Members of a JSON object as text, each after a comma. Values are JSON text or integers; None is left out."""
    return "".join([f', "{key}": {value}' for key, value in values.items() if value is not None])


_OF_STACK = {"layer": "layer", "trace": "trace", "reprMarkers": "reprs", "marker": "marker"}


class Field(NamedTuple):
    """An integer key: its column; shared: thousands of lines have the same value, which is then read once for all."""

    column: str
    shared: bool


_GRID, _BLOCK = (tuple(f"{kind}_{axis}" for axis in "xyz") for kind in ("grid", "block"))
# Columns that a line does not hold as an optional integer.
_OTHERWISE = {
    "kind", "dur_ns", "tid", "device", "stream", "name", *_GRID, *_BLOCK, "copykind", "dir", "phase", "seq", "sub", "by_time",
    *POOLED,
}  # fmt: skip
_FIRST = ("start_ns", "pid", "rank", "corr", "launch_ns", "launch_dur_ns", "instance", "fwd_instance")
_THEN = ("step", "recomputed", "regs", "smem_bytes", "bytes", "graph_node")
_SHARED = ("pid", "rank", "step", "recomputed", "regs", "smem_bytes")
_IN_ORDER = (*_FIRST, *_THEN, *(name for name in COLUMNS if name not in {*_OTHERWISE, *_FIRST, *_THEN}))
# Our optional integer keys, in the order of the line. A column added to Records is written last and read from each line.
OPTIONAL = {KEYS.get(name, name): Field(name, name in _SHARED) for name in _IN_ORDER}
# The other keys: ALWAYS in every line, SOMETIMES left out if unknown.
ALWAYS = {
    "kShortName": "short name of the kernel",
    "kDuration": "time of the kernel, in ns",
    "layer": "named layers, outermost first; without named layers the user's ranges",
    "trace": "source lines of the call, outermost first",
    "reprMarkers": "printed modules",
    "marker": "texts of the Python-level calls",
    "seqMarker": "ranges with a sequence number: name, seq = number",
    "seqId": "the chosen sequence number, a list of one or none",
    "subSeqId": "n-th kernel in a row of one op and sequence number",
    "altSeqId": "the other sequence numbers",
    "dir": "fprop or bprop; na if unknown",
    "mod": "modules of the Python-level calls",
    "op": "their ops; without such calls the ops of the sequence markers",
    "tid": "launching thread",
    "device": "device ordinal",
    "stream": "stream",
    "grid": "blocks: x, y, z",
    "block": "threads of a block: x, y, z",
    "kLongName": "whole name of the kernel",
    "kind": "kernel, graph, memcpy, memset or cpu",
    "phase": f"{', '.join(PHASES)}; na if unknown",
}
SOMETIMES = {
    "copykind": "direction of a copy",
    "call": "the op with its arguments; of a backward kernel its forward's",
    "own": "the op of the instance itself, if it is not `call`",
    "inner": "innermost dispatcher op or autograd function",
    "opLayer": "layers of `call`, if they differ from the kernel's own",
    "opTrace": "source lines of `call`, if they differ from the kernel's own",
    "byTime": "1: its ranges are those open on the main thread at that time",
    "ranges": "the user's ranges, with their domains",
    "open": "1: some of the ranges were never closed",
    "engineStep": "the serving engine's step: its process, number, begin and end in ns, and the texts of its annotations",
    "gpu": "the device: name, cc, sms, clock_hz, dram_bytes_per_s, l2_bytes, memory_bytes; unknown ones are left out",
}


def keys_text() -> str:
    """One line for each key: name and meaning. For `pyprof help formats`."""
    meanings = ALWAYS | SOMETIMES | {key: COLUMNS[field.column][1] for key, field in OPTIONAL.items()}
    return "\n".join(f"    {key:14} {meaning}" for key, meaning in meanings.items())


def lines(records: Records) -> Iterator[str]:
    """The lines of all records, each ending in a newline."""
    pieces, sequences = _Pieces(records), Sequences(records.stacks)
    for begin in range(0, len(records), _ROWS):
        yield from _some_lines(records, slice(begin, min(begin + _ROWS, len(records))), pieces, sequences)


def _some_lines(records: Records, rows: slice, pieces: _Pieces, sequences: Sequences) -> Iterator[str]:
    offsets = records.seq_offsets[rows.start : rows.stop + 1]
    numbers = records.seq_numbers[offsets[0] : offsets[-1]].tolist()
    each = (numbers[low:high] for low, high in pairwise((offsets - offsets[0]).tolist()))
    name, duration, stack, direction, seq, sub = (
        records[name][rows].tolist() for name in ("name", "dur_ns", "stack", "dir", "seq", "sub")
    )
    parts: list[Iterable[str]] = [
        map(pieces.begin.__getitem__, name),
        map(str, duration),
        map(pieces.head.__getitem__, stack),
        map(sequences.text, stack, direction, each, seq, sub),
        pieces.where(rows),
    ]
    for shared, keys in groupby(OPTIONAL, lambda key: OPTIONAL[key].shared):
        if shared:
            parts.append(pieces.numbers(rows, list(keys)))
            continue
        for key in keys:
            values = records[OPTIONAL[key].column][rows]
            if (values < 0).all():
                parts.append(repeat("", len(values)))
            else:
                parts.append([f', "{key}": {value}' if value >= 0 else "" for value in values.tolist()])
    yield from map("".join, zip(*parts, pieces.ops(rows), strict=True))
