"""One training step of a small network, to be profiled: convolutions, attention, a feed-forward block, a loss and SGD.

    python demo_net.py                     its ops tell their shapes and layers to whatever tool records NVTX (nsys)
    python demo_net.py --profile FILE      torch.profiler records it into FILE instead

It runs on the GPU where there is one, and prints the loss.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import pyprof.nvtx


class Block(nn.Module):
    """Self-attention and a feed-forward part, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, width) -> the same shape."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    """An image classifier: a small convolutional stem, one transformer block, a linear head."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 64, 4, stride=4)
        )
        self.block = Block(64, heads=4)
        self.head = nn.Linear(64, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 3, 32, 32) -> (batch, classes)."""
        tokens = self.stem(images).flatten(2).transpose(1, 2)
        return self.head(self.block(tokens).mean(1))


def train_step(net: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor) -> float:
    """One forward and backward pass and one update; returns the loss."""
    with pyprof.nvtx.step():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    """Run one step to warm up, then one that is recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", metavar="FILE", help="record with torch.profiler into FILE (.json or .json.gz)")
    path = parser.parse_args().profile
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=True)
    batch = torch.randn(8, 3, 32, 32, device=device), torch.randint(10, (8,), device=device)
    train_step(net, optimizer, *batch)
    if path:
        with torch.profiler.profile(record_shapes=True, with_stack=True, with_modules=True) as profiler:
            loss = train_step(net, optimizer, *batch)
        profiler.export_chrome_trace(path)
    else:
        pyprof.nvtx.init()
        loss = train_step(net, optimizer, *batch)
        pyprof.nvtx.shutdown()
    print(f"loss {loss:.4f} on {device}")
    if device == "cpu" and not path:
        print("no GPU here: nsys shows the forward ops and the optimizer's, and none of the backward pass; --profile shows all")


if __name__ == "__main__":
    main()
