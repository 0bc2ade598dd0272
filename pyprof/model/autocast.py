"""An op call under autocast -> the call in the dtypes in which it ran, and the casts that autocast inserted.

autocast.csv holds torch's own lists: how autocast treats an op on a CUDA device and on the CPU; a test compares them with the
installed torch. Columns: op (the dispatcher's name, without overloads), cuda, cpu. Treatments:
    lower      every tensor is cast to the region's dtype
    products   the matrix products inside the op cast every tensor to the region's dtype, unless it has one operand alone
    fp32       every tensor is cast to fp32
    dtype      the result is asked for in fp32, unless the call asks for another
    promote    every tensor is cast to the widest of their types
    unknown    parts of the op are cast; which ones depends on how it is implemented
    mixed      parts of the op run in the region's dtype, others do not: the op has no single dtype
An op that is not listed runs in its arguments' dtypes. Knows no torch and no capture.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import DTypeArg, OpCall, TensorSpec, dense_strides

# Devices that share CUDA's lists.
_LIKE_CUDA = frozenset({"cuda", "xpu", "mtia", "maia"})
# Functions of torch and operators of Python -> the dispatcher's op that they call first.
_CALLED = {
    "__matmul__": "matmul", "__rmatmul__": "matmul", "__pow__": "pow", "__rpow__": "pow", "__rtruediv__": "reciprocal",
    "__rdiv__": "reciprocal", "cross_entropy": "cross_entropy_loss", "nll_loss_nd": "nll_loss", "grid_sample": "grid_sampler",
    "softmin": "softmax",
}  # fmt: skip
_PREFIXES = {"torch.linalg": "linalg_", "torch.fft": "fft_"}


class Cast(NamedTuple):
    """A cast that autocast makes of an argument before the op runs: the tensor as given, its new dtype by torch's name."""

    tensor: TensorSpec
    dtype: str


@cache
def treatments() -> dict[str, dict[str, str]]:
    """Treatment by device (`cuda`, `cpu`) and op."""
    rows = list(csv.DictReader(Path(__file__).with_name("autocast.csv").read_text(encoding="utf-8").splitlines()))
    return {device: {row["op"]: row[device] for row in rows if row[device]} for device in ("cuda", "cpu")}


def treatment(call: OpCall, device: str) -> str:
    """How autocast of a device treats a call, empty where it leaves it alone. `unknown` for a device without a list."""
    table = treatments().get("cuda" if device in _LIKE_CUDA else device)
    if table is None:
        return "unknown"
    name = _CALLED.get(call.op, call.op)
    names = (_PREFIXES.get(call.module, "") + name.removeprefix(_PREFIXES.get(call.module, "")), name.removeprefix("special_"))
    if any(key == "out" and value is not None for key, value in call.kwargs):
        return ""  # autocast leaves overloads that write into a given tensor alone
    return next((table[name] for name in names if name in table), "")


def parts_are_cast(call: OpCall) -> bool:
    """Whether autocast of some device leaves the op alone and casts inside it, for the matrix products that it consists of."""
    return any(table.get(call.op) in ("products", "unknown", "lower") for table in treatments().values())


def is_mixed(call: OpCall) -> bool:
    """Whether under autocast of some device parts of the op run in other types than the rest."""
    return any(table.get(call.op) == "mixed" for table in treatments().values())


def run_call(call: OpCall, device: str, dtype: str) -> tuple[OpCall, tuple[Cast, ...]]:
    """The call with the types in which it ran, None if they are unknown, and the casts that autocast made for it.

    device: type of its tensors' device (`cuda`); dtype: of the region. A weight that is cast once for a whole region is among
    the casts of each call.
    """
    how = treatment(call, device)
    cast = [tensor for tensor in call.tensors if _is_cast(tensor)]
    if not how or not cast or (how == "products" and len(cast) < 2):
        return call, ()
    if how in ("unknown", "mixed"):
        return call.map_tensors(lambda tensor: replace(tensor, dtype=None) if _is_cast(tensor) else tensor), ()
    if how == "dtype":
        return _in_fp32(call)
    types = {tensor.dtype for tensor in cast}
    target = dtype if how in ("lower", "products") or (how == "promote" and types == {dtype}) else "float32"
    casts = dict.fromkeys(Cast(replace(tensor, grad=None), target) for tensor in cast if tensor.dtype != target)

    def after(tensor: TensorSpec) -> TensorSpec:
        """The tensor after its cast: a copy, so that what was expanded or had holes is dense."""
        if not _is_cast(tensor) or tensor.dtype == target:
            return tensor
        strides = None if tensor.strides is None else dense_strides(tensor.shape, tensor.strides)
        return replace(tensor, dtype=target, strides=strides)

    return call.map_tensors(after), tuple(casts)


def _is_cast(tensor: TensorSpec) -> bool:
    """Whether autocast may cast a tensor: real floating point but fp64."""
    found = lookup(tensor.dtype)
    return found is not None and found.kind == "float" and found.name != "float64"


def _in_fp32(call: OpCall) -> tuple[OpCall, tuple[Cast, ...]]:
    first = call.tensors[0]
    given = any(isinstance(value, DTypeArg) for value in (*call.args, *(value for _, value in call.kwargs)))
    if given or not _is_cast(first) or first.dtype == "float32":
        return call, ()
    kwargs = tuple((key, value) for key, value in call.kwargs if key != "dtype")
    return call._replace(kwargs=(*kwargs, ("dtype", DTypeArg("float32")))), (Cast(first, "float32"),)
