"""How much faster many captures become a data set in several processes than one after another.

    python scripts/bench/many.py FILE... [--jobs 2] [--repeat 5] [--json]

FILE are captures, folders or patterns, as for `pyprof parse`. Runs come in pairs, one file after another (--jobs 1) and several
at once, in alternating order. On a shared machine only those pairs count during which other processes used little CPU time,
which is read from Linux's /proc/stat.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from parse import measure

_QUIET = 0.15  # CPUs that others may take of a machine on which something is measured


def busy_s() -> float:
    """CPU seconds that the whole machine has worked since it started."""
    user, nice, system, _, _, irq, soft, *_ = (
        int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure, print. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    pairs: list[dict[str, float | str]] = []
    quiet: list[bool] = []
    with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as temporary:
        for number in range(options.repeat):
            runs = {}
            for jobs in (1, options.jobs) if number % 2 == 0 else (options.jobs, 1):
                out = str(Path(temporary) / f"{number}-{jobs}")
                command = [sys.executable, "-m", "pyprof", "parse", *options.files, "-o", out, "--jobs", str(jobs)]
                before = busy_s()
                wall, cpu, _ = measure(command, Path(temporary) / "out")
                runs[jobs] = (wall, cpu, max(busy_s() - before - cpu, 0.0) / wall)
            one, many = runs[1], runs[options.jobs]
            pairs.append({"one by one s": round(one[0], 2), "at once s": round(many[0], 2), "ratio": round(one[0] / many[0], 2),
                          "cpu one by one s": round(one[1], 2), "cpu at once s": round(many[1], 2),
                          "CPUs of others": f"{one[2]:.2f}, {many[2]:.2f}"})  # fmt: skip
            quiet.append(max(one[2], many[2]) < _QUIET)
            print(pairs[-1], file=sys.stderr)
    ratios = [float(pair["ratio"]) for pair, alone in zip(pairs, quiet, strict=True) if alone]
    median = statistics.median(ratios) if ratios else None
    if options.json:
        print(json.dumps({"pairs": pairs, "median ratio": median, "jobs": options.jobs, "cpus": os.cpu_count()}))
        return 0
    result = "not measured: others were busy in every pair" if median is None else f"{median:.2f} times as fast as one by one"
    print(f"{options.jobs} jobs on {os.cpu_count()} CPUs: {result} (median of the {len(ratios)} quiet pairs of {len(pairs)})")
    print("| " + " | ".join(pairs[0]) + " |\n|" + "---|" * len(pairs[0]))
    for pair in pairs:
        print("| " + " | ".join(str(value) for value in pair.values()) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
