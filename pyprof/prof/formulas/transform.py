"""Fourier transforms and dense linear algebra, with the counts that are usual for them.

A complex transform of n points is 5·n·log2(n) operations, a real one half of that (FFTW's convention, fftw.org/speed). Linear
algebra counts as LAPACK's working notes do (LAWN 41): Cholesky n³/3, LU 2n³/3, QR 2mn² - 2n³/3, inverse 2n³, triangular solve
n² a right hand side, symmetric eigenvalues 4n³/3 (9n³ with vectors), general ones 10n³ (25n³), singular values 4mn² - 4n³/3
(with both sets of vectors 14mn² + 8n³; Golub and Van Loan, 5.5). They are vector FLOPs here: libraries mix matrix products
and scalar work.
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.dtypes import lookup
from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula
from pyprof.prof.formulas.tensors import broadcast, nbytes, need, product, promote, spec, wants

__all__: list[str] = []

_COMPLEX = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
_REAL = {v: k for k, v in _COMPLEX.items()}


# ---------------------------------------------------------------------------------------------- Fourier


def _transform(input: TensorSpec, axes: list[int], sizes: list[int], real: str) -> Cost:
    """A transform along axes; sizes: length of each; real: `` (complex both ways), `in` or `out` (that side is real)."""
    shape = list(input.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    points = product(shape)
    length = product(sizes)
    operations = 5 * points * math.log2(length) if length > 1 else 0
    floating = promote(input, to_float=True) or input.dtype
    if real and axes:
        half = list(shape)
        half[axes[-1]] = sizes[-1] // 2 + 1
        shape = half if real == "in" else shape
        operations /= 2
    dtype = _REAL.get(floating or "", floating) if real == "out" else _COMPLEX.get(floating or "", floating)
    return Cost(0, round(operations), nbytes(input, spec(shape, dtype)))


def _register_fft(op: str, real: str) -> None:
    def one(input: TensorSpec, n: Any = None, dim: Any = -1, norm: Any = None, out: Any = None) -> Cost:
        axis = need(dim, "dim") % len(input.shape)
        size = n if isinstance(n, int) else input.shape[axis] if real != "out" else 2 * (input.shape[axis] - 1)
        return _transform(input, [axis], [size], real)

    def many(input: TensorSpec, s: Any = None, dim: Any = None, norm: Any = None, out: Any = None) -> Cost:
        rank = len(input.shape)
        default = [-2, -1] if op.endswith("2") else list(range(rank))
        given = [dim] if isinstance(dim, int) else dim
        axes = [d % rank for d in (given if isinstance(given, (list, tuple)) else default)]
        if isinstance(s, (list, tuple)):
            sizes, axes = list(s), axes[-len(s) :]
        else:
            sizes = [input.shape[a] for a in axes]
            if real == "out":
                sizes[-1] = 2 * (sizes[-1] - 1)
        return _transform(input, axes, sizes, real)

    function = many if op[-1] in "2n" else one
    function.__qualname__ = op
    formula(f"torch.fft.{op}", f"aten::fft_{op}")(function)


for _op, _side in {
    "fft": "", "ifft": "", "rfft": "in", "irfft": "out", "hfft": "out", "ihfft": "in", "fft2": "", "ifft2": "", "rfft2": "in",
    "irfft2": "out", "fftn": "", "ifftn": "", "rfftn": "in", "irfftn": "out", "hfft2": "out", "ihfft2": "in", "hfftn": "out",
    "ihfftn": "in",
}.items():  # fmt: skip
    _register_fft(_op, _side)


@formula("aten::_fft_c2c", "torch._fft_c2c")
def fft_c2c(input: TensorSpec, dim: Any, normalization: Any = 0, forward: Any = True) -> Cost:
    axes = list(need(dim, "dim"))
    return _transform(input, axes, [input.shape[a] for a in axes], "")


@formula("aten::_fft_r2c", "torch._fft_r2c")
def fft_r2c(input: TensorSpec, dim: Any, normalization: Any = 0, onesided: Any = True) -> Cost:
    axes = list(need(dim, "dim"))
    return _transform(input, axes, [input.shape[a] for a in axes], "in")


@formula("aten::_fft_c2r", "torch._fft_c2r")
def fft_c2r(input: TensorSpec, dim: Any, normalization: Any = 0, last_dim_size: Any = UNKNOWN) -> Cost:
    axes = list(need(dim, "dim"))
    sizes = [*(input.shape[a] for a in axes[:-1]), need(last_dim_size, "last_dim_size")]
    return _transform(input, axes, sizes, "out")


@formula("torch.fft.fftshift", "aten::fft_fftshift", "torch.fft.ifftshift", "aten::fft_ifftshift")
def fftshift(input: TensorSpec, dim: Any = None) -> Cost:
    return Cost(0, 0, nbytes(input, spec(input.shape, input.dtype)))


@formula("torch.stft", "Tensor.stft", "aten::stft")
def stft(
    input: TensorSpec,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    *options: Any,
    **more: Any,
) -> Cost:
    size = need(n_fft, "n_fft")
    hop = hop_length if isinstance(hop_length, int) else size // 4
    frames = 1 + max(input.shape[-1] - size, 0) // hop
    batch = product(input.shape[:-1])
    rows = spec((batch * frames, size), input.dtype)
    one = _transform(rows, [1], [size], "in")
    return Cost(0, (one.vector_flops or 0) + rows.numel, nbytes(input, spec((batch, frames, size // 2 + 1), "complex64")))


# ---------------------------------------------------------------------------------------------- linear algebra


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


@formula(*spellings("cholesky_solve"), *spellings("lu_solve"))
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
