"""Normalisations: batch, instance, layer, group, rms and local response norm, with the dispatcher's own forms of them.

Operations an element: layer and group norm 6 (mean; subtract, square, sum; subtract, multiply) and 2 for the affine part;
batch norm the same 8 in training, and 4 in evaluation, where the statistics are given; rms norm 3 (square, sum, multiply) and
1 for the weight, 1 more where a bias follows. The backward of each reads the gradient and the input and writes the input's
gradient: 11 an element with affine part (2 sums, and 3·x̂ terms), 7 without. Bytes: the input once (kernels that read it
twice show it in their rate), the parameters and the statistics.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import gradient, need, opt, product, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []

_BACKWARD_INPUT, _BACKWARD_AFFINE = 7, 4  # operations an element for the gradient of the input, and of weight and bias


def _statistics_dtype(dtype: str | None) -> str | None:
    """Statistics of half precision inputs are kept in single precision."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _norm(input: TensorSpec, groups: int, weight: Any, bias: Any, operations: int, statistics: int = 2) -> Cost:
    """`groups` sets of statistics, `statistics` numbers each, over the input."""
    operations += (opt(weight) is not None) + (opt(bias) is not None)
    saved = spec((statistics * groups,), _statistics_dtype(input.dtype))
    return vector(operations * input.numel, input, opt(weight), opt(bias), gradient(input), saved)


def _norm_backward(input: TensorSpec, groups: int, weight: Any, bias: Any, statistics: int = 2) -> tuple[Piece, ...]:
    params = [p for p in (weight, bias) if isinstance(p, TensorSpec) and wants(p)]
    if not wants(input) and not params:
        return ()
    grad = gradient(input)
    saved = spec((statistics * groups,), _statistics_dtype(input.dtype))
    operations = (_BACKWARD_INPUT if wants(input) else 0) + (_BACKWARD_AFFINE if params else 0)
    written = [gradient(p) for p in params] + ([grad] if wants(input) else [])
    return (Piece("norm", vector(operations * input.numel, grad, input, opt(weight), saved, written)),)


# ---------------------------------------------------------------------------------------------- layer and rms norm


def _rows(input: TensorSpec, normalized_shape: Any, weight: Any) -> int:
    """How many rows are normalised, each over the normalized shape, which a weight has too."""
    if normalized_shape is UNKNOWN or normalized_shape is None:
        if not isinstance(weight, TensorSpec):
            raise Missing("normalized_shape not recorded")
        sizes = weight.shape
    else:
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    return product(input.shape[: len(input.shape) - len(sizes)])


_LAYER_NORM = ("torch.nn.functional.layer_norm", "torch.layer_norm", "aten::layer_norm", "aten::native_layer_norm",
               "torch.native_layer_norm")  # fmt: skip


@formula(*_LAYER_NORM)
def layer_norm(
    input: TensorSpec, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5, cudnn_enable: Any = True
) -> Cost:
    return _norm(input, _rows(input, normalized_shape, weight), weight, bias, 6)


@backward(*_LAYER_NORM)
def layer_norm_backward(
    input: TensorSpec, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5, cudnn_enable: Any = True
) -> tuple[Piece, ...]:
    return _norm_backward(input, _rows(input, normalized_shape, weight), weight, bias)


@formula("aten::native_layer_norm_backward")
def native_layer_norm_backward(
    grad_out: TensorSpec, input: TensorSpec, normalized_shape: Any, mean: TensorSpec, rstd: TensorSpec, weight: Any = None,
    bias: Any = None, output_mask: Any = UNKNOWN,
) -> Cost:  # fmt: skip
    return _native_backward(grad_out, input, (mean, rstd), weight, output_mask, opt(bias))


def _native_backward(
    grad: TensorSpec, input: TensorSpec, saved: Any, weight: Any, output_mask: Any, bias: TensorSpec | None = None
) -> Cost:
    # Without a mask on record the gradients of all that is there are assumed: they are a row of the input.
    affine = opt(weight)
    mask = (True, affine is not None, affine is not None) if output_mask is UNKNOWN else tuple(output_mask)
    if affine is None:
        # A bias without a weight has the size of a row; where no argument tells it, its share is left out.
        written = [gradient(t) for t, on in ((input, mask[0]), (bias, any(mask[2:]))) if on and t is not None]
    else:
        written = [gradient(t) for t, on in zip((input, affine, affine), mask, strict=False) if on]
    operations = (_BACKWARD_INPUT if mask[0] else 0) + (_BACKWARD_AFFINE if any(mask[1:]) else 0)
    return vector(operations * input.numel, grad, input, saved, affine, written)


_RMS_NORM = (
    "torch.nn.functional.rms_norm",
    "torch.rms_norm",
    "aten::rms_norm",
    "aten::_fused_rms_norm",
    "torch._fused_rms_norm",
)


@formula(*_RMS_NORM)
def rms_norm(input: TensorSpec, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Cost:
    return _norm(input, _rows(input, normalized_shape, weight), weight, None, 3, statistics=1)


@backward(*_RMS_NORM)
def rms_norm_backward(input: TensorSpec, normalized_shape: Any, weight: Any = None, eps: Any = None) -> tuple[Piece, ...]:
    return _norm_backward(input, _rows(input, normalized_shape, weight), weight, None, statistics=1)


@formula("aten::_fused_rms_norm_backward")
def fused_rms_norm_backward(
    grad_out: TensorSpec,
    input: TensorSpec,
    normalized_shape: Any,
    rstd: TensorSpec,
    weight: Any = None,
    output_mask: Any = UNKNOWN,
) -> Cost:
    mask = UNKNOWN if output_mask is UNKNOWN else (*output_mask, False)
    return _native_backward(grad_out, input, rstd, weight, mask)


# ---------------------------------------------------------------------------------------------- group norm

_GROUP_NORM = ("torch.nn.functional.group_norm", "torch.group_norm", "aten::group_norm")


@formula(*_GROUP_NORM)
def group_norm(
    input: TensorSpec, num_groups: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5, cudnn_enabled: Any = True
) -> Cost:
    return _norm(input, input.shape[0] * need(num_groups, "num_groups"), weight, bias, 6)


@backward(*_GROUP_NORM)
def group_norm_backward(
    input: TensorSpec, num_groups: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5, cudnn_enabled: Any = True
) -> tuple[Piece, ...]:
    return _norm_backward(input, input.shape[0] * need(num_groups, "num_groups"), weight, bias)


@formula("aten::native_group_norm", "torch.native_group_norm")
def native_group_norm(input: TensorSpec, weight: Any, bias: Any, N: Any, C: Any, HxW: Any, group: Any, eps: Any = 1e-5) -> Cost:
    return _norm(input, need(N, "N") * need(group, "group"), weight, bias, 6)


@formula("aten::native_group_norm_backward")
def native_group_norm_backward(
    grad_out: TensorSpec, input: TensorSpec, mean: TensorSpec, rstd: TensorSpec, weight: Any = None, N: Any = None,
    C: Any = None,
    HxW: Any = None, group: Any = None, output_mask: Any = UNKNOWN,
) -> Cost:  # fmt: skip
    return _native_backward(grad_out, input, (mean, rstd), weight, output_mask)


# ---------------------------------------------------------------------------------------------- batch and instance norm


def _batch_norm(input: TensorSpec, weight: Any, bias: Any, running: tuple[Any, Any], training: Any, instances: int = 1) -> Cost:
    need(training, "training")
    kept = [t for t in running if isinstance(t, TensorSpec)]
    groups = instances * (input.shape[1] if len(input.shape) > 1 else 1)
    if training:  # the running statistics are read and written
        one = _norm(input, groups, weight, bias, 6)
        moving = vector(0, kept, kept).bytes
    else:
        one = _norm(input, 0, weight, bias, 2)
        moving = vector(0, kept).bytes
    total = None if one.bytes is None or moving is None else one.bytes + moving
    return Cost(0, one.vector_flops, total)


def _batch_norm_backward(input: TensorSpec, weight: Any, bias: Any, training: Any) -> tuple[Piece, ...]:
    return _norm_backward(input, input.shape[1] if len(input.shape) > 1 else 1, weight, bias)


@formula("torch.nn.functional.batch_norm")
def functional_batch_norm(
    input: TensorSpec, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    training: Any = False, momentum: Any = 0.1, eps: Any = 1e-5,
) -> Cost:  # fmt: skip
    return _batch_norm(input, weight, bias, (running_mean, running_var), training)


@backward("torch.nn.functional.batch_norm")
def functional_batch_norm_backward(
    input: TensorSpec, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    training: Any = False, momentum: Any = 0.1, eps: Any = 1e-5,
) -> tuple[Piece, ...]:  # fmt: skip
    return _batch_norm_backward(input, weight, bias, training)


_BATCH_NORM = (
    "aten::batch_norm", "torch.batch_norm", "aten::native_batch_norm", "torch.native_batch_norm", "aten::cudnn_batch_norm",
    "torch.cudnn_batch_norm", "aten::miopen_batch_norm", "torch.miopen_batch_norm", "aten::_batch_norm_impl_index",
    "torch._batch_norm_impl_index", "aten::_native_batch_norm_legit", "torch._native_batch_norm_legit",
    "aten::_native_batch_norm_legit_functional", "torch._native_batch_norm_legit_functional",
)  # fmt: skip


@formula(*_BATCH_NORM)
def aten_batch_norm(
    input: TensorSpec, weight: Any, bias: Any = None, running_mean: Any = None, running_var: Any = None, training: Any = True,
    momentum: Any = 0.1, eps: Any = 1e-5, cudnn_enabled: Any = True,
) -> Cost:  # fmt: skip
    return _batch_norm(input, weight, bias, (running_mean, running_var), training)


@backward(*_BATCH_NORM)
def aten_batch_norm_backward(
    input: TensorSpec, weight: Any, bias: Any = None, running_mean: Any = None, running_var: Any = None, training: Any = True,
    momentum: Any = 0.1, eps: Any = 1e-5, cudnn_enabled: Any = True,
) -> tuple[Piece, ...]:  # fmt: skip
    return _batch_norm_backward(input, weight, bias, training)


@formula("aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional")
def batch_norm_with_update(
    input: TensorSpec, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: Any = 0.1, eps: Any = 1e-5
) -> Cost:
    return _batch_norm(input, weight, bias, (running_mean, running_var), True)


@formula("aten::_batch_norm_no_update", "aten::_native_batch_norm_legit_no_training")
def batch_norm_no_update(
    input: TensorSpec, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: Any = 0.1, eps: Any = 1e-5
) -> Cost:
    return _batch_norm(input, weight, bias, (running_mean, running_var), False)


@formula("aten::native_batch_norm_backward", "aten::batch_norm_backward")
def native_batch_norm_backward(
    grad_out: TensorSpec, input: TensorSpec, weight: Any = None, running_mean: Any = None, running_var: Any = None,
    save_mean: Any = None, save_invstd: Any = None, train: Any = True, eps: Any = 1e-5, output_mask: Any = UNKNOWN, *more: Any,
) -> Cost:  # fmt: skip
    return _native_backward(grad_out, input, (opt(save_mean), opt(save_invstd)), weight, output_mask)


@formula("aten::_batch_norm_impl_index_backward")
def batch_norm_impl_index_backward(
    impl_index: Any, input: TensorSpec, grad_output: TensorSpec, weight: Any = None, running_mean: Any = None,
    running_var: Any = None, save_mean: Any = None, save_var_transform: Any = None, train: Any = True, eps: Any = 1e-5,
    output_mask: Any = UNKNOWN, *more: Any,
) -> Cost:  # fmt: skip
    return _native_backward(grad_output, input, (opt(save_mean), opt(save_var_transform)), weight, output_mask)


@formula("aten::quantized_batch_norm", "torch.quantized_batch_norm")
def quantized_batch_norm(input: TensorSpec, weight: Any, bias: Any, mean: TensorSpec, var: TensorSpec, *options: Any) -> Cost:
    return _batch_norm(input, weight, bias, (mean, var), False)


@formula("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward")
def cudnn_batch_norm_backward(
    input: TensorSpec, grad_output: TensorSpec, weight: Any = None, running_mean: Any = None, running_var: Any = None,
    save_mean: Any = None, save_var: Any = None, epsilon: Any = 1e-5, reserveSpace: Any = None,
) -> Cost:  # fmt: skip
    return _native_backward(grad_output, input, (opt(save_mean), opt(save_var)), weight, UNKNOWN)


@formula("torch.nn.functional.instance_norm")
def functional_instance_norm(
    input: TensorSpec, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: Any = True, momentum: Any = 0.1, eps: Any = 1e-5,
) -> Cost:  # fmt: skip
    return _batch_norm(input, weight, bias, (running_mean, running_var), use_input_stats, input.shape[0])


@formula("torch.instance_norm", "aten::instance_norm")
def aten_instance_norm(
    input: TensorSpec, weight: Any, bias: Any = None, running_mean: Any = None, running_var: Any = None,
    use_input_stats: Any = True,
    momentum: Any = 0.1, eps: Any = 1e-5, cudnn_enabled: Any = True,
) -> Cost:  # fmt: skip
    return _batch_norm(input, weight, bias, (running_mean, running_var), use_input_stats, input.shape[0])


@backward("torch.nn.functional.instance_norm")
def functional_instance_norm_backward(
    input: TensorSpec, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: Any = True, momentum: Any = 0.1, eps: Any = 1e-5,
) -> tuple[Piece, ...]:  # fmt: skip
    return _norm_backward(input, product(input.shape[:2]), weight, bias)


@backward("torch.instance_norm", "aten::instance_norm")
def aten_instance_norm_backward(
    input: TensorSpec, weight: Any, bias: Any = None, running_mean: Any = None, running_var: Any = None,
    use_input_stats: Any = True,
    momentum: Any = 0.1, eps: Any = 1e-5, cudnn_enabled: Any = True,
) -> tuple[Piece, ...]:  # fmt: skip
    return _norm_backward(input, product(input.shape[:2]), weight, bias)


# ---------------------------------------------------------------------------------------------- pieces of synchronised batch
# norm


@formula("aten::batch_norm_stats", "torch.batch_norm_stats")
def batch_norm_stats(input: TensorSpec, eps: Any = 1e-5) -> Cost:
    return vector(4 * input.numel, input, spec((2 * input.shape[1],), _statistics_dtype(input.dtype)))


@formula("aten::batch_norm_elemt", "torch.batch_norm_elemt")
def batch_norm_elemt(
    input: TensorSpec, weight: Any, bias: Any, mean: TensorSpec, invstd: TensorSpec, eps: Any, out: Any = None
) -> Cost:
    return vector(4 * input.numel, input, opt(weight), opt(bias), mean, invstd, gradient(input))


@formula("aten::batch_norm_backward_reduce", "torch.batch_norm_backward_reduce")
def batch_norm_backward_reduce(
    grad_out: TensorSpec, input: TensorSpec, mean: TensorSpec, invstd: TensorSpec, weight: Any = None, *which: Any
) -> Cost:
    return vector(4 * input.numel, grad_out, input, mean, invstd, spec((4 * mean.numel,), mean.dtype))


@formula("aten::batch_norm_backward_elemt", "torch.batch_norm_backward_elemt")
def batch_norm_backward_elemt(
    grad_out: TensorSpec, input: TensorSpec, mean: TensorSpec, invstd: TensorSpec, weight: Any = None, *sums: Any
) -> Cost:
    return vector(7 * input.numel, grad_out, input, mean, invstd, opt(weight), gradient(input))


@formula("torch.nn.functional.local_response_norm")
def local_response_norm(input: TensorSpec, size: Any, alpha: Any = 1e-4, beta: Any = 0.75, k: Any = 1.0) -> Cost:
    # Square, a window of `size` channels, scale, add, power, divide.
    return vector((need(size, "size") + 5) * input.numel, input, gradient(input))


@formula("torch.renorm", "Tensor.renorm", "Tensor.renorm_", "aten::renorm", "aten::renorm_")
def renorm(input: TensorSpec, p: Any, dim: Any, maxnorm: Any, out: Any = None) -> Cost:
    # A norm of each slice (2 an element) and a multiplication.
    return vector(3 * input.numel, input, gradient(input))
