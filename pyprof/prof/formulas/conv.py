"""Convolutions of 1 to 3 dimensions, plain and transposed, forward and backward, under torch's and the libraries' names.

Convention: every output element is a sum of (C/g)·R·S products, so the FLOPs are 2·N·K·P·Q·(C/g)·R·S whatever algorithm ran;
stride, padding and dilation matter through P and Q only. A transposed convolution is the data gradient of a plain one: each
input element is multiplied with (K/g)·R·S weights. The data and the weight gradient cost as much as the forward each. mnk are
those of the implicit GEMM of one group: N·P·Q by K/g by (C/g)·R·S.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import grad, gradient, nbytes, need, opt, pair, product, spec, wants
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, op


class _Options(NamedTuple):
    """How a kernel moves over its input, as recorded."""

    stride: object = UNKNOWN
    padding: object = UNKNOWN
    dilation: object = UNKNOWN
    transposed: object = False
    output_padding: object = 0

    def output_sizes(self, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
        """Spatial sizes of the output. Raises Missing if an option was not recorded."""
        rank = len(sizes)
        steps, gaps = pair(self.stride, rank, "stride"), pair(self.dilation, rank, "dilation")
        if self.padding == "same":
            return sizes  # torch allows it only for stride 1
        pads = (0,) * rank if self.padding == "valid" else pair(self.padding, rank, "padding")
        margins = [2 * p - d * (r - 1) - 1 for p, d, r in zip(pads, gaps, kernel, strict=True)]
        if self.transposed:
            extra = pair(self.output_padding, rank, "output_padding")
            return tuple((n - 1) * s - m + e for n, s, m, e in zip(sizes, steps, margins, extra, strict=True))
        made = tuple((n + m) // s + 1 for n, m, s in zip(sizes, margins, steps, strict=True))
        if any(n < 1 for n in made):
            raise Missing(f"an image of {list(sizes)} is smaller than the kernel of {list(kernel)}")
        return made


def _split(t: TensorSpec, rank: int) -> tuple[int, int, tuple[int, ...]]:
    """Batch, channels and spatial sizes of a tensor with or without a batch dimension."""
    if len(t.shape) == rank + 1:
        return 1, t.shape[0], t.shape[1:]
    if len(t.shape) != rank + 2:
        raise Missing(f"input of {len(t.shape)} dimensions for a convolution of {rank}")
    return t.shape[0], t.shape[1], t.shape[2:]


def _option(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return str(value[0]) if len(set(value)) == 1 else "x".join(map(str, value))
    return str(value)


class _Convolution(NamedTuple):
    """Input, weight and output of one convolution, plain or transposed."""

    x: TensorSpec
    w: TensorSpec
    y: TensorSpec
    options: _Options

    def cost(self, *tensors: object) -> Cost:
        """The cost of one pass (forward, data or weight gradient: all alike), which touches these tensors."""
        x, w, y, transposed = self.x, self.w, self.y, self.options.transposed
        rank = len(w.shape) - 2
        n, channels, spatial = _split(x, rank)
        # A weight is (K, C/g, R, S), of a transposed convolution (C, K/g, R, S): its first dimension divided out, it is the
        # number of products of one element of the output, or of the transposed one's input.
        depth = product(w.shape[1:])
        groups = max((_split(y, rank)[1] if transposed else channels) // max(w.shape[1], 1), 1)
        found = lookup(x.dtype)
        factor = 8 if found is not None and found.kind == "complex" else 2
        mnk = (n * product(spatial if transposed else y.shape[-rank:]), w.shape[0] // groups, depth)
        flops = factor * (x if transposed else y).numel * depth
        return Cost(flops, 0, nbytes(*tensors), mnk, groups, self._text(groups))

    def _text(self, groups: int) -> str:
        """The params text: N, C, H, W, K, P, Q, R, S, then stride, padding and dilation where known."""
        x, w, y, options = self.x, self.w, self.y, self.options
        rank = len(w.shape) - 2
        n, channels, spatial = _split(x, rank)
        inputs, outputs, kernel = {1: ("W", "Q", "S"), 2: ("HW", "PQ", "RS"), 3: ("DHW", "OPQ", "TRS")}[rank]
        sizes = [("N", n), ("C", channels), *zip(inputs, spatial, strict=True), ("K", _split(y, rank)[1])]
        sizes += zip(outputs + kernel, (*y.shape[-rank:], *w.shape[2:]), strict=True)
        named = (("stride", options.stride), ("pad", options.padding), ("dil", options.dilation))
        moves = [(key, _option(value)) for key, value in named if value is not UNKNOWN]
        found = lookup(x.dtype)
        parts = [f"{key}={value}" for key, value in (*sizes, *moves, ("g", groups))]
        return ",".join(parts + ([found.tag] if found else []))

    def both(self, bias: object) -> Op:
        """The forward and its gradients, each with the implicit GEMM of its own."""
        x, w, incoming = self.x, self.w, gradient(self.y)
        forward = self.cost(x, w, self.y, opt(bias))
        yield forward
        m, n, k = forward.mnk or (0, 0, 0)
        if wants(x):
            # Its rows are the elements of x, its depth the output channels; of a transposed one it is a plain convolution.
            rows = x.numel // max(w.shape[1] * forward.batch, 1)
            mnk = (m, n, k) if self.options.transposed else (rows, w.shape[1], n * product(w.shape[2:]))
            yield Piece("dgrad", replace(self.cost(incoming, w, gradient(x)), mnk=mnk))
        if wants(w):
            yield Piece("wgrad", replace(self.cost(incoming, x, gradient(w)), mnk=(n, k, m)))
        yield from grad("bias", bias, incoming.numel, incoming)


def _convolution(x: TensorSpec, w: TensorSpec, options: _Options, groups: object = UNKNOWN, out: object = None) -> _Convolution:
    """The problem of a call: its output is `out` or computed from the options. Raises Missing if the shapes do not fit."""
    transposed, rank = bool(need(options.transposed, "transposed")), len(w.shape) - 2
    if rank not in (1, 2, 3):
        raise Missing(f"weight of {len(w.shape)} dimensions")
    _, _, spatial = _split(x, rank)
    sizes = out.shape[-rank:] if isinstance(out, TensorSpec) else options.output_sizes(spatial, w.shape[2:])
    channels = x.shape[-rank - 1]
    wanted = w.shape[0] if transposed else w.shape[1] * groups if isinstance(groups, int) else None
    if wanted != channels and (wanted is not None or channels % max(w.shape[1], 1)):
        raise Missing(f"input of {channels} channels, weight {list(w.shape)}")
    made = w.shape[1] * need(groups, "groups") if transposed else w.shape[0]
    return _Convolution(x, w, spec((*x.shape[: len(x.shape) - rank - 1], made, *sizes), x.dtype), options)


# ---------------------------------------------------------------------------------------------- torch's own names


@op("conv1d", "conv2d", "conv3d", places="tFa", kind="matmul")
@op("_convolution_mode", places="ta", kind="matmul")
def conv(
    input: TensorSpec, weight: TensorSpec, bias: object = None, stride: object = 1, padding: object = 0, dilation: object = 1,
    groups: object = 1, out: object = None,
) -> Op:  # fmt: skip
    return _convolution(input, weight, _Options(stride, padding, dilation), groups, out).both(bias)


@op("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", places="tFa", kind="matmul")
@op("slow_conv_transpose2d", "slow_conv_transpose3d", places="Fa", kind="matmul", backward=False)
def conv_transpose(
    input: TensorSpec, weight: TensorSpec, bias: object = None, stride: object = 1, padding: object = 0,
    output_padding: object = 0, groups: object = 1, dilation: object = 1, out: object = None,
) -> Op:  # fmt: skip
    return convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups, out)


@op("convolution", "_convolution", "aten::convolution_overrideable", places="ta", kind="matmul")
def convolution(
    input: TensorSpec, weight: TensorSpec, bias: object, stride: object, padding: object, dilation: object,
    transposed: object, output_padding: object, groups: object, out: object = None,
) -> Op:  # fmt: skip
    options = _Options(stride, padding, dilation, transposed, output_padding)
    return _convolution(input, weight, options, groups, out).both(bias)


# ---------------------------------------------------------------------------------------------- the libraries' names


_FUSED = ("cudnn_convolution_relu", "cudnn_convolution_add_relu", "miopen_convolution_relu", "miopen_convolution_add_relu")


@op("cudnn_convolution", "mkldnn_convolution", "miopen_convolution", "miopen_depthwise_convolution", *_FUSED, places="ta",
    kind="matmul")  # fmt: skip
def library_convolution(
    input: TensorSpec, weight: TensorSpec, padding: object, stride: object, dilation: object, groups: object = 1,
    bias: object = None, z: object = None, out: object = None,
) -> Cost:  # fmt: skip
    made = _convolution(input, weight, _Options(stride, padding, dilation), groups, out)
    return made.cost(input, weight, made.y, opt(z), opt(bias))


@op("cudnn_convolution_transpose", "miopen_convolution_transpose", places="ta", kind="matmul", backward=False)
def library_transpose(
    input: TensorSpec, weight: TensorSpec, padding: object, output_padding: object, stride: object, dilation: object,
    groups: object, bias: object = None, out: object = None,
) -> Op:  # fmt: skip
    return convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups, out)


@op("_nnpack_spatial_convolution", places="ta", kind="matmul")
def nnpack_convolution(
    input: TensorSpec, weight: TensorSpec, padding: object, bias: object = None, stride: object = 1, out: object = None
) -> Cost:
    return direct_convolution(input, weight, bias, stride, padding, 1, out)


@op("_conv_depthwise2d", "conv_depthwise3d", "thnn_conv2d", "slow_conv3d", "slow_conv_dilated2d", "slow_conv_dilated3d",
    "aten::_slow_conv2d_forward", "aten::slow_conv3d_forward", places="aF", kind="matmul")  # fmt: skip
def direct_convolution(
    input: TensorSpec, weight: TensorSpec, bias: object = None, stride: object = 1, padding: object = 0, dilation: object = 1,
    out: object = None,
) -> Cost:  # fmt: skip
    made = _convolution(input, weight, _Options(stride, padding, dilation), out=out)
    return made.cost(input, weight, made.y, opt(bias))


def _time_batch_channels(input: TensorSpec, weight: TensorSpec, pad: object) -> tuple[TensorSpec, tuple[int, int, int]]:
    """Output and GEMM of a convolution of (time, batch, channels) with a weight (kernel, channels, outputs)."""
    (time, batch, _), (kernel, channels, outputs) = input.shape, weight.shape
    y = spec((time + 2 * need(pad, "pad") - kernel + 1, batch, outputs), input.dtype)
    return y, (y.shape[0] * batch, outputs, kernel * channels)


@op("conv_tbc", kind="matmul")
def conv_tbc(input: TensorSpec, weight: TensorSpec, bias: object, pad: object = 0) -> Cost:
    y, (m, n, k) = _time_batch_channels(input, weight, pad)
    return Cost(2 * m * n * k, 0, nbytes(input, weight, opt(bias), y), (m, n, k))


@op("aten::conv_tbc_backward", kind="matmul", order="")
def conv_tbc_backward(grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec, bias: object, pad: object = 0) -> Cost:
    _, (m, n, k) = _time_batch_channels(input, weight, pad)
    written = (gradient(input), gradient(weight), spec((weight.shape[2],), weight.dtype))
    return Cost(4 * m * n * k, grad_output.numel, nbytes(grad_output, input, weight, written), (m, n, k))


# ---------------------------------------------------------------------------------------------- backward ops of the dispatcher


@op("aten::convolution_backward", "aten::convolution_backward_overrideable", kind="matmul")
def convolution_backward(
    grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec, stride: object = UNKNOWN, padding: object = UNKNOWN,
    dilation: object = UNKNOWN, transposed: object = UNKNOWN, output_mask: object = UNKNOWN,
) -> Cost:  # fmt: skip
    # The output's sizes equal its gradient's, so only the mask is needed besides the tensors.
    mask = need(output_mask, "output_mask")
    if transposed is UNKNOWN:  # a plain weight's first size is the output's channels, a transposed one's the input's
        if input.shape[1] == grad_output.shape[1]:
            raise Missing("transposed not recorded")
        transposed = weight.shape[0] == input.shape[1]
    outputs = [gradient(t) for t, on in zip((input, weight), mask, strict=False) if on]
    bias = spec((grad_output.shape[1],), weight.dtype) if len(mask) > 2 and mask[2] else None
    read = (grad_output, weight if mask[0] else None, input if mask[1] else None)
    made = _Convolution(input, weight, grad_output, _Options(stride, padding, dilation, transposed))
    one = made.cost(*read, outputs, bias)
    flops = (one.matmul_flops or 0) * len(outputs)
    return replace(one, matmul_flops=flops, vector_flops=grad_output.numel if bias else 0)


@op("aten::_slow_conv2d_backward", kind="matmul",
    order="grad_output input weight kernel_size stride padding output_mask ...")  # fmt: skip
def slow_conv2d_backward(
    grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec, stride: object, padding: object,
    output_mask: object = UNKNOWN,
) -> Cost:  # fmt: skip
    # Where the caller gives the three results there is no mask: all are wanted.
    mask = (True, True, True) if isinstance(output_mask, TensorSpec) else output_mask
    return convolution_backward(grad_output, input, weight, stride, padding, 1, False, mask)


@op("aten::cudnn_convolution_backward", kind="matmul",
    order="input grad_output weight padding stride dilation groups benchmark deterministic allow_tf32 output_mask")  # fmt: skip
def cudnn_convolution_backward(
    input: TensorSpec, grad_output: TensorSpec, weight: TensorSpec, padding: object = UNKNOWN, stride: object = UNKNOWN,
    dilation: object = UNKNOWN, output_mask: object = UNKNOWN,
) -> Cost:  # fmt: skip
    return convolution_backward(grad_output, input, weight, stride, padding, dilation, False, output_mask)


@op("aten::cudnn_convolution_backward_input", kind="matmul")
def cudnn_convolution_backward_input(self_size: object, grad_output: TensorSpec, weight: TensorSpec) -> Cost:
    x = spec(need(self_size, "self_size"), grad_output.dtype)
    return _Convolution(x, weight, grad_output, _Options()).cost(grad_output, weight, x)


@op("aten::cudnn_convolution_backward_weight", kind="matmul")
def cudnn_convolution_backward_weight(weight_size: object, grad_output: TensorSpec, input: TensorSpec) -> Cost:
    w = spec(need(weight_size, "weight_size"), grad_output.dtype)
    return _Convolution(input, w, grad_output, _Options()).cost(grad_output, input, w)


@op("aten::_convolution_double_backward", kind="matmul", composed=True, order="")
def convolution_double_backward(*tensors: object, **more: object) -> Cost:
    raise Missing("which convolutions it calls depends on the gradients given")
