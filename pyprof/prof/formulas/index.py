"""Joining, indexing, gathering, scattering: ops that move chosen elements. They do no arithmetic, except where they accumulate.

Bytes: an op that gathers reads the elements it is asked for (as often as it is asked), its indices, and writes the result. An
op that scatters into a tensor in place reads its source and its indices and writes as many elements; where it accumulates it
reads those as well. The functional form first copies the whole tensor.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import (
    broadcast,
    copy_cost,
    dims,
    gradient,
    need,
    promote,
    result,
    spec,
    vector,
    wants,
)
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__ = ["selected"]


# ---------------------------------------------------------------------------------------------- joining

_CAT = (
    *spellings("cat", "ta"), *spellings("concat", "ta"), *spellings("concatenate", "ta"), "aten::_cat",
    *spellings("hstack", "ta"), *spellings("vstack", "ta"), *spellings("dstack", "ta"), *spellings("row_stack", "ta"),
    *spellings("column_stack", "ta"), *spellings("stack", "ta"), *spellings("_stack", "ta"),
)  # fmt: skip


@formula(*_CAT)
def cat(tensors: list[TensorSpec], dim: Any = 0, out: Any = None) -> Cost:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        # Older traces leave lists of tensors out; what is written was read.
        return copy_cost(out, out) if isinstance(out, TensorSpec) else Cost(0, 0, None)
    output = result(out, (sum(t.numel for t in tensors),), promote(*tensors))
    return copy_cost(tensors, output)


@formula(*spellings("_chunk_cat", "ta"))
def chunk_cat(tensors: list[TensorSpec], dim: Any, num_chunks: Any, out: Any = None) -> Cost:
    # Each tensor is padded along dim to a whole number of chunks; the chunks are laid side by side.
    found, along, chunks = _joined(tensors), need(dim, "dim"), need(num_chunks, "num_chunks")
    padded = [t.numel // max(t.shape[along], 1) * -(-t.shape[along] // chunks) * chunks for t in found]
    return copy_cost(found, result(out, (sum(padded),), promote(*found)))


def _joined(tensors: Any) -> list[TensorSpec]:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise Missing("tensors not recorded")
    return list(tensors)


@backward(*_CAT)
def cat_backward(tensors: list[TensorSpec], dim: Any = 0, out: Any = None) -> tuple[Piece, ...]:
    # Each gradient is a view of the incoming one.
    return ()


@formula("torch.block_diag", "aten::block_diag")
def block_diag(*tensors: Any) -> Cost:
    found = _joined(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors)
    shapes = [(1,) * (2 - len(t.shape)) + t.shape for t in found]
    shape = (sum(s[0] for s in shapes), sum(s[1] for s in shapes))
    return copy_cost(found, spec(shape, promote(*found)))


@formula("torch.cartesian_prod", "aten::cartesian_prod", "torch.meshgrid", "aten::meshgrid", "torch.broadcast_tensors",
         "aten::broadcast_tensors", kind="structural")  # fmt: skip
def meshgrid(*tensors: Any, indexing: Any = None) -> Cost:
    return Cost(0, 0, 0)


# ---------------------------------------------------------------------------------------------- rows along one dimension


def _rows(input: TensorSpec, dim: Any, index: TensorSpec) -> tuple[int, ...]:
    shape = list(input.shape)
    if not shape:
        return ()
    shape[dims(dim, len(shape))[0]] = index.numel
    return tuple(shape)


_INDEX_SELECT = spellings("index_select")


@formula(*_INDEX_SELECT)
def index_select(input: TensorSpec, dim: Any, index: TensorSpec, out: Any = None) -> Cost:
    output = result(out, _rows(input, dim, index), input.dtype)
    return copy_cost(spec(output.shape, input.dtype), index, output)


@backward(*_INDEX_SELECT)
def index_select_backward(input: TensorSpec, dim: Any, index: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    return _accumulated(input, spec(_rows(input, dim, index), input.dtype), index)


def _accumulated(input: TensorSpec, rows: TensorSpec, *indices: Any) -> tuple[Piece, ...]:
    """A zeroed gradient of the input into which the rows are added."""
    if not wants(input):
        return ()
    return (Piece("input", vector(rows.numel, rows, rows, rows, indices, gradient(input))),)


_GATHER = (*spellings("gather"), *spellings("take_along_dim"))


@formula(*_GATHER)
def gather(input: TensorSpec, dim: Any, index: Any = None, sparse_grad: Any = False, out: Any = None) -> Cost:
    where = index if isinstance(index, TensorSpec) else dim  # take_along_dim has the indices before dim
    output = result(out, _gathered(input, where, index, where is dim), input.dtype)
    return copy_cost(spec(output.shape, input.dtype), where, output)


def _gathered(input: TensorSpec, where: TensorSpec, dim: Any, broadcasts: bool) -> tuple[int, ...]:
    """The shape of the indices, which take_along_dim broadcasts against the input in all dimensions but one."""
    if not broadcasts or not isinstance(dim, int) or len(where.shape) != len(input.shape) or not where.shape:
        return where.shape
    axis = dim % len(where.shape)
    return tuple(
        n if d == axis else max(n, input.shape[d]) if 1 in (n, input.shape[d]) else n for d, n in enumerate(where.shape)
    )


@backward(*_GATHER)
def gather_backward(
    input: TensorSpec, dim: Any, index: Any = None, sparse_grad: Any = False, out: Any = None
) -> tuple[Piece, ...]:
    where = index if isinstance(index, TensorSpec) else dim
    return _accumulated(input, spec(where.shape, input.dtype), where)


@formula("aten::gather_backward", "aten::index_select_backward")
def aten_gather_backward(grad: TensorSpec, input: Any, dim: Any, index: TensorSpec, sparse_grad: Any = False) -> Cost:
    shape = input.shape if isinstance(input, TensorSpec) else tuple(need(input, "sizes"))
    return vector(grad.numel, grad, grad, grad, index, spec(shape, grad.dtype))


@formula(*spellings("take"))
def take(input: TensorSpec, index: TensorSpec, out: Any = None) -> Cost:
    output = result(out, index.shape, input.dtype)
    return copy_cost(output, index, output)


@backward(*spellings("take"))
def take_backward(input: TensorSpec, index: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    return _accumulated(input, spec(index.shape, input.dtype), index)


# ---------------------------------------------------------------------------------------------- writing into a tensor


def _written(input: TensorSpec, source: Any, index: TensorSpec, accumulates: bool, in_place: bool, rows: TensorSpec) -> Cost:
    """rows: the elements of the input that are written."""
    read = source if isinstance(source, TensorSpec) else None
    touched = (rows, rows) if accumulates else (rows,)
    if not in_place:  # a copy of the whole, of which the chosen elements are changed
        return vector(rows.numel if accumulates else 0, input, gradient(input), read, index)
    return vector(rows.numel if accumulates else 0, read, index, touched)


def _register_writer(op: str, accumulates: bool, by_rows: bool, in_place: bool) -> None:
    def write(
        input: TensorSpec, dim: Any, index: TensorSpec, src: Any = None, *options: Any, out: Any = None, **more: Any
    ) -> Cost:
        rows = spec(_rows(input, dim, index) if by_rows else index.shape, input.dtype)
        adds = accumulates or more.get("reduce") is not None or any(isinstance(o, str) for o in options)
        return _written(input, src if src is not None else more.get("source"), index, adds, in_place, rows)

    def back(
        input: TensorSpec, dim: Any, index: TensorSpec, src: Any = None, *options: Any, out: Any = None, **more: Any
    ) -> tuple[Piece, ...]:
        # The input's gradient is the incoming one, with zeros in the chosen places where they were overwritten; that of the
        # source is gathered.
        source = src if src is not None else more.get("source")
        rows = spec(_rows(input, dim, index) if by_rows else index.shape, input.dtype)
        pieces = []
        if wants(input) and not accumulates:
            pieces.append(Piece("input", copy_cost(gradient(input), gradient(input), index)))
        if isinstance(source, TensorSpec) and wants(source):
            pieces.append(Piece("source", copy_cost(rows, index, rows)))
        return tuple(pieces)

    write.__name__ = write.__qualname__ = op
    full = spellings(op, "Ta" if in_place else "tTa")
    formula(*full)(write)
    backward(*full)(back)


for _op, _adds, _by_rows in (
    ("scatter", False, False), ("scatter_add", True, False), ("scatter_reduce", True, False), ("index_add", True, True),
    ("index_copy", False, True), ("index_fill", False, True), ("index_reduce", True, True),
):  # fmt: skip
    _register_writer(_op, _adds, _by_rows, False)
    _register_writer(f"{_op}_", _adds, _by_rows, True)


def _is_data(indices: Any) -> bool:
    """Whether what is selected is not known: a mask, or indices that were not recorded."""
    entries = indices if isinstance(indices, (list, tuple)) else [indices]
    masks = (isinstance(i, TensorSpec) and i.dtype in ("bool", "uint8") for i in entries)
    return not entries or any(i is UNKNOWN for i in entries) or any(masks)


def selected(input: TensorSpec, indices: Any) -> tuple[tuple[int, ...], list[TensorSpec]]:
    """Shape of what a list of index tensors (None for a whole dimension) selects, and those tensors."""
    if indices is UNKNOWN or indices is None:
        raise Missing("indices not recorded")
    entries = list(indices) if isinstance(indices, (list, tuple)) else [indices]
    tensors: list[TensorSpec] = []
    kept: list[int] = []
    axis = 0
    for entry in entries:
        if isinstance(entry, TensorSpec) and entry.dtype in ("bool", "uint8"):
            raise Missing("what a mask selects is data, not recorded")
        if isinstance(entry, TensorSpec):
            tensors.append(entry)
        elif entry is None or isinstance(entry, slice):
            kept.append(input.shape[axis] if entry is None else len(range(*entry.indices(input.shape[axis]))))
        elif entry is UNKNOWN:
            raise Missing("indices not recorded")
        axis += 1
    return (*broadcast(*(t.shape for t in tensors)), *kept, *input.shape[axis:]), tensors


_INDEX = ("aten::index", "aten::_unsafe_index", "torch._unsafe_index")


@formula(*_INDEX)
def index(input: TensorSpec, indices: list[TensorSpec], out: Any = None) -> Cost:
    if _is_data(indices):
        return Cost(0, 0, None)
    shape, tensors = selected(input, indices)
    output = result(out, shape, input.dtype)
    return copy_cost(output, tensors, output)


@backward(*_INDEX)
def index_backward(input: TensorSpec, indices: list[TensorSpec], out: Any = None) -> tuple[Piece, ...]:
    shape, tensors = selected(input, indices)
    return _accumulated(input, spec(shape, input.dtype), tensors)


_INDEX_PUT_ = (*spellings("index_put_"), *spellings("_index_put_impl_", "ta"))
_INDEX_PUT = (*spellings("index_put"), *spellings("_unsafe_index_put", "ta"), "aten::_index_put_impl")


def _index_put(input: TensorSpec, indices: Any, values: Any, accumulate: Any, in_place: bool) -> Cost:
    if _is_data(indices):
        return Cost(0, None if accumulate is True else 0, None)
    shape, tensors = selected(input, indices)
    rows, adds = spec(shape, input.dtype), accumulate is True
    read = values if isinstance(values, TensorSpec) else None
    touched = ((rows, rows) if adds else (rows,)) if in_place else (input, gradient(input))
    return vector(rows.numel if adds else 0, read, tensors, touched)


@formula(*_INDEX_PUT_)
def index_put_(input: TensorSpec, indices: list[TensorSpec], values: Any = None, accumulate: Any = False, *more: Any) -> Cost:
    return _index_put(input, indices, values, accumulate, True)


@formula(*_INDEX_PUT)
def index_put(input: TensorSpec, indices: list[TensorSpec], values: Any = None, accumulate: Any = False, *more: Any) -> Cost:
    # A copy of the whole, of which the chosen elements are changed.
    return _index_put(input, indices, values, accumulate, False)


def _basic(input: TensorSpec, key: Any) -> tuple[int, ...] | None:
    """The shape of a view that ints, slices, None and Ellipsis make; None where a tensor or a list of ints indexes."""
    items = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(i, (TensorSpec, list)) for i in items):
        return None
    if any(i is UNKNOWN for i in items):
        raise Missing("index not recorded")
    used = sum(1 for i in items if i is not None and i is not Ellipsis and not isinstance(i, bool))
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (len(input.shape) - used)
    shape: list[int] = []
    axis = 0
    for item in items:
        if item is None or isinstance(item, bool):
            shape.append(1)
            continue
        if isinstance(item, slice):
            shape.append(len(range(*item.indices(input.shape[axis]))))
        axis += 1
    return (*shape, *input.shape[axis:])


def _advanced(key: Any) -> list[Any]:
    items = list(key) if isinstance(key, tuple) else [key]
    return [spec((len(i),), "int64") if isinstance(i, list) else i for i in items if i is not Ellipsis]


@formula("Tensor.__getitem__")
def getitem(input: TensorSpec, key: Any) -> Cost:
    """x[i, 1:3] is a view; x[tensor] gathers."""
    return Cost(0, 0, 0) if _basic(input, key) is not None else index(input, _advanced(key))


@backward("Tensor.__getitem__")
def getitem_backward(input: TensorSpec, key: Any) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    shape = _basic(input, key)
    if shape is None:
        return index_backward(input, _advanced(key))
    return (Piece("input", copy_cost(spec(shape, input.dtype), gradient(input))),)  # zeros with the gradient copied in


@formula("Tensor.__setitem__")
def setitem(input: TensorSpec, key: Any, value: Any) -> Cost:
    shape = _basic(input, key)
    if shape is None:
        return _index_put(input, _advanced(key), value, False, True)
    return copy_cost(value if isinstance(value, TensorSpec) else None, spec(shape, input.dtype))


@formula(*spellings("put"))
def put(input: TensorSpec, index: TensorSpec, source: TensorSpec, accumulate: Any = False) -> Cost:
    return _written(input, source, index, accumulate is True, False, spec(index.shape, input.dtype))


@formula(*spellings("put_", "Ta"))
def put_(input: TensorSpec, index: TensorSpec, source: TensorSpec, accumulate: Any = False) -> Cost:
    return _written(input, source, index, accumulate is True, True, spec(index.shape, input.dtype))


# ---------------------------------------------------------------------------------------------- backward ops of the dispatcher


@formula("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward", "aten::narrow_backward")
def slice_backward(grad_output: TensorSpec, input_sizes: Any = UNKNOWN, *options: Any) -> Cost:
    sizes = need(input_sizes, "input_sizes")
    return copy_cost(grad_output, spec(sizes, grad_output.dtype))


@formula("aten::unfold_backward")
def unfold_backward(grad_in: TensorSpec, input_sizes: Any, *options: Any) -> Cost:
    return vector(grad_in.numel, grad_in, spec(need(input_sizes, "input_sizes"), grad_in.dtype))


@formula("aten::value_selecting_reduction_backward")
def value_selecting_backward(
    grad: TensorSpec, dim: Any, indices: TensorSpec, sizes: Any = UNKNOWN, keepdim: Any = False
) -> Cost:
    return copy_cost(grad, indices, spec(need(sizes, "sizes"), grad.dtype))


# ---------------------------------------------------------------------------------------------- backward


@backward(*spellings("index_put"), *spellings("index_put_"))
def index_put_backward(
    input: TensorSpec, indices: list[TensorSpec], values: Any = None, accumulate: Any = False, *more: Any
) -> tuple[Piece, ...]:
    # The input's is the incoming one, with zeros where it was overwritten; that of the values is gathered, and summed where
    # they were broadcast.
    shape, tensors = selected(input, indices)
    rows, grad = spec(shape, input.dtype), gradient(input)
    pieces = []
    if wants(input) and accumulate is not True:
        pieces.append(Piece("input", copy_cost(grad, grad, tensors)))
    if isinstance(values, TensorSpec) and wants(values):
        summed = rows.numel if values.shape != rows.shape else 0
        pieces.append(Piece("values", vector(summed, rows, tensors, gradient(values))))
    return tuple(pieces)
