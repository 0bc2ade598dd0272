"""Records of communication -> which collective each is: kind, bytes, process group.

Bytes are NCCL's S: of an all_gather the whole output, of a reduce_scatter the whole input, else what one rank sends
(nccl-tests, PERFORMANCE.md). What a capture does not record stays unknown, and so do the bytes of an op with several kernels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.types import Ints
from pyprof.hardware.names import short_name
from pyprof.model.opcall import OpCall
from pyprof.model.records import PHASES, Records

# By the letters of a name, in this order: the longer name before the one that is part of it.
_KINDS = {
    "allreduce": "all_reduce", "reducescatter": "reduce_scatter", "allgather": "all_gather", "alltoall": "all_to_all",
    "broadcast": "broadcast", "barrier": "barrier", "send": "send_recv", "recv": "send_recv", "gather": "gather",
    "scatter": "scatter", "reduce": "reduce",
}  # fmt: skip
_KERNEL = re.compile(r"nccl(?:(?:Dev|Sym|SymDev)?(?:Kernel|k)_?)?(?P<kind>[A-Z][A-Za-z]+)")
# Before NCCL 2.7 ncclAllReduceRingLLKernel_sum_f32. Up to NCCL 2.18 the type is last, since then before the algorithm; where
# nothing is reduced it is a filler, or missing.
_ELEMENT = re.compile(
    r"_(?:[Ss]um|[Pp]rod|[Mm]ax|[Mm]in|MinMax|PreMulSum|SumPostDiv|Avg)_(?P<type>\w+?)(?:_(?:RING|TREE|COLLNET|NVLS|PAT)\w*)?[(<]"
)
_ELEMENT_BYTES = {
    "int8_t": 1, "uint8_t": 1, "i8": 1, "u8": 1, "f8e4m3": 1, "f8e5m2": 1, "half": 2, "f16": 2, "__nv_bfloat16": 2, "bf16": 2,
    "float": 4, "f32": 4, "int32_t": 4, "uint32_t": 4, "i32": 4, "u32": 4, "double": 8, "f64": 8, "int64_t": 8, "uint64_t": 8,
    "i64": 8, "u64": 8,
}  # fmt: skip
_REDUCES = frozenset({"all_reduce", "reduce", "reduce_scatter"})
_MODULES = frozenset({"c10d", "nccl", "torch.distributed", "_c10d_functional", "c10d_functional", "gloo", "ucc", "mpi"})
Facts = dict[str, object]  # keyword arguments of a call
# The argument of a functional collective that is the size of its group.
_SIZE_AT = {"all_gather_into_tensor": 1, "all_gather_into_tensor_out": 1, "reduce_scatter_tensor": 2}
_SAME_SIZE = frozenset({"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"})


class Collective(NamedTuple):
    """kind: all_reduce, all_gather, ... or the kernel's name where that names none; nbytes: NCCL's S, None unknown; group: the
    process group as the capture names it, '' unknown; group_size: ranks in it, None unknown; direction: `send` or `recv`, ''
    both or unknown."""

    kind: str
    nbytes: int | None = None
    group: str = ""
    group_size: int | None = None
    direction: str = ""

    @property
    def meets(self) -> bool:
        """Whether all ranks of the group take part and end together, unlike what two ranks send each other."""
        return self.kind != "send_recv"

    @property
    def size_of_all(self) -> int | None:
        """The bytes, if they are the same on every rank of the group."""
        return self.nbytes if self.kind in _SAME_SIZE else None


def bus_factor(kind: str, ranks: int | None) -> float | None:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md); None if it is not defined or ranks unknown."""
    if kind in ("broadcast", "reduce", "send_recv"):
        return 1.0
    if ranks is None or ranks < 1:
        return None
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if kind in ("all_gather", "reduce_scatter", "all_to_all") else None


def _kind_of(name: str) -> str | None:
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for part, kind in _KINDS.items() if part in letters), None)


def _direction(name: str) -> str:
    sends, receives = "send" in name.lower(), "recv" in name.lower()
    return "" if sends == receives else "send" if sends else "recv"


def describe(kernel: str, calls: Iterable[OpCall]) -> Collective:
    """The collective that a kernel ran; calls: the ops around it, innermost first."""
    kind: str | None = None
    nbytes: int | None = None
    group, size, way = "", None, ""
    for call in calls:
        if call.module not in _MODULES:
            continue
        facts: Facts = dict(call.kwargs)
        collective = str(facts.get("collective", ""))
        own = _kind_of(collective) or _kind_of(call.op)
        way = way or _direction(collective) or _direction(call.op)
        kind = kind or own
        functional = call.module.endswith("c10d_functional")
        if not group:
            name = facts.get("group", facts.get("group_name"))
            if name is None and functional:
                name = next((value for value in reversed(call.args) if isinstance(value, str)), None)
            group = name if isinstance(name, str) else ""
        if not size:
            found, at = facts.get("group_size"), _SIZE_AT.get(call.op, len(call.args))
            if found is None and functional and at < len(call.args):
                found = call.args[at]
            size = found if type(found) is int and found > 0 else None
        if nbytes is None and own == kind and kind is not None:
            nbytes = _nbytes(kind, call, facts, size)
        if nbytes is None and own == kind and kind in _REDUCES and call.flat and call.module == "nccl":
            # Only the sizes of an annotation's inputs were recorded: the kernel's name has their type.
            element = _ELEMENT.search(kernel)
            width = _ELEMENT_BYTES.get(element["type"]) if element else None
            nbytes = None if width is None or not call.tensors else width * sum(tensor.numel for tensor in call.tensors)
    if kind is None:
        named = _KERNEL.search(kernel)
        kind = (_kind_of(named["kind"]) if named else None) or short_name(kernel) or "unknown"
    return Collective(kind, nbytes, group, size, way if kind == "send_recv" else "")


def _sum(value: object) -> int | None:
    """Bytes of all tensors in a value; None if it has none or the dtype of one is unknown."""
    sizes = [None if t.itemsize is None else math.ceil(t.numel * t.itemsize) for t in OpCall("", "", (value,)).tensors]
    return None if not sizes or None in sizes else sum(size for size in sizes if size is not None)


def _nbytes(kind: str, call: OpCall, facts: Facts, ranks: int | None) -> int | None:
    if "collective" in facts or ("input" in facts and "output" in facts):
        return _sum(facts.get("output" if kind == "all_gather" else "input"))
    if call.flat:
        return None  # lists of tensors are not distinguished from their elements
    first = call.args[0] if call.args else None
    second = call.args[1] if len(call.args) > 1 else None
    output_first = call.module in ("torch.distributed", "c10d")
    if kind == "all_gather":
        if output_first:
            return _sum(facts.get("output_tensor", first))
        one = _sum(first)
        return None if one is None or ranks is None else one * ranks
    if kind in ("reduce_scatter", "all_to_all") and output_first:
        return _sum(facts.get("input", facts.get("input_tensor", second)))
    return None if kind == "barrier" else _sum(first)


def of_records(records: Records) -> tuple[Ints, Ints, list[Collective]]:
    """Rows of communication, a code into the distinct collectives for each, and these."""
    rows = np.flatnonzero(records["phase"] == PHASES.index("communication"))
    columns = [records[name][rows] for name in ("name", "inner", "own", "call")]
    distinct = distinct_rows(*columns)
    found: dict[Collective, int] = {}
    code = []
    for name, *around in distinct.columns.T.tolist():
        collective = describe(records.strings[name], [records.calls[at] for at in dict.fromkeys(around) if at >= 0])
        code.append(found.setdefault(collective, len(found)))
    which = np.array(code, np.int64)[distinct.inverse] if len(rows) else rows.astype(np.int64)
    collectives = list(found)
    _forget_shared(records["instance"][rows], which, collectives)
    return rows, which, collectives


def _forget_shared(instance: Ints, which: Ints, collectives: list[Collective]) -> None:
    """Bytes are known per op: if it ran several kernels, each kernel's bytes are unknown."""
    known, inverse, count = np.unique(instance, return_inverse=True, return_counts=True)
    shared = (known[inverse.ravel()] >= 0) & (count[inverse.ravel()] > 1)
    for code in distinct_values(which[shared]).tolist():
        one = collectives[code]
        if one.nbytes is not None:
            which[shared & (which == code)] = len(collectives)
            collectives.append(one._replace(nbytes=None))
