"""Kernels that torch.compile generates: their FLOPs and bytes follow only from what a trace records with their launch.

A kernel's name lists the ops that it fuses, its arguments are the buffers and then the number of points that it computes (of a
reduction rows and columns). Each buffer is counted once, too little for a kernel that updates one in place; `pyprof inductor`
reads the generated code and counts exactly. Of a buffer with more elements than there are points a kernel that only moves
values reads (or writes) one a point; one that also computes on a look-up or a slice moves at least that. FLOPs only where the
trace holds Inductor's own count, `kernel_flop`, which is of products, and of templates: the product or attention of the
buffers' sizes. None are in a kernel whose ops only move values.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import nbytes, product, spec
from pyprof.prof.formulas.attention import Heads
from pyprof.prof.formulas.gemm import product_cost
from pyprof.prof.formulas.registry import Cost, op

_TABLE = 64  # times as many rows as there are indices: no buffer that is read whole
_MOVING = (
    "_to_copy clone copy cat stack constant_pad_nd slice slice_scatter select select_scatter split split_with_sizes "
    "unbind view _unsafe_view reshape permute transpose t expand unsqueeze squeeze flip roll repeat embedding index "
    "index_select gather"
).split()
_ONLY_MOVES = rf"(?:graph_\d+_)?triton_(?:poi|for)_fused(?:_(?:{'|'.join(_MOVING)}))+_\d+"
_PARTS = r"_(?:embedding|index|gather|slice|select|narrow|split|unbind|chunk)(?=_)"
_JOINS = r"_(?:cat|stack|constant_pad_nd|slice_scatter|select_scatter)(?=_)"


@op("inductor::*", order="")
def generated(*args: object, op_name: str = "", **facts: object) -> Cost:
    """args: the launch's; facts: what Inductor recorded of the kernel."""
    buffers = [value for value in args if isinstance(value, TensorSpec)]
    if "triton_tem_" in op_name and (found := _template(op_name, buffers)) is not None:
        return found
    try:
        flop = float(str(facts.get("kernel_flop")))
    except ValueError:
        flop = math.nan
    counted = math.isfinite(flop) and flop > 0  # it writes 0 for kernels that it does not count
    moves = re.fullmatch(_ONLY_MOVES, op_name) is not None
    moved = _moved(buffers, _points(args, buffers, op_name), op_name, moves=moves) if buffers else Cost()
    if moves:
        return replace(moved, matmul_flops=0, vector_flops=0)
    return replace(moved, matmul_flops=round(flop) if counted else None, vector_flops=0 if counted else None)


# ---------------------------------------------------------------------------------------------- bytes


def _points(args: tuple[object, ...], buffers: list[TensorSpec], name: str) -> int | None:
    """Points that a kernel computes: the product of its last numbers that is a buffer's size, else of one or, in a reduction,
    two numbers if there are no others."""
    sizes = [value for value in args if isinstance(value, int) and not isinstance(value, bool) and value > 0]
    held = {buffer.numel for buffer in buffers}
    products = [product(sizes[-count:]) for count in range(1, min(len(sizes), 3) + 1)]
    if fits := [points for points in products if points in held]:
        return max(fits)
    dims = 1 if re.search(r"triton_(?:poi|for)_", name) else 2
    return products[-1] if len(products) == dims else None


def _moved(buffers: list[TensorSpec], points: int | None, name: str, *, moves: bool) -> Cost:
    """The bytes of a kernel, or a lower bound of them."""
    tables = _tables(buffers)
    if points is None:
        if not tables:
            return Cost(bytes=nbytes(*buffers))
        rest = [buffer for buffer in buffers if buffer not in tables]
        # One row of each: others may be the same, and which indices choose of which table is not known.
        return Cost(at_least=nbytes(*rest, [spec(table.shape[1:], table.dtype) for table in tables]))
    large = [buffer for buffer in buffers if buffer.numel > points]
    if not large or not (moves or tables or re.search(_PARTS, name)):
        return Cost(bytes=nbytes(*buffers))
    rest = [buffer for buffer in buffers if buffer.numel <= points]
    if not moves:
        touched = [] if re.search(_JOINS, name) else [spec((points,), buffer.dtype) for buffer in large]
        return Cost(at_least=nbytes(*rest, touched))
    others = [buffer.numel for buffer in rest if not _is_index(buffer) and buffer.numel < points]
    ends = sum(buffer.numel == points and not _is_index(buffer) for buffer in rest)
    if len(large) == 1 and not others and ends <= 1:
        return Cost(bytes=nbytes(*rest, spec((points,), large[0].dtype)), inferred=True)
    least = min(large, key=lambda buffer: buffer.itemsize or 0)
    return Cost(at_least=nbytes(*rest, spec((max(points - sum(others), 0),), least.dtype)))


def _is_index(buffer: TensorSpec) -> bool:
    return buffer.dtype in ("int32", "int64")


def _tables(buffers: list[TensorSpec]) -> list[TensorSpec]:
    """Buffers that are likely look-up tables: only rows indexed by an integer buffer are read."""
    indices = [buffer.numel for buffer in buffers if _is_index(buffer)]
    rows = _TABLE * max(indices, default=0)
    return [buffer for buffer in buffers if indices and len(buffer.shape) > 1 and buffer.shape[0] > rows]


# ---------------------------------------------------------------------------------------------- templates

_PRODUCT = r"_(?:addmm|baddbmm|bmm|mm|_scaled_mm|_int_mm)(?=_)"
_CONVOLUTION = r"_convolution(?=_(?!backward))"
_ATTENTION = r"_flex_attention(?P<backward>_backward)?(?=_)"
_WHOLE = 128  # queries of the smallest block of a mask; one block for more of them is no mask


def _template(name: str, buffers: list[TensorSpec]) -> Cost | None:
    """The cost of a kernel from one of Inductor's templates: of a product, a convolution or attention; None if it is unclear.

    The operands are the first buffers, in the order of the op (a bias is not), the result is the last, or the first where it
    is written in place (`python_argdefs` in torch/_inductor/codegen/common.py, the templates in torch/_inductor/kernel).
    """
    found = [re.findall(pattern, name) for pattern in (_PRODUCT, _CONVOLUTION, _ATTENTION)]
    if sum(map(len, found)) != 1 or len(buffers) < 3:
        return None
    if found[0]:
        return _product(buffers)
    if found[1]:
        return _convolution(buffers)
    return _attention(buffers, backward=bool(found[2][0]))


def _product(buffers: list[TensorSpec]) -> Cost | None:
    """The elements of (M, K), (K, N) and (M, N), however they lie, are M·K, K·N and M·N: K² = M·K · K·N / (M·N)."""
    for a, b, out in ((*buffers[:2], buffers[-1]), (*buffers[1:3], buffers[0])):
        batch = out.shape[0] if len(out.shape) == len(a.shape) == len(b.shape) == 3 and a.shape[0] == b.shape[0] else 1
        square, rest = divmod(a.numel * b.numel, max(out.numel * batch, 1))
        depth = math.isqrt(square)
        if rest or depth * depth != square or depth not in a.shape or depth not in b.shape:
            continue
        rows, columns = (t.numel // max(batch * depth, 1) for t in (a, b))
        if batch * rows * columns == out.numel:
            return product_cost(rows, columns, depth, *buffers, batch=batch, dtype=a.dtype)
    return None


def _convolution(buffers: list[TensorSpec]) -> Cost | None:
    weight, out = buffers[1], buffers[-1]
    if len(weight.shape) != len(out.shape) or len(out.shape) < 3 or weight.shape[0] != out.shape[1]:
        return None
    flops = 2 * out.numel * product(weight.shape[1:])
    return Cost(flops, 0, nbytes(*buffers), operands=weight.dtype)


def _attention(buffers: list[TensorSpec], *, backward: bool) -> Cost | None:
    """Which pairs a mask leaves is data: with more than one block all of them are an upper bound."""
    q, k, v = buffers[:3]
    if not all(len(t.shape) == 4 for t in (q, k, v)) or k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1]:
        return None
    heads = Heads(q, k, v, q.shape[-2] * k.shape[-2], (product(q.shape[:-2]), q.shape[-2], k.shape[-2]))
    cost = replace(heads.backward() if backward else heads.forward(), bytes=nbytes(*buffers))
    blocks = [t.numel for t in buffers if t.dtype == "int32"]
    masked = not blocks or max(blocks) > 1 or q.shape[-2] <= _WHOLE
    return replace(cost, bound="upper") if masked else cost
