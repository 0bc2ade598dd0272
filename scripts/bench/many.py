"""How much faster many captures become a data set in several processes than one after another.

    python scripts/bench/many.py FILE... [--jobs 2] [--repeat 5] [--json]

FILE are captures, folders or patterns, as `pyprof parse` takes them. Runs come in pairs, one after another (--jobs 1) and
several at once, whose order changes from pair to pair: on a machine that others use too, the ratio within a pair is what tells.
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


def main() -> int:
    """Measure, print. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    pairs = []
    with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as temporary:
        for number in range(options.repeat):
            runs = {}
            for jobs in (1, options.jobs) if number % 2 == 0 else (options.jobs, 1):
                out = str(Path(temporary) / f"{number}-{jobs}")
                command = [sys.executable, "-m", "pyprof", "parse", *options.files, "-o", out, "--jobs", str(jobs)]
                runs[jobs] = measure(command, Path(temporary) / "out")
            pairs.append({"one by one s": round(runs[1][2], 2), "at once s": round(runs[options.jobs][2], 2),
                          "ratio": round(runs[1][2] / runs[options.jobs][2], 2), "cpu one by one s": round(runs[1][0], 2),
                          "cpu at once s": round(runs[options.jobs][0], 2), "load": round(os.getloadavg()[0], 1)})  # fmt: skip
            print(pairs[-1], file=sys.stderr)
    median = statistics.median(pair["ratio"] for pair in pairs)
    if options.json:
        print(json.dumps({"pairs": pairs, "median ratio": median, "jobs": options.jobs, "cpus": os.cpu_count()}))
        return 0
    print(f"{options.jobs} jobs on {os.cpu_count()} CPUs: {median:.2f} times as fast as one by one (median of {len(pairs)})")
    print("| " + " | ".join(pairs[0]) + " |\n|" + "---|" * len(pairs[0]))
    for pair in pairs:
        print("| " + " | ".join(str(value) for value in pair.values()) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
