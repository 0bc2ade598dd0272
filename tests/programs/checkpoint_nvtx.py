"""Two training steps with activation checkpoints under emit_nvtx on a machine without a GPU, with pyprof's own ranges.

    nsys profile -t nvtx python checkpoint_nvtx.py BUILD_FOLDER NVTX_INCLUDE_FOLDER

In step 0 the checkpoint makes again what was not kept when functions ask for it, in step 1 it runs the engine inside its own
function. Either way Block runs once in forward and once more in backward.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch
from emit_nvtx_cpu import build
from torch import nn
from torch.utils.checkpoint import checkpoint

import pyprof.nvtx


class Block(nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 16) -> (n, 16)."""
        return self.narrow(nn.functional.gelu(self.wide(x)))


class Net(nn.Module):
    """A block that keeps nothing for backward, and a layer that does."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.block, self.head = Block(), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 16) -> (n, 4)."""
        return self.head(checkpoint(self.block, x, use_reentrant=self.reentrant))


def main() -> None:
    """One step of each kind to warm up, one recorded."""
    ctypes.CDLL(str(build(Path(sys.argv[1]), sys.argv[2])))
    torch.cuda.synchronize = lambda device=None: None  # emit_nvtx calls it at both ends
    x = torch.randn(5, 16, requires_grad=True)  # without that a reentrant checkpoint has no gradients
    nets = [Net(reentrant=False), Net(reentrant=True)]
    for net in nets:
        net(x).sum().backward()
    if not pyprof.nvtx.init():
        sys.exit("pyprof.nvtx.init() did not see that nsys records")
    for net in nets:
        pyprof.nvtx.step()
        with torch.autograd.profiler.emit_nvtx(record_shapes=True):
            net(x).sum().backward()
    pyprof.nvtx.shutdown()


if __name__ == "__main__":
    main()
