"""Matrix products of dense tensors: mm, bmm, matmul, linear, addmm and their kin.

Convention: a product of (M,K) and (K,N) is 2·M·N·K operations, 4 times that for complex numbers; adding C or a bias is not
counted, reading it is. mnk are rows, columns and depth as PyTorch's row-major tensors have them. A tensor multiplied with one
matrix counts as one product of all its rows, as torch runs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyprof.dtypes import lookup
from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import (
    broadcast,
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
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__ = ["number_backward", "product_backward", "product_cost"]


def product_cost(m: int, n: int, k: int, *tensors: Any, batch: int = 1, dtype: str | None = None) -> Cost:
    """`batch` products of (m,k) and (k,n) that together touch each of the tensors once; dtype: of the operands."""
    found = lookup(dtype)
    factor = 8 if found is not None and found.kind == "complex" else 2
    text = f"M={m},N={n},K={k}" + (f",B={batch}" if batch != 1 else "") + (f",{found.tag}" if found else "")
    return Cost(factor * batch * m * n * k, 0, nbytes(*tensors), (m, n, k), batch, text)


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
    grad = spec(shape, a.dtype)
    pieces = []
    if wants(b):
        pieces.append(Piece("wgrad", product_cost(k, n, m, grad, a, gradient(b), batch=batch, dtype=a.dtype)))
    if wants(a):
        pieces.append(Piece("dgrad", product_cost(m, k, n, grad, b, gradient(a), batch=batch, dtype=a.dtype)))
    return tuple(pieces if second_first else reversed(pieces))


def number_backward(a: TensorSpec, b: TensorSpec) -> tuple[Piece, ...]:
    """Gradients of a product that is one number: each is the other operand times it."""
    number = spec((), a.dtype)
    pairs = (("wgrad", b, a), ("dgrad", a, b))
    return tuple(Piece(name, vector(y.numel, number, y, gradient(x))) for name, x, y in pairs if wants(x))


def _outer_backward(a: TensorSpec, b: TensorSpec, shape: tuple[int, ...], rows: int, k: int) -> tuple[Piece, ...]:
    """Gradients of a product with a vector: the matrix's is an elementwise outer product, the vector's a product again."""
    grad = spec(shape, a.dtype)
    pieces = []
    if wants(a):
        pieces.append(Piece("dgrad", vector(rows * k, grad, b, gradient(a))))
    if wants(b):
        pieces.append(Piece("wgrad", product_cost(k, 1, rows, grad, a, gradient(b), dtype=a.dtype)))
    return tuple(pieces)


# ---------------------------------------------------------------------------------------------- two matrices


@formula("torch.mm", "torch.spmm", "Tensor.mm", "aten::mm", kind="matmul")
def mm(input: TensorSpec, mat2: TensorSpec, reduce: Any = None, out: Any = None) -> Cost:
    (m, k), (_, n) = input.shape, mat2.shape
    return product_cost(m, n, k, input, mat2, result(out, (m, n), input.dtype), dtype=input.dtype)


@backward("torch.mm", "torch.spmm", "Tensor.mm", "aten::mm")
def mm_backward(input: TensorSpec, mat2: TensorSpec, reduce: Any = None, out: Any = None) -> tuple[Piece, ...]:
    (m, k), (_, n) = input.shape, mat2.shape
    return product_backward(input, mat2, (m, n), (m, n, k))


@formula("torch.bmm", "Tensor.bmm", "aten::bmm", kind="matmul")
def bmm(input: TensorSpec, mat2: TensorSpec, out: Any = None) -> Cost:
    (b, m, k), (_, _, n) = input.shape, mat2.shape
    return product_cost(m, n, k, input, mat2, result(out, (b, m, n), input.dtype), batch=b, dtype=input.dtype)


@backward("torch.bmm", "Tensor.bmm", "aten::bmm")
def bmm_backward(input: TensorSpec, mat2: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    (b, m, k), (_, _, n) = input.shape, mat2.shape
    return product_backward(input, mat2, (b, m, n), (m, n, k), b)


@formula("torch.mv", "Tensor.mv", "aten::mv", kind="matmul")
def mv(input: TensorSpec, vec: TensorSpec, out: Any = None) -> Cost:
    m, k = input.shape
    return product_cost(m, 1, k, input, vec, result(out, (m,), input.dtype), dtype=input.dtype)


@backward("torch.mv", "Tensor.mv", "aten::mv")
def mv_backward(input: TensorSpec, vec: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    return _outer_backward(input, vec, input.shape[:1], *input.shape)


@formula(
    "torch.dot", "Tensor.dot", "aten::dot", "torch.vdot", "Tensor.vdot", "aten::vdot",
    "torch.inner", "Tensor.inner", "aten::inner", kind="matmul",
)  # fmt: skip
def dot(input: TensorSpec, tensor: TensorSpec, out: Any = None) -> Cost:
    # inner() contracts the last dimension of both; for vectors that is dot().
    if not input.shape or not tensor.shape:
        shape = broadcast(input.shape, tensor.shape)
        return vector(product(shape), input, tensor, result(out, shape, input.dtype))
    k = input.shape[-1]
    m, n = input.numel // max(k, 1), tensor.numel // max(k, 1)
    return product_cost(
        m, n, k, input, tensor, result(out, input.shape[:-1] + tensor.shape[:-1], input.dtype), dtype=input.dtype
    )


@formula(
    "torch.outer", "Tensor.outer", "aten::outer", "torch.ger", "Tensor.ger", "aten::ger",
)  # fmt: skip
def outer(input: TensorSpec, vec2: TensorSpec, out: Any = None) -> Cost:
    # A product of each pair and no sum: torch runs an elementwise kernel.
    shape = (input.numel, vec2.numel)
    return vector(product(shape), input, vec2, result(out, shape, promote(input, vec2)))


@formula("torch.kron", "Tensor.kron", "aten::kron")
def kron(input: TensorSpec, other: TensorSpec, out: Any = None) -> Cost:
    numel = input.numel * other.numel
    return vector(numel, input, other, result(out, (numel,), promote(input, other)))


# ---------------------------------------------------------------------------------------------- matmul and linear


def _matmul_sizes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, int, int, int, tuple[int, ...]]:
    """m, n, k, batch and the shape of the result, of torch.matmul's two operands."""
    if not a or not b:
        raise Missing("matmul of a 0-dimensional tensor")
    rows = a if len(a) > 1 else (1, *a)
    columns = b if len(b) > 1 else (*b, 1)
    m, k, n = rows[-2], rows[-1], columns[-1]
    outer_shape = broadcast(rows[:-2], columns[:-2])
    shape = outer_shape + ((m,) if len(a) > 1 else ()) + ((n,) if len(b) > 1 else ())
    batch = product(outer_shape)
    if len(b) <= 2:  # one matrix for all: the leading dimensions are rows
        return batch * m, n, k, 1, shape
    return m, n, k, batch, shape


_MATMUL = (
    "torch.matmul", "Tensor.matmul", "aten::matmul", "Tensor.__matmul__", "torch.linalg.matmul", "aten::linalg_matmul",
)  # fmt: skip


@formula(*_MATMUL, kind="matmul")
def matmul(input: TensorSpec, other: TensorSpec, out: Any = None) -> Cost:
    m, n, k, batch, shape = _matmul_sizes(input.shape, other.shape)
    return product_cost(m, n, k, input, other, result(out, shape, input.dtype), batch=batch, dtype=input.dtype)


@backward(*_MATMUL)
def matmul_backward(input: TensorSpec, other: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    # Broadcast operands are expanded and their gradients summed; the products are those of the expanded problem.
    m, n, k, batch, shape = _matmul_sizes(input.shape, other.shape)
    if len(input.shape) == 1 == len(other.shape):
        return number_backward(input, other)
    if len(other.shape) == 1:
        return _outer_backward(input, other, shape, m, k)
    return product_backward(input, other, shape, (m, n, k), batch)


@formula("aten::matmul_backward", kind="matmul")
def aten_matmul_backward(grad: TensorSpec, input: TensorSpec, other: TensorSpec, mask: Any = UNKNOWN) -> Cost:
    # One product for each gradient asked for, of the size of the forward's.
    m, n, k, batch, _ = _matmul_sizes(input.shape, other.shape)
    first, second = need(mask, "mask")
    outputs = [gradient(t) for t, on in ((input, first), (other, second)) if on]
    read = (grad, other if first else None, input if second else None)
    one = product_cost(m, n, k, read, outputs, batch=batch, dtype=input.dtype)
    return replace(one, matmul_flops=(one.matmul_flops or 0) * len(outputs))


@formula(*spellings("_foreach_mm", "ta"), kind="matmul")
def foreach_mm(input: list[TensorSpec], mat2: Any) -> Cost:
    if not isinstance(mat2, (list, tuple)) or len(mat2) != len(input):
        raise Missing("lists of tensors were not kept apart")
    costs = [mm(a, b) for a, b in zip(input, mat2, strict=True)]
    moved = [cost.bytes for cost in costs]
    flops = sum(cost.matmul_flops or 0 for cost in costs)
    return Cost(flops, 0, None if None in moved else sum(size or 0 for size in moved))


@formula("Tensor.__rmatmul__", kind="matmul")
def rmatmul(input: TensorSpec, other: TensorSpec) -> Cost:
    return matmul(other, input)


@backward("Tensor.__rmatmul__")
def rmatmul_backward(input: TensorSpec, other: TensorSpec) -> tuple[Piece, ...]:
    return matmul_backward(other, input)


_LINEAR = ("torch.nn.functional.linear", "aten::linear", "aten::mkldnn_linear")


@formula(*_LINEAR, kind="matmul")
def linear(input: TensorSpec, weight: TensorSpec, bias: Any = None, out: Any = None) -> Cost:
    # (..., K) x (N, K) -> (..., N); a weight of one dimension is a vector.
    m, n, k, shape = _linear_sizes(input, weight)
    return product_cost(m, n, k, input, weight, opt(bias), result(out, shape, input.dtype), dtype=input.dtype)


def _linear_sizes(input: TensorSpec, weight: TensorSpec) -> tuple[int, int, int, tuple[int, ...]]:
    k = input.shape[-1]
    columns = weight.shape[:-1]
    return product(input.shape[:-1]), product(columns), k, input.shape[:-1] + columns


@backward(*_LINEAR)
def linear_backward(input: TensorSpec, weight: TensorSpec, bias: Any = None, out: Any = None) -> tuple[Piece, ...]:
    # dX = dY·W (M,N)x(N,K); dW = dYᵀ·X (N,M)x(M,K); db = column sums of dY. With a bias it runs as addmm, else as mm.
    m, n, k, shape = _linear_sizes(input, weight)
    biased = isinstance(bias, TensorSpec)
    pieces = product_backward(input, weight, shape, (m, n, k), second_first=not biased)
    # The weight's gradient is that of (N, K), not of its transpose.
    turned = tuple(
        Piece(p.name, replace(p.cost, mnk=(n, k, m), params=_params(n, k, m, input))) if p.name == "wgrad" else p
        for p in pieces
    )
    if biased and wants(bias):
        turned += (Piece("bias", vector(m * n, spec(shape, input.dtype), gradient(bias))),)
    return turned


def _params(m: int, n: int, k: int, like: TensorSpec) -> str | None:
    return product_cost(m, n, k, dtype=like.dtype).params


@formula("aten::linear_backward", "aten::mkldnn_linear_backward", kind="matmul")
def aten_linear_backward(input: TensorSpec, grad_output: TensorSpec, weight: TensorSpec, output_mask: Any = UNKNOWN) -> Cost:
    mask = need(output_mask, "output_mask")
    m, n, k, _ = _linear_sizes(input, weight)
    outputs = [gradient(t) for t, on in zip((input, weight), mask, strict=False) if on]
    cost = product_cost(
        m, n, k, grad_output, input if mask[1] else None, weight if mask[0] else None, outputs, dtype=input.dtype
    )
    return Cost(2 * m * n * k * len(outputs), m * n if mask[2] else 0, cost.bytes, cost.mnk, 1, cost.params)


@formula("aten::mkldnn_linear_backward_input", kind="matmul")
def mkldnn_linear_backward_input(input_size: Any, grad_output: TensorSpec, weight: TensorSpec) -> Cost:
    source = spec(need(input_size, "input_size"), grad_output.dtype)
    m, n, k, _ = _linear_sizes(source, weight)
    return product_cost(m, k, n, grad_output, weight, source, dtype=grad_output.dtype)


@formula("aten::mkldnn_linear_backward_weights", kind="matmul")
def mkldnn_linear_backward_weights(grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec, bias_defined: Any) -> Cost:
    m, n, k, _ = _linear_sizes(input, weight)
    biased = need(bias_defined, "bias_defined") is True
    cost = product_cost(
        n, k, m, grad_output, input, gradient(weight), spec((n,), weight.dtype) if biased else None, dtype=input.dtype
    )
    return replace(cost, vector_flops=m * n if biased else 0)


@formula("torch.nn.functional.bilinear", "torch.bilinear", "aten::bilinear", kind="matmul")
def bilinear(input1: TensorSpec, input2: TensorSpec, weight: TensorSpec, bias: Any = None) -> Cost:
    # y_n = x1ᵀ W_n x2 for each n: 2·I·J for x1ᵀ W_n and its product with x2, as rows x N x (I·J).
    n, i, j = weight.shape
    m = product(input1.shape[:-1])
    output = spec((*input1.shape[:-1], n), input1.dtype)
    return product_cost(m, n, i * j, input1, input2, weight, opt(bias), output, dtype=input1.dtype)


# ---------------------------------------------------------------------------------------------- with an addend


def _addend(c: Any, beta: Any) -> TensorSpec | None:
    """C where it is read: beta = 0 leaves it alone."""
    return None if beta == 0 and beta is not UNKNOWN else opt(c)


_ADDMM = (
    "torch.addmm", "Tensor.addmm", "Tensor.addmm_", "aten::addmm", "aten::addmm_", "torch._addmm_activation",
    "Tensor._addmm_activation", "aten::_addmm_activation",
)  # fmt: skip


@formula(*_ADDMM, kind="matmul")
def addmm(input: Any, mat1: TensorSpec, mat2: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Cost:
    (m, k), (_, n) = mat1.shape, mat2.shape
    output = result(out, (m, n), mat1.dtype)
    return product_cost(m, n, k, _addend(input, beta), mat1, mat2, output, dtype=mat1.dtype)


@backward(*_ADDMM)
def addmm_backward(
    input: Any, mat1: TensorSpec, mat2: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> tuple[Piece, ...]:
    (m, k), (_, n) = mat1.shape, mat2.shape
    products = product_backward(mat1, mat2, (m, n), (m, n, k), second_first=False)
    return (*products, *_addend_backward(input, (m, n), mat1.dtype))


def _addend_backward(c: Any, shape: tuple[int, ...], dtype: str | None) -> tuple[Piece, ...]:
    """The sum that takes the gradient back to the shape of C; nothing runs where the shapes agree."""
    if not isinstance(c, TensorSpec) or not wants(c) or c.shape == shape:
        return ()
    return (Piece("bias", vector(product(shape), spec(shape, dtype), gradient(c))),)


_BADDBMM = ("torch.baddbmm", "Tensor.baddbmm", "Tensor.baddbmm_", "aten::baddbmm", "aten::baddbmm_")


@formula(*_BADDBMM, kind="matmul")
def baddbmm(input: Any, batch1: TensorSpec, batch2: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Cost:
    (b, m, k), (_, _, n) = batch1.shape, batch2.shape
    output = result(out, (b, m, n), batch1.dtype)
    return product_cost(m, n, k, _addend(input, beta), batch1, batch2, output, batch=b, dtype=batch1.dtype)


@backward(*_BADDBMM)
def baddbmm_backward(
    input: Any, batch1: TensorSpec, batch2: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> tuple[Piece, ...]:
    (b, m, k), (_, _, n) = batch1.shape, batch2.shape
    products = product_backward(batch1, batch2, (b, m, n), (m, n, k), b, second_first=False)
    return (*products, *_addend_backward(input, (b, m, n), batch1.dtype))


@formula("torch.addbmm", "Tensor.addbmm", "Tensor.addbmm_", "aten::addbmm", "aten::addbmm_", kind="matmul")
def addbmm(input: Any, batch1: TensorSpec, batch2: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Cost:
    # The products are summed over the batch: one product of depth B·K.
    (b, m, k), (_, _, n) = batch1.shape, batch2.shape
    output = result(out, (m, n), batch1.dtype)
    return product_cost(m, n, b * k, _addend(input, beta), batch1, batch2, output, dtype=batch1.dtype)


@formula("torch.addmv", "Tensor.addmv", "Tensor.addmv_", "torch.addmv_", "aten::addmv", "aten::addmv_", kind="matmul")
def addmv(input: Any, mat: TensorSpec, vec: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Cost:
    m, k = mat.shape
    return product_cost(m, 1, k, _addend(input, beta), mat, vec, result(out, (m,), mat.dtype), dtype=mat.dtype)


@formula("torch.addr", "Tensor.addr", "Tensor.addr_", "aten::addr", "aten::addr_")
def addr(input: Any, vec1: TensorSpec, vec2: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Cost:
    shape = (vec1.numel, vec2.numel)
    return vector(2 * product(shape), _addend(input, beta), vec1, vec2, result(out, shape, vec1.dtype))


@formula("aten::_trilinear", "torch._trilinear", kind="matmul")
def trilinear(i1: TensorSpec, i2: TensorSpec, i3: TensorSpec, expand1: Any, expand2: Any, expand3: Any, sumdim: Any) -> Cost:
    # sum over `sumdim` of i1 * i2 * i3, each unsqueezed in the dimensions of its `expand`.
    shapes = []
    for x, places in ((i1, expand1), (i2, expand2), (i3, expand3)):
        sizes = list(x.shape)
        for place in sorted(need(places, "expand")):
            sizes.insert(place, 1)
        shapes.append(tuple(sizes))
    full = broadcast(*shapes)
    shape = tuple(n for d, n in enumerate(full) if d not in need(sumdim, "sumdim"))
    return Cost(2 * product(full), 0, nbytes(i1, i2, i3, spec(shape, i1.dtype)))
