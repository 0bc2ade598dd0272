"""One training step on a CPU, for two recorders: under nsys with pyprof's markers and emit_nvtx's, or under torch.profiler.

nsys profile -t nvtx python recorded_twice.py nsys BUILD_FOLDER NVTX_INCLUDE_FOLDER
python recorded_twice.py torch OUT.json
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import pyprof
import pyprof.nvtx


class Net(nn.Module):
    """A convolution, normalisations, attention and linear layers: (n, 3, 8, 8) -> (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.head = nn.Sequential(nn.Linear(16, 16), nn.Sequential(nn.Tanh(), nn.Linear(16, 10)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        x = self.norm(x.flatten(2).transpose(1, 2))
        q, k, v = self.qkv(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.head(F.gelu(x).mean(1))


def main() -> None:
    """One step to warm up, one recorded."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, x, labels = Net(), torch.randn(4, 3, 8, 8), torch.randint(10, (4,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), labels).backward()
        optimizer.step()

    step()
    if sys.argv[1] == "torch":
        with pyprof.capture(sys.argv[2], table=0):
            step()
        return
    from emit_nvtx_cpu import build

    ctypes.CDLL(str(build(Path(sys.argv[2]), sys.argv[3])))
    torch.cuda.synchronize = lambda device=None: None  # emit_nvtx calls it at both ends
    if not pyprof.nvtx.init():
        sys.exit("pyprof.nvtx.init() did not see that nsys records")
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        step()
    pyprof.nvtx.shutdown()


if __name__ == "__main__":
    main()
