"""Memory that commands are expected to take, beside what they took: how far `pyprof.memory` is off.

    python scripts/bench/foreseen.py FILE...

FILE is a capture or net.parquet. Prints a line for each file and command: MiB expected, MiB measured (the peak of resident
memory of its own process), their ratio. Exit code 1 where one of at least 128 MiB is off by more than
a quarter.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from pyprof.loading.formats import CAPTURES, RECORDS, size_of
from pyprof.memory import expected_bytes
from pyprof.parse.sources.inputs import Input

_LEAST_BYTES = 128 << 20  # what takes less ends no run
_COMMANDS = {
    "parse": ["-o", "OUT.parquet"], "prof": ["--csv"], "summary": [], "gaps": [], "report": ["-o", "OUT.html"],
    "trace": ["-o", "OUT.json"],
}  # fmt: skip


# A process that was spawned inherits the peak of the one that spawned it; VmHWM is its own.
_RUN = """
import sys
from pyprof.cli import main
target, sys.argv = sys.argv[1], ["pyprof", *sys.argv[2:]]
main()
with open("/proc/self/status") as status, open(target, "w") as out:
    out.write(next(line for line in status if line.startswith("VmHWM")).split()[1])
"""


def measured(command: list[str]) -> int:
    """Peak of resident memory of a process, in bytes."""
    with tempfile.NamedTemporaryFile("r") as out:
        subprocess.run([sys.executable, "-c", _RUN, out.name, *command], capture_output=True, check=True)
        return int(out.read()) * 1024


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="+")
    worst = 1.0
    for file in parser.parse_args().file:
        with Input(file) as given:
            size = size_of(given, CAPTURES + RECORDS)
        for name, more in _COMMANDS.items():
            if size is None or (name == "parse" and size.records):
                continue
            with tempfile.TemporaryDirectory() as folder:
                took = measured([name, file, *(word.replace("OUT", f"{folder}/out") for word in more)])
            expected = expected_bytes(size, name, parquet=name == "parse")
            if max(expected, took) >= _LEAST_BYTES:
                worst = max(worst, expected / took, took / expected)
            print(f"{Path(file).name:40} {name:8} {expected >> 20:6} {took >> 20:6} {expected / took:6.2f}", flush=True)
    return int(worst > 1.25)


if __name__ == "__main__":
    sys.exit(main())
