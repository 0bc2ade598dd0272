"""What records carry: of each a code into pools of costs, which millions of records have in common with each other.

Unknown is -1 in every column here. No text is made here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.arrays.types import Array, Bools, Ints
from pyprof.hardware.kernels import KernelClass

Codes = npt.NDArray[np.int32]

BYTES_BOUNDS = ("", "inferred", "lower")
"""How sure the bytes of a record are: by definition; by a rule or a type that was inferred; a lower bound."""


class Pools(NamedTuple):
    """What records can carry, a row for each cost of a code; the last is that of a record without one. matmul_flops,
    vector_flops, bytes (-1 unknown); at_least (a lower bound of bytes that are unknown, -1 none); inferred (whether bytes
    were); main (does the main work of its op); problem (row of `problems`: the matrix product it is part of, -1 none)."""

    matmul_flops: Ints
    vector_flops: Ints
    bytes: Ints
    at_least: Ints
    inferred: Bools
    main: Bools
    problem: Codes


@dataclass(eq=False, repr=False)
class Costs:
    """code: what each record carries, a row of `pools`; most of one class carry the same.

    problems: (m, n, k, batch); alike: class of each record; class_kernel: of each class the code into kernels; kernels:
    class of each distinct kernel name; reasons: rows and time without FLOPs, by reason.
    """

    code: Codes
    pools: Pools
    problems: list[tuple[int, int, int, int]]
    alike: Codes
    class_kernel: Codes
    kernels: list[KernelClass]
    reasons: dict[str, tuple[int, int]]

    def of(self, name: str, rows: Any) -> Array:
        """A column of `pools` for some records."""
        found: Array = getattr(self.pools, name).take(self.code[rows])
        return found

    def at(self, rows: Array) -> Costs:
        """The costs of some records."""
        return replace(self, code=self.code[rows], alike=self.alike[rows])

    @property
    def matmul_flops(self) -> Ints:
        """Matrix operations of each record."""
        return self.pools.matmul_flops.take(self.code)

    @property
    def vector_flops(self) -> Ints:
        """Vector operations of each record."""
        return self.pools.vector_flops.take(self.code)

    @property
    def bytes(self) -> Ints:
        """Least bytes of each record."""
        return self.pools.bytes.take(self.code)

    @property
    def problem(self) -> Codes:
        """The matrix product of each record."""
        return self.pools.problem.take(self.code)

    @property
    def kernel(self) -> Codes:
        """The code of each record into kernels."""
        return self.class_kernel.take(self.alike)

    @property
    def flops(self) -> Ints:
        """Matrix and vector operations together; unknown where either is."""
        return self.pool_flops.take(self.code)

    def flops_of(self, rows: Any) -> Ints:
        """The same of some records."""
        found: Ints = self.pool_flops.take(self.code[rows])
        return found

    @property
    def pool_flops(self) -> Ints:
        """The same of each row of `pools`."""
        matmul, vector = self.pools.matmul_flops, self.pools.vector_flops
        return np.where((matmul >= 0) & (vector >= 0), matmul + vector, -1)

    @property
    def bytes_or_least(self) -> Ints:
        """The bytes, and where they are unknown their lower bound."""
        return np.where(self.pools.bytes >= 0, self.pools.bytes, self.pools.at_least).take(self.code)

    @property
    def bound(self) -> Codes:
        """Which of BYTES_BOUNDS the bytes are, -1 where nothing is known of them."""
        unknown = np.where(self.pools.at_least >= 0, np.int32(2), np.int32(-1))
        return np.where(self.pools.bytes < 0, unknown, self.pools.inferred.astype(np.int32)).take(self.code)
