"""Dense linear algebra, with the counts that are usual for it.

As LAPACK's working notes count (LAWN 41): Cholesky n³/3, LU 2n³/3, QR 2mn² - 2n³/3, inverse 2n³, triangular solve n² a right
hand side, symmetric eigenvalues 4n³/3 (9n³ with vectors), general ones 10n³ (25n³), singular values 4mn² - 4n³/3 (with both
sets of vectors 14mn² + 8n³; Golub and Van Loan, 5.5). They are vector FLOPs here: libraries mix matrix products and scalar
work.
"""

from __future__ import annotations

from typing import Any

from pyprof.dtypes import lookup
from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula
from pyprof.prof.formulas.tensors import broadcast, nbytes, need, product, promote, reduced, spec, vector, wants

__all__: list[str] = []


def _square(input: TensorSpec) -> tuple[int, int]:
    """Number of matrices and their size."""
    if len(input.shape) < 2:
        raise Missing("not a matrix")
    return product(input.shape[:-2]), input.shape[-1]


def _weight(input: TensorSpec) -> int:
    found = lookup(input.dtype)
    return 4 if found is not None and found.kind == "complex" else 1


def _cubes(input: TensorSpec, factor: float, *others: Any) -> Cost:
    batch, n = _square(input)
    return Cost(0, round(_weight(input) * batch * factor * n**3), nbytes(input, *others))


def _same(input: TensorSpec) -> TensorSpec:
    return spec(input.shape, input.dtype)


_CUBIC = {
    ("cholesky", "cholesky_ex"): 1 / 3,
    ("lu_factor", "lu_factor_ex", "lu", "ldl_factor", "ldl_factor_ex", "det", "slogdet"): 2 / 3,
    ("inv", "inv_ex", "inverse"): 2.0,
    ("eigh",): 9.0,
    ("householder_product",): 4 / 3,
    ("eigvalsh",): 4 / 3,
    ("eig",): 25.0,
    ("eigvals",): 10.0,
    ("matrix_exp",): 20.0,
}
_TOP_LEVEL = {
    ("cholesky",): 1 / 3, ("det", "slogdet", "logdet", "lu_with_info", "_lu_with_info"): 2 / 3, ("inverse",
        "cholesky_inverse"): 2.0,
    ("matrix_exp",): 20.0,
}  # fmt: skip


def _register_cubic(full: tuple[str, ...], factor: float) -> None:
    def cubic(input: TensorSpec, *options: Any, **more: Any) -> Cost:
        return _cubes(input, factor, _same(input))

    cubic.__qualname__ = full[0]
    formula(*full)(cubic)


for _ops, _factor in _CUBIC.items():
    _register_cubic(tuple(f"{place}{op}" for op in _ops for place in ("torch.linalg.", "aten::linalg_")), _factor)
for _ops, _factor in _TOP_LEVEL.items():
    _register_cubic(tuple(name for op in _ops for name in spellings(op)), _factor)


@backward("torch.linalg.cholesky", "torch.linalg.cholesky_ex", *spellings("cholesky"))
def cholesky_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # Two triangular solves with n right hand sides and a product.
    return (Piece("input", _cubes(input, 4.0, _same(input), _same(input))),) if wants(input) else ()


@formula("torch.linalg.qr", "aten::linalg_qr", *spellings("qr"), *spellings("geqrf"))
def qr(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    m, n = max(input.shape[-2:]), min(input.shape[-2:])
    flops = _weight(input) * product(input.shape[:-2]) * (4 * m * n * n - 4 * n**3 / 3)  # R, and Q of it
    return Cost(0, round(flops), nbytes(input, _same(input), spec((*input.shape[:-2], n, n), input.dtype)))


_SVD = ("torch.linalg.svd", "aten::linalg_svd", "aten::_linalg_svd", *spellings("svd"), "torch.linalg.pinv",
    "aten::linalg_pinv",
        *spellings("pinverse"))  # fmt: skip


@formula(*_SVD)
def svd(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    m, n = max(input.shape[-2:]), min(input.shape[-2:])
    batch = product(input.shape[:-2])
    written = spec((*input.shape[:-2], n, n + 1), input.dtype)
    return Cost(0, _weight(input) * batch * (14 * m * n * n + 8 * n**3), nbytes(input, _same(input), written))


@formula("torch.linalg.svdvals", "aten::linalg_svdvals", "torch.linalg.matrix_rank", "aten::linalg_matrix_rank",
    "torch.linalg.cond",
         "aten::linalg_cond")  # fmt: skip
def svdvals(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    m, n = max(input.shape[-2:]), min(input.shape[-2:])
    batch = product(input.shape[:-2])
    return Cost(0, round(_weight(input) * batch * (4 * m * n * n - 4 * n**3 / 3)), nbytes(input, spec((batch, n), input.dtype)))


def _solved(matrix: TensorSpec, right: TensorSpec, factor: float) -> Cost:
    batch, n = _square(matrix)
    batch = max(batch, product(right.shape[:-2]))
    columns = right.shape[-1] if len(right.shape) >= 2 else 1
    return Cost(0, round(_weight(matrix) * batch * (factor * n**3 + 2 * n * n * columns)), nbytes(matrix, right, _same(right)))


@formula("torch.linalg.solve", "aten::linalg_solve", "torch.linalg.solve_ex", "aten::linalg_solve_ex", "aten::_linalg_solve_ex")
def solve(A: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _solved(A, B, 2 / 3)


@formula("torch.linalg.solve_triangular", "aten::linalg_solve_triangular")
def solve_triangular(input: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> Cost:
    one = _solved(input, B, 0)
    return Cost(0, (one.vector_flops or 0) // 2, one.bytes)


@formula(*spellings("triangular_solve"))
def triangular_solve(input: TensorSpec, A: TensorSpec, *options: Any, **more: Any) -> Cost:
    return solve_triangular(A, input)


@formula(*spellings("cholesky_solve"), *spellings("_cholesky_solve_helper", "ta"), *spellings("lu_solve"))
def cholesky_solve(input: TensorSpec, input2: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _solved(input2, input, 0)


@formula("torch.linalg.lu_solve", "aten::linalg_lu_solve")
def lu_solve(LU: TensorSpec, pivots: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _solved(LU, B, 0)


@formula("torch.linalg.lstsq", "aten::linalg_lstsq")
def lstsq(input: TensorSpec, b: TensorSpec, *options: Any, **more: Any) -> Cost:
    m, n = input.shape[-2:]
    columns = b.shape[-1] if len(b.shape) >= 2 else 1
    flops = _weight(input) * product(input.shape[:-2]) * (2 * max(m, n) * min(m, n) ** 2 + 4 * m * n * columns)
    return Cost(0, flops, nbytes(input, b, spec((*input.shape[:-2], n, columns), input.dtype)))


@formula("torch.linalg.cross", "aten::linalg_cross", *spellings("cross"))
def cross(input: TensorSpec, other: TensorSpec, dim: Any = None, out: Any = None) -> Cost:
    output = spec(broadcast(input.shape, other.shape), promote(input, other))
    return Cost(0, 3 * output.numel, nbytes(input, other, output))


@formula("aten::_linalg_eigh")
def aten_eigh(input: TensorSpec, UPLO: Any = "L", compute_v: Any = True) -> Cost:
    return _cubes(input, 9.0 if compute_v else 4 / 3, _same(input) if compute_v else None)


@formula("aten::_linalg_det", "aten::_linalg_slogdet")
def aten_det(input: TensorSpec, out: Any = None) -> Cost:
    return _cubes(input, 2 / 3, _same(input))


@formula("torch.linalg.ldl_solve", "aten::linalg_ldl_solve")
def ldl_solve(LD: TensorSpec, pivots: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> Cost:
    return _solved(LD, B, 0)


@formula(*spellings("ormqr"))
def ormqr(input: TensorSpec, input2: TensorSpec, input3: TensorSpec, *options: Any, **more: Any) -> Cost:
    # One reflection of the other matrix for each column: 4·m·n each.
    count = input2.shape[-1] if input2.shape else 1
    return Cost(0, 4 * count * input3.numel, nbytes(input, input2, input3, _same(input3)))


@formula("torch.lu_unpack", "aten::lu_unpack")
def lu_unpack(LU_data: TensorSpec, LU_pivots: TensorSpec, *options: Any, **more: Any) -> Cost:
    m, n = LU_data.shape[-2:]
    batch, k = product(LU_data.shape[:-2]), min(m, n)
    written = spec((batch, m * m + m * k + k * n), LU_data.dtype)
    return Cost(0, 0, nbytes(LU_data, LU_pivots, written))


@formula("aten::_linalg_eigvals")
def aten_eigvals(input: TensorSpec) -> Cost:
    return _cubes(input, 10.0, spec(input.shape[:-1], "complex64" if input.dtype in ("float32", "complex64") else "complex128"))


@formula("aten::matrix_exp_backward")
def matrix_exp_backward(input: TensorSpec, grad: TensorSpec) -> Cost:
    # The exponential of a block matrix of twice the size.
    return _cubes(input, 8 * 20.0, grad, _same(input))


@formula(*spellings("_compute_linear_combination", "ta"))
def linear_combination(input: TensorSpec, coefficients: TensorSpec) -> Cost:
    # Each result is a sum of the inputs along the first dimension, weighted by one row of the coefficients.
    written = spec((coefficients.shape[0], *input.shape[1:]), input.dtype)
    return vector(2 * coefficients.shape[0] * input.numel, input, coefficients, written)


@formula(*spellings("orgqr"))
def orgqr(input: TensorSpec, input2: TensorSpec) -> Cost:
    # Q of k reflections of (m, n): 4mnk - 2(m + n)k² + 4k³/3 (LAWN 41).
    (m, n), k = input.shape[-2:], input2.shape[-1] if input2.shape else 1
    flops = _weight(input) * product(input.shape[:-2]) * (4 * m * n * k - 2 * (m + n) * k * k + 4 * k**3 / 3)
    return Cost(0, round(flops), nbytes(input, input2, _same(input)))


@formula("torch.linalg.tensorinv", "aten::linalg_tensorinv")
def tensorinv(input: TensorSpec, ind: Any = 2) -> Cost:
    # The inverse of a matrix of the product of the first dimensions.
    rows = product(input.shape[: need(ind, "ind")])
    return Cost(0, 2 * _weight(input) * rows**3, nbytes(input, _same(input)))


@formula("torch.linalg.tensorsolve", "aten::linalg_tensorsolve")
def tensorsolve(input: TensorSpec, other: TensorSpec, dims: Any = None) -> Cost:
    rows = other.numel
    return Cost(
        0, round(_weight(input) * (2 * rows**3 / 3 + 2 * rows * rows)), nbytes(input, other, spec((rows,), input.dtype))
    )


# ---------------------------------------------------------------------------------------------- norms of matrices


def _matrix_norm(input: TensorSpec, ord: Any, dim: Any, keepdim: Any, dtype: Any) -> Cost:
    axes = tuple(d % len(input.shape) for d in need(dim, "dim"))
    output = spec(reduced(input.shape, axes, keepdim is True), promote(input, to_float=True))
    rows, columns = (input.shape[a] for a in axes)
    batch = input.numel // max(rows * columns, 1)
    if need(ord, "ord") in ("nuc", 2, -2):  # the singular values; their sum, greatest or least
        m, n = max(rows, columns), min(rows, columns)
        return Cost(0, round(_weight(input) * batch * (4 * m * n * n - 4 * n**3 / 3)) + batch * n, nbytes(input, output))
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
