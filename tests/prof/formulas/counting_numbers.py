"""Numbers that count what is done with them, for definitions of ops in plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import torch

from pyprof.prof.formulas.registry import Cost, evaluate
from tests.prof.formulas.formula_oracles import call, describe


class Number:
    """A float that counts what is done with numbers of its kind."""

    operations: ClassVar[int] = 0

    def __init__(self, value: float) -> None:
        self.value = value

    @staticmethod
    def _count(value: float) -> Number:
        Number.operations += 1
        return Number(value)

    def __add__(self, other: Any) -> Number:
        return Number._count(self.value + value_of(other))

    def __sub__(self, other: Any) -> Number:
        return Number._count(self.value - value_of(other))

    def __mul__(self, other: Any) -> Number:
        return Number._count(self.value * value_of(other))

    def __truediv__(self, other: Any) -> Number:
        return Number._count(self.value / value_of(other))

    def __neg__(self) -> Number:
        return Number._count(-self.value)

    def __rsub__(self, other: float) -> Number:
        return Number._count(other - self.value)

    __radd__, __rmul__ = __add__, __mul__

    def larger(self, other: Any) -> Number:
        """One comparison."""
        return Number._count(max(self.value, value_of(other)))

    def smaller(self, other: Any) -> Number:
        """One comparison."""
        return Number._count(min(self.value, value_of(other)))

    def of(self, function: Callable[[float], float]) -> Number:
        """One operation: exp, log, tanh and the like."""
        return Number._count(function(self.value))


def value_of(x: Any) -> float:
    return x.value if isinstance(x, Number) else float(x)


def numbers(x: torch.Tensor) -> Any:
    return np.vectorize(Number, otypes=[object])(x.detach().double().numpy())


def total(terms: Iterable[Number]) -> Number:
    result = Number(0.0)
    for term in terms:
        result = result + term
    return result


def values_of(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.vectorize(value_of, otypes=[float])(x))


def counted(function: Callable[[], Any], expected: torch.Tensor) -> int:
    """Operations of a definition, whose values have to be those expected."""
    Number.operations = 0
    result = function()
    count = Number.operations
    torch.testing.assert_close(values_of(result), expected.detach().double(), rtol=1e-4, atol=1e-5)
    return count


def places(*sizes: int) -> Iterable[tuple[int, ...]]:
    return itertools.product(*map(range, sizes))


def sigmoid(x: Number) -> Number:
    """4 operations: negate, exp, add, divide."""
    return Number(1.0) / (1 + (-x).of(math.exp))


def cost_of(name: str, *args: Any, **kwargs: Any) -> Cost:
    """The cost that the formula of this op says of a call with live arguments."""
    return evaluate(call(name, *map(describe, args), **{k: describe(v) for k, v in kwargs.items()})).cost
