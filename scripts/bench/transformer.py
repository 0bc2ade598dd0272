"""The time that the instrumenter adds to a training step of a 12-layer transformer encoder on the CPU, as a ratio.

    python scripts/bench/transformer.py [--rounds 12] [--steps 1] [--batch 8] [--length 128] [--width 512]

Steps with and without it alternate within one run, so that other load affects both equally. Prints the median of the ratios of
neighbouring rounds, and the medians of the times.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import pyprof
from pyprof import nvtx as instrumenter


def make_step(width: int, batch: int, length: int) -> Callable[[], None]:
    """One step: forward, loss, backward, AdamW."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
    net = nn.Sequential(nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(width, 1000))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    x, goal = torch.randn(batch, length, width), torch.randint(0, 1000, (batch * length,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x).flatten(0, 1), goal).backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None], steps: int) -> float:
    """Time of one step."""
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - begin) / steps


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rounds", 12), ("steps", 1), ("batch", 8), ("length", 128), ("width", 512)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    step = make_step(args.width, args.batch, args.length)
    step()
    pyprof.init(mode="on")
    step()
    instrumenter.shutdown()
    times: dict[str, list[float]] = {"plain": [], "on": [], "whole stacks": []}
    for _ in range(args.rounds):
        for how, taken in times.items():
            if how != "plain":
                pyprof.init(mode="on", stack=how != "on")
                step()  # the first step registers texts
            taken.append(seconds(step, args.steps))
            instrumenter.shutdown()
    plain = statistics.median(times["plain"])
    print(f"plain: {plain * 1e3:.1f} ms a step (median of {args.rounds} rounds, {torch.get_num_threads()} threads)")
    for how in ("on", "whole stacks"):
        ratio = statistics.median(b / a for a, b in zip(times["plain"], times[how], strict=True))
        print(f"{how}: {statistics.median(times[how]) * 1e3:.1f} ms a step, ratio {ratio:.4f}")


if __name__ == "__main__":
    main()
