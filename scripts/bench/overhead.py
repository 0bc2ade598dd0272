"""The time that the instrumenter adds to an op, in microseconds: on, with whole stacks, paused, and after shutdown; and what
the ledger of `pyprof run` adds to a step.

    python scripts/bench/overhead.py [--rounds 15] [--number 4000] [--autocast] [--json]

Each figure is the median, over rounds, of a loop of `number` calls on one thread, without gradients, minus the same loop before
`pyprof.init()` in the same round, in CPU time of the thread: what slows the machine down slows both. With --autocast each loop
runs in turn outside and inside a region of the CPU in bf16; `inside - outside` is what `on` adds there beyond what it adds
outside. Run it under `nsys profile -t nvtx` to measure the cost while a tool records.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
import torch.nn.functional as F

import pyprof
from pyprof import nvtx as instrumenter

INSIDE = " in autocast"
Loop = Callable[[int], None]
Times = dict[str, list[float]]  # a loop -> microseconds a call, one of each round


def repeated(op: Callable[[], object]) -> Loop:
    """A loop of n calls; calling the lambda costs the same in the plain loop, so it cancels out."""

    def loop(n: int) -> None:
        for _ in range(n):
            op()

    return loop


def at_depth(depth: int, loop: Loop, n: int) -> None:
    """Run a loop `depth` frames further down."""
    if depth:
        at_depth(depth - 1, loop, n)
    else:
        loop(n)


def cases() -> dict[str, Loop]:
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
    loops = {name: repeated(op) for name, op in ops.items()}
    return {**loops, "torch.add at depth 12": lambda n: at_depth(12, loops["torch.add"], n)}


def measure(loops: dict[str, Loop], autocast: bool, number: int, times: Times) -> None:
    """Time every loop once, outside of autocast and, if asked, inside right after it."""
    with torch.no_grad():
        for name, loop in loops.items():
            for inside in (False, True)[: 1 + autocast]:
                torch.set_autocast_enabled("cpu", inside)
                loop(100)
                begin = time.thread_time()
                loop(number)
                times[name + INSIDE * inside].append((time.thread_time() - begin) / number * 1e6)
    torch.set_autocast_enabled("cpu", False)


def a_round(loops: dict[str, Loop], autocast: bool, number: int, times: dict[str, Times]) -> float:
    """Time every loop in every state of the instrumenter; returns the seconds that `pyprof.init()` took."""
    measure(loops, autocast, number, times["plain"])
    begin = time.perf_counter()
    pyprof.init(mode="on")
    seconds = time.perf_counter() - begin
    measure(loops, autocast, number, times["on"])
    pyprof.init(mode="on", stack=True)
    measure(loops, autocast, number, times["whole stacks"])
    instrumenter.pause()
    measure(loops, autocast, number, times["flag off"])
    instrumenter.resume()
    instrumenter.shutdown()
    measure(loops, autocast, number, times["after shutdown"])
    return seconds


def ledger_us(steps: int) -> list[float]:
    """Microseconds that an optimizer's step of a small program takes longer with a ledger than without, in each of 15 rounds;
    in CPU time of the thread."""
    from pyprof.recording.ledger import LedgerWriter
    from pyprof.recording.steps import StepClock

    parameter = torch.ones(4, requires_grad=True)
    parameter.grad = torch.ones(4)
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def spent() -> float:
        begin = time.thread_time()
        for _ in range(steps):
            optimizer.step()
        return (time.thread_time() - begin) / steps * 1e6

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(15):
            before = spent()
            ledger = LedgerWriter(partial(os.path.join, folder, f"{number}.steps.jsonl"), str, print)
            clock = StepClock(lambda at, clock_of=ledger: clock_of.mark("optimizer", at))
            clock.start()
            found.append(spent() - before)
            clock.stop()
            ledger.end()
    return found


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--number", type=int, default=4000)
    parser.add_argument("--autocast", action="store_true", help="also inside torch.autocast of the CPU in bf16")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    loops, times = cases(), defaultdict[str, Times](lambda: defaultdict(list))
    seconds = [a_round(loops, args.autocast, args.number, times) for _ in range(args.rounds)]
    init_ms = 1e3 * max(seconds)  # of the first, which imports
    plain, ledger = times.pop("plain"), median(ledger_us(2000))

    def added(state: str, name: str) -> list[float]:
        return [after - before for after, before in zip(times[state][name], plain[name], strict=True)]

    columns = {what: {name: median(added(what, name)) for name in loops} for what in times}
    if args.autocast:
        columns["on" + INSIDE] = {name: median(added("on", name + INSIDE)) for name in loops}
        pairs = {name: zip(added("on", name + INSIDE), added("on", name), strict=True) for name in loops}
        columns["inside - outside"] = {name: median(a - b for a, b in pair) for name, pair in pairs.items()}
    if args.json:
        medians = {name: median(plain[name]) for name in loops}
        found = {"plain_us": medians, "added_us": columns, "init_ms": init_ms, "ledger_us": ledger}
        print(json.dumps(found, indent=1))
        return
    print(f"{'us a call':<28}{'plain':>8}" + "".join(f"{'  + ' + what:>19}" for what in columns))
    for name in loops:
        print(f"{name:<28}{median(plain[name]):>8.2f}" + "".join(f"{column[name]:>19.2f}" for column in columns.values()))
    print(f"a step with a ledger: + {ledger:.2f}")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"init: {init_ms:.0f} ms; peak memory {peak_mb:.0f} MB; torch {torch.__version__}")


if __name__ == "__main__":
    main()
