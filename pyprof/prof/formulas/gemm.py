"""Matrix products of dense tensors: mm, bmm, matmul, linear, addmm and their kin.

Convention: a product of (M,K) and (K,N) is 2·M·N·K operations, 4 times that for complex numbers; adding C or a bias is not
counted, reading it is. mnk are rows, columns and depth as PyTorch's row-major tensors have them. A tensor multiplied with one
matrix counts as one product of all its rows, as torch runs it. A gradient of a matrix is a product of the same size; that of a
matrix that is multiplied with a vector is an elementwise outer product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import (
    broadcast,
    grad,
    gradient,
    nbytes,
    need,
    opt,
    product,
    promote,
    result,
    spec,
    vector,
    wants,
)
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, forward, op


def product_cost(m: int, n: int, k: int, *tensors: object, batch: int = 1, dtype: str | None = None) -> Cost:
    """`batch` products of (m,k) and (k,n) that together touch each of the tensors once; dtype: of the operands."""
    found = lookup(dtype)
    factor = 8 if found is not None and found.kind == "complex" else 2
    text = f"M={m},N={n},K={k}" + (f",B={batch}" if batch != 1 else "") + (f",{found.tag}" if found else "")
    return Cost(factor * batch * m * n * k, 0, nbytes(*tensors), (m, n, k), batch, text, found.name if found else None)


def product_backward(
    a: TensorSpec,
    b: TensorSpec,
    shape: tuple[int, ...],
    sizes: tuple[int, int, int],
    batch: int = 1,
    *,
    second_first: bool = True,
) -> tuple[Piece, ...]:
    """Both gradients of C = A·B: dA = dC·Bᵀ (`dgrad`) and dB = Aᵀ·dC (`wgrad`), each a product of the same size.

    shape: of C; sizes: m, n, k. Autograd computes gradients in the alphabetical order of the argument names of the dispatcher's
    op: mm(self, mat2) and bmm do B's first, addmm(self, mat1, mat2) and baddbmm do A's first.
    """
    m, n, k = sizes
    incoming = spec(shape, a.dtype)
    pieces = []
    if wants(b):
        pieces.append(Piece("wgrad", product_cost(k, n, m, incoming, a, gradient(b), batch=batch, dtype=a.dtype)))
    if wants(a):
        pieces.append(Piece("dgrad", product_cost(m, k, n, incoming, b, gradient(a), batch=batch, dtype=a.dtype)))
    return tuple(pieces if second_first else reversed(pieces))


def number_backward(a: TensorSpec, b: TensorSpec) -> Iterator[Piece]:
    """Gradients of a product that is one number: each is the other operand times it."""
    number = spec((), a.dtype)
    yield from grad("wgrad", b, a.numel, number, a)
    yield from grad("dgrad", a, b.numel, number, b)


def _vector_backward(a: TensorSpec, b: TensorSpec, shape: tuple[int, ...], rows: int, k: int) -> Iterator[Piece]:
    """Gradients of a product with a vector: the matrix's is an elementwise outer product, the vector's a product again."""
    incoming = spec(shape, a.dtype)
    yield from grad("dgrad", a, rows * k, incoming, b)
    if wants(b):
        yield Piece("wgrad", product_cost(k, 1, rows, incoming, a, gradient(b), dtype=a.dtype))


def _same_depth(a: TensorSpec, b: TensorSpec, depth: int, other: int) -> None:
    if depth != other:
        raise Missing(f"shapes {list(a.shape)} and {list(b.shape)} do not fit: depth {depth} and {other}")


def _sizes(a: TensorSpec, b: TensorSpec) -> tuple[int, int, int, int]:
    """m, n, k and the batch of (m, k)·(k, n) or (b, m, k)·(b, k, n)."""
    (*outer, m, k), (*other, depth, n) = a.shape, b.shape
    _same_depth(a, b, k, depth)
    if outer != other:
        raise Missing(f"shapes {list(a.shape)} and {list(b.shape)} do not fit")
    return m, n, k, product(outer)


# ---------------------------------------------------------------------------------------------- two matrices


@op("mm", "torch.spmm", "bmm", kind="matmul")
def mm(input: TensorSpec, mat2: TensorSpec, out: object = None) -> Op:
    m, n, k, batch = _sizes(input, mat2)
    shape = (*input.shape[:-1], n)
    yield product_cost(m, n, k, input, mat2, result(out, shape, input.dtype), batch=batch, dtype=input.dtype)
    yield from product_backward(input, mat2, shape, (m, n, k), batch)


@op("mv", kind="matmul")
def mv(input: TensorSpec, vec: TensorSpec, out: object = None) -> Op:
    m, k = input.shape
    _same_depth(input, vec, k, vec.numel)
    yield product_cost(m, 1, k, input, vec, result(out, (m,), input.dtype), dtype=input.dtype)
    yield from _vector_backward(input, vec, (m,), m, k)


@op("dot", "vdot", "inner", kind="matmul", tensor="other")
def dot(input: TensorSpec, other: TensorSpec, out: object = None) -> Op:
    # inner() contracts the last dimension of both; for vectors that is dot().
    if not input.shape or not other.shape:
        shape = broadcast(input.shape, other.shape)
        yield vector(product(shape), input, other, result(out, shape, input.dtype))
        yield from number_backward(input, other)
        return
    k = input.shape[-1]
    _same_depth(input, other, k, other.shape[-1])
    m, n = input.numel // max(k, 1), other.numel // max(k, 1)
    shape = input.shape[:-1] + other.shape[:-1]
    yield product_cost(m, n, k, input, other, result(out, shape, input.dtype), dtype=input.dtype)
    yield from product_backward(input, other, shape, (m, n, k)) if shape else number_backward(input, other)


@op("outer", "ger")
def outer(input: TensorSpec, vec2: TensorSpec, out: object = None) -> Op:
    # A product of each pair and no sum: torch runs an elementwise kernel.
    return _each_by_each(input, vec2, (input.numel, vec2.numel), out)


@op("kron")
def kron(input: TensorSpec, other: TensorSpec, out: object = None) -> Op:
    return _each_by_each(input, other, (input.numel * other.numel,), out)


def _each_by_each(a: TensorSpec, b: TensorSpec, shape: tuple[int, ...], out: object) -> Op:
    """Each gradient is the incoming one times the other operand, summed over dimensions that the operand lacks."""
    made = spec(shape, promote(a, b))
    yield vector(made.numel, a, b, result(out, shape, made.dtype))
    yield from grad("input", a, 2 * made.numel, made, b)
    yield from grad("other", b, 2 * made.numel, made, a)


# ---------------------------------------------------------------------------------------------- matmul and linear


def _matmul_sizes(first: TensorSpec, second: TensorSpec) -> tuple[int, int, int, int, tuple[int, ...]]:
    """m, n, k, batch and the shape of the result, of torch.matmul's two operands."""
    a, b = first.shape, second.shape
    if not a or not b:
        raise Missing("matmul of a 0-dimensional tensor")
    rows = a if len(a) > 1 else (1, *a)
    columns = b if len(b) > 1 else (*b, 1)
    m, k, n = rows[-2], rows[-1], columns[-1]
    _same_depth(first, second, k, columns[-2])
    outer_shape = broadcast(rows[:-2], columns[:-2])
    shape = outer_shape + ((m,) if len(a) > 1 else ()) + ((n,) if len(b) > 1 else ())
    batch = product(outer_shape)
    if len(b) <= 2:  # one matrix for all: the leading dimensions are rows
        return batch * m, n, k, 1, shape
    return m, n, k, batch, shape


@op("matmul", "Tensor.__matmul__", "torch.linalg.matmul", "aten::linalg_matmul", kind="matmul")
def matmul(input: TensorSpec, other: TensorSpec, out: object = None) -> Op:
    m, n, k, batch, shape = _matmul_sizes(input, other)
    yield product_cost(m, n, k, input, other, result(out, shape, input.dtype), batch=batch, dtype=input.dtype)
    # Broadcast operands are expanded and their gradients summed; the products are those of the expanded problem.
    if len(input.shape) == 1 == len(other.shape):
        yield from number_backward(input, other)
    elif len(other.shape) == 1:
        yield from _vector_backward(input, other, shape, m, k)
    else:
        yield from product_backward(input, other, shape, (m, n, k), batch)


@op("Tensor.__rmatmul__", kind="matmul")
def rmatmul(input: TensorSpec, other: TensorSpec) -> Op:
    return matmul(other, input)


@op("aten::matmul_backward", kind="matmul")
def matmul_backward(grad: TensorSpec, input: TensorSpec, other: TensorSpec, mask: object = UNKNOWN) -> Cost:
    # One product for each gradient that the mask selects, of the size of the forward's.
    m, n, k, batch, _ = _matmul_sizes(input, other)
    first, second = need(mask, "mask")
    outputs = [gradient(t) for t, on in ((input, first), (other, second)) if on]
    read = (grad, other if first else None, input if second else None)
    one = product_cost(m, n, k, read, outputs, batch=batch, dtype=input.dtype)
    return replace(one, matmul_flops=(one.matmul_flops or 0) * len(outputs))


@op("_foreach_mm", places="ta", kind="matmul")
def foreach_mm(input: list[TensorSpec], mat2: object) -> Cost:
    if not isinstance(mat2, (list, tuple)) or len(mat2) != len(input):
        raise Missing("lists of tensors were not kept apart")
    costs = [forward(mm(a, b)) for a, b in zip(input, mat2, strict=True)]
    moved = [cost.bytes for cost in costs]
    flops = sum(cost.matmul_flops or 0 for cost in costs)
    return Cost(flops, 0, None if None in moved else sum(size or 0 for size in moved))


def _linear_sizes(input: TensorSpec, weight: TensorSpec) -> tuple[int, int, int, tuple[int, ...]]:
    """m, n, k and the shape of the result, of (..., K) x (N, K); a weight of one dimension is a vector."""
    k = input.shape[-1]
    _same_depth(input, weight, k, weight.shape[-1])
    columns = weight.shape[:-1]
    return product(input.shape[:-1]), product(columns), k, input.shape[:-1] + columns


@op("linear", "aten::mkldnn_linear", places="Fa", kind="matmul")
def linear(input: TensorSpec, weight: TensorSpec, bias: object = None, out: object = None) -> Op:
    m, n, k, shape = _linear_sizes(input, weight)
    yield product_cost(m, n, k, input, weight, opt(bias), result(out, shape, input.dtype), dtype=input.dtype)
    # dX = dY·W (M,N)x(N,K); dW = dYᵀ·X (N,M)x(M,K); db = column sums of dY. With a bias it runs as addmm, else as mm.
    biased = isinstance(bias, TensorSpec)
    text = product_cost(n, k, m, dtype=input.dtype).params
    for piece in product_backward(input, weight, shape, (m, n, k), second_first=not biased):
        # The weight's gradient is that of (N, K), not of its transpose.
        yield Piece("wgrad", replace(piece.cost, mnk=(n, k, m), params=text)) if piece.name == "wgrad" else piece
    yield from grad("bias", bias, m * n, spec(shape, input.dtype))


@op("aten::linear_backward", "aten::mkldnn_linear_backward", kind="matmul")
def linear_backward(input: TensorSpec, grad_output: TensorSpec, weight: TensorSpec, output_mask: object = UNKNOWN) -> Cost:
    mask = need(output_mask, "output_mask")
    m, n, k, _ = _linear_sizes(input, weight)
    outputs = [gradient(t) for t, on in zip((input, weight), mask, strict=False) if on]
    cost = product_cost(
        m, n, k, grad_output, input if mask[1] else None, weight if mask[0] else None, outputs, dtype=input.dtype
    )
    return Cost(2 * m * n * k * len(outputs), m * n if mask[2] else 0, cost.bytes, cost.mnk, 1, cost.params)


@op("aten::mkldnn_linear_backward_input", kind="matmul")
def mkldnn_linear_backward_input(input_size: object, grad_output: TensorSpec, weight: TensorSpec) -> Cost:
    source = spec(need(input_size, "input_size"), grad_output.dtype)
    m, n, k, _ = _linear_sizes(source, weight)
    return product_cost(m, k, n, grad_output, weight, source, dtype=grad_output.dtype)


@op("aten::mkldnn_linear_backward_weights", kind="matmul")
def mkldnn_linear_backward_weights(
    grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec, bias_defined: object
) -> Cost:
    m, n, k, _ = _linear_sizes(input, weight)
    biased = need(bias_defined, "bias_defined") is True
    cost = product_cost(
        n, k, m, grad_output, input, gradient(weight), spec((n,), weight.dtype) if biased else None, dtype=input.dtype
    )
    return replace(cost, vector_flops=m * n if biased else 0)


@op("bilinear", places="tFa", kind="matmul")
def bilinear(input1: TensorSpec, input2: TensorSpec, weight: TensorSpec, bias: object = None) -> Op:
    # y_n = x1ᵀ W_n x2 for each n: 2·I·J for x1ᵀ W_n, as rows x (N·J) x I, and 2·J for its product with x2.
    n, i, j = weight.shape
    m = product(input1.shape[:-1])
    output = spec((*input1.shape[:-1], n), input1.dtype)
    cost = product_cost(m, n * j, i, input1, input2, weight, opt(bias), output, dtype=input1.dtype)
    yield replace(cost, matmul_flops=2 * m * n * (i * j + j))
    # Each gradient is a contraction of the same three sizes: autograd runs one `_trilinear` for each.
    parts = ("dgrad", input1, (input2, weight)), ("dgrad", input2, (input1, weight)), ("wgrad", weight, (input1, input2))
    for name, x, read in parts:
        if wants(x):
            yield Piece(name, Cost(2 * m * n * i * j, 0, nbytes(output, read, gradient(x))))
    yield from grad("bias", bias, m * n, output)


# ---------------------------------------------------------------------------------------------- with an addend


def _addend(c: object, beta: object) -> TensorSpec | None:
    """C where it is read: beta = 0 leaves it alone."""
    return None if beta == 0 else opt(c)


@op("addmm", "Tensor.addmm_", "aten::addmm_", "_addmm_activation", kind="matmul")
@op("baddbmm", "Tensor.baddbmm_", "aten::baddbmm_", kind="matmul", batch1="mat1", batch2="mat2")
def addmm(input: object, mat1: TensorSpec, mat2: TensorSpec, beta: object = 1, out: object = None) -> Op:
    m, n, k, batch = _sizes(mat1, mat2)
    made = spec((*mat1.shape[:-1], n), mat1.dtype)
    output = result(out, made.shape, made.dtype)
    yield product_cost(m, n, k, _addend(input, beta), mat1, mat2, output, batch=batch, dtype=mat1.dtype)
    yield from product_backward(mat1, mat2, made.shape, (m, n, k), batch, second_first=False)
    # The sum that takes the gradient back to the shape of C; nothing runs where the shapes agree.
    if isinstance(input, TensorSpec) and input.shape != made.shape:
        yield from grad("bias", input, made.numel, made)


@op("Tensor.addbmm_", "aten::addbmm_", kind="matmul", backward=False)
@op("addbmm", kind="matmul")
def addbmm(input: object, batch1: TensorSpec, batch2: TensorSpec, beta: object = 1, out: object = None) -> Op:
    # The products are summed over the batch: one product of depth B·K.
    m, n, k, batch = _sizes(batch1, batch2)
    output = result(out, (m, n), batch1.dtype)
    yield product_cost(m, n, batch * k, _addend(input, beta), batch1, batch2, output, dtype=batch1.dtype)
    yield from product_backward(batch1, batch2, (m, n), (m, n, k), batch, second_first=False)


@op("addmv_", kind="matmul", backward=False)
@op("addmv", kind="matmul")
def addmv(input: object, mat: TensorSpec, vec: TensorSpec, beta: object = 1, out: object = None) -> Op:
    m, k = mat.shape
    _same_depth(mat, vec, k, vec.numel)
    yield product_cost(m, 1, k, _addend(input, beta), mat, vec, result(out, (m,), mat.dtype), dtype=mat.dtype)
    yield from _vector_backward(mat, vec, (m,), m, k)


@op("Tensor.addr_", "aten::addr_", backward=False)
@op("addr")
def addr(input: object, vec1: TensorSpec, vec2: TensorSpec, beta: object = 1, out: object = None) -> Op:
    m, n = vec1.numel, vec2.numel
    yield vector(2 * m * n, _addend(input, beta), vec1, vec2, result(out, (m, n), vec1.dtype))
    incoming = spec((m, n), vec1.dtype)
    for name, x, other, size in (("vec1", vec1, vec2, (m, 1, n)), ("vec2", vec2, vec1, (n, 1, m))):
        if wants(x):
            yield Piece(name, product_cost(*size, incoming, other, gradient(x), dtype=x.dtype))


@op("_trilinear", places="ta", kind="matmul")
def trilinear(
    i1: TensorSpec, i2: TensorSpec, i3: TensorSpec, expand1: object, expand2: object, expand3: object, sumdim: object
) -> Cost:
    # sum over `sumdim` of i1 * i2 * i3, each unsqueezed in the dimensions of its `expand`.
    shapes = []
    for x, added in ((i1, expand1), (i2, expand2), (i3, expand3)):
        sizes = list(x.shape)
        for dim in sorted(need(added, "expand")):
            sizes.insert(dim, 1)
        shapes.append(tuple(sizes))
    full = broadcast(*shapes)
    shape = tuple(n for d, n in enumerate(full) if d not in need(sumdim, "sumdim"))
    return Cost(2 * product(full), 0, nbytes(i1, i2, i3, spec(shape, i1.dtype)))
