"""Fuzz the readers for some minutes or inputs: see scripts/fuzz."""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzzing import texts
from tests.fuzzing.corpus import READERS
from tests.fuzzing.oracle import arguments, complaint, make

SPARE_BYTES = 2 << 30  # of address space, beyond what the process has when it begins
TEXTS = "text"  # a reader that takes no file
_AT_ONCE = 50  # texts
_ALIVE_S = 120  # C code is not interrupted by the limit of processor time
_MEMORY = Path("/dev/shm")  # files need no disk


@dataclass
class Count:
    """Of one reader: inputs, seconds of processor time, findings; the seed of the next input."""

    seed: int
    inputs: int = 0
    seconds: float = 0.0
    findings: int = 0


def run_one(seed: int, reader: str, folder: Path) -> tuple[str | None, str]:
    """What is wrong with one input, if anything, and how to see it."""
    random = Random(f"{reader} {seed}")
    if reader == TEXTS:
        text = texts.make_text(random)
        try:
            return texts.complaint_of(text), f"text: {text[:2000]!r}"
        except Exception as error:
            return f"escaped: {error!r}", f"text: {text[:2000]!r}"
    case = make(random, reader, folder / "in")
    out = folder / "out"
    out.mkdir()
    command = arguments(random, case, out)
    return complaint(case, command), f"files: {folder}/in\ncommand: pyprof {' '.join(command)}"


class Run:
    """Inputs of several readers; each reader is given the share of inputs that its weight asks for."""

    def __init__(self, options: argparse.Namespace) -> None:
        names = options.reader or [*READERS, TEXTS]
        self.weights = {name: 1.0 if options.reader else _weight(name) for name in names}
        self.counts = {name: Count(options.seed) for name in names}
        self.go_on, self.one = options.go_on, options.one
        self.folder = Path(tempfile.mkdtemp(prefix="pyprof-fuzz-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
        self.begin, self.watched = time.process_time(), 0.0

    def next_reader(self) -> str:
        """The one that is furthest behind its share."""
        return min(self.counts, key=lambda name: (self.counts[name].inputs + 1) / self.weights[name])

    def step(self) -> bool:
        """Some inputs of one reader; whether to go on."""
        if time.monotonic() - self.watched > _ALIVE_S / 4:
            self.watched = time.monotonic()
            faulthandler.dump_traceback_later(_ALIVE_S, exit=True)
        reader = self.next_reader()
        count, begin = self.counts[reader], time.process_time()
        on = all(self._input(reader, count) for _ in range(_AT_ONCE if reader == TEXTS and not self.one else 1))
        count.seconds += time.process_time() - begin
        return on and not self.one

    def _input(self, reader: str, count: Count) -> bool:
        folder, seed = self.folder / f"{reader}-{count.seed}", count.seed
        try:
            wrong, about = run_one(seed, reader, folder)
        except BaseException:
            print(f"\nwhile: scripts/fuzz --reader {reader} --seed {seed} --one", flush=True)
            raise
        count.inputs, count.seed = count.inputs + 1, seed + 1
        if wrong is None:
            if reader != TEXTS:
                shutil.rmtree(folder, ignore_errors=True)
            return True
        count.findings += 1
        print(f"{wrong}\n\n{about}\nagain: scripts/fuzz --reader {reader} --seed {seed} --one\n", flush=True)
        return bool(self.go_on)

    def summary(self) -> str:
        """A line a reader, and one of all."""
        lines = [f"{'reader':14} {'inputs':>10} {'CPU s':>9} {'a second':>9} {'findings':>9}"]
        every = Count(0)
        for name, count in self.counts.items():
            lines.append(_line(name, count))
            every.inputs, every.findings = every.inputs + count.inputs, every.findings + count.findings
        every.seconds = time.process_time() - self.begin
        return "\n".join([*lines, _line("all", every) + f"   {every.seconds / 3600:.2f} CPU hours"])


def _weight(name: str) -> float:
    return READERS[name].weight if name in READERS else 1000.0


def _line(name: str, count: Count) -> str:
    rate = count.inputs / count.seconds if count.seconds else 0
    return f"{name:14} {count.inputs:10} {count.seconds:9.1f} {rate:9.1f} {count.findings:9}"


def main() -> int:
    """Fuzz until the time is up, the inputs are done, or something is found."""
    options = _options()
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + SPARE_BYTES,) * 2)
    run = Run(options)
    minutes = options.minutes or (float("inf") if options.inputs else 1)
    last = time.monotonic()
    try:
        while time.process_time() - run.begin < 60 * minutes and _inputs(run) < (options.inputs or float("inf")) and run.step():
            if options.every and time.monotonic() - last > 60 * options.every:
                last = time.monotonic()
                print(f"{run.summary()}\n", flush=True)
    except KeyboardInterrupt:
        print("\nstopped", flush=True)
    found = sum(count.findings for count in run.counts.values())
    if not found:
        shutil.rmtree(run.folder, ignore_errors=True)
    print(run.summary(), flush=True)
    return 1 if found else 0


def _inputs(run: Run) -> int:
    return sum(count.inputs for count in run.counts.values())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz the readers with changed files.")
    parser.add_argument("--minutes", type=float, metavar="N", help="of processor time (1, unless --inputs is given)")
    parser.add_argument("--inputs", type=int, metavar="N", help="of all readers together, for example 10000000")
    parser.add_argument("--every", type=float, metavar="N", help="print the counts every N minutes")
    parser.add_argument("--reader", choices=[*READERS, TEXTS], action="append", help="one of them; all, by their weights")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed; each input of a reader has the next")
    parser.add_argument("--one", action="store_true", help="this seed alone")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first finding")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
