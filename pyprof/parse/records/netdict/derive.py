"""Lines of the original PyProf -> the op instances, directions and forward ops that they do not state.

Instances follow from markers and sequence numbers (altSeqId included), directions from threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.columns.types import Array
from pyprof.model.markers import Kind, decode, is_backward_name
from pyprof.model.opcall import OpCall, OpRules
from pyprof.model.records import DIRECTIONS

Line = dict[str, Any]  # one line of net.dict, as JSON or a literal gives it


def whole_number(value: Any) -> int:
    """A whole number of a record. Raises ValueError or TypeError for anything else, and for one beyond 64 bits."""
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not a whole number")
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("a number beyond 64 bits")
    return number


def known(value: object) -> int:
    """A whole number of a record; -1 for the original's "na". Raises ValueError for one beyond 64 bits."""
    return whole_number(value) if isinstance(value, int) else -1


Instance = tuple[int, int, int]  # op instance, call, scope


class _Row(NamedTuple):
    """One line that the original wrote: its row, sequence numbers, altSeqId, and the numbers of its backward functions."""

    row: int
    numbers: list[int]
    alternatives: list[int]
    function: list[int]
    has_python: bool  # Python-level markers or source lines


class Derived:
    """Collects the original's lines, then fills in what they leave open. add_call: text and call -> its code."""

    def __init__(self, rules: OpRules, add_call: Callable[[str, OpCall], int]) -> None:
        self.rules, self.add_call = rules, add_call
        self.instances = 0
        self.last: dict[int, tuple[object, set[object], int]] = {}  # tid -> (what the run shares, kernels seen in it, instance)
        self.rows: list[_Row] = []

    def ops(self, row: int, record: Line, names: tuple[str, ...], numbers: list[int]) -> dict[str, int]:
        """instance, call, own and inner of one line; the forward op of a backward line is found in `finish`."""
        functions = [name for name in names if is_backward_name(name)]
        markers = [decode(str(text)) for text in record.get("marker", ())]
        calls = [m.call for m in markers if m.kind == Kind.OP and m.call is not None]
        dispatch = [OpCall("aten", n, dispatcher=True, described=False) for n in names if n not in functions]
        function = [OpCall("autograd", n, dispatcher=True, described=False) for n in functions[:1]]
        alternatives = [known(number) for number in record.get("altSeqId", ())]
        running = [number for name, number in zip(names, numbers, strict=True) if is_backward_name(name)]
        self.rows.append(_Row(row, numbers, alternatives, running, bool(calls or record.get("trace"))))
        own = (self._own(calls) or dispatch[:1] or function)[:1]
        inner = (dispatch or function)[:1]
        code = self._code(own[0]) if own else -1
        return {
            "instance": self._instance(record, calls, own[0], bool(functions)) if own else -1,
            "call": code,
            "own": code,
            "inner": self._code(inner[0]) if inner else -1,
        }

    def _own(self, calls: list[OpCall]) -> list[OpCall]:
        """The Python-level calls that may be the op, most likely first."""
        copies = [call for call in calls[-1:] if self.rules.is_copy(call.name)]
        with_formula = [call for call in calls if self.rules.known(call.name) and not self.rules.is_structural(call.name)]
        return copies or with_formula or calls[-1:]

    def _code(self, call: OpCall) -> int:
        text = f"~{call.name}{call.args!r}{call.kwargs!r}" if call.described else f"{call.name}(...)"
        return self.add_call(text, call)

    def _instance(self, record: Line, calls: list[OpCall], own: OpCall, backward: bool) -> int:
        """A run of kernels with the same markers down to the op's is one instance; where a forward kernel comes a second time,
        another has begun. Without markers the sequence numbers tell them apart."""
        tid = known(record.get("tid"))
        depth = calls.index(own) + 1 if own in calls else 0
        numbers = () if depth else tuple(record.get("seqMarker", ()))
        shared = (tuple(record.get("marker", ())[:depth]), tuple(record.get("trace", ())), numbers)
        kernel = (record.get("kLongName"), tuple(record.get("grid", ())))
        before, seen, instance = self.last.get(tid, (None, set(), -1))
        if before != shared or (kernel in seen and not backward):
            seen, instance = set(), self.instances
            self.instances += 1
        seen.add(kernel)
        self.last[tid] = (shared, seen, instance)
        return instance

    def finish(self, columns: dict[str, Array]) -> None:
        """Directions by thread, and backward rows joined to the last forward op with their number before them."""
        engine = self._engine_threads(columns["tid"])
        forward_of: dict[int, Instance] = {}  # by sequence number
        for row, numbers, alternatives, function, _ in self.rows:
            if function or int(columns["tid"][row]) in engine:
                columns["dir"][row] = columns["phase"][row] = DIRECTIONS.index("bprop")
            seq = int(columns["seq"][row])
            if columns["dir"][row] == DIRECTIONS.index("fprop"):
                instance, call, scope = (int(columns[name][row]) for name in ("instance", "call", "scope"))
                forward_of |= dict.fromkeys((*numbers, *alternatives, seq), (instance, call, scope))
            elif function:
                # The number that the original chose if it is the function's, for it ordered numbers as text; else the
                # function's, or any of the others. 0 among those is the counter of the backward thread itself.
                candidates = sorted([seq, *(n for n in alternatives if n > 0)], key=lambda n: n not in function)
                for number in [n for n in candidates if n >= 0 and n in forward_of][:1]:
                    columns["fwd_instance"][row], columns["call"][row], columns["scope"][row] = forward_of[number]

    def _engine_threads(self, tids: npt.NDArray[np.int64]) -> set[int]:
        """As in attribution: threads that run backward functions, nothing Python-level, and whose own counter stands still."""
        runs: set[int] = set()
        python: set[int] = set()
        own: dict[int, set[int]] = {}
        for row, numbers, _, function, has_python in self.rows:
            tid = int(tids[row])
            if function:
                runs.add(tid)
            else:
                own.setdefault(tid, set()).update(numbers)
                if has_python:
                    python.add(tid)
        return {tid for tid in runs - python if len(own.get(tid, ())) <= 1}
