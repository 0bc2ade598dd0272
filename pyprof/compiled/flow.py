"""The statements of a generated kernel in any language -> its use of each pointer, and its operations.

An operation counts once per distinct value of the indices that its operands depend on, with the weights of the formulas: 1 for
+ - * / comparison, exp, log, sin and the like. Addresses and values that no store needs count nothing. Knows no syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

# Functions that count as several operations, or as none: casts, copies, constructors of vectors and masks, random numbers.
_WEIGHTS = {
    "rsqrt": 2, "sigmoid": 4, "fmadd": 2, "fmsub": 2, "fnmadd": 2, "fma": 2, "welford_combine": 4, "welford_reduce": 4,
    **dict.fromkeys((
        "to cast convert bitcast static_cast decltype reinterpret_cast template Vectorized VectorizedN VecMask from loadu load "
        "arange full zeros broadcast_to broadcast reshape trans expand_dims view split float double bool int int64_t int32_t "
        "int16_t int8_t uint8_t long half bfloat16 BFloat16 Half rand randn rand4x randn4x randint64 normalized_rand_cpu "
        "randn_cpu randint64_cpu max_contiguous multiple_of promote_to_tensor constant"
    ).split(), 0),
}  # fmt: skip


def weight_of(function: str) -> int:
    """Operations in one call of this function."""
    return _WEIGHTS.get(function, 1)


class IndexLane(NamedTuple):
    """An index that a value depends on. runs: the launch dimension behind it (`x` of `xindex`); length: number of its values,
    None unknown."""

    name: str
    runs: str
    length: int | None


@dataclass
class Accesses:
    """A kernel's use of one pointer.

    first_reads: the first use reads the old content of the buffer; known: every use was understood; spans: distinct index ->
    most values that it takes (None unknown).
    """

    first_reads: bool = False
    writes: bool = False
    known: bool = True
    spans: dict[tuple[str, int | None], int | None] = field(default_factory=dict)

    def note(self, reads: bool, writes: bool, index: str, span: int | None) -> None:
        """Record one more use."""
        if not self.spans:
            self.first_reads = reads
        self.writes |= writes
        self.spans[re.sub(r"\s", "", index), span] = span

    @property
    def most(self) -> int | None:
        """Upper bound of the elements touched; None if unknown."""
        spans = [span for span in self.spans.values() if span is not None]
        return sum(spans) if self.known and spans and len(spans) == len(self.spans) else None


def product(lengths: Iterable[int | None]) -> int | None:
    """The product; None if a factor is unknown."""
    count = 1
    for length in lengths:
        if length is None:
            return None
        count *= length
    return count


@dataclass(frozen=True)
class Value:
    """lanes: the indices that it depends on; data: whether it depends on loaded data; steps: the operations just before."""

    lanes: frozenset[IndexLane] = frozenset()
    data: bool = False
    steps: frozenset[int] = frozenset()

    @staticmethod
    def of(values: Iterable[Value]) -> Value:
        """Several values combined without an operation."""
        parts = list(values)
        return Value(
            frozenset[IndexLane]().union(*(part.lanes for part in parts)),
            any(part.data for part in parts),
            frozenset[int]().union(*(part.steps for part in parts)),
        )


class Flow:
    """The operations of one kernel. known: False after something was not understood."""

    def __init__(self, count: Callable[[frozenset[IndexLane]], int | None]) -> None:
        """count: how often an operation on these indices runs, None unknown."""
        self._count = count
        self._steps: list[tuple[int | None, frozenset[int]]] = []
        self._needed: set[int] = set()
        self.known = True

    def apply(self, weight: int, values: Iterable[Value]) -> Value:
        """The result of `weight` operations; constants alone give a constant."""
        operands = Value.of(values)
        if not weight or not (operands.data or operands.lanes):
            return operands
        count = self._count(operands.lanes)
        self._steps.append((None if count is None else weight * count, operands.steps))
        return Value(operands.lanes, operands.data, frozenset([len(self._steps) - 1]))

    def choose(self, condition: Value, values: Iterable[Value]) -> Value:
        """One of the values by a condition. A condition on indices alone costs no operation."""
        return self.apply(1, [condition, *values]) if condition.data else Value.of(values)

    def store(self, value: Value) -> None:
        """Mark the operations behind this value as needed."""
        self._needed |= value.steps

    @property
    def operations(self) -> int | None:
        """All operations that stores need; None if unknown."""
        total, seen, waiting = 0, set(self._needed), list(self._needed)
        while waiting:
            amount, before = self._steps[waiting.pop()]
            if amount is None:
                return None
            total += amount
            waiting += [step for step in before if step not in seen]
            seen |= before
        return total if self.known else None
