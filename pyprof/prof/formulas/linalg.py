"""Dense linear algebra, with the counts that are usual for it.

As LAPACK's working notes count (LAWN 41): Cholesky n³/3, LU 2n³/3, QR 2mn² - 2n³/3, inverse 2n³, triangular solve n² a right
hand side, symmetric eigenvalues 4n³/3 (9n³ with vectors), general ones 10n³ (25n³), singular values 4mn² - 4n³/3 (with both
sets of vectors 14mn² + 8n³; Golub and Van Loan, 5.5). They are vector FLOPs here: libraries mix matrix products and scalar
work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyprof.dtypes import lookup
from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import (
    broadcast,
    dtype_of,
    gradient,
    nbytes,
    need,
    opt,
    product,
    promote,
    reduced,
    spec,
    vector,
    wants,
)
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__ = ["matrix_exp_backward", "solution", "weight"]


def _square(input: TensorSpec) -> tuple[int, int]:
    """Number of matrices and their size."""
    if len(input.shape) < 2:
        raise Missing("not a matrix")
    return product(input.shape[:-2]), input.shape[-1]


def weight(input: TensorSpec) -> int:
    """How many operations one of the element type is."""
    found = lookup(input.dtype)
    return 4 if found is not None and found.kind == "complex" else 1


def _cubes(input: TensorSpec, factor: float, *others: Any) -> Cost:
    batch, n = _square(input)
    return Cost(0, round(weight(input) * batch * factor * n**3), nbytes(input, *others))


def _same(input: TensorSpec) -> TensorSpec:
    return spec(input.shape, input.dtype)


def _words(input: TensorSpec, *shapes: tuple[int, ...], dtype: str | None = "int32") -> list[TensorSpec]:
    """Tensors of these sizes for each matrix: pivots and error codes, or of another dtype."""
    return [spec((*input.shape[:-2], *shape), dtype) for shape in shapes]


def _real(input: TensorSpec) -> str | None:
    found = lookup(input.dtype)
    return f"float{found.bits // 2}" if found is not None and found.kind == "complex" else input.dtype


def _complex(input: TensorSpec) -> str:
    return "complex64" if input.dtype in ("float32", "complex64") else "complex128"


def _least(input: TensorSpec) -> int:
    return min(input.shape[-2:])


# What an op writes besides one matrix like its input.
_EXTRA: dict[str, Callable[[TensorSpec], list[TensorSpec]]] = {
    "cholesky_ex": lambda x: _words(x, ()),
    "inv_ex": lambda x: _words(x, ()),
    "ldl_factor": lambda x: _words(x, x.shape[-1:]),
    "ldl_factor_ex": lambda x: _words(x, x.shape[-1:], ()),
    "eigh": lambda x: _words(x, x.shape[-1:], dtype=_real(x)),
}
_CUBIC = {
    ("cholesky", "cholesky_ex"): 1 / 3,
    ("ldl_factor", "ldl_factor_ex"): 2 / 3,
    ("inv", "inv_ex"): 2.0,
    ("eigh",): 9.0,
    ("matrix_exp",): 20.0,
}
_TOP_LEVEL = {("cholesky",): 1 / 3, ("inverse", "cholesky_inverse"): 2.0, ("matrix_exp",): 20.0}


def _register_cubic(op: str, full: tuple[str, ...], factor: float) -> None:
    def cubic(input: TensorSpec, *options: Any, **more: Any) -> Cost:
        extra = _EXTRA.get(op)
        return _cubes(input, factor, _same(input), extra(input) if extra else None)

    cubic.__qualname__ = full[0]
    formula(*full)(cubic)


for _ops, _factor in _CUBIC.items():
    for _op in _ops:
        _register_cubic(_op, (f"torch.linalg.{_op}", f"aten::linalg_{_op}"), _factor)
for _ops, _factor in _TOP_LEVEL.items():
    for _op in _ops:
        _register_cubic(_op, spellings(_op), _factor)


# ---------------------------------------------------------------------------------------------- LU and determinants


def _lu_flops(input: TensorSpec) -> int:
    """Of an (m, n) matrix, k the lesser: 2mnk - (m + n)k² + 2k³/3; 2n³/3 of a square one."""
    (m, n), k = input.shape[-2:], _least(input)
    return round(weight(input) * product(input.shape[:-2]) * (2 * m * n * k - (m + n) * k * k + 2 * k**3 / 3))


def _lu_parts(input: TensorSpec) -> list[TensorSpec]:
    """Both factors in one matrix, and the pivots."""
    return [_same(input), *_words(input, (_least(input),))]


@formula("torch.linalg.lu_factor", "aten::linalg_lu_factor")
def lu_factor(input: TensorSpec, pivot: Any = True, out: Any = None) -> Cost:
    return Cost(0, _lu_flops(input), nbytes(input, _lu_parts(input)))


@formula("torch.linalg.lu_factor_ex", "aten::linalg_lu_factor_ex", *spellings("_lu_with_info", "ta"))
def lu_factor_ex(input: TensorSpec, pivot: Any = True, check_errors: Any = False, out: Any = None) -> Cost:
    return Cost(0, _lu_flops(input), nbytes(input, _lu_parts(input), _words(input, ())))


@formula("torch.linalg.lu", "aten::linalg_lu")
def lu(input: TensorSpec, pivot: Any = True, out: Any = None) -> Cost:
    # P of (m, m), unless it does not pivot, L of (m, k) and U of (k, n).
    (m, n), k = input.shape[-2:], _least(input)
    permutation = _words(input, (m, m), dtype=input.dtype) if pivot is not False else []
    return Cost(0, _lu_flops(input), nbytes(input, permutation, _words(input, (m, k), (k, n), dtype=input.dtype)))


@formula("torch.linalg.det", "aten::linalg_det", *spellings("det"), *spellings("logdet"))
def det(input: TensorSpec, out: Any = None) -> Cost:
    return Cost(0, _lu_flops(input), nbytes(input, _words(input, (), dtype=input.dtype)))


@formula("torch.linalg.slogdet", "aten::linalg_slogdet", *spellings("slogdet"))
def slogdet(input: TensorSpec, out: Any = None) -> Cost:
    return Cost(0, _lu_flops(input), nbytes(input, _words(input, (), dtype=input.dtype), _words(input, (), dtype=_real(input))))


@formula("aten::_linalg_det")
def aten_det(input: TensorSpec, out: Any = None) -> Cost:
    return Cost(0, _lu_flops(input), nbytes(input, _words(input, (), dtype=input.dtype), _lu_parts(input)))


@formula("aten::_linalg_slogdet")
def aten_slogdet(input: TensorSpec, out: Any = None) -> Cost:
    one = slogdet(input)
    parts = nbytes(_lu_parts(input))
    return Cost(0, one.vector_flops, None if one.bytes is None or parts is None else one.bytes + parts)


# ---------------------------------------------------------------------------------------------- eigenvalues


@formula("torch.linalg.eigvalsh", "aten::linalg_eigvalsh")
def eigvalsh(input: TensorSpec, UPLO: Any = "L", out: Any = None) -> Cost:
    return _cubes(input, 4 / 3, _words(input, input.shape[-1:], dtype=_real(input)))


@formula("torch.linalg.eig", "aten::linalg_eig")
def eig(input: TensorSpec, out: Any = None) -> Cost:
    return _cubes(input, 25.0, _words(input, input.shape[-1:], input.shape[-2:], dtype=_complex(input)))


@formula("torch.linalg.eigvals", "aten::linalg_eigvals", "aten::_linalg_eigvals")
def eigvals(input: TensorSpec, out: Any = None) -> Cost:
    return _cubes(input, 10.0, _words(input, input.shape[-1:], dtype=_complex(input)))


@backward("torch.linalg.cholesky", "torch.linalg.cholesky_ex", *spellings("cholesky"))
def cholesky_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # A product, and two triangular solves with n right hand sides, n³ each.
    batch, n = _square(input)
    cubes = weight(input) * 2 * batch * n**3
    return (Piece("input", Cost(cubes, cubes, nbytes(input, _same(input), _same(input)))),) if wants(input) else ()


def _qr_flops(input: TensorSpec) -> float:
    """Of the factorisation alone: 2mn² - 2n³/3, m the greater size; building Q of it is as much again."""
    m, n = max(input.shape[-2:]), _least(input)
    return weight(input) * product(input.shape[:-2]) * (2 * m * n * n - 2 * n**3 / 3)


@formula("torch.linalg.qr", "aten::linalg_qr", *spellings("qr"))
def qr(input: TensorSpec, mode: Any = "reduced", out: Any = None) -> Cost:
    # mode is a bool in torch.qr: whether some columns are enough.
    (m, n), k = input.shape[-2:], _least(input)
    columns = m if mode in ("complete", False) else k
    written = _words(input, (columns, n), *([] if mode == "r" else [(m, columns)]), dtype=input.dtype)
    return Cost(0, round(_qr_flops(input) * (1 if mode == "r" else 2)), nbytes(input, written))


@formula(*spellings("geqrf"))
def geqrf(input: TensorSpec, out: Any = None) -> Cost:
    return Cost(0, round(_qr_flops(input)), nbytes(input, _same(input), _words(input, (_least(input),), dtype=input.dtype)))


def _svd(input: TensorSpec, full: Any, vectors: Any) -> Cost:
    (m, n), k, batch = input.shape[-2:], _least(input), product(input.shape[:-2])
    values = _words(input, (k,), dtype=_real(input))
    if vectors is False:
        return Cost(0, round(weight(input) * batch * (4 * max(m, n) * k * k - 4 * k**3 / 3)), nbytes(input, values))
    sides = _words(input, *([(m, m), (n, n)] if full is True else [(m, k), (k, n)]), dtype=input.dtype)
    return Cost(0, weight(input) * batch * (14 * max(m, n) * k * k + 8 * k**3), nbytes(input, values, sides))


@formula("torch.linalg.svd", "aten::linalg_svd")
def linalg_svd(input: TensorSpec, full_matrices: Any = True, *options: Any, **more: Any) -> Cost:
    return _svd(input, full_matrices, True)


@formula("aten::_linalg_svd")
def aten_linalg_svd(input: TensorSpec, full_matrices: Any = False, compute_uv: Any = True, driver: Any = None) -> Cost:
    return _svd(input, full_matrices, compute_uv)


@formula(*spellings("svd"))
def svd(input: TensorSpec, some: Any = True, compute_uv: Any = True, out: Any = None) -> Cost:
    return _svd(input, some is False, compute_uv)


@formula("torch.linalg.pinv", "aten::linalg_pinv", *spellings("pinverse"))
def pinv(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    # The decomposition, and the product of its two sides, one of them scaled: n·m, k deep.
    (m, n), k, batch = input.shape[-2:], _least(input), product(input.shape[:-2])
    tolerances = [o for o in (*options, *more.values()) if isinstance(o, TensorSpec)]
    one = _svd(input, False, True).vector_flops or 0
    return Cost(0, one + weight(input) * batch * (2 * m * n * k + n * k), nbytes(input, tolerances, _same(input)))


@formula("torch.linalg.svdvals", "aten::linalg_svdvals")
def svdvals(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _svd(input, False, False)


@formula("torch.linalg.matrix_rank", "aten::linalg_matrix_rank")
def matrix_rank(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    return Cost(0, _svd(input, False, False).vector_flops, nbytes(input, _words(input, (), dtype="int64")))


@formula("torch.linalg.cond", "aten::linalg_cond")
def cond(input: TensorSpec, p: Any = None, out: Any = None) -> Cost:
    return Cost(0, _svd(input, False, False).vector_flops, nbytes(input, _words(input, (), dtype=_real(input))))


# ---------------------------------------------------------------------------------------------- systems of equations


def _is_vector(matrix: TensorSpec, right: TensorSpec) -> bool:
    """Whether the right side is one column, as torch.linalg.solve tells it: by its shape."""
    return len(right.shape) == 1 or right.shape == matrix.shape[:-1]


def solution(matrix: TensorSpec, right: TensorSpec) -> TensorSpec:
    """The solution's sizes, (..., n, columns), from whichever side the unknowns stand."""
    n = _square(matrix)[1]
    outer = right.shape[:-1] if _is_vector(matrix, right) else right.shape[:-2]
    columns = right.numel // max(n * product(outer), 1)
    return spec((*broadcast(matrix.shape[:-2], outer), n, columns), right.dtype)


def _solved(matrix: TensorSpec, right: TensorSpec, factor: float, *more: Any) -> Cost:
    """Each matrix factored once, factor·n³, and 2n² for each column of the right side; more: what else is touched."""
    (batch, n), written = _square(matrix), solution(matrix, right)
    flops = weight(matrix) * (factor * batch * n**3 + 2 * n * written.numel)
    return Cost(0, round(flops), nbytes(matrix, right, more, written))


@formula("torch.linalg.solve", "aten::linalg_solve")
def solve(A: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _solved(A, B, 2 / 3)


@formula("torch.linalg.solve_ex", "aten::linalg_solve_ex")
def solve_ex(A: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _solved(A, B, 2 / 3, _words(A, ()))


@formula("aten::_linalg_solve_ex")
def aten_solve_ex(A: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _solved(A, B, 2 / 3, _lu_parts(A), _words(A, ()))


def _half(cost: Cost) -> Cost:
    """One triangle instead of two."""
    return Cost(0, (cost.vector_flops or 0) // 2, cost.bytes)


@formula("torch.linalg.solve_triangular", "aten::linalg_solve_triangular")
def solve_triangular(input: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _half(_solved(input, B, 0))


@formula(*spellings("triangular_solve"))
def triangular_solve(input: TensorSpec, A: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _half(_solved(A, input, 0, _same(A)))  # it returns a copy of A too


@formula(*spellings("cholesky_solve"), *spellings("_cholesky_solve_helper", "ta"))
def cholesky_solve(input: TensorSpec, input2: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _solved(input2, input, 0)


@formula(*spellings("lu_solve"))
def old_lu_solve(input: TensorSpec, LU_data: TensorSpec, LU_pivots: Any = None, out: Any = None) -> Cost:
    return _solved(LU_data, input, 0, opt(LU_pivots))


@formula("torch.linalg.lu_solve", "aten::linalg_lu_solve", "torch.linalg.ldl_solve", "aten::linalg_ldl_solve")
def lu_solve(LU: TensorSpec, pivots: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _solved(LU, B, 0, pivots)


@formula("torch.linalg.lstsq", "aten::linalg_lstsq")
def lstsq(input: TensorSpec, b: TensorSpec, *options: Any, **more: Any) -> Cost:
    # QR, and for each column Qᵀ·b and a triangular solve.
    (m, n), batch = input.shape[-2:], product(input.shape[:-2])
    columns = b.numel // max(m * batch, 1)
    flops = _qr_flops(input) + weight(input) * batch * 4 * m * n * columns
    # With more rows than unknowns the squared residuals of the columns come too.
    written = spec((batch, n + (m > n), columns), input.dtype)
    return Cost(0, round(flops), nbytes(input, b, written))


@formula("torch.linalg.cross", "aten::linalg_cross", *spellings("cross"))
def cross(input: TensorSpec, other: TensorSpec, dim: Any = None, out: Any = None) -> Cost:
    output = spec(broadcast(input.shape, other.shape), promote(input, other))
    return Cost(0, 3 * output.numel, nbytes(input, other, output))


@formula("aten::_linalg_eigh")
def aten_eigh(input: TensorSpec, UPLO: Any = "L", compute_v: Any = True) -> Cost:
    values = _words(input, input.shape[-1:], dtype=_real(input))
    return _cubes(input, 9.0 if compute_v else 4 / 3, values, _same(input) if compute_v else None)


@formula(*spellings("ormqr"))
def ormqr(input: TensorSpec, input2: TensorSpec, input3: TensorSpec, *options: Any, **more: Any) -> Cost:
    # One reflection of the other matrix for each column: 4·m·n each.
    count = input2.shape[-1] if input2.shape else 1
    return Cost(0, 4 * count * input3.numel, nbytes(input, input2, input3, _same(input3)))


@formula("torch.lu_unpack", "aten::lu_unpack")
def lu_unpack(
    LU_data: TensorSpec, LU_pivots: TensorSpec, unpack_data: Any = True, unpack_pivots: Any = True, out: Any = None
) -> Cost:
    # P of the pivots, L and U of the data: each where it is asked for.
    (m, n), k = LU_data.shape[-2:], _least(LU_data)
    permutation = [LU_pivots, *_words(LU_data, (m, m), dtype=LU_data.dtype)] if unpack_pivots is not False else []
    factors = [LU_data, *_words(LU_data, (m, k), (k, n), dtype=LU_data.dtype)] if unpack_data is not False else []
    return Cost(0, 0, nbytes(permutation, factors))


@formula("aten::matrix_exp_backward")
def matrix_exp_backward(input: TensorSpec, grad: TensorSpec) -> Cost:
    """The exponential of a block matrix of twice the size."""
    return _cubes(input, 8 * 20.0, grad, _same(input))


@formula(*spellings("_compute_linear_combination", "ta"))
def linear_combination(input: TensorSpec, coefficients: TensorSpec) -> Cost:
    # Each result is a sum of the inputs along the first dimension, weighted by one row of the coefficients.
    written = spec((coefficients.shape[0], *input.shape[1:]), input.dtype)
    return vector(2 * coefficients.shape[0] * input.numel, input, coefficients, written)


@formula(*spellings("orgqr"), "torch.linalg.householder_product", "aten::linalg_householder_product")
def orgqr(input: TensorSpec, input2: TensorSpec) -> Cost:
    # Q of k reflections of (m, n): 4mnk - 2(m + n)k² + 4k³/3 (LAWN 41).
    (m, n), k = input.shape[-2:], input2.shape[-1] if input2.shape else 1
    flops = weight(input) * product(input.shape[:-2]) * (4 * m * n * k - 2 * (m + n) * k * k + 4 * k**3 / 3)
    return Cost(0, round(flops), nbytes(input, input2, _same(input)))


@formula("torch.linalg.tensorinv", "aten::linalg_tensorinv")
def tensorinv(input: TensorSpec, ind: Any = 2) -> Cost:
    # The inverse of a matrix of the product of the first dimensions.
    rows = product(input.shape[: need(ind, "ind")])
    return Cost(0, 2 * weight(input) * rows**3, nbytes(input, _same(input)))


@formula("torch.linalg.tensorsolve", "aten::linalg_tensorsolve")
def tensorsolve(input: TensorSpec, other: TensorSpec, dims: Any = None) -> Cost:
    rows = other.numel
    return Cost(0, round(weight(input) * (2 * rows**3 / 3 + 2 * rows * rows)), nbytes(input, other, spec((rows,), input.dtype)))


# ---------------------------------------------------------------------------------------------- norms of matrices


def _matrix_norm(input: TensorSpec, ord: Any, dim: Any, keepdim: Any, dtype: Any) -> Cost:
    axes = tuple(d % len(input.shape) for d in need(dim, "dim"))
    kind = dtype_of(dtype) or promote(spec((), _real(input)), to_float=True)
    output = spec(reduced(input.shape, axes, keepdim is True), kind)
    rows, columns = (input.shape[a] for a in axes)
    batch = input.numel // max(rows * columns, 1)
    if need(ord, "ord") in ("nuc", 2, -2):  # the singular values; their sum, greatest or least
        m, n = max(rows, columns), min(rows, columns)
        return Cost(0, round(weight(input) * batch * (4 * m * n * n - 4 * n**3 / 3)) + batch * n, nbytes(input, output))
    # Frobenius: square, sum and a root. 1 and infinity: absolute values, sums, the greatest of them.
    rest = 1 if ord == "fro" else columns if ord in (1, -1) else rows
    return Cost(0, 2 * input.numel + rest * batch, nbytes(input, output))


@formula("torch.linalg.matrix_norm", "aten::linalg_matrix_norm")
def matrix_norm(
    input: TensorSpec, ord: Any = "fro", dim: Any = (-2, -1), keepdim: Any = False, dtype: Any = None, out: Any = None
) -> Cost:
    return _matrix_norm(input, ord, dim, keepdim, dtype)


@formula(*spellings("nuclear_norm", "ta"))
def nuclear_norm(input: TensorSpec, dim: Any = (-2, -1), keepdim: Any = False, out: Any = None) -> Cost:
    whole = isinstance(dim, bool) or dim is None  # nuclear_norm(x, keepdim)
    return _matrix_norm(input, "nuc", (-2, -1) if whole else dim, keepdim, None)


# ---------------------------------------------------------------------------------------------- backward


@backward(*spellings("cross"), "torch.linalg.cross", "aten::linalg_cross")
def cross_backward(input: TensorSpec, other: TensorSpec, dim: Any = None, out: Any = None) -> tuple[Piece, ...]:
    # A cross product with the other one each.
    grad = spec(broadcast(input.shape, other.shape), promote(input, other))
    return tuple(
        Piece(name, vector(3 * grad.numel, grad, y, gradient(x)))
        for name, x, y in (("other", other, input), ("input", input, other))
        if wants(x)
    )
