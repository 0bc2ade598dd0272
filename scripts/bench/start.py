"""What pyprof costs before it does anything: ratios of CPU seconds of whole processes, measured in turn in one run.

    python scripts/bench/start.py [CAPTURE...] [--repeat 15]

`pyprof --help` against the interpreter's own start, and `pyprof prof` and `pyprof summary` of each small capture against
`python -c 'import numpy'`.
Without CAPTURE the captures of tests/data are taken: an nsys export and a torch.profiler trace.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
PYTHON = [sys.executable]
DATA = ("nsys_ops.sqlite", "kineto_cpu.json.gz")


def cpu_seconds(command: list[str]) -> float:
    """CPU seconds of one run of a command, whose output is thrown away."""
    # With bytecode kept, as where a package is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(HERE)
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=HERE)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", nargs="*", type=os.path.abspath, default=[str(HERE / "tests/data" / name) for name in DATA])
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()
    pairs = {"pyprof --help": ([*PYTHON, "-m", "pyprof", "--help"], [*PYTHON, "-c", "pass"])}
    for capture in options.capture:
        for name in ("prof", "summary"):
            command = [*PYTHON, "-m", "pyprof", name, capture]
            pairs[f"{name} {Path(capture).name}"] = (command, [*PYTHON, "-c", "import numpy"])
    for name, (ours, other) in pairs.items():
        runs = [(cpu_seconds(ours), cpu_seconds(other)) for _ in range(options.repeat)]
        cpu, least = (statistics.median(run[i] for run in runs) for i in range(2))
        print(f"{name:40} {cpu:6.3f} s, {cpu / least:4.2f} times {' '.join(other[1:])!r} ({least:.3f} s)")


if __name__ == "__main__":
    main()
