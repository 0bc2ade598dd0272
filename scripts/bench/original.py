"""The time that the original PyProf and this one add to an op, on the same loops in one run.

    git clone https://github.com/NVIDIA/PyProf /tmp/original && git -C /tmp/original checkout 218dcc1
    python scripts/bench/original.py --original /tmp/original [--rounds 3]

Each measurement is a process of its own, since the original cannot be switched off; the processes take turns, and the best of
all rounds counts. Both send their ranges through the same NVTX functions.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

NUMBER = 2000
DEPTHS = (0, 12)


def init(how: str, path: str) -> None:
    """Instrument this process; the original is given NVTX functions that a torch without CUDA lacks."""
    if how == "original":
        import torch._dynamo  # noqa: F401 - the original breaks its import afterwards
        from torch.cuda import nvtx

        lib = importlib.import_module("nvtx._lib.lib")
        domain, known = lib.DomainHandle(None), {}

        def push(text: str) -> None:
            if text not in known:
                known[text] = lib.EventAttributes(None, lib.RegisteredString(domain, text), 1)
            lib.push_range(known[text], domain)

        nvtx.range_push, nvtx.range_pop = push, lambda: lib.pop_range(domain)
        sys.path.insert(0, path)
        importlib.import_module("pyprof").init()
    elif how != "plain":
        import pyprof

        pyprof.init(mode="on", stack=how == "ours, whole stacks")


def at_depth(depth: int, run: Callable[[], Any]) -> Any:
    """Run `depth` frames further down."""
    return at_depth(depth - 1, run) if depth else run()


def measure() -> dict[str, float]:
    """Microseconds a call of each op, the smallest of five loops."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(1)
    x = torch.ones(4, 4)
    ops: dict[str, Callable[[], Any]] = {
        "torch.add": lambda: torch.add(x, x),
        "F.linear": lambda: F.linear(x, x),
        "x + x": lambda: x + x,
        "F.relu": lambda: F.relu(x),
        "torch.cat of 8": lambda: torch.cat([x, x, x, x, x, x, x, x]),
    }
    found: dict[str, float] = {}
    for depth in DEPTHS:
        for name, op in ops.items():

            def loop(op: Callable[[], Any] = op) -> float:
                begin = time.perf_counter()
                for _ in range(NUMBER):
                    op()
                return time.perf_counter() - begin

            with torch.no_grad():
                found[f"{name}, depth {depth}"] = min(at_depth(depth, loop) for _ in range(5)) / NUMBER * 1e6
    return found


def main() -> None:
    """Run the processes in turn and print the time that each adds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--original", required=True, help="folder that holds the original's package `pyprof`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--as", dest="how", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.how:
        init(args.how, args.original)
        print(json.dumps(measure()))
        return
    best: dict[str, dict[str, float]] = {}
    for _ in range(args.rounds):
        for how in ("plain", "original", "ours", "ours, whole stacks"):
            command = [sys.executable, __file__, "--original", args.original, "--as", how]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            for name, us in json.loads(done.stdout.splitlines()[-1]).items():
                seen = best.setdefault(name, {})
                seen[how] = min(us, seen.get(how, us))
    print(f"{'us a call':<26}{'plain':>8}{'+ original':>12}{'+ ours':>9}{'ratio':>7}{'+ stacks':>10}{'ratio':>7}")
    for name, us in best.items():
        theirs, ours, stacks = (us[how] - us["plain"] for how in ("original", "ours", "ours, whole stacks"))
        mine = f"{ours:>9.2f}{ours / theirs:>7.3f}{stacks:>10.2f}{stacks / theirs:>7.3f}"
        print(f"{name:<26}{us['plain']:>8.2f}{theirs:>12.2f}{mine}")


if __name__ == "__main__":
    main()
