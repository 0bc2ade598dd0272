"""What flows into what in a generated kernel -> how many operations it does, whatever language it is written in.

An operation counts once for each distinct value of the indices that its operands depend on, by the weights of the formulas:
+ - * / comparison, exp, log, sin and the like 1. What serves only to find a place in memory, and what no store needs, counts
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Flow", "Lane", "Value", "weight_of"]

# Names of functions that are more than one operation, or none: casts, copies, what makes vectors and masks, random numbers.
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
    """Operations of one call of a function of that name."""
    return _WEIGHTS.get(function, 1)


class Lane(NamedTuple):
    """An index that a value depends on: what it is called, the range of runs that it is part of, how many values it takes."""

    name: str
    runs: str
    length: int | None


@dataclass(frozen=True)
class Value:
    """lanes: the indices that it depends on; data: whether anything loaded went into it; steps: the operations just before."""

    lanes: frozenset[Lane] = frozenset()
    data: bool = False
    steps: frozenset[int] = frozenset()

    @staticmethod
    def of(values: Iterable[Value]) -> Value:
        """Several together."""
        found = list(values)
        return Value(
            frozenset[Lane]().union(*(value.lanes for value in found)),
            any(value.data for value in found),
            frozenset[int]().union(*(value.steps for value in found)),
        )


class Flow:
    """The operations of one kernel. known: all of it was understood."""

    def __init__(self, count: Callable[[frozenset[Lane]], int | None]) -> None:
        """count: how often something runs that depends on these indices; None unknown."""
        self._count = count
        self._steps: list[tuple[int | None, frozenset[int]]] = []
        self._needed: set[int] = set()
        self.known = True

    def apply(self, weight: int, values: Iterable[Value]) -> Value:
        """The result of `weight` operations on values; of constants alone it is a constant."""
        whole = Value.of(values)
        if not weight or not (whole.data or whole.lanes):
            return whole
        count = self._count(whole.lanes)
        self._steps.append((None if count is None else weight * count, whole.steps))
        return Value(whole.lanes, whole.data, frozenset([len(self._steps) - 1]))

    def choose(self, condition: Value, values: Iterable[Value]) -> Value:
        """One of the values by a condition; one on indices alone only says where each of them holds."""
        return self.apply(1, [condition, *values]) if condition.data else Value.of(values)

    def store(self, value: Value) -> None:
        """The kernel needs this."""
        self._needed |= value.steps

    @property
    def operations(self) -> int | None:
        """All that stores need; None where it cannot be told."""
        total, seen, waiting = 0, set(self._needed), list(self._needed)
        while waiting:
            amount, before = self._steps[waiting.pop()]
            if amount is None:
                return None
            total += amount
            waiting += [step for step in before if step not in seen]
            seen |= before
        return total if self.known else None
