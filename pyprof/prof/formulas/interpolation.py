"""Interpolation and sampling of grids: each output element is a weighted sum of elements near a place of the input.

The taps of the mode (nearest 0, linear 2 a dimension, bicubic 16 in two) are a multiplication and an addition each. With
antialiasing the filter widens by the factor by which a dimension shrinks. Bytes: input and output once.
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import gradient, need, product, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.pool import adaptive_windows, targets
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []

_TAPS = {"nearest": 0, "nearest-exact": 0, "area": 1, "linear": 2, "bilinear": 4, "bicubic": 16, "trilinear": 8,
         "lanczos": 36}  # fmt: skip


def _scaled(input: TensorSpec, size: Any, scale: Any) -> tuple[int, ...]:
    rank = len(input.shape) - 2
    if size is not None and size is not UNKNOWN:
        return targets(size, input, rank)
    if scale is None or scale is UNKNOWN:
        raise Missing("size and scale_factor not recorded")
    factors = [scale] * rank if isinstance(scale, (int, float)) else list(scale)
    factors *= rank if len(factors) == 1 else 1
    return (*input.shape[:2], *(math.floor(n * f) for n, f in zip(input.shape[2:], factors, strict=True)))


def _widened(taps: int, input: TensorSpec, output: TensorSpec) -> float:
    """Taps of a filter with antialiasing, which spans as many more elements as there are for one of the output."""
    return taps * math.prod(max(n / max(m, 1), 1.0) for n, m in zip(input.shape[2:], output.shape[2:], strict=True))


def _interpolated(input: TensorSpec, output: TensorSpec, mode: Any, antialias: Any) -> int:
    """Operations of the forward: 2 a tap; `area` is an adaptive mean, 1 an element of its windows."""
    if need(mode, "mode") == "area":
        return adaptive_windows(input, output)
    taps = _widened(_TAPS[mode], input, output) if antialias is True else _TAPS[mode]
    return round(2 * taps * output.numel)


_INTERPOLATE = ("torch.nn.functional.interpolate", "torch.nn.functional.upsample", "aten::__interpolate", "aten::__upsample")


@formula(*_INTERPOLATE)
def interpolate(
    input: TensorSpec, size: Any = None, scale_factor: Any = None, mode: Any = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: Any = False,
) -> Cost:  # fmt: skip
    output = spec(_scaled(input, size, scale_factor), input.dtype)
    return vector(_interpolated(input, output, mode, antialias), input, output)


@backward(*_INTERPOLATE)
def interpolate_backward(
    input: TensorSpec, size: Any = None, scale_factor: Any = None, mode: Any = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: Any = False,
) -> tuple[Piece, ...]:  # fmt: skip
    if not wants(input):
        return ()
    output = spec(_scaled(input, size, scale_factor), input.dtype)
    # Each tap's share is added to the input's gradient; without weights that is the addition alone.
    operations = max(_interpolated(input, output, mode, antialias), output.numel)
    return (Piece("input", vector(operations, output, gradient(input))),)


_UPSAMPLE = {
    "upsample_nearest1d": 0, "upsample_nearest2d": 0, "upsample_nearest3d": 0, "_upsample_nearest_exact1d": 0,
    "_upsample_nearest_exact2d": 0, "_upsample_nearest_exact3d": 0, "upsample_linear1d": 2, "upsample_bilinear2d": 4,
    "upsample_bicubic2d": 16, "upsample_trilinear3d": 8, "_upsample_bilinear2d_aa": 4, "_upsample_bicubic2d_aa": 16,
    "_upsample_lanczos2d_aa": 36,
}  # fmt: skip


def _register_upsample(op: str, taps: int) -> None:
    def _output(input: TensorSpec, output_size: Any, options: tuple[Any, ...]) -> TensorSpec:
        if isinstance(output_size, (list, tuple)) and output_size:
            return spec(targets(output_size, input, len(input.shape) - 2), input.dtype)
        factors = next((o for o in reversed(options) if isinstance(o, (list, tuple)) and o), None)
        return spec(_scaled(input, None, factors), input.dtype)

    def forward(input: TensorSpec, output_size: Any = None, *options: Any, **more: Any) -> Cost:
        output = _output(input, output_size, (*options, more.get("scale_factors")))
        return vector(_operations(input, output), input, output)

    def _operations(input: TensorSpec, output: TensorSpec) -> int:
        return round(2 * (_widened(taps, input, output) if op.endswith("_aa") else taps) * output.numel)

    def back(input: TensorSpec, output_size: Any = None, *options: Any, **more: Any) -> tuple[Piece, ...]:
        if not wants(input):
            return ()
        output = _output(input, output_size, (*options, more.get("scale_factors")))
        return (Piece("input", vector(max(_operations(input, output), output.numel), output, gradient(input))),)

    def aten_back(grad_output: TensorSpec, output_size: Any, input_size: Any, *options: Any, **more: Any) -> Cost:
        input = spec(need(input_size, "input_size"), grad_output.dtype)
        return vector(max(_operations(input, grad_output), grad_output.numel), grad_output, input)

    forward.__qualname__ = op
    aten_back.__qualname__ = f"{op}_backward"
    formula(f"aten::{op}", f"torch.nn.functional.{op}")(forward)
    backward(f"aten::{op}", f"torch.nn.functional.{op}")(back)
    formula(f"aten::{op}_backward")(aten_back)


for _op, _taps in _UPSAMPLE.items():
    _register_upsample(_op, _taps)


_GRID = ("torch.nn.functional.grid_sample", "torch.grid_sampler", "aten::grid_sampler", "torch.grid_sampler_2d",
    "aten::grid_sampler_2d",
         "torch.grid_sampler_3d", "aten::grid_sampler_3d", "aten::cudnn_grid_sampler", "torch.cudnn_grid_sampler",
         "aten::_grid_sampler_2d_cpu_fallback", "torch._grid_sampler_2d_cpu_fallback")  # fmt: skip


def _grid_taps(input: TensorSpec, mode: Any) -> int:
    """Of the modes nearest (1), bicubic (2) and (bi- or tri-) linear (0)."""
    rank = len(input.shape) - 2
    return 0 if mode in ("nearest", 1) else 4**rank if mode in ("bicubic", 2) else 2**rank


@formula(*_GRID)
def grid_sample(
    input: TensorSpec, grid: TensorSpec, mode: Any = "bilinear", padding_mode: Any = "zeros", align_corners: Any = None
) -> Cost:
    output = spec((*input.shape[:2], *grid.shape[1:-1]), input.dtype)
    return vector(2 * _grid_taps(input, mode) * output.numel, input, grid, output)


@backward(*_GRID)
def grid_sample_backward(
    input: TensorSpec, grid: TensorSpec, mode: Any = "bilinear", padding_mode: Any = "zeros", align_corners: Any = None
) -> tuple[Piece, ...]:
    output = spec((*input.shape[:2], *grid.shape[1:-1]), input.dtype)
    wanted = [gradient(t) for t in (input, grid) if wants(t)]
    if not wanted:
        return ()
    taps = max(_grid_taps(input, mode), 1)
    return (Piece("input", vector(2 * taps * len(wanted) * output.numel, output, input, grid, wanted)),)


@formula("aten::cudnn_grid_sampler_backward")
def cudnn_grid_backward(input: TensorSpec, grid: TensorSpec, grad_output: TensorSpec) -> Cost:
    return aten_grid_backward(grad_output, input, grid)


@formula("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", "aten::_grid_sampler_2d_cpu_fallback_backward")
def aten_grid_backward(
    grad_output: TensorSpec, input: TensorSpec, grid: TensorSpec, interpolation_mode: Any = 0, *options: Any
) -> Cost:
    taps = max(_grid_taps(input, interpolation_mode), 1)
    return vector(4 * taps * grad_output.numel, grad_output, input, grid, gradient(input), gradient(grid))


@formula("torch.affine_grid_generator", "aten::affine_grid_generator", "torch.nn.functional.affine_grid")
def affine_grid(theta: TensorSpec, size: Any, align_corners: Any = None) -> Cost:
    sizes = need(size, "size")
    rank = len(sizes) - 2
    points = sizes[0] * product(sizes[2:])
    return Cost(2 * points * rank * (rank + 1), 0, vector(0, theta, spec((points, rank), theta.dtype)).bytes)


@formula("aten::affine_grid_generator_backward")
def affine_grid_backward(grad: TensorSpec, size: Any, align_corners: Any = None) -> Cost:
    # The transposed product: as many operations; theta is (N, rank, rank + 1).
    sizes = need(size, "size")
    rank = len(sizes) - 2
    points = sizes[0] * product(sizes[2:])
    theta = spec((sizes[0], rank, rank + 1), grad.dtype)
    return Cost(2 * points * rank * (rank + 1), 0, vector(0, grad, theta).bytes)


@formula(*spellings("cudnn_affine_grid_generator", "ta"))
def cudnn_affine_grid(theta: TensorSpec, N: Any, C: Any, H: Any, W: Any) -> Cost:
    return affine_grid(theta, [N, C, H, W])


@formula("aten::cudnn_affine_grid_generator_backward")
def cudnn_affine_grid_backward(grad: TensorSpec, N: Any, C: Any, H: Any, W: Any) -> Cost:
    return affine_grid_backward(grad, [N, C, H, W])
