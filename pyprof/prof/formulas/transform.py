"""Fourier transforms, whole and of short windows.

A complex transform of n points is 5·n·log2(n) operations, a real one half of that (FFTW's convention, fftw.org/speed).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gradient, nbytes, need, opt, product, promote, spec, wants
from pyprof.prof.formulas.registry import Cost, Piece, backward, formula

__all__ = ["TRANSFORMS"]

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
    if not real and floating not in _REAL:  # real numbers, transformed as such; the other half is the conjugate
        operations /= 2
    if real and axes:
        half = list(shape)
        half[axes[-1]] = sizes[-1] // 2 + 1
        shape = half if real == "in" else shape
        operations /= 2
    dtype = _REAL.get(floating or "", floating) if real == "out" else _COMPLEX.get(floating or "", floating)
    return Cost(0, round(operations), nbytes(input, spec(shape, dtype)))


TRANSFORMS: dict[str, Callable[..., Cost]] = {}  # by their name in torch.fft


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
    TRANSFORMS[op] = formula(f"torch.fft.{op}", f"aten::fft_{op}")(function)


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
    one = _transform(input, axes, [input.shape[a] for a in axes], "in")
    if onesided is not False:
        return one
    # The other half is the conjugate of the first: written, not computed.
    return replace(one, bytes=nbytes(input, spec(input.shape, _COMPLEX.get(input.dtype or ""))))


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


@formula("torch.istft", "Tensor.istft", "aten::istft")
def istft(
    input: TensorSpec, n_fft: Any, hop_length: Any = None, win_length: Any = None, window: Any = None, center: Any = True,
    normalized: Any = False, onesided: Any = None, length: Any = None, return_complex: Any = False,
) -> Cost:  # fmt: skip
    # A real transform back of each frame; times the window, added where frames overlap, and the square of the window added
    # there too; each result divided by that sum.
    size = need(n_fft, "n_fft")
    hop = hop_length if isinstance(hop_length, int) else size // 4
    frames, batch = input.shape[-1], product(input.shape[:-2])
    made = size + hop * (frames - 1)
    kept = length if isinstance(length, int) else made - (size // 2 * 2 if need(center, "center") else 0)
    one = _transform(spec((batch * frames, size // 2 + 1), input.dtype), [1], [size], "out")
    operations = (one.vector_flops or 0) + 2 * batch * frames * size + 2 * frames * size + batch * kept
    dtype = input.dtype if return_complex is True else _REAL.get(input.dtype or "", input.dtype)
    return Cost(0, operations, nbytes(input, opt(window), spec((batch, kept), dtype)))


# ---------------------------------------------------------------------------------------------- backward


def _register_fft_backward(op: str) -> None:
    forward = TRANSFORMS[op]

    def fft_back(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
        # The transform the other way, of the same sizes; what the forward read is written and the other way round.
        return (Piece("input", forward(input, *options, **more)),) if wants(input) else ()

    fft_back.__qualname__ = f"{op}_backward"
    backward(f"torch.fft.{op}", f"aten::fft_{op}")(fft_back)


for _op in TRANSFORMS:
    _register_fft_backward(_op)


@backward("torch.fft.fftshift", "aten::fft_fftshift", "torch.fft.ifftshift", "aten::fft_ifftshift")
def fftshift_backward(input: TensorSpec, dim: Any = None) -> tuple[Piece, ...]:
    return (Piece("input", copy_cost(gradient(input), gradient(input))),) if wants(input) else ()
