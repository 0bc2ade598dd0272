"""Interpolation and sampling of grids: each output element is a weighted sum of elements near a place of the input.

The taps of the mode (nearest 0, linear 2 a dimension, bicubic 16 in two) are a multiplication and an addition each. With
antialiasing the filter widens by the factor by which a dimension shrinks. Bytes: input and output once. Backward, each tap's
share is added to the input's gradient; without weights that is the addition alone.
"""

from __future__ import annotations

import math

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import grad, gradient, nbytes, need, product, spec, vector, wants
from pyprof.prof.formulas.pool import adaptive_windows, targets
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, op

_TAPS = {"nearest": 0, "nearest-exact": 0, "area": 1, "linear": 2, "bilinear": 4, "bicubic": 16, "trilinear": 8,
         "lanczos": 36}  # fmt: skip


def _scaled(input: TensorSpec, size: object, scale: object) -> TensorSpec:
    """The output of a given size, or of the input's size times one or several factors."""
    rank, outer = len(input.shape) - 2, input.shape[:2]
    if size is not None and size is not UNKNOWN:
        return spec(targets(size, input, rank), input.dtype)
    if isinstance(scale, (int, float)):
        factors = [scale] * rank
    elif isinstance(scale, (list, tuple)):
        factors = [*scale] * (rank if len(scale) == 1 else 1)
    else:
        raise Missing("size and scale_factor not recorded")
    return spec((*outer, *(math.floor(n * f) for n, f in zip(input.shape[2:], factors, strict=True))), input.dtype)


def _weighted(taps: int, input: TensorSpec, output: TensorSpec, antialias: bool) -> int:
    """Operations of the forward: 2 a tap. An antialiasing filter spans as many more elements as there are for one output."""
    widened = taps * math.prod(max(n / max(m, 1), 1.0) for n, m in zip(input.shape[2:], output.shape[2:], strict=True))
    return round(2 * (widened if antialias else taps) * output.numel)


def _both(input: TensorSpec, output: TensorSpec, operations: int) -> Op:
    yield vector(operations, input, output)
    yield from grad("input", input, max(operations, output.numel), output)


@op("torch.nn.functional.interpolate", "aten::__interpolate", "aten::__upsample")
@op("torch.nn.functional.upsample", order="input size scale_factor mode align_corners")
def interpolate(
    input: TensorSpec, size: object = None, scale_factor: object = None, mode: object = "nearest", antialias: object = False
) -> Op:
    output, method = _scaled(input, size, scale_factor), need(mode, "mode")
    if method == "area":  # an adaptive mean, 1 an element of its windows
        return _both(input, output, adaptive_windows(input, output))
    return _both(input, output, _weighted(_TAPS[method], input, output, antialias is True))


_UPSAMPLE = {
    "upsample_nearest1d": 0, "upsample_nearest2d": 0, "upsample_nearest3d": 0, "_upsample_nearest_exact1d": 0,
    "_upsample_nearest_exact2d": 0, "_upsample_nearest_exact3d": 0, "upsample_linear1d": 2, "upsample_bilinear2d": 4,
    "upsample_bicubic2d": 16, "upsample_trilinear3d": 8, "_upsample_bilinear2d_aa": 4, "_upsample_bicubic2d_aa": 16,
    "_upsample_lanczos2d_aa": 36,
}  # fmt: skip


def _declare_upsample(name: str, taps: int) -> None:
    @op(name, places="aF")
    def upsample(
        input: TensorSpec, output_size: object = None, *options: object, scale_factors: object = None, **more: object
    ) -> Op:
        if isinstance(output_size, (list, tuple)) and output_size:
            output = _scaled(input, output_size, None)
        else:  # the factors of the sizes are the last list
            lists = [o for o in (*options, scale_factors) if isinstance(o, (list, tuple)) and o]
            output = _scaled(input, None, lists[-1] if lists else None)
        return _both(input, output, _weighted(taps, input, output, name.endswith("_aa")))

    @op(f"aten::{name}_backward")
    def upsample_backward(grad_output: TensorSpec, input_size: object) -> Cost:
        input = spec(need(input_size, "input_size"), grad_output.dtype)
        operations = _weighted(taps, input, grad_output, name.endswith("_aa"))
        return vector(max(operations, grad_output.numel), grad_output, input)


for _name, _taps in _UPSAMPLE.items():
    _declare_upsample(_name, _taps)


# ---------------------------------------------------------------------------------------------- grids


def _grid_taps(input: TensorSpec, mode: object) -> int:
    """Taps per output value: 0 for nearest (mode 1), 4^rank for bicubic (2), 2^rank for bi- or trilinear (0)."""
    rank = len(input.shape) - 2
    return 0 if mode in ("nearest", 1) else 4**rank if mode in ("bicubic", 2) else 2**rank


@op("grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "cudnn_grid_sampler", "_grid_sampler_2d_cpu_fallback", places="ta",
    interpolation_mode="mode")  # fmt: skip
@op("torch.nn.functional.grid_sample")
def grid_sample(input: TensorSpec, grid: TensorSpec, mode: object = "bilinear") -> Op:
    output = spec((*input.shape[:2], *grid.shape[1:-1]), input.dtype)
    taps = _grid_taps(input, mode)
    yield vector(2 * taps * output.numel, input, grid, output)
    wanted = [gradient(t) for t in (input, grid) if wants(t)]
    if wanted:
        yield Piece("input", vector(2 * max(taps, 1) * len(wanted) * output.numel, output, input, grid, wanted))


@op("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", "aten::_grid_sampler_2d_cpu_fallback_backward",
    "aten::cudnn_grid_sampler_backward")  # fmt: skip
def grid_sample_backward(grad_output: TensorSpec, input: TensorSpec, grid: TensorSpec, interpolation_mode: object = 0) -> Cost:
    taps = max(_grid_taps(input, interpolation_mode), 1)
    return vector(4 * taps * grad_output.numel, grad_output, input, grid, gradient(input), gradient(grid))


def _places(size: object) -> tuple[int, int]:
    """Points of a grid over images of this size, and their dimensions."""
    sizes = need(size, "size")
    return sizes[0] * product(sizes[2:]), len(sizes) - 2


@op("affine_grid_generator", "torch.nn.functional.affine_grid", places="ta")
def affine_grid(theta: TensorSpec, size: object) -> Cost:
    points, rank = _places(size)
    return Cost(2 * points * rank * (rank + 1), 0, nbytes(theta, spec((points, rank), theta.dtype)))


@op("aten::affine_grid_generator_backward")
def affine_grid_backward(grad: TensorSpec, size: object) -> Cost:
    # The transposed product: as many operations; theta is (N, rank, rank + 1).
    points, rank = _places(size)
    theta = spec((need(size, "size")[0], rank, rank + 1), grad.dtype)
    return Cost(2 * points * rank * (rank + 1), 0, nbytes(grad, theta))


@op("cudnn_affine_grid_generator", places="ta")
def cudnn_affine_grid(theta: TensorSpec, N: object, C: object, H: object, W: object) -> Cost:
    return affine_grid(theta, [N, C, H, W])


@op("aten::cudnn_affine_grid_generator_backward")
def cudnn_affine_grid_backward(grad: TensorSpec, N: object, C: object, H: object, W: object) -> Cost:
    return affine_grid_backward(grad, [N, C, H, W])
