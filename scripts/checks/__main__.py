"""`python -m scripts.checks [NAME [ARGUMENT]...]`: all checks, as many at once as there are cores, or one: see scripts/checks/run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

# Name -> the module with what it is always given, and the arguments with which it is part of all checks.
CHECKS = {
    "faults": (("scripts.checks.faults",), ("20",)),
    "operators": (("scripts.checks.operators",), ()),
    "formulas": (("pytest", "scripts/checks/formulas"), ()),
    "distributed": (("scripts.checks.distributed",), ()),
    "recorders": (("pytest", "scripts/checks/recorders"), ()),
    "fuzz": (("scripts.checks.fuzzing",), ("--inputs", "3000", "--go-on")),
    "benchmarks": (("pytest", "scripts/checks/benchmarks"), ()),
    "stress": (("scripts.checks.stress",), ("--minutes", "0.25", "--threads", "8", "--workers", "2", "--most", "1")),
}

# One thread in numpy, and no gigabyte of addresses that pyarrow's own allocator takes: fuzz limits those.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", **os.environ}


def command(name: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", *CHECKS[name][0], *arguments]


def check(name: str) -> bool:
    """Run a check and print a line, and where it failed all that it printed. Returns whether all is well."""
    begin = time.monotonic()
    arguments = command(name, CHECKS[name][1])
    done = subprocess.run(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=ENVIRONMENT
    )
    said = done.stdout.rstrip().splitlines() or [""]
    verdict = "ok    " if done.returncode == 0 else f"FAILED, exit code {done.returncode}"
    print(f"{verdict} {name:10} {time.monotonic() - begin:5.0f} s  {said[-1]}", flush=True)
    if done.returncode:
        print("\n".join(said), flush=True)
    return done.returncode == 0


def main() -> int:
    """Returns the exit code: 1 where a check failed."""
    if names := sys.argv[1:]:
        if names[0] not in CHECKS:
            print(f"there is no check {names[0]!r}; there are {', '.join(CHECKS)}", file=sys.stderr)
            return 2
        return subprocess.run(command(names[0], names[1:]), env=ENVIRONMENT).returncode
    print(f"checks: {', '.join(CHECKS)}: some minutes", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return int(not all(list(pool.map(check, CHECKS))))


if __name__ == "__main__":
    sys.exit(main())
