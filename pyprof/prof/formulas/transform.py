"""Fourier transforms, whole and of short windows.

A complex transform of n points is 5·n·log2(n) operations, a real one half of that (FFTW's convention, fftw.org/speed).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, grad, gradient, nbytes, need, opt, product, promote, spec, wants
from pyprof.prof.formulas.registry import Cost, Op, Piece, op

_COMPLEX = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
_REAL = {v: k for k, v in _COMPLEX.items()}


def _transform(input: TensorSpec, axes: Sequence[int], sizes: Sequence[int], real: str) -> Cost:
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


# ---------------------------------------------------------------------------------------------- torch.fft

# op: which side is real
_TRANSFORMS = {
    "fft": "", "ifft": "", "rfft": "in", "irfft": "out", "hfft": "out", "ihfft": "in", "fft2": "", "ifft2": "", "rfft2": "in",
    "irfft2": "out", "fftn": "", "ifftn": "", "rfftn": "in", "irfftn": "out", "hfft2": "out", "ihfft2": "in", "hfftn": "out",
    "ihfftn": "in",
}  # fmt: skip


def _axes(name: str, rank: int, dim: object) -> list[int]:
    """The axes of a transform of that name, as non-negative numbers: those given, else the last, the last two or all."""
    if name[-1] not in "2n":
        given = [-1 if dim is None else need(dim, "dim")]
    elif isinstance(dim, (int, list, tuple)):
        given = [dim] if isinstance(dim, int) else list(dim)
    else:
        given = [-2, -1] if name.endswith("2") else list(range(rank))
    return [axis % rank for axis in given]


def _declare(name: str, real: str) -> None:
    @op(name, places="fX", s="n")
    def transform(input: TensorSpec, n: object = None, dim: object = None) -> Op:
        axes = _axes(name, len(input.shape), dim)
        if isinstance(n, (int, list, tuple)):
            sizes = [n] if isinstance(n, int) else list(n)
            axes = axes[-len(sizes) :]
        else:
            sizes = [input.shape[a] for a in axes]
            if real == "out":
                sizes[-1] = 2 * (sizes[-1] - 1)
        one = _transform(input, axes, sizes, real)
        yield one
        # The transform the other way, of the same sizes; what the forward read is written and the other way round.
        if wants(input):
            yield Piece("input", one)


for _name, _side in _TRANSFORMS.items():
    _declare(_name, _side)


@op("_fft_c2c", places="ta")
def fft_c2c(input: TensorSpec, dim: object) -> Cost:
    axes = need(dim, "dim")
    return _transform(input, axes, [input.shape[a] for a in axes], "")


@op("_fft_r2c", places="ta")
def fft_r2c(input: TensorSpec, dim: object, onesided: object = True) -> Cost:
    axes = need(dim, "dim")
    one = _transform(input, axes, [input.shape[a] for a in axes], "in")
    if onesided is not False:
        return one
    # The other half is the conjugate of the first: written, not computed.
    return replace(one, bytes=nbytes(input, spec(input.shape, _COMPLEX.get(input.dtype or ""))))


@op("_fft_c2r", places="ta")
def fft_c2r(input: TensorSpec, dim: object, last_dim_size: object = UNKNOWN) -> Cost:
    axes = need(dim, "dim")
    sizes = [*(input.shape[a] for a in axes[:-1]), need(last_dim_size, "last_dim_size")]
    return _transform(input, axes, sizes, "out")


@op("fftshift", "ifftshift", places="fX")
def fftshift(input: TensorSpec) -> Op:
    yield copy_cost(input, gradient(input))
    yield from grad("input", input, 0, gradient(input))


# ---------------------------------------------------------------------------------------------- short windows


@op("stft")
def stft(input: TensorSpec, n_fft: object, hop_length: object = None) -> Cost:
    # A real transform of each frame, times the window.
    size = need(n_fft, "n_fft")
    hop = hop_length if isinstance(hop_length, int) else size // 4
    frames = 1 + max(input.shape[-1] - size, 0) // hop
    batch = product(input.shape[:-1])
    rows = spec((batch * frames, size), input.dtype)
    one = _transform(rows, [1], [size], "in")
    return Cost(0, (one.vector_flops or 0) + rows.numel, nbytes(input, spec((batch, frames, size // 2 + 1), "complex64")))


@op("istft")
def istft(
    input: TensorSpec, n_fft: object, hop_length: object = None, window: object = None, center: object = True,
    length: object = None, return_complex: object = False,
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
