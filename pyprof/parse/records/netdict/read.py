"""Lines of net.dict, ours or the original PyProf's -> Records.

Each line is read as JSON, else as a Python literal; never evaluated. Lines like one that was read are not read again but for
their numbers (`ownlines`). What the original did not write is derived from what it did: op instances from markers and sequence
numbers (altSeqId included), the direction from the thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.errors import InputError
from pyprof.markers import UNREADABLE, Kind, decode, is_backward_name, read_literal
from pyprof.opcall import OpCall, OpRules, sound_text
from pyprof.parse.records.calltext import parse_call_text
from pyprof.parse.records.netdict.ownlines import OwnLines
from pyprof.parse.records.netdict.write import OPTIONAL
from pyprof.parse.records.records import COLUMNS, DIRECTIONS, PHASES, GpuInfo, Records, Stack
from pyprof.parse.sources.trace import COPY_KINDS, ActivityKind, narrowed

__all__ = ["read_lines"]

_COPY_CODE = {name: code for code, name in COPY_KINDS.items()}


def read_lines(lines: Iterable[str], name: str, rules: OpRules) -> Records:
    """Records from the lines of a file called `name`.

    Raises InputError with the number of the first line that is no record.
    """
    reader = _Reader(rules)
    for number, line in reader.own_lines.others(lines):
        if not line or line.isspace():
            continue
        record = _literal(line)
        if not isinstance(record, dict) or ("kShortName" not in record and "kLongName" not in record):
            raise InputError(
                f"{name}: line {number} is not a record: {line.strip()[:60]!r}",
                "give the output of `python -m pyprof.parse`, or the capture itself",
            )
        try:
            reader.add(record)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            raise InputError(
                f"{name}: line {number} is a damaged record ({type(error).__name__}: {error})", "parse the capture again"
            ) from error
    return reader.records()


def _literal(line: str) -> Any:
    """The value of a line, None where it is neither JSON nor a Python literal."""
    for read in (json.loads, read_literal):
        try:
            return read(line.strip())
        except UNREADABLE:
            continue
    return None


_LIMIT = 1 << 63


def _int(value: Any) -> int:
    """A whole number of a record. Raises ValueError or TypeError for anything else, and for one beyond all columns."""
    if type(value) is int and -_LIMIT <= value < _LIMIT:
        return value
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is no whole number")
    number = int(value)
    if not -_LIMIT <= number < _LIMIT:
        raise ValueError("a number beyond 64 bits")
    return number


class _Reader:
    """Collects columns row by row and distinct things in pools."""

    def __init__(self, rules: OpRules) -> None:
        self.rules = rules
        self.out = Records({})
        self.columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        self.lengths: list[int] = []
        self.numbers: list[int] = []
        self.stack_code: dict[Stack, int] = {}
        self.call_code: dict[str, int] = {}
        self.gpu_code: dict[Any, int] = {}
        self.originals: list[int] = []  # of the rows read on their own those that the original wrote
        self.own_lines = OwnLines()
        self.derived = _Original(self)

    def add(self, line: dict[str, Any]) -> None:
        pairs = [marker.rpartition(", seq = ") for marker in line.get("seqMarker", ())]
        numbers = [_int(number) for _, _, number in pairs]
        seq = _int(line["seqId"][0]) if line.get("seqId") else -1
        names = tuple(sound_text(name) for name, _, _ in pairs)
        stack = self._stack(line, names, numbers, seq)
        values = self._plain(line) | {"seq": seq, "stack": stack, "scope": self._scope(line, stack)}
        if "kind" in line:
            values |= {key: self.call(sound_text(str(line[key]))) if key in line else -1 for key in ("call", "own", "inner")}
            if values["own"] < 0:
                values["own"] = values["call"]
            if self.own_lines.learn(values, numbers):
                return
        else:
            self.originals.append(len(self.lengths))
            values |= self.derived.ops(line, names, numbers)
        self.own_lines.leave()
        self.numbers += numbers
        self.lengths.append(len(numbers))
        for name, column in self.columns.items():
            column.append(values[name])

    def _plain(self, line: dict[str, Any]) -> dict[str, int]:
        grid, block = (tuple(line.get(k) or (-1, -1, -1)) for k in ("grid", "block"))
        values = dict.fromkeys(COLUMNS, -1)
        values |= {f"grid_{axis}": _int(n) for axis, n in zip("xyz", grid, strict=True)}
        values |= {f"block_{axis}": _int(n) for axis, n in zip("xyz", block, strict=True)}
        values |= {column: _int(line[key]) for key, column in OPTIONAL.items() if key in line}
        if max(values["instance"], values["fwd_instance"]) >= 1 << 62:
            raise ValueError("no number of an instance")
        values |= {key: _known(line.get(key)) for key in ("tid", "device", "stream")}
        values["name"] = self.out.strings.code(sound_text(str(line.get("kLongName") or line["kShortName"])))
        values["dur_ns"] = _int(line["kDuration"])
        values["sub"] = _known(line.get("subSeqId", 0))
        values["dir"] = DIRECTIONS.index(line["dir"])
        values["kind"] = ActivityKind.NAMES.index(line.get("kind", "kernel"))
        values["phase"] = PHASES.index(line["phase"]) if "phase" in line else values["dir"]
        values["copykind"] = _COPY_CODE.get(line.get("copykind", ""), -1)
        values["by_time"] = _int(line.get("byTime", 0))
        values["gpu"] = self._gpu(line["gpu"]) if "gpu" in line else -1
        return values

    def _stack(self, line: dict[str, Any], names: tuple[str, ...], numbers: list[int], seq: int) -> int:
        marker = _texts(line, "marker")
        backward = [i for i, name in enumerate(names) if numbers[i] == seq and is_backward_name(name)]
        stack = Stack(
            mod=_texts(line, "mod") if marker else (),
            op=_texts(line, "op") if marker else (),
            marker=marker,
            layer=_texts(line, "layer"),
            trace=_texts(line, "trace"),
            reprs=_texts(line, "reprMarkers"),
            seq_names=names,
            backward_at=backward[-1] if backward else -1,
            ranges=_texts(line, "ranges"),
            open=bool(line.get("open")),
        )
        return self._code(stack)

    def _scope(self, line: dict[str, Any], stack: int) -> int:
        if "opLayer" not in line:
            return stack
        return self._code(Stack(layer=_texts(line, "opLayer"), trace=_texts(line, "opTrace")))

    def _code(self, stack: Stack) -> int:
        code = self.stack_code.get(stack)
        if code is None:
            code = self.stack_code[stack] = len(self.out.stacks)
            self.out.stacks.append(stack)
        return code

    def call(self, text: str) -> int:
        code = self.call_code.get(text)
        return self.add_call(text, parse_call_text(text)) if code is None else code

    def add_call(self, text: str, call: OpCall) -> int:
        code = self.call_code.get(text)
        if code is None:
            code = self.call_code[text] = len(self.out.calls)
            self.out.calls.append(call)
        return code

    def _gpu(self, described: dict[str, Any]) -> int:
        key = json.dumps(described, sort_keys=True)
        code = self.gpu_code.get(key)
        if code is None:
            code = self.gpu_code[key] = len(self.out.gpus)
            major, _, minor = str(described.get("cc", "")).partition(".")
            cc = (_int(major), _int(minor)) if major and minor else None
            numbers = (_int(described.get(k, -1)) for k in ("sms", "clock_hz", "dram_bytes_per_s", "l2_bytes"))
            self.out.gpus.append(GpuInfo(sound_text(str(described.get("name", ""))), cc, *numbers))
        return code

    def records(self) -> Records:
        if self.originals:
            self.derived.finish()
        out, taken = self.out, self.own_lines.finish({name: dtype for name, (dtype, _) in COLUMNS.items()})
        out.columns = {}
        for name, (dtype, _) in COLUMNS.items():
            values = narrowed(np.array(self.columns.pop(name), np.int64), dtype)
            out.columns[name] = _merged(taken.own, taken.columns.pop(name, values[:0]), values)
        _renumber(out.columns)
        lengths = _merged(taken.own, taken.lengths, np.array(self.lengths, np.int64))
        out.seq_offsets = np.concatenate([[0], np.cumsum(lengths)])
        out.seq_numbers = _merged(np.repeat(taken.own, lengths), taken.sequence, np.array(self.numbers, np.int64))
        out.source = "original" if self.originals else "dict"
        return out


def _merged(own: npt.NDArray[np.bool_], first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values of the rows that are `own` and of the others, in the order of rows."""
    if not len(second):
        return first
    result = np.empty(len(own), second.dtype)
    result[own], result[~own] = first, second
    return result


def _renumber(columns: dict[str, npt.NDArray[Any]]) -> None:
    """Instances far sparser than the records (lines chosen from a long file, or a number that nobody wrote) are numbered anew
    in their order: others keep arrays by that number."""
    both = np.stack([columns["instance"], columns["fwd_instance"]])
    if both.max(initial=-1) < 1_000_000 + 16 * both.shape[1]:
        return
    known = np.unique(both[both >= 0])
    for name in ("instance", "fwd_instance"):
        columns[name] = np.where(columns[name] >= 0, np.searchsorted(known, columns[name]), -1)


class _Original:
    """What the original's lines leave to be derived."""

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader
        self.instances = 0
        self.last: dict[int, tuple[Any, set[Any], int]] = {}  # tid -> (what the run shares, kernels seen in it, instance)
        self.forward_of: dict[int, tuple[int, int, int]] = {}  # sequence number -> (instance, call, scope)
        # Of each row: its numbers, those of altSeqId, those of its backward functions, whether it has Python-level markers.
        self.rows: list[tuple[list[int], list[int], list[int], bool]] = []

    def ops(self, line: dict[str, Any], names: tuple[str, ...], numbers: list[int]) -> dict[str, int]:
        """instance, call, own and inner of one line; the forward of a backward line is found in `finish`."""
        functions = [name for name in names if is_backward_name(name)]
        markers = [decode(str(text)) for text in line.get("marker", ())]
        calls = [m.call for m in markers if m.kind == Kind.OP and m.call is not None]
        dispatch = [OpCall("aten", n, dispatcher=True, described=False) for n in names if n not in functions]
        call = self._own(calls, dispatch, functions)
        code = -1 if call is None else self._code(call)
        alternatives = [_int(number) for number in line.get("altSeqId", ())]
        running = [number for name, number in zip(names, numbers, strict=True) if is_backward_name(name)]
        self.rows.append((numbers, alternatives, running, bool(calls or line.get("trace"))))
        inner = (
            dispatch[0]
            if dispatch
            else OpCall("autograd", functions[0], dispatcher=True, described=False)
            if functions
            else None
        )
        return {
            "instance": -1 if call is None else self._instance(line, calls, call, bool(functions)),
            "call": code,
            "own": code,
            "inner": -1 if inner is None else self.reader.add_call(f"{inner.name}(...)", inner),
        }

    def _own(self, calls: list[OpCall], dispatch: list[OpCall], functions: list[str]) -> OpCall | None:
        rules = self.reader.rules
        known = [c for c in calls if rules.known(c.name) and not rules.is_structural(c.name)]
        copies = [c for c in calls[-1:] if rules.is_copy(c.name)]
        chosen = copies or known or calls[-1:] or dispatch[:1]
        if not chosen and functions:
            chosen = [OpCall("autograd", functions[0], dispatcher=True, described=False)]
        return chosen[0] if chosen else None

    def _code(self, call: OpCall) -> int:
        text = f"~{call.name}{call.args!r}{call.kwargs!r}" if call.described else f"{call.name}(...)"
        return self.reader.add_call(text, call)

    def _instance(self, line: dict[str, Any], calls: list[OpCall], own: OpCall, backward: bool) -> int:
        """A run of kernels with the same markers down to the op's is one op; where a forward kernel comes a second time,
        another has begun. Without markers the sequence numbers tell."""
        tid = _known(line.get("tid"))
        depth = calls.index(own) + 1 if own in calls else 0
        numbers = () if depth else tuple(line.get("seqMarker", ()))
        shared = (tuple(line.get("marker", ())[:depth]), tuple(line.get("trace", ())), numbers)
        kernel = (line.get("kLongName"), tuple(line.get("grid", ())))
        known, seen, instance = self.last.get(tid, (None, set(), -1))
        if known != shared or (kernel in seen and not backward):
            seen, instance = set(), self.instances
            self.instances += 1
        seen.add(kernel)
        self.last[tid] = (shared, seen, instance)
        return instance

    def finish(self) -> None:
        """Directions by thread, and backward rows joined to the last forward op with their number before them."""
        columns = self.reader.columns
        engine = self._engine_threads()
        for row, (numbers, alternatives, function, _) in zip(self.reader.originals, self.rows, strict=True):
            if function or columns["tid"][row] in engine:
                columns["dir"][row] = columns["phase"][row] = DIRECTIONS.index("bprop")
            if columns["dir"][row] == DIRECTIONS.index("fprop"):
                for number in (*numbers, *alternatives, columns["seq"][row]):
                    self.forward_of[number] = (columns["instance"][row], columns["call"][row], columns["scope"][row])
            elif function:
                # The number that the original chose if it is the function's, for it ordered numbers as text; else the
                # function's, or any of the others. 0 among those is the counter of the backward thread itself.
                candidates = [columns["seq"][row], *(n for n in alternatives if n > 0)]
                candidates.sort(key=lambda n: n not in function)
                known = [n for n in candidates if n >= 0 and n in self.forward_of]
                if known:
                    forward, call, scope = self.forward_of[known[0]]
                    columns["fwd_instance"][row], columns["call"][row], columns["scope"][row] = forward, call, scope

    def _engine_threads(self) -> set[int]:
        """As in `attribute`: threads that run backward functions, nothing Python-level, and whose own counter stands still."""
        tids = self.reader.columns["tid"]
        runs: set[int] = set()
        python: set[int] = set()
        own: dict[int, set[int]] = {}
        for row, (numbers, _, function, has_python) in zip(self.reader.originals, self.rows, strict=True):
            if function:
                runs.add(tids[row])
            else:
                own.setdefault(tids[row], set()).update(numbers)
                if has_python:
                    python.add(tids[row])
        return {tid for tid in runs - python if len(own.get(tid, ())) <= 1}


def _texts(line: dict[str, Any], key: str) -> tuple[str, ...]:
    found = line.get(key, ())
    return tuple(sound_text(str(text)) for text in ((found,) if isinstance(found, str) else found))


def _known(value: Any) -> int:
    """A whole number, -1 for what is none (the original's "na")."""
    return _int(value) if isinstance(value, int) else -1
