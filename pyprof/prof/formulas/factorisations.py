"""Backward of linear algebra: products and solves with the factors that the forward kept.

The counts are those of the forward's file; a product of matrices is a matrix FLOP here, as torch runs it by one.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, product, spec, vector, wants
from pyprof.prof.formulas.gemm import product_cost
from pyprof.prof.formulas.linalg import matrix_exp_backward, solution, weight
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward

__all__: list[str] = []


def _square_products(input: TensorSpec, count: int) -> tuple[Piece, ...]:
    """So many products of matrices of the input's size, one after the other."""
    n, batch, same = input.shape[-1], product(input.shape[:-2]), gradient(input)
    return (Piece("dgrad", product_cost(n, n, n, same, same, same, batch=batch, dtype=input.dtype)),) * count


@backward("torch.linalg.inv", "torch.linalg.inv_ex", "aten::linalg_inv", "aten::linalg_inv_ex", *spellings("inverse"))
def inv_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # -A⁻ᴴ·g·A⁻ᴴ: two products.
    return _square_products(input, 2) if wants(input) else ()


@backward("torch.linalg.solve", "aten::linalg_solve", "torch.linalg.solve_ex", "aten::linalg_solve_ex",
          "aten::_linalg_solve_ex")  # fmt: skip
def solve_backward(A: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # dB = A⁻ᴴ·g with the factors kept, 2n² a column; dA = -dB·Xᴴ, a product of n by n.
    x = solution(A, B)
    n, columns, batch = *x.shape[-2:], product(x.shape[:-2])
    pieces = [Piece("input", Cost(0, weight(A) * 2 * n * x.numel, nbytes(A, x, x)))]
    if wants(A):
        pieces.append(Piece("dgrad", product_cost(n, n, columns, x, x, gradient(A), batch=batch, dtype=A.dtype)))
    return tuple(pieces)


@backward("torch.linalg.solve_triangular", "aten::linalg_solve_triangular")
def solve_triangular_backward(input: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # dB by a triangular solve, dA = -dB·Xᴴ as of any system.
    return tuple(
        Piece("input", Cost(0, (p.cost.vector_flops or 0) // 2, p.cost.bytes)) if p.name == "input" else p
        for p in solve_backward(input, B)
    )


@backward("torch.linalg.eigh", "aten::linalg_eigh", "aten::_linalg_eigh")
def eigh_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # V·(VᴴdV/(l - l') + diag(dl))·Vᴴ: three products.
    return _square_products(input, 3) if wants(input) else ()


@backward("torch.linalg.eigvalsh", "aten::linalg_eigvalsh")
def eigvalsh_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # V·diag(dl)·Vᴴ: one.
    return _square_products(input, 1) if wants(input) else ()


@backward("torch.linalg.qr", "aten::linalg_qr", *spellings("qr"))
def qr_backward(input: TensorSpec, mode: Any = "reduced", out: Any = None) -> tuple[Piece, ...]:
    # M = R·dRᴴ - dQᴴ·Q; (dQ + Q·M')·R⁻ᴴ: three products and a triangular solve with m right hand sides.
    (m, n), batch, dtype = input.shape[-2:], product(input.shape[:-2]), input.dtype
    if m < n or mode not in ("reduced", True):
        raise Missing("a derivative by the case of the sizes")
    if not wants(input):
        return ()
    q, r = spec((batch, m, n), dtype), spec((batch, n, n), dtype)
    products = (
        product_cost(n, n, n, r, r, r, batch=batch, dtype=dtype),
        product_cost(n, n, m, q, q, r, batch=batch, dtype=dtype),
        product_cost(m, n, n, q, r, q, batch=batch, dtype=dtype),
    )
    solve = Cost(0, weight(input) * batch * m * n * n, nbytes(r, q, q))
    return (*(Piece("dgrad", p) for p in products), Piece("input", solve))


@backward("torch.linalg.det", "aten::linalg_det", "aten::_linalg_det", "torch.linalg.slogdet", "aten::linalg_slogdet",
          "aten::_linalg_slogdet", *spellings("det"), *spellings("slogdet"), *spellings("logdet"))  # fmt: skip
def det_backward(input: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    # A⁻ᴴ times a number: a solve with n right hand sides by the factors kept, 2n³.
    if not wants(input):
        return ()
    n, batch, same = input.shape[-1], product(input.shape[:-2]), gradient(input)
    return (Piece("input", vector(weight(input) * 2 * batch * n**3, same, same, same)),)


@backward("torch.linalg.matrix_exp", "aten::linalg_matrix_exp", *spellings("matrix_exp"))
def matrix_exp_back(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    return (Piece("input", matrix_exp_backward(input, gradient(input))),) if wants(input) else ()
