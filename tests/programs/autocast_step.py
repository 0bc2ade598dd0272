"""Training steps in mixed precision, under autocast or with every cast written by hand: the same ops on the same types.

    python autocast_step.py amp|hand bfloat16|float16 torch OUT.json
    nsys profile -t nvtx python autocast_step.py amp|hand bfloat16|float16 nsys [BUILD_FOLDER NVTX_INCLUDE_FOLDER]

With the two folders emit_nvtx records too. The parts are what autocast of the CPU treats in different ways: matrix products and
convolutions in the low type, attention, losses raised to fp32, concatenation in the widest type, norms and activations left as
they are, regions within regions, functions of the user's with `custom_fwd`, weights used twice, a backward, a GradScaler.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

AMP = sys.argv[1] == "amp"
LOW = getattr(torch, sys.argv[2])


def region(enabled: bool = True) -> AbstractContextManager[Any]:
    return torch.autocast("cpu", dtype=LOW, enabled=enabled) if AMP else nullcontext()


def low(x: torch.Tensor) -> torch.Tensor:
    """The cast that autocast makes before a matrix product."""
    return x if AMP or x.dtype == LOW else x.to(LOW)


def wide(x: torch.Tensor) -> torch.Tensor:
    """The cast that autocast makes before a loss."""
    return x if AMP or x.dtype == torch.float32 else x.to(torch.float32)


def parameter(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(*shape) / 8)


def products() -> torch.Tensor:
    x, w, b, m = torch.randn(64, 48), parameter(32, 48), parameter(32), parameter(32, 24)
    batch, vector = torch.randn(4, 16, 24), torch.randn(24)
    with region():
        x_low, w_low, b_low = low(x), low(w), low(b)
        h = F.linear(x_low, w_low, b_low)
        h = h + F.linear(low(x), w_low, b_low)  # the casts of weights are kept for the region
        h = torch.mm(h, low(m)) * 0.5
        k = torch.bmm(low(batch), low(batch.transpose(1, 2)))
        p = torch.addmm(low(b[:24]), h, low(m[:1].expand(24, 24)))  # the cast of what is expanded is dense
        y = h @ low(h.new_ones(24, 8, dtype=torch.float32))
        v = torch.mv(batch[0], vector)  # not among autocast's ops on the CPU
        return (y.sum() + k.sum() + p.sum() + v.sum()).float()


def convolutions() -> torch.Tensor:
    x, w, b, t = torch.randn(2, 4, 12, 12), parameter(8, 4, 3, 3), parameter(8), parameter(8, 4, 2, 2)
    norm = torch.nn.BatchNorm2d(8)
    with region():
        h = F.conv2d(low(x), low(w), low(b), padding=1)
        h = F.max_pool2d(F.relu(norm(h)), 2)
        return F.conv_transpose2d(h, low(t), stride=2).float().mean()


def attention() -> torch.Tensor:
    x, qkv, gain = torch.randn(2, 16, 32), parameter(96, 32), parameter(32)
    with region():
        h = F.layer_norm(x, (32,), gain)
        q, k, v = F.linear(low(h), low(qkv)).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v)
        weights = F.softmax(q @ k.transpose(-2, -1), -1)
        return F.gelu(out).float().sum() + weights.float().sum()


def losses() -> torch.Tensor:
    x, w, labels, other = torch.randn(32, 24), parameter(10, 24), torch.randint(10, (32,)), torch.randn(32, 10)
    with region():
        h = F.linear(low(x), low(w))
        joined = torch.cat([wide(h), other], 1)
        return F.cross_entropy(wide(h), labels) + F.mse_loss(wide(h), other) + joined.mean() + F.l1_loss(other, wide(h))


def regions() -> torch.Tensor:
    x, w, u = torch.randn(16, 24), parameter(24, 24), parameter(24, 24)
    before = F.linear(x, w)
    with region():
        h = F.linear(low(before), low(w))
        with region(False):
            h = F.linear(h.float(), u)
            with region():
                h = F.linear(low(h), low(u))
        return F.linear(h, low(w.t())).float().sum()


class InFp32(torch.autograd.Function):
    """x·w in fp32 even inside a region."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if not AMP:
            x, w = x.to(torch.float32), w.to(torch.float32)
        ctx.save_for_backward(x, w)
        return x.mm(w)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        return grad.mm(w.t()), x.t().mm(grad)


class AsCalled(torch.autograd.Function):
    """x·w in the region's type, forward and backward."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return low(x).mm(low(w))

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        return low(grad).mm(low(w.t())).float(), low(x.t()).mm(low(grad)).float()


def functions() -> torch.Tensor:
    x, w, u = torch.randn(16, 24), parameter(24, 24), parameter(24, 24)
    with region():
        h = F.linear(low(x), low(w))
        return InFp32.apply(h, u).sum() + AsCalled.apply(x, u).float().sum()


PARTS: tuple[Callable[[], torch.Tensor], ...] = (products, convolutions, attention, losses, regions, functions)


def step() -> None:
    """Each part forward and backward, its gradients scaled."""
    for part in PARTS:
        torch.manual_seed(0)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        scaler.scale(part()).backward()


def main() -> None:
    """Record one step by the tool that the command line names."""
    torch.set_num_threads(1)
    tool, *rest = sys.argv[3:]
    step()
    if tool == "torch":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as p:
            step()
        p.export_chrome_trace(rest[0])
        return
    import pyprof.nvtx

    recorder: AbstractContextManager[Any] = nullcontext()
    if rest:
        from emit_nvtx_cpu import build

        ctypes.CDLL(str(build(Path(rest[0]), rest[1])))
        torch.cuda.synchronize = lambda device=None: None  # emit_nvtx calls it at both ends
        recorder = torch.autograd.profiler.emit_nvtx(record_shapes=True)
    if not pyprof.nvtx.init():
        sys.exit("pyprof.nvtx.init() did not see that nsys records")
    with recorder:
        step()
    pyprof.nvtx.shutdown()


if __name__ == "__main__":
    main()
