"""What the answer costs: CPU seconds of `pyprof summary` over those of `pyprof prof --csv` of the same files, measured in turn.

    python scripts/bench/summary.py CAPTURE... [--repeat 7]

The minimum of several runs of each, and the peak memory of the summary.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]


def measured(command: list[str]) -> tuple[float, float]:
    """CPU seconds and peak MiB of one run of a command of pyprof, whose output is thrown away."""
    # With bytecode kept, as where a package is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(HERE)
    full = [sys.executable, "-m", "pyprof", *command]
    child = subprocess.Popen(full, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=HERE)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"failed: pyprof {' '.join(command)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", nargs="+", type=os.path.abspath)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    for capture in options.capture:
        runs = [(measured(["summary", capture]), measured(["prof", "--csv", capture])) for _ in range(options.repeat)]
        ours, other = (min(run[i][0] for run in runs) for i in range(2))
        peak = max(run[0][1] for run in runs)
        name = Path(capture).name
        print(f"{name:45} {ours:6.3f} s, {ours / other:4.2f} times prof --csv ({other:.3f} s); peak {peak:4.0f} MiB")


if __name__ == "__main__":
    main()
