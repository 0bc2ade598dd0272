"""Convolutions of 1 to 3 dimensions, plain and transposed, forward and backward, under torch's and cuDNN's names.

Convention: every output element is a sum of (C/g)·R·S products, so the FLOPs are 2·N·K·P·Q·(C/g)·R·S whatever algorithm ran;
stride, padding and dilation matter through P and Q only. A transposed convolution is the data gradient of a plain one: each
input element is multiplied with (K/g)·R·S weights. The data and the weight gradient cost as much as the forward each. mnk are
those of the implicit GEMM of one group: N·P·Q by K/g by (C/g)·R·S.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyprof.dtypes import lookup
from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, need, opt, pair, product, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__ = ["output_sizes"]


def output_sizes(sizes: tuple[int, ...], kernel: tuple[int, ...], stride: Any, padding: Any, dilation: Any) -> tuple[int, ...]:
    """Spatial sizes of a convolution's output. Raises Missing where an option was not recorded."""
    rank = len(sizes)
    steps, gaps = pair(stride, rank, "stride"), pair(dilation, rank, "dilation")
    if padding == "same":
        return sizes  # torch allows it only for stride 1
    pads = (0,) * rank if padding == "valid" else pair(padding, rank, "padding")
    return tuple((n + 2 * p - d * (r - 1) - 1) // s + 1 for n, r, s, p, d in zip(sizes, kernel, steps, pads, gaps, strict=True))


def _transposed_sizes(
    sizes: tuple[int, ...], kernel: tuple[int, ...], stride: Any, padding: Any, output_padding: Any, dilation: Any
) -> tuple[int, ...]:
    rank = len(sizes)
    options = [pair(stride, rank, "stride"), pair(padding, rank, "padding"), pair(dilation, rank, "dilation")]
    extra = pair(output_padding, rank, "output_padding")
    return tuple(
        (n - 1) * s - 2 * p + d * (r - 1) + 1 + e for n, r, s, p, d, e in zip(sizes, kernel, *options, extra, strict=True)
    )


def _text(x: TensorSpec, w: TensorSpec, y: TensorSpec, groups: int, options: dict[str, Any]) -> str:
    """The params text: N, C, H, W, K, P, Q, R, S, then stride, padding and dilation where known."""
    rank = len(w.shape) - 2
    letters = {1: ("W", "Q", "S"), 2: ("HW", "PQ", "RS"), 3: ("DHW", "OPQ", "TRS")}[rank]
    n, channels, spatial = _split(x, rank)
    parts = [f"N={n}", f"C={channels}"]
    parts += [f"{c}={v}" for c, v in zip(letters[0], spatial, strict=True)]
    parts.append(f"K={_split(y, rank)[1]}")
    parts += [f"{c}={v}" for c, v in zip(letters[1], y.shape[-rank:], strict=True)]
    parts += [f"{c}={v}" for c, v in zip(letters[2], w.shape[2:], strict=True)]
    for key, value in options.items():
        if value is not UNKNOWN:
            parts.append(f"{key}={_option(value)}")
    parts.append(f"g={groups}")
    found = lookup(x.dtype)
    return ",".join(parts + ([found.tag] if found else []))


def _option(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return str(value[0]) if len(set(value)) == 1 else "x".join(map(str, value))
    return str(value)


def _split(t: TensorSpec, rank: int) -> tuple[int, int, tuple[int, ...]]:
    """Batch, channels and spatial sizes of a tensor with or without a batch dimension."""
    if len(t.shape) == rank + 1:
        return 1, t.shape[0], t.shape[1:]
    if len(t.shape) != rank + 2:
        raise Missing(f"input of {len(t.shape)} dimensions for a convolution of {rank}")
    return t.shape[0], t.shape[1], t.shape[2:]


def _cost(x: TensorSpec, w: TensorSpec, y: TensorSpec, transposed: bool, *tensors: Any, **options: Any) -> Cost:
    """The cost of one pass (forward, data or weight gradient: all alike) between x and y with weight w."""
    rank = len(w.shape) - 2
    n, channels, spatial = _split(x, rank)
    # A weight is (K, C/g, R, S), of a transposed convolution (C, K/g, R, S): its first dimension divided out, it is the number
    # of products of one element of the output, or of the transposed one's input.
    depth = product(w.shape[1:])
    elements = x.numel if transposed else y.numel
    groups = max((_split(y, rank)[1] if transposed else channels) // max(w.shape[1], 1), 1)
    found = lookup(x.dtype)
    factor = 8 if found is not None and found.kind == "complex" else 2
    m = n * product(spatial if transposed else y.shape[-rank:])
    mnk = (m, w.shape[0] // groups, depth)
    text = _text(x, w, y, groups, options)
    return Cost(factor * elements * depth, 0, nbytes(*tensors), mnk, groups, text)


def _check_channels(channels: int, w: TensorSpec, transposed: bool, groups: Any) -> None:
    """Raises Missing where an input of so many channels cannot be convolved with that weight."""
    wanted = w.shape[0] if transposed else w.shape[1] * groups if isinstance(groups, int) else None
    if wanted != channels and (wanted is not None or channels % max(w.shape[1], 1)):
        raise Missing(f"input of {channels} channels, weight {list(w.shape)}")


class _Problem:
    """Input, weight and output of one convolution call, whatever spelling it came in."""

    def __init__(
        self, x: TensorSpec, w: TensorSpec, stride: Any, padding: Any, dilation: Any, transposed: Any = False,
        output_padding: Any = 0, groups: Any = UNKNOWN, out: Any = None,
    ) -> None:  # fmt: skip
        self.transposed = bool(need(transposed, "transposed"))
        rank = len(w.shape) - 2
        if rank not in (1, 2, 3):
            raise Missing(f"weight of {len(w.shape)} dimensions")
        _, _, spatial = _split(x, rank)
        if isinstance(out, TensorSpec):
            sizes = out.shape[-rank:]
        elif self.transposed:
            sizes = _transposed_sizes(spatial, w.shape[2:], stride, padding, output_padding, dilation)
        else:
            sizes = output_sizes(spatial, w.shape[2:], stride, padding, dilation)
            if any(n < 1 for n in sizes):
                raise Missing(f"an image of {list(spatial)} is smaller than the kernel of {list(w.shape[2:])}")
        _check_channels(x.shape[-rank - 1], w, self.transposed, groups)
        channels = w.shape[1] * need(groups, "groups") if self.transposed else w.shape[0]
        self.x, self.w = x, w
        self.y = spec((*x.shape[: len(x.shape) - rank - 1], channels, *sizes), x.dtype)
        self.options = {"stride": stride, "pad": padding, "dil": dilation}

    def forward(self, *extra: Any) -> Cost:
        return self.one(self.x, self.w, self.y, *extra)

    def one(self, *tensors: Any) -> Cost:
        """The cost of one pass that touches these tensors."""
        return _cost(self.x, self.w, self.y, self.transposed, *tensors, **self.options)

    def backward(self, bias: Any) -> tuple[Piece, ...]:
        grad = gradient(self.y)
        pieces = []
        if wants(self.x):
            pieces.append(Piece("dgrad", _turned(self.one(grad, self.w, gradient(self.x)), self.x, self.w, self.transposed)))
        if wants(self.w):
            cost = self.one(grad, self.x, gradient(self.w))
            m, n, k = cost.mnk or (0, 0, 0)
            pieces.append(Piece("wgrad", replace(cost, mnk=(n, k, m))))
        if isinstance(bias, TensorSpec) and wants(bias):
            pieces.append(Piece("bias", vector(grad.numel, grad, gradient(bias))))
        return tuple(pieces)


def _turned(cost: Cost, x: TensorSpec, w: TensorSpec, transposed: bool) -> Cost:
    """The cost with the implicit GEMM of the data gradient: its rows are the elements of x, its depth the output channels."""
    m, n, k = cost.mnk or (0, 0, 0)
    taps = product(w.shape[2:])
    if transposed:  # the data gradient of a transposed convolution is a plain one
        return replace(cost, mnk=(m, n, k))
    return replace(cost, mnk=(x.numel // max(w.shape[1] * cost.batch, 1), w.shape[1], n * taps))


# ---------------------------------------------------------------------------------------------- torch's own names


def _everywhere(op: str) -> tuple[str, ...]:
    return (f"torch.{op}", f"torch.nn.functional.{op}", f"aten::{op}")


_CONV = (*_everywhere("conv1d"), *_everywhere("conv2d"), *_everywhere("conv3d"), *spellings("_convolution_mode", "ta"))


@formula(*_CONV, kind="matmul")
def conv(
    input: TensorSpec, weight: TensorSpec, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: Any = 1, out: Any = None,
) -> Cost:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, groups=groups, out=out).forward(opt(bias))


@backward(*_CONV)
def conv_backward(
    input: TensorSpec, weight: TensorSpec, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: Any = 1, out: Any = None,
) -> tuple[Piece, ...]:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, groups=groups, out=out).backward(bias)


_TRANSPOSE = (
    *_everywhere("conv_transpose1d"), "torch.conv_transpose2d", "torch.nn.functional.conv_transpose2d",
    "aten::conv_transpose2d",
    *_everywhere("conv_transpose3d"),
)  # fmt: skip


@formula(*_TRANSPOSE, kind="matmul")
def conv_transpose(
    input: TensorSpec, weight: TensorSpec, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: Any = 1, dilation: Any = 1, out: Any = None,
) -> Cost:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, True, output_padding, groups, out).forward(opt(bias))


@backward(*_TRANSPOSE)
def conv_transpose_backward(
    input: TensorSpec, weight: TensorSpec, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: Any = 1, dilation: Any = 1, out: Any = None,
) -> tuple[Piece, ...]:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, True, output_padding, groups, out).backward(bias)


_GENERAL = (
    "torch.convolution",
    "aten::convolution",
    "aten::convolution_overrideable",
    "torch._convolution",
    "aten::_convolution",
)


@formula(*_GENERAL, kind="matmul")
def convolution(
    input: TensorSpec, weight: TensorSpec, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: Any,
    output_padding: Any, groups: Any, out: Any = None,
) -> Cost:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, transposed, output_padding, groups, out).forward(opt(bias))


@backward(*_GENERAL)
def convolution_backward(
    input: TensorSpec, weight: TensorSpec, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: Any,
    output_padding: Any, groups: Any, out: Any = None,
) -> tuple[Piece, ...]:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, transposed, output_padding, groups, out).backward(bias)


# ---------------------------------------------------------------------------------------------- the libraries' names


@formula("torch.cudnn_convolution", "aten::cudnn_convolution", kind="matmul")
def cudnn_convolution(
    input: TensorSpec, weight: TensorSpec, padding: Any, stride: Any, dilation: Any, groups: Any = 1, benchmark: Any = False,
    deterministic: Any = False, allow_tf32: Any = False, out: Any = None,
) -> Cost:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, groups=groups, out=out).forward()


@formula(*spellings("cudnn_convolution_relu", "ta"), *spellings("miopen_convolution_relu", "ta"), kind="matmul")
def cudnn_convolution_relu(
    input: TensorSpec, weight: TensorSpec, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any = 1, out: Any = None
) -> Cost:
    return _Problem(input, weight, stride, padding, dilation, groups=groups, out=out).forward(opt(bias))


@formula(*spellings("cudnn_convolution_add_relu", "ta"), *spellings("miopen_convolution_add_relu", "ta"), kind="matmul")
def cudnn_convolution_add_relu(
    input: TensorSpec, weight: TensorSpec, z: TensorSpec, alpha: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: Any = 1, out: Any = None,
) -> Cost:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, groups=groups, out=out).forward(z, opt(bias))


@formula("torch.cudnn_convolution_transpose", "aten::cudnn_convolution_transpose", kind="matmul")
def cudnn_convolution_transpose(
    input: TensorSpec, weight: TensorSpec, padding: Any, output_padding: Any, stride: Any, dilation: Any, groups: Any,
    benchmark: Any = False, deterministic: Any = False, allow_tf32: Any = False, out: Any = None,
) -> Cost:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, True, output_padding, groups, out).forward()


@formula(
    "aten::mkldnn_convolution", "torch.mkldnn_convolution", "aten::miopen_convolution", "torch.miopen_convolution",
    "aten::miopen_depthwise_convolution", "torch.miopen_depthwise_convolution", kind="matmul",
)  # fmt: skip
def mkldnn_convolution(
    input: TensorSpec, weight: TensorSpec, bias: Any, padding: Any, stride: Any, dilation: Any, groups: Any, out: Any = None
) -> Cost:
    return _Problem(input, weight, stride, padding, dilation, groups=groups, out=out).forward(opt(bias))


@formula(*spellings("miopen_convolution_transpose", "ta"), kind="matmul")
def miopen_convolution_transpose(
    input: TensorSpec, weight: TensorSpec, bias: Any, padding: Any, output_padding: Any, stride: Any, dilation: Any,
    groups: Any, benchmark: Any = False, deterministic: Any = False, out: Any = None,
) -> Cost:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, True, output_padding, groups, out).forward(opt(bias))


@formula(*spellings("_nnpack_spatial_convolution", "ta"), kind="matmul")
def nnpack_convolution(
    input: TensorSpec, weight: TensorSpec, bias: Any, padding: Any, stride: Any = 1, out: Any = None
) -> Cost:
    return _Problem(input, weight, stride, padding, 1, out=out).forward(opt(bias))


@formula(*spellings("slow_conv_transpose2d", "Fa"), *spellings("slow_conv_transpose3d", "Fa"), kind="matmul")
def slow_conv_transpose(
    input: TensorSpec, weight: TensorSpec, kernel_size: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, dilation: Any = 1, out: Any = None,
) -> Cost:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, True, output_padding, 1, out).forward(opt(bias))


def _tbc(input: TensorSpec, weight: TensorSpec, pad: Any) -> tuple[TensorSpec, tuple[int, int, int]]:
    """Output and GEMM of a convolution of (time, batch, channels) with a weight (kernel, channels, outputs)."""
    (time, batch, _), (kernel, channels, outputs) = input.shape, weight.shape
    y = spec((time + 2 * need(pad, "pad") - kernel + 1, batch, outputs), input.dtype)
    return y, (y.shape[0] * batch, outputs, kernel * channels)


@formula(*spellings("conv_tbc"), kind="matmul")
def conv_tbc(input: TensorSpec, weight: TensorSpec, bias: Any, pad: Any = 0) -> Cost:
    y, (m, n, k) = _tbc(input, weight, pad)
    return Cost(2 * m * n * k, 0, nbytes(input, weight, opt(bias), y), (m, n, k))


@formula("aten::conv_tbc_backward", kind="matmul")
def conv_tbc_backward(grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec, bias: Any, pad: Any = 0) -> Cost:
    _, (m, n, k) = _tbc(input, weight, pad)
    written = (gradient(input), gradient(weight), spec((weight.shape[2],), weight.dtype))
    return Cost(4 * m * n * k, grad_output.numel, nbytes(grad_output, input, weight, written), (m, n, k))


@formula(
    "aten::_conv_depthwise2d", "torch.nn.functional._conv_depthwise2d", "aten::conv_depthwise3d",
    "torch.nn.functional.conv_depthwise3d", "aten::thnn_conv2d", "torch.nn.functional.thnn_conv2d", "aten::slow_conv3d",
    "torch.nn.functional.slow_conv3d", "aten::_slow_conv2d_forward", "aten::slow_conv3d_forward",
    "aten::slow_conv_dilated2d", "torch.nn.functional.slow_conv_dilated2d", "aten::slow_conv_dilated3d",
    "torch.nn.functional.slow_conv_dilated3d", kind="matmul",
)  # fmt: skip
def direct_convolution(
    input: TensorSpec, weight: TensorSpec, kernel_size: Any = None, bias: Any = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, out: Any = None,
) -> Cost:  # fmt: skip
    return _Problem(input, weight, stride, padding, dilation, out=out).forward(opt(bias))


# ---------------------------------------------------------------------------------------------- backward ops of the dispatcher


@formula("aten::convolution_backward", kind="matmul")
def aten_convolution_backward(
    grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec, bias_sizes: Any = None, stride: Any = UNKNOWN,
    padding: Any = UNKNOWN, dilation: Any = UNKNOWN, transposed: Any = UNKNOWN, output_padding: Any = 0, groups: Any = 1,
    output_mask: Any = UNKNOWN,
) -> Cost:  # fmt: skip
    # The sizes of the output are those of its gradient, so that nothing but the mask is needed besides the tensors.
    mask = need(output_mask, "output_mask")
    if transposed is UNKNOWN:
        transposed = _looks_transposed(input, weight, grad_output)
    options = {"stride": stride, "pad": padding, "dil": dilation}
    outputs = [gradient(t) for t, on in zip((input, weight), mask, strict=False) if on]
    bias = spec((grad_output.shape[1],), weight.dtype) if len(mask) > 2 and mask[2] else None
    read = (grad_output, weight if mask[0] else None, input if mask[1] else None)
    one = _cost(input, weight, grad_output, bool(transposed), *read, outputs, bias, **options)
    flops = (one.matmul_flops or 0) * len(outputs)
    return Cost(flops, grad_output.numel if bias else 0, one.bytes, one.mnk, one.batch, one.params)


@formula("aten::convolution_backward_overrideable", kind="matmul")
def convolution_backward_overrideable(
    grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec, stride: Any, padding: Any, dilation: Any, transposed: Any,
    output_padding: Any, groups: Any, output_mask: Any,
) -> Cost:  # fmt: skip
    options = (stride, padding, dilation, transposed, output_padding, groups, output_mask)
    return aten_convolution_backward(grad_output, input, weight, None, *options)


@formula("aten::_slow_conv2d_backward", kind="matmul")
def slow_conv2d_backward(
    grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec, kernel_size: Any, stride: Any, padding: Any,
    output_mask: Any = UNKNOWN, *more: Any,
) -> Cost:  # fmt: skip
    # Where the caller gives the three results there is no mask: all are wanted.
    mask = (True, True, True) if isinstance(output_mask, TensorSpec) else output_mask
    return aten_convolution_backward(grad_output, input, weight, None, stride, padding, 1, False, 0, 1, mask)


@formula("aten::_convolution_double_backward", kind="matmul", composed=True)
def convolution_double_backward(*tensors: Any, **more: Any) -> Cost:
    raise Missing("which convolutions it calls depends on the gradients given")


def _looks_transposed(x: TensorSpec, w: TensorSpec, y: TensorSpec) -> bool:
    """Told from the channels: a plain weight begins with the output's, a transposed one with the input's."""
    if x.shape[1] == y.shape[1]:
        raise Missing("transposed not recorded")
    return w.shape[0] == x.shape[1]


@formula("aten::cudnn_convolution_backward", kind="matmul")
def old_convolution_backward(
    input: TensorSpec, grad_output: TensorSpec, weight: TensorSpec, padding: Any = UNKNOWN, stride: Any = UNKNOWN,
    dilation: Any = UNKNOWN, groups: Any = 1, benchmark: Any = False, deterministic: Any = False, allow_tf32: Any = False,
    output_mask: Any = UNKNOWN,
) -> Cost:  # fmt: skip
    return aten_convolution_backward(grad_output, input, weight, None, stride, padding, dilation, False, 0, groups, output_mask)


@formula("aten::cudnn_convolution_backward_input", kind="matmul")
def cudnn_convolution_backward_input(self_size: Any, grad_output: TensorSpec, weight: TensorSpec) -> Cost:
    sizes = need(self_size, "self_size")
    x = spec(sizes, grad_output.dtype)
    return _cost(x, weight, grad_output, False, grad_output, weight, x)


@formula("aten::cudnn_convolution_backward_weight", kind="matmul")
def cudnn_convolution_backward_weight(weight_size: Any, grad_output: TensorSpec, input: TensorSpec) -> Cost:
    w = spec(need(weight_size, "weight_size"), grad_output.dtype)
    return _cost(input, w, grad_output, False, grad_output, input, w)
