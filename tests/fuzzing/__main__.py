"""Fuzz the readers for some minutes: see scripts/fuzz."""

from __future__ import annotations

import argparse
import collections
import faulthandler
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.fuzzing.corpus import READERS
from tests.fuzzing.oracle import arguments, complaint, make

SPARE_BYTES = 2 << 30  # of address space, beyond what the process has when it begins


def run_one(seed: int, reader: str, folder: Path) -> tuple[str | None, list[str]]:
    """What is wrong with one input, if anything, and the command that was run on it."""
    random = Random(f"{reader} {seed}")
    case = make(random, reader, folder / "in")
    out = folder / "out"
    out.mkdir()
    command = arguments(random, case, out)
    return complaint(case, command), command


def main() -> int:
    """Fuzz until the time is up or something is found."""
    options = _options()
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + SPARE_BYTES,) * 2)
    readers = options.reader or [*READERS]
    begin, count, found = time.process_time(), collections.Counter[str](), 0
    seed = options.seed
    while time.process_time() - begin < 60 * options.minutes:
        for reader in readers:
            faulthandler.dump_traceback_later(120, exit=True)  # C code is not interrupted by the limit of processor time
            folder = Path(tempfile.mkdtemp(prefix="pyprof-fuzz-"))
            print(f"\r{reader} {seed} ", end="", file=sys.stderr) if sys.stderr.isatty() else None
            try:
                wrong, command = run_one(seed, reader, folder)
            except BaseException:
                print(f"\nscripts/fuzz --reader {reader} --seed {seed} --one", flush=True)
                raise
            count[reader] += 1
            if wrong is not None:
                found += 1
                print(f"{wrong}\n\nfiles: {folder}/in\ncommand: pyprof {' '.join(command)}")
                print(f"again: scripts/fuzz --reader {reader} --seed {seed} --one\n", flush=True)
                if not options.go_on:
                    return 1
            shutil.rmtree(folder, ignore_errors=wrong is None) if wrong is None else None
        seed += 1
        if options.one:
            break
    spent = (time.process_time() - begin) / 60
    print(f"{sum(count.values())} inputs, {spent:.1f} minutes of processor time, {found} findings: {dict(count)}")
    return 1 if found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz the readers with changed files.")
    parser.add_argument("--minutes", type=float, default=1, metavar="N", help="of processor time (1)")
    parser.add_argument("--reader", choices=READERS, action="append", help="one of them; all, one after another")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed; each input has the next")
    parser.add_argument("--one", action="store_true", help="this seed alone")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first finding")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
