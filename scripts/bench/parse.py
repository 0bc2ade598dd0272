"""CPU seconds and peak memory of parse and prof on a capture, as whole processes, beside the least that SQLite needs.

    python scripts/bench/parse.py CAPTURE [--repeat 5] [--only NAME...] [--before CHECKOUT] [--json]

Memory is that of all processes of a command together (PSS). The floor is SQLite computing max() of every needed column of an
nsys export or an nvprof file, measured in the same run; of a torch.profiler trace it is reading the bytes (repeat_kineto.py
and repeat_nvprof.py make captures of any length). On a shared machine ratios to it mean more than seconds. Each figure is the
median of `repeat` processes. nsys's own projection report runs on the same file where nsys is on PATH, and with --original
the original PyProf. That one reads no op_id and no registered texts: where an export has the latter, it runs on a copy in
which they are written out.

--before runs the same commands of another checkout of pyprof in turn with this one's, run by run, and prints the ratio of the
medians: the machine's speed may drift, and both drift alike.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from processes import Run, measured

NSYS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "gridX", "gridY", "gridZ", "blockX", "blockY",
        "blockZ", "registersPerThread", "demangledName", "staticSharedMemory", "dynamicSharedMemory",
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId"),
    "NVTX_EVENTS": ("start", "end", "eventType", "globalTid", "domainId", "textId", "text"),
    "StringIds": ("id", "value"),
}  # fmt: skip
_CALL = ("start", "end", "processId", "threadId", "correlationId", "cbid")
_NVPROF_KERNEL = (
    "start", "end", "deviceId", "streamId", "correlationId", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
    "registersPerThread", "name", "staticSharedMemory", "dynamicSharedMemory",
)  # fmt: skip
NVPROF = {
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": _NVPROF_KERNEL,
    "CUPTI_ACTIVITY_KIND_KERNEL": _NVPROF_KERNEL,
    "CUPTI_ACTIVITY_KIND_RUNTIME": _CALL,
    "CUPTI_ACTIVITY_KIND_DRIVER": _CALL,
    "CUPTI_ACTIVITY_KIND_MARKER": ("flags", "timestamp", "id", "objectKind", "objectId", "name", "domain"),
    "StringTable": ("_id_", "value"),
}
MAGIC = b"SQLite format 3\x00"
HERE = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "pandas", "pyarrow", "msgspec", "sqlalchemy")


def read_floor(path: str) -> None:
    """Let SQLite read every needed column, and nothing else; of a trace read the bytes."""
    with open(path, "rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            while stream.read(1 << 20):
                pass
            return
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        of_nvprof = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'StringTable'").fetchone()[0]
        for table, columns in (NVPROF if of_nvprof else NSYS).items():
            present = {row[1] for row in db.execute(f'PRAGMA table_info("{table}")')}
            wanted = ", ".join(f'max("{column}")' for column in columns if column in present)
            if wanted:
                db.execute(f'SELECT {wanted} FROM "{table}"').fetchall()


PEERS = ("original PyProf parse", "nsys nvtx_gpu_proj_trace")
LEAST_LINES = 100


def measure(command: Sequence[str], output: Path, checkout: Path = HERE) -> Run:
    """Run a command with the pyprof of a checkout. SystemExit if it fails."""
    # With bytecode kept, as where a package is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(checkout)
    try:
        with output.open("wb") as stream:
            # In the checkout: Python looks for modules where it starts before it looks at PYTHONPATH.
            return measured(command, stream, checkout.resolve(), environment)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"failed with status {error.returncode}: {' '.join(command)}") from error


def commands(capture: str, folder: Path, original: str | None, checkout: Path = HERE) -> dict[str, list[str]]:
    """What is measured, in order: later ones read what earlier ones wrote. checkout: whose columns of prof."""
    python, table = sys.executable, str(folder / "table.parquet")
    parquet, text = str(folder / "net.parquet"), str(folder / "net.dict")
    columns = all_columns(checkout)
    own = [python, "-m", "pyprof"]
    found = {
        "floor": [python, str(Path(__file__).resolve()), capture, "--read-floor"],
        "parse to Parquet": [*own, "parse", capture, "-o", parquet, "--jobs", "1"],
        "parse to Parquet, two processes": [*own, "parse", capture, "-o", parquet, "--jobs", "2"],
        "parse to net.dict": [*own, "parse", capture, "-o", text, "--jobs", "1"],
        "prof of Parquet, all columns, CSV": [*own, "prof", parquet, "--csv", "-c", columns],
        "prof of Parquet, all columns, JSONL": [*own, "prof", parquet, "--format", "jsonl", "-c", columns],
        "prof of Parquet, all columns, Parquet": [*own, "prof", parquet, "-o", table, "-c", columns],
        "prof of Parquet, 4 columns": [*own, "prof", parquet, "-c", "idx,op,kernel,sil"],
        "prof of net.dict, all columns, CSV": [*own, "prof", text, "--csv", "-c", columns],
        "prof of the capture, all columns, CSV": [*own, "prof", capture, "--csv", "-c", columns],
    }
    if original is not None:
        # In its own folder, for `-m` looks in the current one first.
        place = os.path.abspath(original)
        path = os.pathsep.join((place, *tqdm_without_bar(folder)))
        copy = str(written_out(capture, folder))
        found[PEERS[0]] = ["/usr/bin/env", "-C", place, f"PYTHONPATH={path}", python, "-m", "pyprof.parse", copy]
    if (nsys := shutil.which("nsys")) is not None and capture.endswith((".sqlite", ".nsys-rep")):
        found[PEERS[1]] = [nsys, "stats", "--report", "nvtx_gpu_proj_trace", "--format", "csv", capture]
    return found


def tqdm_without_bar(folder: Path) -> list[str]:
    """A folder with what the original needs of tqdm, where that is not installed: the bar costs it nothing then."""
    if importlib.util.find_spec("tqdm") is not None:
        return []
    place = folder / "without_tqdm"
    place.mkdir()
    (place / "tqdm.py").write_text("def tqdm(rows, *args, **options):\n    return rows\n", encoding="utf-8")
    return [str(place)]


def written_out(capture: str, folder: Path) -> Path:
    """An nsys export with the texts of its registered strings in NVTX_EVENTS itself: the same file where none is missing."""
    if not capture.endswith((".sqlite", ".sql")):
        return Path(capture)
    missing = "FROM NVTX_EVENTS WHERE text IS NULL AND textId IS NOT NULL"
    with sqlite3.connect(f"file:{capture}?mode=ro", uri=True) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        if "NVTX_EVENTS" not in tables or db.execute(f"SELECT count(*) {missing}").fetchone() == (0,):
            return Path(capture)
    copy = folder / "written_out.sqlite"
    shutil.copy(capture, copy)
    copy.chmod(0o644)
    with sqlite3.connect(copy) as db:
        db.execute("UPDATE NVTX_EVENTS SET text = (SELECT value FROM StringIds WHERE id = textId) WHERE text IS NULL")
    return copy


def all_columns(checkout: Path) -> str:
    """Every column of prof, by comma."""
    code = "from pyprof.prof.columns import COLUMNS; print(','.join(column.key for column in COLUMNS))"
    env = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    asked = subprocess.run([sys.executable, "-c", code], env=env, cwd=checkout, capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def versions() -> dict[str, str]:
    """Of all that takes part."""
    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "machine": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="figures whose name contains one of these (the floor always)")
    parser.add_argument("--original", metavar="DIR", help="a checkout of the original PyProf, to run beside")
    parser.add_argument(
        "--before", metavar="CHECKOUT", type=Path, help="another version of pyprof to run in turn with this one"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--read-floor", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read_floor:
        read_floor(options.capture)
        return
    table = figures(options)
    if options.json:
        print(json.dumps({"figures": table, "versions": versions(), "repeat": options.repeat}, indent=1))
        return
    print(
        f"{'':40} {'CPU s':>8} {'peak MiB':>9} {'clock s':>8} {'to floor':>9}"
        + "  to before: CPU, its MiB" * bool(options.before)
    )
    for name, row in table.items():
        ratio = f"{row['to_before']:16.2f} {row['before_mib']:8.0f}" if "to_before" in row else ""
        print(f"{name:40} {row['cpu_s']:8.2f} {row['peak_mib']:9.0f} {row['clock_s']:8.2f} {row['to_floor']:9.1f}{ratio}")
    print(f"medians of {options.repeat}; " + ", ".join(f"{key} {value}" for key, value in versions().items()))


def figures(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The medians of each command's runs, by its name."""
    table: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as own, tempfile.TemporaryDirectory() as other:
        capture = os.path.abspath(options.capture)
        before = commands(capture, Path(other), None, options.before) if options.before else {}
        for name, command in commands(capture, Path(own), options.original).items():
            if name != "floor" and options.only and not any(part in name for part in options.only):
                continue
            output, runs, earlier = Path(own) / "out", [], []
            try:
                for _ in range(options.repeat):
                    runs.append(measure(command, output))
                    if options.before and name in before and name != "floor":
                        earlier.append(measure(before[name], Path(other) / "out", options.before.resolve()))
            except SystemExit as error:
                if name not in PEERS:
                    raise
                print(f"{name}: {error}", file=sys.stderr)
                continue
            if name in PEERS and output.read_bytes().count(b"\n") < LEAST_LINES:  # nsys ends well without its report
                print(f"{name}: it wrote nothing", file=sys.stderr)
                continue
            clock, cpu, memory = (statistics.median(run[i] for run in runs) for i in range(3))
            floor = table["floor"]["cpu_s"] if table else cpu
            table[name] = {"cpu_s": cpu, "peak_mib": memory, "clock_s": clock, "to_floor": cpu / floor}
            if earlier:
                table[name]["before_mib"] = statistics.median(run.peak_mib for run in earlier)
                table[name]["to_before"] = cpu / statistics.median(run.cpu_s for run in earlier)
    return table


if __name__ == "__main__":
    main()
