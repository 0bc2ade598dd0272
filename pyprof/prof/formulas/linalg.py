"""Dense linear algebra besides the factorisations: inverses, systems of equations, exponentials, norms of matrices.

As LAPACK's working notes count (LAWN 41): inverse 2n³, triangular solve n² a right hand side, a system as its factorisation and
2n² a right hand side. They are vector FLOPs, and products of matrices in the backwards matrix FLOPs, as of factorisations.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import (
    broadcast,
    dtype_of,
    grad,
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
from pyprof.prof.formulas.factorisations import (
    also_writes,
    cubes,
    lu_parts,
    per_matrix,
    qr_flops,
    real_of,
    singular_values,
    square,
    square_products,
    weight,
)
from pyprof.prof.formulas.gemm import product_cost
from pyprof.prof.formulas.registry import Cost, Op, Piece, forward, op

# ---------------------------------------------------------------------------------------------- functions of a matrix


@op("inv", places="lL", A="input")
@op("inverse")
@op("cholesky_inverse", backward=False)
def inv(input: TensorSpec) -> Op:
    yield cubes(input, 2, gradient(input))
    # -A⁻ᴴ·g·A⁻ᴴ: two products.
    yield from square_products(input, 2)


@op("inv_ex", places="lL", A="input")
def inv_ex(input: TensorSpec) -> Op:
    return also_writes(inv(input), per_matrix(input, ()))


@op("tensorinv", places="lL")
def tensorinv(input: TensorSpec, ind: object = 2) -> Cost:
    # The inverse of a matrix of the product of the first dimensions.
    rows = product(input.shape[: need(ind, "ind")])
    return Cost(0, 2 * weight(input) * rows**3, nbytes(input, gradient(input)))


@op("matrix_exp", places="tTalL")
def matrix_exp(input: TensorSpec) -> Op:
    yield cubes(input, 20, gradient(input))
    if wants(input):
        yield Piece("input", matrix_exp_backward(input, gradient(input)))


@op("aten::matrix_exp_backward")
def matrix_exp_backward(input: TensorSpec, grad: TensorSpec) -> Cost:
    # The exponential of a block matrix of twice the size.
    return cubes(input, 8 * 20, grad, gradient(input))


@op("_compute_linear_combination", places="ta")
def linear_combination(input: TensorSpec, coefficients: TensorSpec) -> Cost:
    # Each result is a sum of the inputs along the first dimension, weighted by one row of the coefficients.
    written = spec((coefficients.shape[0], *input.shape[1:]), input.dtype)
    return vector(2 * coefficients.shape[0] * input.numel, input, coefficients, written)


@op("cross", places="tTalL")
def cross(input: TensorSpec, other: TensorSpec) -> Op:
    made = spec(broadcast(input.shape, other.shape), promote(input, other))
    yield vector(3 * made.numel, input, other, made)
    # A cross product with the other one each.
    yield from grad("other", other, 3 * made.numel, made, input)
    yield from grad("input", input, 3 * made.numel, made, other)


# ---------------------------------------------------------------------------------------------- systems of equations


def _solution(matrix: TensorSpec, right: TensorSpec) -> TensorSpec:
    """The solution's sizes, (..., n, columns), from whichever side the unknowns stand.

    As in torch.linalg.solve, the right side is a single column if its shape is the matrices' without the last dimension.
    """
    n = square(matrix)[1]
    is_vector = len(right.shape) == 1 or right.shape == matrix.shape[:-1]
    outer = right.shape[:-1] if is_vector else right.shape[:-2]
    columns = right.numel // max(n * product(outer), 1)
    return spec((*broadcast(matrix.shape[:-2], outer), n, columns), right.dtype)


def _solved(matrix: TensorSpec, right: TensorSpec, factor: float, *more: object) -> Cost:
    """Each matrix factored once, factor·n³, and 2n² for each column of the right side; more: what else is touched."""
    (batch, n), written = square(matrix), _solution(matrix, right)
    flops = weight(matrix) * (factor * batch * n**3 + 2 * n * written.numel)
    return Cost(0, round(flops), nbytes(matrix, right, more, written))


def _half(cost: Cost) -> Cost:
    """The operations of one triangle instead of two."""
    return Cost(0, (cost.vector_flops or 0) // 2, cost.bytes)


@op("solve", places="lL")
def solve(A: TensorSpec, B: TensorSpec) -> Op:
    yield _solved(A, B, 2 / 3)
    # dB = A⁻ᴴ·g with the factors kept, 2n² a column; dA = -dB·Xᴴ, a product of n by n.
    x = _solution(A, B)
    n, columns, batch = *x.shape[-2:], product(x.shape[:-2])
    yield Piece("input", Cost(0, weight(A) * 2 * n * x.numel, nbytes(A, x, x)))
    if wants(A):
        yield Piece("dgrad", product_cost(n, n, columns, x, x, gradient(A), batch=batch, dtype=A.dtype))


@op("solve_ex", places="lL")
def solve_ex(A: TensorSpec, B: TensorSpec) -> Op:
    return also_writes(solve(A, B), per_matrix(A, ()))


@op("aten::_linalg_solve_ex")
def aten_solve_ex(A: TensorSpec, B: TensorSpec) -> Op:
    return also_writes(solve_ex(A, B), lu_parts(A))


@op("solve_triangular", places="lL")
def solve_triangular(input: TensorSpec, B: TensorSpec) -> Op:
    system = solve(input, B)
    forward(system)
    yield _half(_solved(input, B, 0))
    # dB by a triangular solve, dA = -dB·Xᴴ as of any system.
    for piece in system:
        if isinstance(piece, Piece):
            yield Piece("input", _half(piece.cost)) if piece.name == "input" else piece


@op("triangular_solve")
def triangular_solve(input: TensorSpec, A: TensorSpec) -> Cost:
    return _half(_solved(A, input, 0, gradient(A)))  # it returns a copy of A too


@op("cholesky_solve")
@op("_cholesky_solve_helper", places="ta", A="input2")
def cholesky_solve(input: TensorSpec, input2: TensorSpec) -> Cost:
    return _solved(input2, input, 0)


@op("lu_solve", "ldl_solve", places="lL", LD="LU")
@op("lu_solve", input="B", LU_data="LU", LU_pivots="pivots")
def lu_solve(LU: TensorSpec, B: TensorSpec, pivots: object = None) -> Cost:
    return _solved(LU, B, 0, opt(pivots))


@op("lstsq", places="lL")
def lstsq(input: TensorSpec, b: TensorSpec) -> Cost:
    # QR, and for each column Qᵀ·b and a triangular solve.
    (m, n), batch = input.shape[-2:], product(input.shape[:-2])
    columns = b.numel // max(m * batch, 1)
    flops = qr_flops(input) + weight(input) * batch * 4 * m * n * columns
    # With more rows than unknowns the squared residuals of the columns come too.
    return Cost(0, round(flops), nbytes(input, b, spec((batch, n + (m > n), columns), input.dtype)))


@op("tensorsolve", places="lL")
def tensorsolve(input: TensorSpec, other: TensorSpec) -> Cost:
    rows = other.numel
    return Cost(0, round(weight(input) * (2 * rows**3 / 3 + 2 * rows * rows)), nbytes(input, other, spec((rows,), input.dtype)))


# ---------------------------------------------------------------------------------------------- norms of matrices


@op("matrix_norm", places="lL")
def matrix_norm(
    input: TensorSpec, ord: object = "fro", dim: object = (-2, -1), keepdim: object = False, dtype: object = None
) -> Cost:
    row, column = (d % len(input.shape) for d in need(dim, "dim"))
    kind = dtype_of(dtype) or promote(spec((), real_of(input)), to_float=True)
    output = spec(reduced(input.shape, (row, column), keepdim is True), kind)
    rows, columns = input.shape[row], input.shape[column]
    batch = input.numel // max(rows * columns, 1)
    if need(ord, "ord") in ("nuc", 2, -2):  # the singular values; their sum, greatest or least
        values = singular_values(spec((batch, rows, columns), input.dtype)).vector_flops or 0
        return Cost(0, values + batch * min(rows, columns), nbytes(input, output))
    # Frobenius: square, sum and a root. 1 and infinity: absolute values, sums, the greatest of them.
    rest = 1 if ord == "fro" else columns if ord in (1, -1) else rows
    return Cost(0, 2 * input.numel + rest * batch, nbytes(input, output))


@op("nuclear_norm", places="ta")
def nuclear_norm(input: TensorSpec, dim: object = (-2, -1), keepdim: object = False) -> Cost:
    whole = isinstance(dim, bool) or dim is None  # nuclear_norm(x, keepdim)
    return matrix_norm(input, "nuc", (-2, -1) if whole else dim, keepdim)
