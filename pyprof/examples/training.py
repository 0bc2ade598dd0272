"""Training steps of a small image classifier: a program that knows nothing of pyprof.

    pyprof run -m pyprof.examples.training
    pyprof run --steps 2:4 -o net -m pyprof.examples.training --steps 6      records the third and the fourth of six

What to look for: in the summary the five steps after warm-up alone were recorded; time by phase (backward takes about twice as
long as forward); the layers under their names in the model (`block.mlp.0`). `pyprof prof FILE --tree layer` gives each layer's
FLOPs, and `--where dir=bprop` the backward ops under the shapes of their forward.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class TransformerBlock(nn.Module):
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
    """A small convolutional stem, one transformer block, a linear head."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 64, 4, stride=4)
        )
        self.block = TransformerBlock(64, heads=4)
        self.head = nn.Linear(64, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 3, 32, 32) -> (batch, classes)."""
        tokens = self.stem(images).flatten(2).transpose(1, 2)
        return self.head(self.block(tokens).mean(1))


def main() -> None:
    """Train on one batch of random images; print the loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="training steps (5)")
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the ops are so small that on a CPU threads would only wait for each other
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=True)
    images, labels = torch.randn(8, 3, 32, 32, device=device), torch.randint(10, (8,), device=device)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f} on {device}")


if __name__ == "__main__":
    main()
