"""Kernels that torch.compile generates: their FLOPs and bytes follow only from what a trace records with their launch.

Each buffer among the arguments is counted once, too little for a kernel that updates one in place; `pyprof inductor` reads the
generated code and counts exactly. FLOPs only where the trace holds Inductor's own count, `kernel_flop`, which is of products.
"""

from __future__ import annotations

import math

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import nbytes
from pyprof.prof.formulas.registry import Cost, op


@op("inductor::*", order="")
def generated(*args: object, **facts: object) -> Cost:
    """args: the launch's; facts: what Inductor recorded of the kernel."""
    buffers = [value for value in args if isinstance(value, TensorSpec)]
    try:
        flop = float(str(facts.get("kernel_flop")))
    except ValueError:
        flop = math.nan
    counted = math.isfinite(flop) and flop > 0  # it writes 0 for what it does not count
    return Cost(round(flop) if counted else None, 0 if counted else None, nbytes(*buffers) if buffers else None)
