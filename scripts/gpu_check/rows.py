"""A capture -> one row a kernel (without a GPU an op) with what the check compares, told in the same words for every way.

The dispatcher's op and the Python call that becomes it have one name here, and of shapes those without dimensions are left
out, since a range of `emit_nvtx` prints such a tensor as a number.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import pyprof
from pyprof.model.opcall import OpCall
from pyprof.model.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.prof.frame import Frame

COLUMNS = "op,kernel,sil,flops,bound,tc,phase,kind,start"
# What a Python call is called, and the dispatcher's op which it becomes.
_ALIASES = {"cross_entropy": "cross_entropy_loss", "__add__": "add"} | dict.fromkeys(
    ("float", "half", "bfloat16", "double"), "to"
)


def rows_of(capture: Path) -> pd.DataFrame:
    """op, kernel, shapes, sil (ns), start (ns), flops and matmul_flops (NA unknown), product (whether its op is one of
    matrices), bound, tc, phase, kind. Raises PyprofError for what cannot be read."""
    loaded = pyprof.load(capture)
    table = loaded.to_pandas(columns=COLUMNS)
    shown = np.isin(loaded.records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU))
    records, calls = loaded.records, loaded.records.calls
    codes = records["call"][shown]
    matmul = Frame(records).costs.of("matmul_flops", shown)
    return table.assign(
        op=pd.Series([None if code < 0 else _name(calls[code]) for code in codes], dtype=object),
        shapes=["" if code < 0 else _shapes(calls[code]) for code in codes],
        product=[code >= 0 and formulas.matmul_class(calls[code].name) for code in codes],
        matmul_flops=pd.Series(matmul, dtype="Int64").mask(matmul < 0),
    )


def _name(call: OpCall) -> str:
    return "view" if formulas.is_structural(call.name) else _ALIASES.get(call.op, call.op)


def _shapes(call: OpCall) -> str:
    return ";".join("x".join(map(str, tensor.shape)) for tensor in call.tensors if tensor.shape)
