"""Inference of a small transformer that records itself, `with pyprof.capture(...)`, and prints the summary.

    python -m pyprof.examples.inference                   writes inference.json.gz
    python -m pyprof.examples.inference --batch 32 -o b32.json.gz

What to look for: three batches are recorded, each a step, since a schedule says so and `step()` ends each batch; nothing is
backward; `pyprof diff inference.json.gz b32.json.gz` says what a larger batch costs, op by op, and that the two do not do the
same work.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import pyprof


class Encoder(nn.Module):
    """Embedding, two transformer layers, and a score for each word."""

    def __init__(self, words: int = 1000, width: int = 64) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, batch_first=True)
        self.embedding, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, length) -> (batch, length, words)."""
        return self.head(self.encoder(self.embedding(tokens)))


def main() -> None:
    """Encode random tokens, batch by batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8, help="sequences at once (8)")
    parser.add_argument("-o", "--output", default="inference.json.gz", help="the capture (inference.json.gz)")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the ops are so small that on a CPU threads would only wait for each other
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = Encoder().to(device).eval()
    schedule = pyprof.schedule(warmup=2, active=3)
    with torch.inference_mode(), pyprof.capture(options.output, schedule=schedule, table=0) as capture:
        for _ in range(5):
            tokens = torch.randint(1000, (options.batch, 32), device=device)
            net(tokens).argmax(-1)
            capture.step()
    print(pyprof.summary(options.output))


if __name__ == "__main__":
    main()
