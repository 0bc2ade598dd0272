"""Weights divided by their norm, and the statistics that ranks put together for a batch norm over all of them.

w = v·g/‖v‖, a norm for each index of one dimension: 2 operations an element for the norms and 1 for the product. The gradient
of v, g/‖v‖·(dw - v·(dw·v)/‖v‖²), is 5: the inner product 2, and multiply, subtract, multiply.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import gradient, need, opt, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Piece, backward, formula

__all__: list[str] = []

_WEIGHT_NORM = (*spellings("_weight_norm", "ta"), *spellings("_weight_norm_interface", "ta"))


def _norms(v: TensorSpec, g: TensorSpec) -> TensorSpec:
    """Norms of half precision are kept in single precision."""
    return spec(g.shape, "float32" if v.dtype in ("float16", "bfloat16") else v.dtype)


@formula(*_WEIGHT_NORM)
def weight_norm(v: TensorSpec, g: TensorSpec, dim: Any = 0) -> Cost:
    # A root and a division for each norm besides.
    return vector(3 * v.numel + 2 * g.numel, v, g, gradient(v), _norms(v, g))


def _weight_norm_gradients(grad: TensorSpec, v: TensorSpec, g: TensorSpec, norms: TensorSpec) -> Cost:
    return vector(5 * v.numel + 4 * g.numel, grad, v, g, norms, gradient(v), gradient(g))


@backward(*_WEIGHT_NORM)
def weight_norm_back(v: TensorSpec, g: TensorSpec, dim: Any = 0) -> tuple[Piece, ...]:
    if not wants(v) and not wants(g):
        return ()
    return (Piece("weight_norm", _weight_norm_gradients(gradient(v), v, g, _norms(v, g))),)


@formula("aten::_weight_norm_interface_backward", "aten::_weight_norm_differentiable_backward")
def weight_norm_backward(
    grad_w: TensorSpec, saved_v: TensorSpec, saved_g: TensorSpec, saved_norms: TensorSpec, dim: Any = 0
) -> Cost:
    return _weight_norm_gradients(grad_w, saved_v, saved_g, saved_norms)


@formula(*spellings("norm_except_dim", "ta"))
def norm_except_dim(v: TensorSpec, pow: Any = 2, dim: Any = 0) -> Cost:
    kept = 1 if need(dim, "dim") == -1 else v.shape[dim]
    return vector(2 * v.numel + kept, v, spec((kept,), v.dtype))


# ---------------------------------------------------------------------------------------------- statistics of all ranks


def _gathered(mean: TensorSpec, invstd: TensorSpec, running: tuple[Any, Any], counts: Any = None) -> Cost:
    # Each rank's (mean, 1/σ) is merged into a total: its variance again 4 (divide, square, subtract epsilon, times its count),
    # the factor 2, the variance 7 (difference, square, weights, sum), the mean 5, the count 1. Then the running statistics.
    channels = mean.shape[-1]
    kept = [t for t in running if isinstance(t, TensorSpec)]
    written = spec((2 * channels,), mean.dtype)
    return vector(19 * mean.numel + 3 * channels * (1 + len(kept)), mean, invstd, counts, kept, kept, written)


@formula(*spellings("batch_norm_gather_stats", "ta"))
def batch_norm_gather_stats(
    input: Any, mean: TensorSpec, invstd: TensorSpec, running_mean: Any = None, running_var: Any = None, *options: Any
) -> Cost:
    return _gathered(mean, invstd, (running_mean, running_var))


@formula(*spellings("batch_norm_gather_stats_with_counts", "ta"))
def batch_norm_gather_stats_with_counts(
    input: Any, mean: TensorSpec, invstd: TensorSpec, running_mean: Any = None, running_var: Any = None, momentum: Any = 0.1,
    eps: Any = 1e-5, counts: Any = None,
) -> Cost:  # fmt: skip
    return _gathered(mean, invstd, (running_mean, running_var), opt(counts))


@formula(*spellings("batch_norm_update_stats", "ta"))
def batch_norm_update_stats(input: TensorSpec, running_mean: Any = None, running_var: Any = None, momentum: Any = 0.1) -> Cost:
    kept = [t for t in (running_mean, running_var) if isinstance(t, TensorSpec)]
    channels = input.shape[1]
    return vector(4 * input.numel + 3 * channels * len(kept), input, kept, kept, spec((2 * channels,), input.dtype))
