"""Training steps of a model compiled by torch.compile. On the CPU that needs a C++ compiler.

    pyprof run --inductor -o compiled -m pyprof.examples.compiled
    pyprof inductor compiled.json.gz

What to look for: normalisation and GELU became one kernel of the forward, their gradients one of the backward; the table says
what each kernel fuses, how many bytes it moves and at which rate, and what Inductor left to libraries (the products).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    """A linear layer and what can be fused behind it, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(128, 512), nn.LayerNorm(512), nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 128) -> (batch, 10)."""
        return self.head(F.gelu(self.norm(self.body(x))))


def main() -> None:
    """Train five steps; the first one compiles."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = Mlp().to(device)
    compiled = torch.compile(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    x, labels = torch.randn(256, 128, device=device), torch.randint(10, (256,), device=device)
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(x), labels)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f} on {device}")


if __name__ == "__main__":
    main()
