"""CPU seconds and peak memory of `pyprof ranks`, as a whole process, on generated data sets of many ranks.

    python scripts/bench/ranks.py [--ranks 64 256 1024] [--kernels 20000] [--repeat 3] [--json]

Each rank's records are written by pyprof's own Parquet writer, with clocks that differ by up to a second and one rank that is
slow in one layer; the script fails unless the report finds both. The data sets are deleted at the end. Expected: memory that
does not grow with the number of ranks, and time in proportion to it. The floor is pyarrow reading the same columns of the same
files.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "bench")]

from parse import Run, measure  # noqa: E402

from tests.rank_records import Job, write_rank  # noqa: E402

STEPS, LAYERS = 10, 40
NEEDED = [
    "kind",
    "start_ns",
    "dur_ns",
    "rank",
    "pid",
    "device",
    "stream",
    "name",
    "step",
    "phase",
    "scope",
    "call",
    "inner",
    "own",
]


def job_of(ranks: int, kernels: int) -> Job:
    """The contents of a data set of this size."""
    rng = np.random.default_rng(ranks)
    return Job(
        ranks,
        STEPS,
        LAYERS,
        max(kernels // (STEPS * LAYERS) - 1, 1),
        offsets=tuple(rng.integers(-(10**9), 10**9, ranks).tolist()),
        straggler=(ranks // 3, 17, 400),
        jitter=200,
        utc_ns=1_700_000_000_000_000_000,
    )


def generate(folder: Path, job: Job) -> None:
    """A data set, a rank at a time."""
    for rank in range(job.ranks):
        write_rank(folder, rank, job.records(rank))


def read_floor(folder: str) -> None:
    """Read the needed columns of every file, and nothing else."""
    import pyarrow.parquet

    for path in sorted(Path(folder).glob("rank=*/*.parquet")):
        pyarrow.parquet.ParquetFile(path).read(NEEDED)


def check(folder: Path, job: Job) -> None:
    """Compare clocks and straggler with the generated ones. Raises SystemExit where they differ."""

    def table(name: str) -> list[dict[str, str]]:
        command = [sys.executable, "-m", "pyprof", "ranks", str(folder), "--csv", "--table", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return list(csv.DictReader(io.StringIO(done.stdout)))

    offsets = np.array([float(row["Offset(us)"]) for row in table("clocks")])
    truth = (np.array(job.offsets) - np.median(job.offsets)) / 1e3
    if np.abs(offsets - np.median(offsets) - truth).max() > 0.002:
        raise SystemExit("the clocks are not those of the data set")
    first = table("stragglers")[0]
    assert job.straggler is not None
    if (first["Rank"], first["Layer"]) != (str(job.straggler[0]), f"layers.{job.straggler[1]}"):
        raise SystemExit(f"the slow rank and layer are {job.straggler[:2]}, and {first} was found")


def main() -> int:
    """Generate, measure, print. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--read-floor", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--generate", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ranks", nargs="+", type=int, default=[64, 256, 1024])
    parser.add_argument("--kernels", type=int, default=20_000, help="kernels of each rank (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    if options.read_floor:
        read_floor(options.folder)
        return 0
    if options.generate:
        generate(Path(options.folder), job_of(options.ranks[0], options.kernels))
        return 0
    rows = []
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as temporary:
            folder = Path(temporary) / "set"
            job = job_of(ranks, options.kernels)
            script = [sys.executable, str(Path(__file__).resolve()), str(folder)]
            size_of = ["--ranks", str(ranks), "--kernels", str(options.kernels)]
            spent = measure([*script, "--generate", *size_of], Path(temporary) / "out").wall_s
            size = sum(path.stat().st_size for path in folder.rglob("*.parquet")) / 1e6
            own = [sys.executable, "-m", "pyprof", "ranks", str(folder)]
            floor = [*script, "--read-floor"]
            runs: dict[str, list[Run]] = {"floor": [], "ranks": []}
            for _ in range(options.repeat):
                runs["floor"].append(measure(floor, Path(temporary) / "out"))
                runs["ranks"].append(measure(own, Path(temporary) / "out"))
            check(folder, job)
        wall, cpu, memory = (statistics.median(run[i] for run in runs["ranks"]) for i in range(3))
        least = statistics.median(run.cpu_s for run in runs["floor"])
        rows.append({"ranks": ranks, "MB": round(size, 1), "generated in s": round(spent, 1), "cpu_s": round(cpu, 2),
                     "ms a rank": round(1e3 * cpu / ranks, 1), "wall_s": round(wall, 2), "peak_mib": round(memory),
                     "floor_s": round(least, 2), "to floor": round(cpu / least, 1)})  # fmt: skip
        print(rows[-1], file=sys.stderr)
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "pyarrow")} | {"python": platform.python_version()}
    load = f"load {os.getloadavg()[0]:.1f}, medians of {options.repeat}, {options.kernels} kernels a rank"
    if options.json:
        print(json.dumps({"rows": rows, "versions": versions, "run": load}))
        return 0
    print(f"{load}; {', '.join(f'{name} {version}' for name, version in versions.items())}")
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
