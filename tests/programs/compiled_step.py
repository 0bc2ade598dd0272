"""Training steps of a compiled convolution + norm + GELU + linear model, on the CPU.

TORCHINDUCTOR_CACHE_DIR=CACHE pyprof run --inductor --tool torch --steps 2:4 compiled_step.py

The generated modules are what CACHE then holds.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    """(n, 3, 16, 16) -> (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.LayerNorm([16, 16, 16])
        self.fc = nn.Linear(16 * 16 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.conv(x)))
        return torch.softmax(self.fc(x.flatten(1)), 1)


def main() -> None:
    """Four steps; the first compiles."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = Net()
    compiled = torch.compile(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    x, weight = torch.randn(8, 3, 16, 16), torch.randn(8, 10)
    for _ in range(4):
        optimizer.zero_grad()
        (compiled(x) * weight).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
