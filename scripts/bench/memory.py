"""Memory of a long run: op calls whose shapes and scalars keep changing.

    python scripts/bench/memory.py [--seconds 270] [--calls 10000000]
    nsys profile -t nvtx -o /tmp/memory python scripts/bench/memory.py --seconds 120     the same while a tool records

Sizes and numbers differ from round to round. Prints the growth of resident memory during the run, the number of calls and the
number of registered texts. The same loop runs uninstrumented first, so that torch's own growth is not counted.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from pathlib import Path

import torch

import pyprof
from pyprof import nvtx as instrumenter


def resident_mb() -> float:
    """Resident memory of this process in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def some_calls(x: torch.Tensor, chance: random.Random) -> int:
    """Ten op calls, no two rounds alike."""
    size, number = chance.randrange(1, 4000), chance.random()
    part = x[:size]
    part = torch.add(part, number)
    part = part.mul(size)
    part = torch.clamp(part, -number, number * 2)
    part = part.reshape(1, size)
    part = torch.cat([part, part], 0)
    part = part * number - size
    part.sum(dim=(0, 1))
    return 10


def main() -> None:
    """Run until the calls or the seconds are used up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=270.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    x, chance = torch.randn(4000), random.Random(0)
    for _ in range(20_000):
        some_calls(x, chance)
    plain = resident_mb()
    pyprof.init(mode="on")
    some_calls(x, chance)
    begin_mb, begin, calls, shown = resident_mb(), time.perf_counter(), 0, 1000
    print(f"{plain:.1f} MB before init, {begin_mb:.1f} after")
    while calls < args.calls and time.perf_counter() - begin < args.seconds:
        for _ in range(100):
            calls += some_calls(x, chance)
        if calls >= shown:
            shown *= 4
            print(f"{calls:>12,} calls: {resident_mb() - begin_mb:+.1f} MB, {instrumenter.stats()}", flush=True)
    grown, seconds = resident_mb() - begin_mb, time.perf_counter() - begin
    print(f"{calls:,} calls in {seconds:.0f} s: {grown:+.1f} MB over the state after init; {instrumenter.stats()}")


if __name__ == "__main__":
    main()
