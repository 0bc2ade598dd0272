"""Normalisations: batch, instance, layer, group, rms and local response norm, with the dispatcher's own forms of them.

Operations an element: layer and group norm 6 (mean; subtract, square, sum; subtract, multiply) and 2 for the affine part;
batch norm the same 8 in training, and 4 in evaluation, where the statistics are given; rms norm 3 (square, sum, multiply) and
1 for the weight, 1 more where a bias follows. The backward of each reads the gradient and the input and writes the input's
gradient: 11 an element with affine part (2 sums, and 3·x̂ terms), 7 without. Bytes: the input once (kernels that read it
twice show it in their rate), the parameters and the statistics.
"""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import gradient, need, opt, product, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, op

_BACKWARD_INPUT, _BACKWARD_AFFINE = 7, 4  # operations an element for the gradient of the input, and of weight and bias


def _statistics(input: TensorSpec, count: int) -> TensorSpec:
    """So many statistics; those of half precision inputs are kept in single precision."""
    return spec((count,), "float32" if input.dtype in ("float16", "bfloat16") else input.dtype)


def _forward(
    input: TensorSpec, groups: int, weight: object, bias: object, operations: int, *more: object, statistics: int = 2
) -> Cost:
    """`groups` sets of statistics, `statistics` numbers each, over the input; more: other tensors that it touches."""
    operations += (opt(weight) is not None) + (opt(bias) is not None)
    saved = _statistics(input, statistics * groups)
    return vector(operations * input.numel, input, opt(weight), opt(bias), gradient(input), saved, more)


def _norm(input: TensorSpec, groups: int, weight: object, bias: object, operations: int, statistics: int = 2) -> Op:
    yield _forward(input, groups, weight, bias, operations, statistics=statistics)
    yield from _gradients(input, groups, weight, bias, statistics)


def _gradients(input: TensorSpec, groups: int, weight: object, bias: object, statistics: int = 2) -> Op:
    """All gradients, in one kernel."""
    params = [p for p in (weight, bias) if wants(p)]
    if not wants(input) and not params:
        return
    incoming = gradient(input)
    operations = (_BACKWARD_INPUT if wants(input) else 0) + (_BACKWARD_AFFINE if params else 0)
    written = [gradient(p) for p in params] + ([incoming] if wants(input) else [])
    saved = _statistics(input, statistics * groups)
    yield Piece("norm", vector(operations * input.numel, incoming, input, opt(weight), saved, written))


# ---------------------------------------------------------------------------------------------- layer, rms and group norm


def _rows(input: TensorSpec, normalized_shape: object, weight: object) -> int:
    """How many rows are normalised, each over the normalized shape, which a weight has too."""
    if normalized_shape is not UNKNOWN and normalized_shape is not None:
        sizes = need(normalized_shape, "normalized_shape")
        rank = 1 if isinstance(sizes, int) else len(tuple(sizes))
    elif isinstance(weight, TensorSpec):
        rank = len(weight.shape)
    else:
        raise Missing("normalized_shape not recorded")
    return product(input.shape[: len(input.shape) - rank])


@op("layer_norm", "native_layer_norm", "torch.nn.functional.layer_norm", places="ta")
def layer_norm(input: TensorSpec, normalized_shape: object, weight: object = None, bias: object = None) -> Op:
    return _norm(input, _rows(input, normalized_shape, weight), weight, bias, 6)


@op("rms_norm", "_fused_rms_norm", "torch.nn.functional.rms_norm", places="ta")
def rms_norm(input: TensorSpec, normalized_shape: object, weight: object = None) -> Op:
    return _norm(input, _rows(input, normalized_shape, weight), weight, None, 3, statistics=1)


@op("group_norm", places="Fta")
def group_norm(input: TensorSpec, num_groups: object, weight: object = None, bias: object = None) -> Op:
    return _norm(input, input.shape[0] * need(num_groups, "num_groups"), weight, bias, 6)


@op("native_group_norm", places="ta")
def native_group_norm(input: TensorSpec, weight: object, bias: object, N: object, group: object) -> Cost:
    return _forward(input, need(N, "N") * need(group, "group"), weight, bias, 6)


@op("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward", "aten::native_group_norm_backward")
def norm_backward(
    grad_out: TensorSpec, input: TensorSpec, rstd: object, mean: object = None, weight: object = None, bias: object = None,
    output_mask: object = UNKNOWN,
) -> Cost:  # fmt: skip
    # Where no mask was recorded all possible gradients are assumed. Those of weight and bias are a row of the input each.
    affine, bias = opt(weight), opt(bias)
    mask = (True, affine is not None, affine is not None) if output_mask is UNKNOWN else tuple(need(output_mask, "output_mask"))
    if affine is None:
        # A bias without a weight has the size of a row; where no argument has that size, its share is left out.
        written = [gradient(t) for t, on in ((input, mask[0]), (bias, any(mask[2:]))) if on and t is not None]
    else:
        written = [gradient(t) for t, on in zip((input, affine, affine), mask, strict=False) if on]
    operations = (_BACKWARD_INPUT if mask[0] else 0) + (_BACKWARD_AFFINE if any(mask[1:]) else 0)
    return vector(operations * input.numel, grad_out, input, opt(mean), opt(rstd), affine, written)


# ---------------------------------------------------------------------------------------------- batch and instance norm


def _batch_norm(input: TensorSpec, groups: int, weight: object, bias: object, running: list[object], training: object) -> Op:
    kept = [t for t in running if isinstance(t, TensorSpec)]
    if training is UNKNOWN:  # the gradients are known all the same
        yield Missing("training not recorded")
    elif training:  # the running statistics are read and written
        yield _forward(input, groups, weight, bias, 6, kept, kept)
    else:
        yield _forward(input, 0, weight, bias, 2, kept)
    yield from _gradients(input, groups, weight, bias)


def _channels(input: TensorSpec) -> int:
    return input.shape[1] if len(input.shape) > 1 else 1


@op("batch_norm", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index",
    "_native_batch_norm_legit", "_native_batch_norm_legit_functional", places="ta")  # fmt: skip
@op("aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional", backward=False)
def batch_norm(
    input: TensorSpec, weight: object, bias: object = None, running_mean: object = None, running_var: object = None,
    training: object = True,
) -> Op:  # fmt: skip
    return _batch_norm(input, _channels(input), weight, bias, [running_mean, running_var], training)


@op("torch.nn.functional.batch_norm")
def functional_batch_norm(
    input: TensorSpec, running_mean: object = None, running_var: object = None, weight: object = None, bias: object = None,
    training: object = False,
) -> Op:  # fmt: skip
    return batch_norm(input, weight, bias, running_mean, running_var, training)


@op("aten::_batch_norm_no_update", "aten::_native_batch_norm_legit_no_training", backward=False)
@op("quantized_batch_norm", places="ta", backward=False, mean="running_mean", var="running_var")
def batch_norm_no_update(input: TensorSpec, weight: object, bias: object, running_mean: object, running_var: object) -> Op:
    return batch_norm(input, weight, bias, running_mean, running_var, False)


@op("instance_norm", places="Fta")
def instance_norm(
    input: TensorSpec, running_mean: object = None, running_var: object = None, weight: object = None, bias: object = None,
    use_input_stats: object = True,
) -> Op:  # fmt: skip
    return _batch_norm(input, product(input.shape[:2]), weight, bias, [running_mean, running_var], use_input_stats)


@op("aten::native_batch_norm_backward", "aten::batch_norm_backward", save_var="save_invstd",
    order="grad_out input weight running_mean running_var save_mean save_invstd train eps output_mask ...")  # fmt: skip
@op("aten::_batch_norm_impl_index_backward", grad_output="grad_out", save_var_transform="save_invstd")
@op("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward", grad_output="grad_out", save_var="save_invstd")
def batch_norm_backward(
    grad_out: TensorSpec, input: TensorSpec, weight: object = None, save_mean: object = None, save_invstd: object = None,
    output_mask: object = UNKNOWN,
) -> Cost:  # fmt: skip
    return norm_backward(grad_out, input, save_invstd, save_mean, weight, None, output_mask)


# ---------------------------------------------------------------------------------------------- synchronised batch norm


@op("batch_norm_stats", places="ta")
def batch_norm_stats(input: TensorSpec) -> Cost:
    return vector(4 * input.numel, input, _statistics(input, 2 * input.shape[1]))


@op("batch_norm_elemt", places="ta")
def batch_norm_elemt(input: TensorSpec, weight: object, bias: object, mean: TensorSpec, invstd: TensorSpec) -> Cost:
    return vector(4 * input.numel, input, opt(weight), opt(bias), mean, invstd, gradient(input))


@op("batch_norm_backward_reduce", places="ta")
def batch_norm_backward_reduce(grad_out: TensorSpec, input: TensorSpec, mean: TensorSpec, invstd: TensorSpec) -> Cost:
    return vector(4 * input.numel, grad_out, input, mean, invstd, spec((4 * mean.numel,), mean.dtype))


@op("batch_norm_backward_elemt", places="ta")
def batch_norm_backward_elemt(
    grad_out: TensorSpec, input: TensorSpec, mean: TensorSpec, invstd: TensorSpec, weight: object = None
) -> Cost:
    return vector(7 * input.numel, grad_out, input, mean, invstd, opt(weight), gradient(input))


@op("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts", places="ta")
def batch_norm_gather_stats(
    mean: TensorSpec, invstd: TensorSpec, running_mean: object = None, running_var: object = None, counts: object = None
) -> Cost:
    # Each rank's (mean, 1/σ) is merged into a total: its variance again 4 (divide, square, subtract epsilon, times its count),
    # the factor 2, the variance 7 (difference, square, weights, sum), the mean 5, the count 1. Then the running statistics.
    channels = mean.shape[-1]
    kept = [t for t in (running_mean, running_var) if isinstance(t, TensorSpec)]
    written = spec((2 * channels,), mean.dtype)
    return vector(19 * mean.numel + 3 * channels * (1 + len(kept)), mean, invstd, opt(counts), kept, kept, written)


@op("batch_norm_update_stats", places="ta")
def batch_norm_update_stats(input: TensorSpec, running_mean: object = None, running_var: object = None) -> Cost:
    kept = [t for t in (running_mean, running_var) if isinstance(t, TensorSpec)]
    channels = input.shape[1]
    return vector(4 * input.numel + 3 * channels * len(kept), input, kept, kept, spec((2 * channels,), input.dtype))


# ---------------------------------------------------------------------------------------------- others


@op("torch.nn.functional.local_response_norm")
def local_response_norm(input: TensorSpec, size: object) -> Cost:
    # Square, a window of `size` channels, scale, add, power, divide.
    return vector((need(size, "size") + 5) * input.numel, input, gradient(input))


@op("renorm", "Tensor.renorm_", "aten::renorm_")
def renorm(input: TensorSpec) -> Cost:
    # A norm of each slice (2 an element) and a multiplication.
    return vector(3 * input.numel, input, gradient(input))


# Weights divided by their norm: w = v·g/‖v‖, a norm for each index of one dimension: 2 operations an element for the norms and
# 1 for the product, and a root and a division for each norm. The gradient of v, g/‖v‖·(dw - v·(dw·v)/‖v‖²), is 5: the inner
# product 2, and multiply, subtract, multiply.


@op("_weight_norm", "_weight_norm_interface", places="ta")
def weight_norm(v: TensorSpec, g: TensorSpec) -> Op:
    norms = spec(g.shape, _statistics(v, 1).dtype)
    yield vector(3 * v.numel + 2 * g.numel, v, g, gradient(v), norms)
    if wants(v) or wants(g):
        yield Piece("weight_norm", weight_norm_backward(gradient(v), v, g, norms))


@op("aten::_weight_norm_interface_backward", "aten::_weight_norm_differentiable_backward")
def weight_norm_backward(grad_w: TensorSpec, saved_v: TensorSpec, saved_g: TensorSpec, saved_norms: TensorSpec) -> Cost:
    read, written = (grad_w, saved_v, saved_g, saved_norms), (gradient(saved_v), gradient(saved_g))
    return vector(5 * saved_v.numel + 4 * saved_g.numel, read, written)


@op("norm_except_dim", places="ta")
def norm_except_dim(v: TensorSpec, dim: object = 0) -> Cost:
    along = need(dim, "dim")
    kept = 1 if along == -1 else v.shape[along]
    return vector(2 * v.numel + kept, v, spec((kept,), v.dtype))
