"""Joining, indexing, gathering, scattering: ops that move chosen elements. They do no arithmetic, except where they accumulate.

Bytes: an op that gathers reads the chosen elements (at most the whole input), its indices, and writes the result. An op
that scatters into a tensor in place reads its source and its indices and writes as many elements; where it accumulates it
reads those as well. The functional form first copies the whole tensor. Backward: a gather adds the incoming rows to a zeroed
gradient; a scatter passes the incoming gradient on, with zeros where elements were overwritten, and gathers its source's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import (
    broadcast,
    copy_cost,
    dims,
    gathered,
    grad,
    gradient,
    need,
    opt,
    promote,
    result,
    spec,
    vector,
    wants,
)
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, op

# ---------------------------------------------------------------------------------------------- joining


@op("cat", "concat", "concatenate", "hstack", "vstack", "dstack", "row_stack", "column_stack", "stack", "_stack", places="ta")
@op("aten::_cat", order="tensors[] dim")
def cat(tensors: list[TensorSpec], out: object = None) -> Op:
    """Backward: each gradient is a view of the incoming one."""
    if isinstance(tensors, (list, tuple)) and tensors:
        yield copy_cost(tensors, result(out, (sum(t.numel for t in tensors),), promote(*tensors)))
    else:  # older traces leave lists of tensors out; all that is written was also read
        yield copy_cost(out, out) if isinstance(out, TensorSpec) else Cost(0, 0, None)


@op("_chunk_cat", places="ta")
def chunk_cat(tensors: list[TensorSpec], dim: object, num_chunks: object, out: object = None) -> Cost:
    # Each tensor is padded along dim to a whole number of chunks; the chunks are laid side by side.
    found, along, chunks = _joined(tensors), need(dim, "dim"), need(num_chunks, "num_chunks")
    padded = [t.numel // max(t.shape[along], 1) * -(-t.shape[along] // chunks) * chunks for t in found]
    return copy_cost(found, result(out, (sum(padded),), promote(*found)))


def _joined(tensors: object) -> list[TensorSpec]:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise Missing("tensors not recorded")
    return list(tensors)


@op("block_diag", places="ta")
def block_diag(*tensors: object) -> Cost:
    found = _joined(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors)
    shapes = [(1,) * (2 - len(t.shape)) + t.shape for t in found]
    return copy_cost(found, spec((sum(s[0] for s in shapes), sum(s[1] for s in shapes)), promote(*found)))


@op("cartesian_prod", "meshgrid", "broadcast_tensors", places="ta", kind="structural")
def meshgrid(*tensors: object, indexing: object = None) -> Cost:
    return Cost(0, 0, 0)


# ---------------------------------------------------------------------------------------------- rows along one dimension


def _rows(input: TensorSpec, dim: object, index: TensorSpec) -> tuple[int, ...]:
    shape = list(input.shape)
    if not shape:
        return ()
    shape[dims(dim, len(shape))[0]] = index.numel
    return tuple(shape)


def _accumulated(input: TensorSpec, rows: TensorSpec, *indices: object) -> Iterator[Piece]:
    """A zeroed gradient of the input into which the rows are added."""
    touched = gathered(gradient(input), rows.shape)
    return grad("input", input, rows.numel, rows, touched, touched, indices)


@op("index_select")
def index_select(input: TensorSpec, dim: object, index: TensorSpec, out: object = None) -> Op:
    rows = spec(_rows(input, dim, index), input.dtype)
    output = result(out, rows.shape, input.dtype)
    yield copy_cost(gathered(input, output.shape), index, output)
    yield from _accumulated(input, rows, index)


@op("gather")
def gather(input: TensorSpec, dim: object, index: object = None, out: object = None) -> Op:
    where = opt(index) or need(opt(dim) or UNKNOWN, "index")  # where only tensors were recorded the second is the index
    yield _gather(input, where, where.shape, out)
    yield from _accumulated(input, spec(where.shape, input.dtype), where)


@op("take_along_dim")
def take_along_dim(input: TensorSpec, indices: TensorSpec, dim: object = None, out: object = None) -> Op:
    """The indices are broadcast against the input in all dimensions but `dim`."""
    shape = indices.shape
    if isinstance(dim, int) and len(shape) == len(input.shape) and shape:
        sizes = enumerate(zip(shape, input.shape, strict=True))
        shape = tuple(n if d == dim % len(shape) else max(n, m) if 1 in (n, m) else n for d, (n, m) in sizes)
    yield _gather(input, indices, shape, out)
    yield from _accumulated(input, spec(indices.shape, input.dtype), indices)


def _gather(input: TensorSpec, index: TensorSpec, shape: tuple[int, ...], out: object) -> Cost:
    output = result(out, shape, input.dtype)
    return copy_cost(gathered(input, output.shape), index, output)


@op("aten::gather_backward")
def gather_backward(grad: TensorSpec, input: TensorSpec, index: TensorSpec) -> Cost:
    return _added(grad, index, spec(input.shape, grad.dtype))


@op("aten::index_select_backward")
def index_select_backward(grad: TensorSpec, self_sizes: object, index: TensorSpec) -> Cost:
    return _added(grad, index, spec(need(self_sizes, "sizes"), grad.dtype))


def _added(grad: TensorSpec, index: TensorSpec, whole: TensorSpec) -> Cost:
    touched = gathered(whole, grad.shape)
    return vector(grad.numel, grad, touched, touched, index, whole)


@op("take")
def take(input: TensorSpec, index: TensorSpec, out: object = None) -> Op:
    output = result(out, index.shape, input.dtype)
    yield copy_cost(gathered(input, output.shape), index, output)
    yield from _accumulated(input, spec(index.shape, input.dtype), index)


# ---------------------------------------------------------------------------------------------- writing into a tensor


def _written(input: TensorSpec, source: object, index: TensorSpec, accumulates: bool, in_place: bool, rows: TensorSpec) -> Cost:
    """rows: the elements of the input that are written."""
    flops = rows.numel if accumulates else 0
    if not in_place:  # a copy of the whole with the chosen elements changed
        return vector(flops, input, gradient(input), opt(source), index)
    return vector(flops, opt(source), index, rows, rows if accumulates else None)


def _write_backward(
    input: TensorSpec, source: object, index: TensorSpec, rows: TensorSpec, overwrites: bool
) -> Iterator[Piece]:
    if wants(input) and overwrites:
        yield Piece("input", copy_cost(gradient(input), gradient(input), index))
    if wants(source):
        yield Piece("source", copy_cost(rows, index, rows))


def _scatter(in_place: bool) -> Callable[..., Op]:
    def scatter(input: TensorSpec, index: TensorSpec, src: object = None, reduce: object = None) -> Op:
        rows = spec(index.shape, input.dtype)
        yield _written(input, src, index, reduce not in (None, UNKNOWN), in_place, rows)
        yield from _write_backward(input, src, index, rows, True)

    return scatter


def _scatter_adding(in_place: bool) -> Callable[..., Op]:
    def scatter(input: TensorSpec, index: TensorSpec, src: object = None) -> Op:
        rows = spec(index.shape, input.dtype)
        yield _written(input, src, index, True, in_place, rows)
        yield from _write_backward(input, src, index, rows, False)

    return scatter


def _index_writer(adds: bool, in_place: bool) -> Callable[..., Op]:
    def write(input: TensorSpec, dim: object, index: TensorSpec, source: object = None) -> Op:
        rows = spec(_rows(input, dim, index), input.dtype)
        yield _written(input, source, index, adds, in_place, rows)
        yield from _write_backward(input, source, index, rows, not adds)

    return write


for _suffix, _places in (("", "tTa"), ("_", "Ta")):
    _in_place = _suffix == "_"
    op(f"scatter{_suffix}", places=_places)(_scatter(_in_place))
    op(f"scatter_add{_suffix}", f"scatter_reduce{_suffix}", places=_places)(_scatter_adding(_in_place))
    op(f"index_add{_suffix}", f"index_reduce{_suffix}", places=_places)(_index_writer(True, _in_place))
    op(f"index_copy{_suffix}", places=_places)(_index_writer(False, _in_place))
    op(f"index_fill{_suffix}", places=_places, value="source")(_index_writer(False, _in_place))


@op("put", "Tensor.put_", "aten::put_")
def put(input: TensorSpec, index: TensorSpec, source: TensorSpec, accumulate: object = False, out: object = None) -> Cost:
    return _written(input, source, index, accumulate is True, out is input, spec(index.shape, input.dtype))


def _is_data(indices: object) -> bool:
    """Whether the number of selected elements is unknown: a mask, or indices that were not recorded."""
    entries = indices if isinstance(indices, (list, tuple)) else [indices]
    masks = (isinstance(i, TensorSpec) and i.dtype in ("bool", "uint8") for i in entries)
    return not entries or any(i is UNKNOWN for i in entries) or any(masks)


def selected(input: TensorSpec, indices: object) -> tuple[tuple[int, ...], list[TensorSpec]]:
    """Shape of the selection by a list of index tensors (None for a whole dimension), and those tensors."""
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


@op("aten::index", "aten::_unsafe_index", "torch._unsafe_index")
def index(input: TensorSpec, indices: list[TensorSpec] | list[object], out: object = None) -> Op:
    if _is_data(indices):
        yield Cost(0, 0, None)
    shape, tensors = selected(input, indices)
    output = result(out, shape, input.dtype)
    yield copy_cost(gathered(input, output.shape), tensors, output)
    yield from _accumulated(input, spec(shape, input.dtype), tensors)


@op("index_put", "index_put_")
@op("_unsafe_index_put", "_index_put_impl", places="a", backward=False)
@op("torch._unsafe_index_put", "torch._index_put_impl_", "aten::_index_put_impl_", backward=False)
def index_put(
    input: TensorSpec, indices: list[TensorSpec], values: object = None, accumulate: object = False, out: object = None
) -> Op:
    # A copy of the whole with the chosen elements changed, unless the op changes the input itself.
    yield _index_put(input, indices, values, accumulate, out is input)
    yield from _index_put_backward(input, indices, values, accumulate)


def _index_put(input: TensorSpec, indices: object, values: object, accumulate: object, in_place: bool) -> Cost:
    adds = accumulate is True
    if _is_data(indices):
        return Cost(0, None if adds else 0, None)
    shape, tensors = selected(input, indices)
    rows = spec(shape, input.dtype)
    touched = ((rows, rows) if adds else (rows,)) if in_place else (input, gradient(input))
    return vector(rows.numel if adds else 0, opt(values), tensors, touched)


def _index_put_backward(input: TensorSpec, indices: object, values: object, accumulate: object) -> Iterator[Piece]:
    """The input's gradient is the incoming one with zeros where it was overwritten; the values' gradient is gathered, and
    summed if they were broadcast."""
    shape, tensors = selected(input, indices)
    rows = spec(shape, input.dtype)
    if wants(input) and accumulate is not True:
        yield Piece("input", copy_cost(gradient(input), gradient(input), tensors))
    if wants(values):
        yield Piece("values", vector(rows.numel if values.shape != rows.shape else 0, rows, tensors, gradient(values)))


def _basic(input: TensorSpec, key: object) -> tuple[int, ...] | None:
    """The shape of a view that ints, slices, None and Ellipsis make; None if a tensor or a list of ints indexes."""
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


def _advanced(key: object) -> list[object]:
    items = list(key) if isinstance(key, tuple) else [key]
    return [spec((len(i),), "int64") if isinstance(i, list) else i for i in items if i is not Ellipsis]


@op("Tensor.__getitem__", order="input key")
def getitem(input: TensorSpec, key: object) -> Op:
    """x[i, 1:3] is a view, whose gradient is copied into zeros; x[tensor] gathers."""
    shape = _basic(input, key)
    if shape is None:
        yield from index(input, _advanced(key))
        return
    yield Cost(0, 0, 0)
    yield from grad("input", input, 0, spec(shape, input.dtype))


@op("Tensor.__setitem__", order="input key value")
def setitem(input: TensorSpec, key: object, value: object) -> Cost:
    shape = _basic(input, key)
    if shape is None:
        return _index_put(input, _advanced(key), value, False, True)
    return copy_cost(opt(value), spec(shape, input.dtype))


# ---------------------------------------------------------------------------------------------- backward ops of the dispatcher


@op("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward")
@op("aten::narrow_backward", order="grad_output input_sizes ...")
def slice_backward(grad_output: TensorSpec, input_sizes: object = UNKNOWN) -> Cost:
    return copy_cost(grad_output, spec(need(input_sizes, "input_sizes"), grad_output.dtype))


@op("aten::unfold_backward")
def unfold_backward(grad_in: TensorSpec, input_sizes: object) -> Cost:
    return vector(grad_in.numel, grad_in, spec(need(input_sizes, "input_sizes"), grad_in.dtype))


@op("aten::value_selecting_reduction_backward")
def value_selecting_backward(grad: TensorSpec, indices: TensorSpec, sizes: object = UNKNOWN) -> Cost:
    return copy_cost(grad, indices, spec(need(sizes, "sizes"), grad.dtype))
