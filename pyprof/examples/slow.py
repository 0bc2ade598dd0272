"""Training steps of a small language model with planted flaws, each of which the advice should name.

    pyprof run -o slow -m pyprof.examples.slow
    pyprof run -o mended -m pyprof.examples.slow --fix optimizer,attention,loader
    pyprof diff slow.json.gz mended.json.gz

The flaws: attention spelled out in five ops; batches fetched between steps, since the DataLoader has no workers; an optimizer
that goes from parameter to parameter; matrix products in fp32; `loss.item()` in the loop, which on a GPU waits for the device.
What to look for: the summary names them in the order of what they cost here, and `pyprof diff` shows where the time went.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, TOKENS, WIDTH, HEADS, BATCH = 1024, 256, 128, 8, 4
FLAWS = ("attention", "loader", "optimizer", "precision", "item")


class Corpus(Dataset[torch.Tensor]):
    """Random texts, each of which is waited for as for a file on another machine."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> torch.Tensor:
        """TOKENS + 1 numbers below VOCABULARY."""
        time.sleep(0.005)
        return torch.randint(VOCABULARY, (TOKENS + 1,), generator=torch.Generator().manual_seed(index))


class Block(nn.Module):
    """Causal self-attention and a feed-forward part, each with a residual connection. fused: attention in one op."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, width) -> the same shape."""
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
            later = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
            mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class TextModel(nn.Module):
    """Tokens -> scores of the next one."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block(fused) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, tokens) -> (batch, tokens, VOCABULARY)."""
        x = self.token(tokens) + self.place.weight
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main() -> None:
    """Train; print the loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="training steps (40)")
    parser.add_argument("--fix", default="", metavar="FLAW,...", help=f"without these flaws, of {', '.join(FLAWS)}")
    options = parser.parse_args()
    fixed = set(filter(None, options.fix.split(",")))
    if unknown := fixed - set(FLAWS):
        parser.error(f"no such flaw: {', '.join(sorted(unknown))}; there are {', '.join(FLAWS)}")
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    loader = DataLoader(Corpus(options.steps * BATCH), BATCH, num_workers=2 if "loader" in fixed else 0)
    net = TextModel("attention" in fixed).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, foreach=False, fused="optimizer" in fixed)
    loss, losses = torch.zeros(()), []
    for batch in loader:
        batch = batch.to(device)
        with torch.autocast(device, torch.bfloat16, enabled="precision" in fixed):
            scores = net(batch[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1).float(), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if "item" not in fixed:
            losses.append(loss.item())
    print(f"loss {loss.item():.4f} on {device} after {options.steps} steps")


if __name__ == "__main__":
    main()
