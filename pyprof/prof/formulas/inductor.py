"""Kernels that torch.compile generates: their FLOPs and bytes follow only from what a trace records with their launch.

Each buffer among the arguments is counted once, too little for a kernel that updates one in place; `pyprof inductor` reads the
generated code and counts exactly. FLOPs only where the trace holds Inductor's own count, `kernel_flop`, which is of products;
none where the kernel's name, which lists the ops that it fuses, has only ops that move values.
"""

from __future__ import annotations

import math
import re

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import nbytes
from pyprof.prof.formulas.registry import Cost, op

_TABLE = 64  # times as many rows as there are indices: no buffer that is read whole
_MOVING = (
    "_to_copy clone copy cat stack constant_pad_nd slice slice_scatter select select_scatter split split_with_sizes unbind "
    "view _unsafe_view reshape permute transpose t expand unsqueeze squeeze flip roll repeat"
).split()
_ONLY_MOVES = rf"(?:graph_\d+_)?triton_(?:poi|for)_fused(?:_(?:{'|'.join(_MOVING)}))+_\d+"


@op("inductor::*", order="")
def generated(*args: object, op_name: str = "", **facts: object) -> Cost:
    """args: the launch's; facts: what Inductor recorded of the kernel."""
    buffers = [value for value in args if isinstance(value, TensorSpec)]
    try:
        flop = float(str(facts.get("kernel_flop")))
    except ValueError:
        flop = math.nan
    counted = math.isfinite(flop) and flop > 0  # it writes 0 for kernels that it does not count
    moved = nbytes(*buffers) if buffers and not _looks_up(buffers) else None
    if re.fullmatch(_ONLY_MOVES, op_name):
        return Cost(0, 0, moved)
    return Cost(round(flop) if counted else None, 0 if counted else None, moved)


def _looks_up(buffers: list[TensorSpec]) -> bool:
    """Whether a buffer is likely a look-up table: only rows indexed by an integer buffer are read."""
    indices = [buffer.numel for buffer in buffers if buffer.dtype in ("int32", "int64")]
    tables = [buffer.shape[0] for buffer in buffers if len(buffer.shape) > 1]
    return bool(indices and tables) and max(tables) > _TABLE * max(indices)
