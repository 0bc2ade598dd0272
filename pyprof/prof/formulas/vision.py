"""Detection ops of torchvision: regions of interest, deformable convolution, suppression of boxes that overlap.

A value between four pixels is 8 operations: 4 weights' products and 3 sums, and its addition to what it is part of. Of the
image at most all is read. Signatures: pytorch/vision (torchvision/csrc/ops).
"""

from __future__ import annotations

from dataclasses import replace

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import gathered, gradient, nbytes, need, opt, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, op

_BILINEAR = 8


def _samples(ratio: object) -> int:
    """Samples of a bin. Raises Missing if their number follows from the size of each box."""
    given = need(ratio, "sampling_ratio")
    if given <= 0:
        raise Missing("the samples of a bin follow from the sizes of the boxes, which are data")
    return int(given) ** 2


@op("torchvision::roi_align", order="input rois spatial_scale pooled_height pooled_width sampling_ratio aligned")
def roi_align(input: TensorSpec, rois: TensorSpec, pooled_height: object, pooled_width: object, sampling_ratio: object) -> Cost:
    """The mean of each bin's samples."""
    bins = need(pooled_height, "pooled_height") * need(pooled_width, "pooled_width")
    made = spec((rois.shape[0], input.shape[1], bins), input.dtype)
    count = _samples(sampling_ratio)
    return vector((_BILINEAR * count + 1) * made.numel, gathered(input, (4 * count * made.numel,)), rois, made)


@op("torchvision::_roi_align_backward",
    order="grad rois spatial_scale pooled_height pooled_width batch_size channels height width "
    "sampling_ratio aligned")  # fmt: skip
def roi_align_backward(
    grad: TensorSpec, rois: TensorSpec, batch_size: object, channels: object, height: object, width: object,
    sampling_ratio: object,
) -> Cost:  # fmt: skip
    sizes = [need(n, "size") for n in (batch_size, channels, height, width)]
    return vector((_BILINEAR * _samples(sampling_ratio) + 1) * grad.numel, grad, rois, spec(sizes, grad.dtype))


@op("torchvision::nms", order="dets scores iou_threshold")
def nms(dets: TensorSpec, scores: TensorSpec) -> Cost:
    raise Missing("which boxes are compared, and how many are left, is data")


@op("torchvision::deform_conv2d", kind="matmul", order="input weight offset mask bias stride_h stride_w pad_h pad_w dilation_h "
    "dilation_w groups offset_groups use_mask")  # fmt: skip
def deform_conv2d(
    input: TensorSpec, weight: TensorSpec, offset: TensorSpec, mask: object = None, bias: object = None, use_mask: object = True
) -> Cost:
    """The convolution's product, and of each value that it multiplies the sampling and the mask."""
    return _deformed(input, weight, offset, mask if use_mask else None, bias, 1)


@op("torchvision::_deform_conv2d_backward", kind="matmul",
    order="grad input weight offset mask bias stride_h stride_w pad_h pad_w dilation_h dilation_w "
    "groups offset_groups use_mask")  # fmt: skip
def deform_conv2d_backward(
    grad: TensorSpec, input: TensorSpec, weight: TensorSpec, offset: TensorSpec, mask: object = None, bias: object = None,
    use_mask: object = True,
) -> Cost:  # fmt: skip
    """The gradients of the sampled values and of the weight, a product each; sampling again, and its own gradients."""
    once = _deformed(input, weight, offset, mask if use_mask else None, bias, 2)
    read = (grad, input, weight, offset, opt(mask) if use_mask else None)
    written = [gradient(t) for t in (input, weight, offset, opt(mask) if use_mask else None, opt(bias)) if t is not None]
    return replace(once, bytes=nbytes(read, written))


def _deformed(input: TensorSpec, weight: TensorSpec, offset: TensorSpec, mask: object, bias: object, times: int) -> Cost:
    batch, channels = input.shape[:2]
    out, per_group, *kernel = weight.shape
    places = batch * offset.shape[-2] * offset.shape[-1]
    made = spec((batch, out, *offset.shape[-2:]), input.dtype)
    sampled = places * channels * kernel[0] * kernel[1]
    operations = (_BILINEAR + (opt(mask) is not None)) * sampled
    flops = 2 * places * out * per_group * kernel[0] * kernel[1]
    moved = nbytes(input, weight, offset, opt(mask), opt(bias), made)
    return Cost(times * flops, times * operations, moved, operands=input.dtype)
