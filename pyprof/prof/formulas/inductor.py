"""Kernels that torch.compile generates: their FLOPs and bytes follow only from what a trace records with their launch.

Each buffer among the arguments is counted once, too little for a kernel that updates one in place; `pyprof inductor` reads the
generated code and counts exactly. FLOPs only where the trace holds Inductor's own count, `kernel_flop`, which is of products;
none where the kernel's name, which lists the ops that it fuses, has only ops that move values.
"""

from __future__ import annotations

import math
import re

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import nbytes
from pyprof.prof.formulas.registry import Cost, op

_MOVING = (
    "_to_copy clone copy cat stack constant_pad_nd slice slice_scatter select select_scatter split split_with_sizes unbind "
    "view _unsafe_view reshape permute transpose t expand unsqueeze squeeze flip roll repeat"
).split()
_ONLY_MOVES = re.compile(rf"(?:graph_\d+_)?triton_(?:poi|for)_fused(?:_(?:{'|'.join(_MOVING)}))+_\d+")


@op("inductor::*", order="")
def generated(*args: object, op_name: str = "", **facts: object) -> Cost:
    """args: the launch's; facts: what Inductor recorded of the kernel."""
    buffers = [value for value in args if isinstance(value, TensorSpec)]
    try:
        flop = float(str(facts.get("kernel_flop")))
    except ValueError:
        flop = math.nan
    counted = math.isfinite(flop) and flop > 0  # it writes 0 for what it does not count
    if _ONLY_MOVES.fullmatch(op_name):
        return Cost(0, 0, nbytes(*buffers) if buffers else None)
    return Cost(round(flop) if counted else None, 0 if counted else None, nbytes(*buffers) if buffers else None)
