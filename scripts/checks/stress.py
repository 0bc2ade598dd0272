"""The instrumenter while everything happens at once: threads, forked and spawned processes, exceptions, deep recursion, toggling.

    python -m scripts.checks.stress [--minutes N] [--seed N] [--threads N] [--workers N] [--most N]

Ops are drawn at random from torch's operator database, with a network's training step, a function near the limit of recursion and
calls that raise among them, while the instrumenter is put in and taken out, paused, and handed another recorder. Before, without
the instrumenter, each op's result is kept. Wrong is: another result or exception, a range that is closed on another thread, by
another recorder or not at all, an error of our own, memory that grows.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pyprof import nvtx as instrumenter
from pyprof.nvtx.state import STATE
from scripts.checks.stress_calls import Case, Expected, read_cases, read_expected, work

GROWTH_MB = 64
"""Memory that a process may hold more at its end than after a quarter of its time: what torch and the allocator keep for 32 threads."""


class Handle(NamedTuple):
    """A text as one recorder knows it."""

    owner: int
    text: str


class Brackets:
    """A recorder that keeps only what is open on each thread, and refuses what is not its own."""

    def __init__(self) -> None:
        self.wrong: Counter[str] = Counter()
        self.pushed = count()
        self._local = threading.local()

    def _open(self) -> list[Handle]:
        return self._local.__dict__.setdefault("open", [])

    def prepare(self, text: str) -> Handle:
        return Handle(id(self), text)

    def push(self, handle: Handle) -> None:
        if type(handle) is not Handle or handle.owner != id(self):
            self.wrong["a range of another recorder is opened"] += 1
        next(self.pushed)
        self._open().append(handle)

    def pop(self) -> None:
        if not self._open():
            self.wrong["a range is closed that was not opened"] += 1
        else:
            self._open().pop()

    def left_open(self) -> None:
        """Note what this thread has left open."""
        for handle in self._open():
            self.wrong[f"left open: {handle.text[:80]}"] += 1
        self._open().clear()


class Tally:
    """What one process did, and what was wrong; threads add to it under its lock."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.lock = threading.Lock()

    def add(self, counts: Counter[str], wrong: Counter[str]) -> None:
        with self.lock:
            self.counts += counts
            self.wrong += wrong


def many(cases: list[Case], expected: Expected, seed: int, ends: float, tally: Tally, alone: bool = False) -> None:
    """Calls on this thread until the time is over."""
    counts, wrong, chance = Counter[str](), Counter[str](), random.Random(seed)
    while time.monotonic() < ends:
        if alone and chance.random() < 0.05:
            toggle(chance)
        with instrumenter.instrument() if alone and chance.random() < 0.02 else nullcontext():
            name, got, should = work(cases, expected, chance, alone)
        counts["ops"] += 1
        counts["raised"] += name == "raising"
        counts["deep"] += name == "deep"
        if got != should:
            wrong[f"{name}: {got[:120]} instead of {should[:120]}"] += 1
    for recorder in _recorders:
        recorder.left_open()
    tally.add(counts, wrong)


_recorders = [Brackets(), Brackets()]


def toggle(chance: random.Random) -> None:
    """Change the instrumenter in some way."""
    way = chance.randrange(8)
    if way == 0:
        instrumenter.shutdown()
    elif way == 1:
        instrumenter.pause()
    elif way == 2:
        instrumenter.resume()
    elif way == 3:
        instrumenter.init(backend=chance.choice(_recorders), stack=True)
    elif way == 4 and chance.random() < 0.2:
        instrumenter.init(backend=chance.choice(_recorders), method="mode")
    else:
        instrumenter.init(backend=chance.choice(_recorders))


def held_mb() -> float:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def finish(tally: Tally, first_mb: float | None) -> dict[str, Any]:
    """What this process found, to be sent."""
    for recorder in _recorders:
        tally.wrong += recorder.wrong
        tally.counts["ranges"] += next(recorder.pushed)
    instrumenter.shutdown()
    tally.wrong += _errors
    grown = held_mb() - first_mb if first_mb is not None else 0.0
    if grown > GROWTH_MB:
        tally.wrong[f"memory grew by {grown:.0f} MB from {first_mb:.0f}"] += 1
    return {"counts": tally.counts, "wrong": tally.wrong, "grown_mb": grown, "held_mb": held_mb()}


def worker(path: str, seed: int, ends: float, cases: list[Case] | None, expected: Expected | None) -> None:
    """A process with one thread; the instrumenter is toggled between its calls. cases: None in a spawned one, which reads them."""
    prepare()
    for recorder in _recorders:
        recorder.__init__()  # type: ignore[misc]  # what the parent recorded is the parent's
    cases, expected = cases or read_cases(), expected or read_expected()
    tally, first = Tally(), None
    begin, part = time.monotonic(), 0
    ends = max(ends, begin + 2)  # what a busy machine takes to begin is no work
    while (now := time.monotonic()) < ends:
        if first is None and now > begin + (ends - begin) / 4:
            first = held_mb()
        many(cases, expected, seed + part, min(ends, now + 5), tally, alone=True)
        part += 1
    Path(path).write_text(json.dumps(finish(tally, first)))


_errors: Counter[str] = Counter()


def _trouble(error: BaseException, where: str) -> None:
    """An error of the instrumenter's own: near the limit of recursion its calls may fail as the program's do."""
    if not isinstance(error, RecursionError):
        _errors[f"an error of ours: {where}: {type(error).__name__}: {error}"] += 1


def prepare() -> None:
    """One thread inside ops, so that their sums are always added in one order; warnings are not of interest."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _errors.clear()
    STATE.trouble = _trouble  # type: ignore[method-assign]


def processes(way: str, number: int, folder: Path, seed: int, ends: float, given: tuple[Any, Any]) -> list[Any]:
    """Workers that were started."""
    context, started = multiprocessing.get_context(way), []
    for i in range(number):
        path = str(folder / f"{way}-{seed}-{i}.json")
        started.append(context.Process(target=worker, args=(path, seed + 1000 * i, ends, *given)))
        started[-1].start()
    return started


def in_threads(cases: list[Case], expected: Expected, seed: int, ends: float, tally: Tally, number: int) -> None:
    """Many threads at once, which Python switches between often."""
    threads = [threading.Thread(target=many, args=(cases, expected, seed + i, ends, tally)) for i in range(number)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-4)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)


@contextmanager
def toggled(seed: int) -> Iterator[None]:
    """A thread that toggles during the block, while processes are forked too."""
    over, chance = threading.Event(), random.Random(seed)

    def toggling() -> None:
        while not over.wait(chance.random() * 0.05):
            toggle(chance)

    other = threading.Thread(target=toggling)
    other.start()
    yield
    over.set()
    other.join()


def stress(seconds: float, seed: int = 0, threads: int = 32, workers: int = 8, most: int = 2) -> dict[str, Any]:
    """All of it, for so long after the preparation. Returns counts, what was wrong, and memory grown of each process."""
    prepare()
    cases, expected = read_cases(most), read_expected()
    steady = [case for case in cases if case.steady]
    tally, first, begin = Tally(), None, time.monotonic()
    ends, dead, reported = begin + seconds, 0, []
    with tempfile.TemporaryDirectory(prefix="pyprof-stress-") as folder:
        spawned = processes("spawn", workers, Path(folder), seed + 7, ends, (None, None))
        for part in count():
            now = time.monotonic()
            if now >= ends:
                break
            if first is None and now > begin + seconds / 4:
                first = held_mb()
            until = min(ends, now + max(seconds / 8, 5))
            with toggled(seed + part):
                forked = processes("fork", workers, Path(folder), seed + 100 * part, until, (cases, expected))
                in_threads(steady, expected, seed + part, until, tally, threads)
            dead += ended(forked)
        dead += ended(spawned)
        found = finish(tally, first)
        reported = [found, *(json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json")))]
    wrong = sum((Counter(one["wrong"]) for one in reported), Counter[str]())
    wrong["a process died"] += dead
    return {
        "counts": sum((Counter(one["counts"]) for one in reported), Counter[str]()),
        "wrong": +wrong,
        "processes": len(reported),
        "grown_mb": max(one["grown_mb"] for one in reported),
        "held_mb": found["held_mb"],
        "calls": len(cases),
    }


def ended(started: list[Any]) -> int:
    """How many of these processes did not end well; one that hangs is ended."""
    for process in started:
        process.join(600)
        if process.is_alive():
            process.kill()
            process.join()
    return sum(process.exitcode != 0 for process in started)


def lines(found: dict[str, Any], seconds: float) -> Iterator[str]:
    counts = found["counts"]
    yield (
        f"{seconds / 60:.1f} minutes, {found['processes']} processes: {counts['ops']} ops of {found['calls']} calls, "
        f"{counts['raised']} made to raise, {counts['deep']} near the limit of recursion, {counts['ranges']} ranges; memory of a "
        f"process grew by at most {found['grown_mb']:.0f} MB; {sum(found['wrong'].values())} wrong"
    )
    yield from (f"  {number} x {what}" for what, number in found["wrong"].most_common(60))


def main() -> int:
    """Run for the time asked for and print the counts; 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--workers", type=int, default=8, help="forked and as many spawned processes")
    parser.add_argument("--most", type=int, default=2, help="calls of each op")
    options = parser.parse_args()
    begin = time.monotonic()
    found = stress(options.minutes * 60, options.seed, options.threads, options.workers, options.most)
    print("\n".join(lines(found, time.monotonic() - begin)))
    return int(bool(found["wrong"] or found["counts"]["ops"] < 100 or found["counts"]["ranges"] < 100))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
