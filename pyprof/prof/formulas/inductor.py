"""Kernels that torch.compile generates: what a trace records with their launch is all that is known of them here.

Each buffer among the arguments is moved once, which a kernel that reads and writes one in place exceeds; `pyprof inductor`
reads the generated code and knows. FLOPs only where the trace holds Inductor's own count, `kernel_flop`, which is of products.
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import nbytes
from pyprof.prof.formulas.registry import Cost, namespace_formula

__all__: list[str] = []


@namespace_formula("inductor")
def generated(*args: Any, **facts: Any) -> Cost:
    """args: the launch's; facts: what Inductor recorded of the kernel."""
    buffers = [value for value in args if isinstance(value, TensorSpec)]
    try:
        flop = float(str(facts.get("kernel_flop")))
    except ValueError:
        flop = math.nan
    counted = math.isfinite(flop) and flop > 0  # it writes 0 for what it does not count
    return Cost(round(flop) if counted else None, 0 if counted else None, nbytes(*buffers) if buffers else None)
