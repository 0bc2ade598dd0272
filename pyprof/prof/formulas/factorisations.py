"""Factorisations of dense matrices: Cholesky, LU, QR, eigenvalues, singular values, and what is read from the factors.

As LAPACK's working notes count (LAWN 41): Cholesky n³/3, LU 2n³/3, QR 2mn² - 2n³/3, symmetric eigenvalues 4n³/3 (9n³ with
vectors), general ones 10n³ (25n³), singular values 4mn² - 4n³/3 (with both sets of vectors 14mn² + 8n³; Golub and Van Loan,
5.5). They are vector FLOPs here: libraries mix matrix products and scalar work. The backwards are products and solves with
the factors that the forward kept; a product of matrices is a matrix FLOP there, as torch runs it by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import grad, gradient, nbytes, opt, product, spec, wants
from pyprof.prof.formulas.gemm import product_cost
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, forward, op


def square(input: TensorSpec) -> tuple[int, int]:
    """Number of matrices and their size. Raises Missing for a vector."""
    if len(input.shape) < 2:
        raise Missing("not a matrix")
    return product(input.shape[:-2]), input.shape[-1]


def weight(input: TensorSpec) -> int:
    """How many operations one of the element type is."""
    found = lookup(input.dtype)
    return 4 if found is not None and found.kind == "complex" else 1


def real_of(input: TensorSpec) -> str | None:
    """The dtype of the real part of the elements."""
    found = lookup(input.dtype)
    return f"float{found.bits // 2}" if found is not None and found.kind == "complex" else input.dtype


def per_matrix(input: TensorSpec, *shapes: tuple[int, ...], dtype: str | None = "int32") -> list[TensorSpec]:
    """Tensors of these sizes for each matrix: pivots and error codes, or of another dtype."""
    return [spec((*input.shape[:-2], *shape), dtype) for shape in shapes]


def cubes(input: TensorSpec, factor: float, *written: object) -> Cost:
    """factor·n³ operations for each square matrix."""
    batch, n = square(input)
    return Cost(0, round(weight(input) * batch * factor * n**3), nbytes(input, *written))


def also_writes(made: Op, *written: object) -> Op:
    """Add the bytes of further tensors that an op writes."""
    cost, size = forward(made), nbytes(written)
    yield replace(cost, bytes=None if cost.bytes is None or size is None else cost.bytes + size)
    yield from made


def square_products(input: TensorSpec, count: int) -> Iterator[Piece]:
    """A backward of so many products of matrices of the input's size, one after the other."""
    if wants(input):
        n, batch, same = input.shape[-1], product(input.shape[:-2]), gradient(input)
        yield from [Piece("dgrad", product_cost(n, n, n, same, same, same, batch=batch, dtype=input.dtype))] * count


def _least(input: TensorSpec) -> int:
    return min(input.shape[-2:])


# ---------------------------------------------------------------------------------------------- Cholesky and LDL


@op("cholesky", places="L", backward=False)
@op("cholesky", places="tTal")
def cholesky(input: TensorSpec) -> Op:
    yield cubes(input, 1 / 3, gradient(input))
    # A product, and two triangular solves with n right hand sides, n³ each.
    if wants(input):
        batch, n = square(input)
        operations = weight(input) * 2 * batch * n**3
        yield Piece("input", Cost(operations, operations, nbytes(input, gradient(input), gradient(input))))


@op("cholesky_ex", places="L", backward=False)
@op("cholesky_ex", places="l")
def cholesky_ex(input: TensorSpec) -> Op:
    return also_writes(cholesky(input), per_matrix(input, ()))


@op("ldl_factor", places="lL")
def ldl_factor(input: TensorSpec) -> Cost:
    return cubes(input, 2 / 3, gradient(input), per_matrix(input, input.shape[-1:]))


@op("ldl_factor_ex", places="lL")
def ldl_factor_ex(input: TensorSpec) -> Cost:
    return cubes(input, 2 / 3, gradient(input), per_matrix(input, input.shape[-1:], ()))


# ---------------------------------------------------------------------------------------------- LU and determinants


def _lu_flops(input: TensorSpec) -> int:
    """LU of an (m, n) matrix with k = min(m, n): 2mnk - (m + n)k² + 2k³/3; 2n³/3 for a square one."""
    (m, n), k = input.shape[-2:], _least(input)
    return round(weight(input) * product(input.shape[:-2]) * (2 * m * n * k - (m + n) * k * k + 2 * k**3 / 3))


def lu_parts(input: TensorSpec) -> list[TensorSpec]:
    """Both factors in one matrix, and the pivots."""
    return [gradient(input), *per_matrix(input, (_least(input),))]


@op("lu_factor", places="lL", A="input")
def lu_factor(input: TensorSpec) -> Cost:
    return Cost(0, _lu_flops(input), nbytes(input, lu_parts(input)))


@op("lu_factor_ex", places="lL", A="input")
@op("_lu_with_info", places="ta")
def lu_factor_ex(input: TensorSpec) -> Cost:
    return Cost(0, _lu_flops(input), nbytes(input, lu_parts(input), per_matrix(input, ())))


@op("lu", places="lL", A="input")
def lu(input: TensorSpec, pivot: object = True) -> Cost:
    # P of (m, m), unless it does not pivot, L of (m, k) and U of (k, n).
    (m, n), k = input.shape[-2:], _least(input)
    shapes = [(m, k), (k, n)] if pivot is False else [(m, m), (m, k), (k, n)]
    return Cost(0, _lu_flops(input), nbytes(input, per_matrix(input, *shapes, dtype=input.dtype)))


@op("lu_unpack", places="ta")
def lu_unpack(LU_data: TensorSpec, LU_pivots: TensorSpec, unpack_data: object = True, unpack_pivots: object = True) -> Cost:
    # P of the pivots, L and U of the data: each where it is requested.
    (m, n), k = LU_data.shape[-2:], _least(LU_data)
    permutation = [LU_pivots, *per_matrix(LU_data, (m, m), dtype=LU_data.dtype)] if unpack_pivots is not False else []
    factors = [LU_data, *per_matrix(LU_data, (m, k), (k, n), dtype=LU_data.dtype)] if unpack_data is not False else []
    return Cost(0, 0, nbytes(permutation, factors))


@op("det", places="tTalL", A="input")
@op("logdet")
def det(input: TensorSpec) -> Op:
    yield Cost(0, _lu_flops(input), nbytes(input, per_matrix(input, (), dtype=input.dtype)))
    # A⁻ᴴ times a number: a solve with n right hand sides by the factors kept, 2n³.
    operations = weight(input) * 2 * product(input.shape[:-2]) * input.shape[-1] ** 3
    yield from grad("input", input, operations, gradient(input), gradient(input))


@op("slogdet", places="tTalL", A="input")
def slogdet(input: TensorSpec) -> Op:
    return also_writes(det(input), per_matrix(input, (), dtype=real_of(input)))


@op("aten::_linalg_det", A="input")
def aten_det(input: TensorSpec) -> Op:
    return also_writes(det(input), lu_parts(input))


@op("aten::_linalg_slogdet", A="input")
def aten_slogdet(input: TensorSpec) -> Op:
    return also_writes(slogdet(input), lu_parts(input))


# ---------------------------------------------------------------------------------------------- eigenvalues


@op("eigh", places="lL")
def eigh(input: TensorSpec) -> Op:
    yield cubes(input, 9, gradient(input), per_matrix(input, input.shape[-1:], dtype=real_of(input)))
    # V·(VᴴdV/(l - l') + diag(dl))·Vᴴ: three products.
    yield from square_products(input, 3)


@op("eigvalsh", places="lL")
def eigvalsh(input: TensorSpec) -> Op:
    yield cubes(input, 4 / 3, per_matrix(input, input.shape[-1:], dtype=real_of(input)))
    # V·diag(dl)·Vᴴ: one.
    yield from square_products(input, 1)


@op("aten::_linalg_eigh", A="input")
def aten_eigh(input: TensorSpec, compute_v: object = True) -> Op:
    yield forward(eigh(input) if compute_v else eigvalsh(input))
    yield from square_products(input, 3)


def _complex_of(input: TensorSpec) -> str:
    return "complex64" if input.dtype in ("float32", "complex64") else "complex128"


@op("eig", places="lL")
def eig(input: TensorSpec) -> Cost:
    return cubes(input, 25, per_matrix(input, input.shape[-1:], input.shape[-2:], dtype=_complex_of(input)))


@op("eigvals", "aten::_linalg_eigvals", places="lL")
def eigvals(input: TensorSpec) -> Cost:
    return cubes(input, 10, per_matrix(input, input.shape[-1:], dtype=_complex_of(input)))


# ---------------------------------------------------------------------------------------------- QR


def qr_flops(input: TensorSpec) -> float:
    """QR without Q: 2mn² - 2n³/3 with m >= n; building Q costs as much again."""
    m, n = max(input.shape[-2:]), _least(input)
    return weight(input) * product(input.shape[:-2]) * (2 * m * n * n - 2 * n**3 / 3)


@op("qr", places="tTa", some="mode")
@op("qr", places="lL", A="input")
def qr(input: TensorSpec, mode: object = "reduced") -> Op:
    # mode is a bool in torch.qr: whether some columns are enough.
    (m, n), k, dtype = input.shape[-2:], _least(input), input.dtype
    columns = m if mode in ("complete", False) else k
    written = per_matrix(input, (columns, n), *([] if mode == "r" else [(m, columns)]), dtype=dtype)
    yield Cost(0, round(qr_flops(input) * (1 if mode == "r" else 2)), nbytes(input, written))
    # M = R·dRᴴ - dQᴴ·Q; (dQ + Q·M')·R⁻ᴴ: three products and a triangular solve with m right hand sides.
    if m < n or mode not in ("reduced", True):
        raise Missing("a derivative by the case of the sizes")
    batch = product(input.shape[:-2])
    q, r = spec((batch, m, n), dtype), spec((batch, n, n), dtype)
    if wants(input):
        for sizes, tensors in (((n, n, n), (r, r, r)), ((n, n, m), (q, q, r)), ((m, n, n), (q, r, q))):
            yield Piece("dgrad", product_cost(*sizes, tensors, batch=batch, dtype=dtype))
        yield Piece("input", Cost(0, weight(input) * batch * m * n * n, nbytes(r, q, q)))


@op("geqrf")
def geqrf(input: TensorSpec) -> Cost:
    written = per_matrix(input, (_least(input),), dtype=input.dtype)
    return Cost(0, round(qr_flops(input)), nbytes(input, gradient(input), written))


@op("orgqr")
@op("householder_product", places="lL", tau="input2")
def orgqr(input: TensorSpec, input2: TensorSpec) -> Cost:
    # Q of k reflections of (m, n): 4mnk - 2(m + n)k² + 4k³/3 (LAWN 41).
    (m, n), k = input.shape[-2:], input2.shape[-1] if input2.shape else 1
    flops = weight(input) * product(input.shape[:-2]) * (4 * m * n * k - 2 * (m + n) * k * k + 4 * k**3 / 3)
    return Cost(0, round(flops), nbytes(input, input2, gradient(input)))


@op("ormqr")
def ormqr(input: TensorSpec, input2: TensorSpec, input3: TensorSpec) -> Cost:
    # One reflection of the other matrix for each column: 4·m·n each.
    count = input2.shape[-1] if input2.shape else 1
    return Cost(0, 4 * count * input3.numel, nbytes(input, input2, input3, gradient(input3)))


# ---------------------------------------------------------------------------------------------- singular values


@op("svdvals", places="lL", A="input")
def singular_values(input: TensorSpec) -> Cost:
    """The values alone."""
    k, most = _least(input), max(input.shape[-2:])
    flops = weight(input) * product(input.shape[:-2]) * (4 * most * k * k - 4 * k**3 / 3)
    return Cost(0, round(flops), nbytes(input, per_matrix(input, (k,), dtype=real_of(input))))


@op("svd", places="lL", A="input")
def linalg_svd(input: TensorSpec, full_matrices: object = True) -> Cost:
    (m, n), k = input.shape[-2:], _least(input)
    sides = per_matrix(input, *([(m, m), (n, n)] if full_matrices is True else [(m, k), (k, n)]), dtype=input.dtype)
    values = per_matrix(input, (k,), dtype=real_of(input))
    return Cost(
        0, weight(input) * product(input.shape[:-2]) * (14 * max(m, n) * k * k + 8 * k**3), nbytes(input, values, sides)
    )


@op("aten::_linalg_svd", A="input")
def aten_svd(input: TensorSpec, full_matrices: object = False, compute_uv: object = True) -> Cost:
    return singular_values(input) if compute_uv is False else linalg_svd(input, full_matrices)


@op("svd")
def svd(input: TensorSpec, some: object = True, compute_uv: object = True) -> Cost:
    return aten_svd(input, some is False, compute_uv)


@op("matrix_rank", places="lL")
def matrix_rank(input: TensorSpec) -> Cost:
    return Cost(0, singular_values(input).vector_flops, nbytes(input, per_matrix(input, (), dtype="int64")))


@op("cond", places="lL")
def cond(input: TensorSpec) -> Cost:
    return Cost(0, singular_values(input).vector_flops, nbytes(input, per_matrix(input, (), dtype=real_of(input))))


@op("pinv", places="lL", order="input atol rtol hermitian", rcond="atol")
@op("pinverse", rcond="atol")
def pinv(input: TensorSpec, atol: object = None, rtol: object = None) -> Cost:
    # The decomposition, and the product of its two sides, one of them scaled: n·m, k deep.
    (m, n), k = input.shape[-2:], _least(input)
    flops = weight(input) * product(input.shape[:-2]) * (2 * m * n * k + n * k)
    decomposition = linalg_svd(input, False).vector_flops or 0
    return Cost(0, decomposition + flops, nbytes(input, opt(atol), opt(rtol), gradient(input)))
