"""CPU seconds and memory of pyprof and of its peers on the same captures, in turn in one run.

    python scripts/bench/peers.py --nsys EXPORT.sqlite --kineto TRACE.json.gz --python PYTHON --original DIR [--repeat 3]

Of an nsys export: parse to Parquet and `summary`, NVIDIA's `nsys stats` (the report that projects NVTX ranges onto the GPU,
where nsys is on PATH) and the original PyProf's parse (--original: a checkout; it reads no op_id: generate the export with
--emit old). Of a torch.profiler trace: parse to Parquet and `summary`, TraceLens's report and HTA's temporal breakdown and
kernel breakdown (--python: the Python of an environment that has both). They do different things: each is the command that
comes nearest to where the time of a capture goes. Memory is that of all processes of a command together (PSS).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from parse import PEERS, commands
from processes import Run, measured

HERE = Path(__file__).resolve().parents[2]
_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
analysis.get_temporal_breakdown(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
"""
_VERSIONS = """
import importlib.metadata as metadata
for name in ("TraceLens", "hta"):
    for package in metadata.packages_distributions().get(name, ()):
        print(package, metadata.version(package))
"""


def of_nsys(capture: str, folder: Path, original: str | None) -> dict[str, list[str]]:
    """The commands that read an nsys export, by name."""
    found = commands(capture, folder, original)
    names = ("parse to Parquet", *(peer for peer in PEERS if peer in found))
    return {name: found[name] for name in names} | {"summary": [sys.executable, "-m", "pyprof", "summary", capture]}


def of_kineto(trace: str, folder: Path, python: str | None) -> dict[str, list[str]]:
    """The commands that read a torch.profiler trace, by name."""
    own = [sys.executable, "-m", "pyprof"]
    found = {
        "parse to Parquet": [*own, "parse", trace, "-o", str(folder / "net.parquet"), "--jobs", "1"],
        "summary": [*own, "summary", trace],
    }
    if python is not None:
        report = ["-m", "TraceLens.Reporting.generate_perf_report_pytorch", "--profile_json_path", trace]
        found["TraceLens report"] = [python, *report, "--output_csvs_dir", str(folder / "csv")]
        found["HTA breakdowns"] = [python, "-c", _HTA, trace]
    return found


def medians(name: str, capture: str, found: dict[str, list[str]], repeat: int) -> None:
    """Run the commands in turn and print a line each; the ratio is to parse."""
    runs: dict[str, list[Run]] = {key: [] for key in found}
    environment = {**os.environ, "PYTHONPATH": str(HERE), "MPLBACKEND": "agg"}
    for key, command in list(found.items()) * repeat:
        with open(os.devnull, "wb") as nowhere:
            try:
                foreign = key in PEERS or key.startswith(("TraceLens", "HTA"))
                runs[key].append(measured(command, nowhere, None if foreign else HERE, None if foreign else environment))
            except subprocess.CalledProcessError as error:
                print(f"{key}: failed with status {error.returncode}", file=sys.stderr)
    print(f"\n{name}: {Path(capture).name}, {os.path.getsize(capture) / 1e6:.0f} MB; medians of {repeat}")
    least = statistics.median(run.cpu_s for run in runs["parse to Parquet"])
    for key, own in runs.items():
        if own:
            wall, cpu, memory = (statistics.median(run[i] for run in own) for i in range(3))
            print(f"{key:28} {cpu:8.2f} CPU s {wall:8.2f} s {memory:8.0f} MiB {cpu / least:7.1f} x parse")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nsys", metavar="EXPORT", nargs="*", type=os.path.abspath, default=[])
    parser.add_argument("--kineto", metavar="TRACE", nargs="*", type=os.path.abspath, default=[])
    parser.add_argument("--python", type=os.path.abspath)
    parser.add_argument("--original", metavar="DIR")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for capture in options.nsys:
            medians("nsys", capture, of_nsys(capture, Path(folder), options.original), options.repeat)
        for trace in options.kineto:
            medians("torch.profiler", trace, of_kineto(trace, Path(folder), options.python), options.repeat)
    for command in ([options.python, "-c", _VERSIONS], [shutil.which("nsys"), "--version"]):
        if command[0]:
            print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


if __name__ == "__main__":
    main()
