"""The time that the instrumenter adds to an op, in microseconds: on, paused, and after shutdown.

    python scripts/bench/overhead.py [--repeat 7] [--number 20000] [--autocast] [--json]

Each figure is the smallest of `repeat` loops of `number` calls on one thread, without gradients, minus the same loop before
`pyprof.init()`, in CPU time of the thread; with --autocast all of them inside a region. Run it under `nsys profile -t nvtx` to
measure the cost while a tool records.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

import pyprof
from pyprof import nvtx as instrumenter


def repeated(op: Callable[[], object]) -> Callable[[int], None]:
    """A loop of n calls; calling the lambda costs the same in the plain loop, so it cancels out."""

    def loop(n: int) -> None:
        for _ in range(n):
            op()

    return loop


def cases() -> dict[str, Callable[[int], None]]:
    """Loops of n calls of one op each."""
    x, w, layer, relu = torch.ones(4, 4), torch.ones(4, 4), torch.nn.Linear(4, 4), torch.nn.ReLU()
    identity = torch.nn.Identity()
    ops: dict[str, Callable[[], object]] = {
        "torch.add": lambda: torch.add(x, x),
        "F.linear": lambda: F.linear(x, w),
        "x + x": lambda: x + x,
        "x[0]": lambda: x[0],
        "torch.add(x, 2.0)": lambda: torch.add(x, 2.0),
        "torch.cat of 8": lambda: torch.cat([x, x, x, x, x, x, x, x]),
        "nn.Identity (module alone)": lambda: identity(x),
        "nn.Linear (op and module)": lambda: layer(x),
        "nn.ReLU (op and module)": lambda: relu(x),
    }
    return {name: repeated(op) for name, op in ops.items()}


def measure(loops: dict[str, Callable[[int], None]], repeat: int, number: int) -> dict[str, float]:
    """Microseconds a call, the smallest of all repeats."""
    found = {}
    with torch.no_grad():
        for name, loop in loops.items():
            times = []
            for _ in range(repeat):
                begin = time.thread_time()
                loop(number)
                times.append(time.thread_time() - begin)
            found[name] = min(times) / number * 1e6
    return found


def at_depth(depth: int, loop: Callable[[int], None], n: int) -> None:
    """Run a loop `depth` frames further down."""
    if depth:
        at_depth(depth - 1, loop, n)
    else:
        loop(n)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--number", type=int, default=20000)
    parser.add_argument("--autocast", action="store_true", help="inside torch.autocast of the CPU in bf16")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_autocast_enabled("cpu", args.autocast)
    loops = cases()
    deep = {"torch.add at depth 12": lambda n: at_depth(12, loops["torch.add"], n)}
    plain = measure({**loops, **deep}, args.repeat, args.number)
    begin = time.perf_counter()
    pyprof.init(mode="on")
    init_ms = (time.perf_counter() - begin) * 1e3
    columns = {"on": measure({**loops, **deep}, args.repeat, args.number)}
    pyprof.init(mode="on", stack=True)
    columns["whole stacks"] = measure({**loops, **deep}, args.repeat, args.number)
    instrumenter.pause()
    columns["flag off"] = measure({**loops, **deep}, args.repeat, args.number)
    instrumenter.shutdown()
    columns["after shutdown"] = measure({**loops, **deep}, args.repeat, args.number)
    added = {name: {what: round(t[name] - plain[name], 3) for what, t in columns.items()} for name in plain}
    if args.json:
        print(json.dumps({"plain_us": plain, "added_us": added, "init_ms": init_ms}, indent=1))
        return
    print(f"{'us a call':<28}{'plain':>8}" + "".join(f"{'+ ' + what:>18}" for what in columns))
    for name in plain:
        print(f"{name:<28}{plain[name]:>8.2f}" + "".join(f"{added[name][what]:>18.2f}" for what in columns))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"init: {init_ms:.0f} ms; peak memory {peak_mb:.0f} MB; torch {torch.__version__}")


if __name__ == "__main__":
    main()
