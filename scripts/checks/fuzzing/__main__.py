"""Fuzz the readers for some minutes or inputs: see scripts/checks/run.

The inputs are run by forks of this process, each of which ends after some thousands: what one keeps in memory goes with it, and
where one dies the rest goes on. Counts are in memory that all of them share, so that none is lost.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

import numpy as np

from scripts.checks.fuzzing import texts
from scripts.checks.fuzzing.corpus import READERS
from scripts.checks.fuzzing.oracle import arguments, complaint, make

SPARE_BYTES = 2 << 30  # of address space, beyond what a process has when it begins
TEXTS = "text"  # a reader that takes no file
FILES_SHARE = 0.27  # of all inputs; texts alone take a twentieth of the time
_A_PROCESS = 20_000  # inputs
_AT_ONCE = 50  # texts
_ALIVE_S = 120  # C code is not interrupted by the limit of processor time
_MEMORY = Path("/dev/shm")  # files need no disk
_COUNT = np.dtype([("seed", "i8"), ("inputs", "i8"), ("seconds", "f8"), ("findings", "i8"), ("now", "?")])
_DONE, _FOUND, _STOPPED = 0, 3, 130  # how a fork ends


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
    """Inputs of several readers; each reader is given the share of inputs that its weight asks for.

    counts: [job, reader], of each reader the seed of its next input, inputs, seconds of processor time, findings, and whether it
    is at work now. A job takes every seed of `jobs`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.names = options.reader or [*READERS, TEXTS]
        self.weights = np.array([1.0 if options.reader else _weight(name) for name in self.names])
        self.options, self.jobs = options, 1 if options.one else options.jobs
        shape = (self.jobs, len(self.names))
        shared = mmap.mmap(-1, self.jobs * len(self.names) * _COUNT.itemsize)
        self.counts = np.frombuffer(shared, _COUNT).reshape(shape)
        self.counts["seed"] = options.seed + np.arange(self.jobs)[:, None]
        self.folder = Path(tempfile.mkdtemp(prefix="pyprof-fuzz-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
        self.seconds = 60.0 * (options.minutes or (float("inf") if options.inputs else 1))
        self.forks: dict[int, int] = {}  # process -> job

    def on(self, job: int) -> bool:
        """Whether a job has inputs and time left; all jobs have the same."""
        own = self.counts[job]
        share = (self.options.inputs or float("inf")) / self.jobs
        return bool(
            own["inputs"].sum() < (1 if self.options.one else share) and own["seconds"].sum() < self.seconds / self.jobs
        )

    def go(self) -> None:
        """Fork and wait until all is done, or one finds something and the others are not to go on."""
        last = time.monotonic()
        for job in range(self.jobs):
            self._fork(job)
        while self.forks:
            process, status = os.wait()
            if (job := self.forks.pop(process, None)) is None:
                continue
            if (code := os.waitstatus_to_exitcode(status)) not in (_DONE, _FOUND, _STOPPED):
                self._died(job, code)
            if code == _STOPPED or (code != _DONE and not self.options.go_on):
                return self.stop()
            if self.on(job):
                self._fork(job)
            if self.options.every and time.monotonic() - last > 60 * self.options.every:
                last = time.monotonic()
                print(f"{self.summary()}\n", flush=True)

    def stop(self) -> None:
        """End what is at work."""
        for process in self.forks:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self.forks.clear()

    def _fork(self, job: int) -> None:
        sys.stdout.flush()
        process = os.fork()
        if process:
            self.forks[process] = job
            return
        code = 1
        try:
            code = self._work(job)
        except KeyboardInterrupt:
            code = _STOPPED
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _died(self, job: int, code: int) -> None:
        """A fork ended in the middle of an input, which is counted as a finding; the next goes on after it."""
        own = self.counts[job]
        (at,) = np.flatnonzero(own["now"]) if own["now"].any() else (0,)
        name, seed = self.names[at], own["seed"][at]
        print(f"died, exit code {code}\nagain: scripts/checks/run fuzz --reader {name} --seed {seed} --one\n", flush=True)
        own["findings"][at] += 1
        own["inputs"][at] += 1
        own["seed"][at] += self.jobs
        own["now"] = False

    def _work(self, job: int) -> int:
        """Of a fork: some thousands of inputs; how it ends."""
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + SPARE_BYTES,) * 2)
        own, watched = self.counts[job], 0.0
        end = own["inputs"].sum() + _A_PROCESS
        while self.on(job) and own["inputs"].sum() < end:
            if time.monotonic() - watched > _ALIVE_S / 4:
                watched = time.monotonic()
                faulthandler.dump_traceback_later(_ALIVE_S, exit=True)
            at = int(np.argmin((own["inputs"] + 1) / self.weights))
            begin, own["now"][at] = time.process_time(), True
            for _ in range(_AT_ONCE if self.names[at] == TEXTS and not self.options.one else 1):
                if not self._input(at, own[at : at + 1]):
                    return _FOUND
            own["seconds"][at] += time.process_time() - begin
            own["now"][at] = False
        return _DONE

    def _input(self, at: int, count: np.ndarray) -> bool:
        """Of a reader one input; whether to go on."""
        reader, seed = self.names[at], int(count["seed"][0])
        folder = self.folder / f"{reader}-{seed}"
        wrong, about = run_one(seed, reader, folder)
        count["inputs"] += 1
        count["seed"] += self.jobs
        if wrong is None:
            if reader != TEXTS:
                shutil.rmtree(folder, ignore_errors=True)
            return True
        count["findings"] += 1
        print(f"{wrong}\n\n{about}\nagain: scripts/checks/run fuzz --reader {reader} --seed {seed} --one\n", flush=True)
        return bool(self.options.go_on)

    def found(self) -> int:
        """How many findings there are."""
        return int(self.counts["findings"].sum())

    def summary(self) -> str:
        """A line a reader, and one of all."""
        every = [self.counts[key].sum(axis=0) for key in ("inputs", "seconds", "findings")]
        lines = [_line(name, *values) for name, *values in zip(self.names, *every, strict=True)]
        total = [column.sum() for column in every]
        head = f"{'reader':14} {'inputs':>10} {'CPU s':>9} {'a second':>9} {'findings':>9}"
        return "\n".join([head, *lines, _line("all", *total) + f"   {total[1] / 3600:.2f} CPU hours"])


def _weight(name: str) -> float:
    return READERS[name].weight if name in READERS else sum(r.weight for r in READERS.values()) * (1 / FILES_SHARE - 1)


def _line(name: str, inputs: int, seconds: float, findings: int) -> str:
    rate = inputs / seconds if seconds else 0
    return f"{name:14} {inputs:10} {seconds:9.1f} {rate:9.1f} {findings:9}"


def main() -> int:
    """Fuzz until the time is up, the inputs are done, or something is found."""
    run = Run(_options())
    try:
        run.go()
    except KeyboardInterrupt:
        run.stop()
        print("\nstopped", flush=True)
    if not run.found():
        shutil.rmtree(run.folder, ignore_errors=True)
    print(run.summary(), flush=True)
    return 1 if run.found() else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/checks/run fuzz", description="Fuzz the readers with changed files.")
    parser.add_argument("--minutes", type=float, metavar="N", help="of processor time (1, unless --inputs is given)")
    parser.add_argument("--inputs", type=int, metavar="N", help="of all readers together, for example 10000000")
    parser.add_argument("--every", type=float, metavar="N", help="print the counts every N minutes")
    parser.add_argument("--reader", choices=[*READERS, TEXTS], action="append", help="one of them; all, by their weights")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed; each input of a reader has the next")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at work at once (1)")
    parser.add_argument("--one", action="store_true", help="this seed alone")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first finding")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
