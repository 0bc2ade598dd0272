"""CPU seconds and memory of parse where ranges nest deeply and overlap, by number of rows.

    python scripts/bench/deep.py [--ranges 5000 10000 20000] [--depths 8 1000 0] [--to parquet|dict] [--repeat 3] [--json]
    python scripts/bench/deep.py --ranges 20000 --depths 0 --write OUT.sqlite                    the capture alone

Each capture is a generated nsys export: on each thread towers of nested ranges, DEPTH high (0: a single tower), with a kernel
launched at each level. Two thirds of the ranges are ops as emit_nvtx writes them, the others are user ranges, each with a text
of its own. One level of eight is a start/end range that ends after the ranges around it, and one is popped before the ranges
inside it, so that a quarter of all ranges cross others. Where time is proportional to rows, microseconds per row are the same
at any depth (and fall with the number of rows, since Python's start is included).
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from parse import measure

PID, TIDS = 7 << 24, (7 << 24 | 7, 7 << 24 | 8)
PUSHED, STARTED = 59, 60
SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, domainId INTEGER, text TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER,
  blockZ INTEGER, registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'void gemm<float, 128>(float const*, float*)');
"""


def text_of(number: int) -> str:
    """The text of a range."""
    if number % 3 == 0:
        return f"part {number}"
    return f"aten::mm, seq = {number}, op_id = {number}, sizes = [[64, {number % 50 + 1}], [{number % 50 + 1}, 32]]"


def rows_of(ranges: int, depth: int) -> tuple[list[tuple[Any, ...]], list[tuple[int, int]]]:
    """Ranges as (start, end, event type, thread, text), and launches as (time, thread)."""
    found: list[tuple[Any, ...]] = []
    launches: list[tuple[int, int]] = []
    now, towers = 0, 0
    while len(found) < ranges:
        height = min(depth or ranges, ranges - len(found))
        thread, length = TIDS[towers % 2], 200 * (height + 1)
        for level in range(height):
            start, end = now + 100 * level, now + length - 100 * level
            if level % 8 == 7:
                found.append((start, end + 37 * height, STARTED, thread, f"request {len(found)}"))
            elif level % 8 == 3:
                found.append((start, end - 150, PUSHED, thread, text_of(len(found))))
            else:
                found.append((start, end, PUSHED, thread, text_of(len(found))))
            launches.append((start + 50, thread))
        now, towers = now + 2 * length, towers + 1
    return found, launches


def write(path: Path, ranges: int, depth: int) -> int:
    """Write a capture; returns its number of rows."""
    found, launches = rows_of(ranges, depth)
    kernels = [(2000 * i, 2000 * i + 900, i) for i in range(len(launches))]
    with closing(sqlite3.connect(path)) as db:
        db.executescript(SCHEMA)
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, 0, ?)", found)
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 1)",
            [(time, time + 20, thread, i) for i, (time, thread) in enumerate(launches)],
        )
        db.executemany(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, {PID}, 2, 4, 4, 1, 128, 1, 1, 32, 0, 1024)", kernels
        )
        db.commit()
    return len(found) + len(launches) + len(kernels)


def measured(options: argparse.Namespace) -> list[dict[str, float]]:
    """A row for each capture."""
    table = []
    with tempfile.TemporaryDirectory() as folder:
        capture, output = Path(folder) / "deep.sqlite", Path(folder) / f"net.{options.to}"
        for depth in options.depths:
            for ranges in options.ranges:
                capture.unlink(missing_ok=True)
                rows = write(capture, ranges, depth)
                command = [sys.executable, "-m", "pyprof", "parse", str(capture), "-o", str(output)]
                runs = [measure(command, Path(os.devnull)) for _ in range(options.repeat)]
                _, cpu, memory = (statistics.median(run[i] for run in runs) for i in range(3))
                table.append({"depth": depth or ranges, "ranges": ranges, "rows": rows, "cpu_s": cpu, "peak_mib": memory,
                              "us_per_row": cpu / rows * 1e6, "output_mb": output.stat().st_size / 1e6})  # fmt: skip
    return table


def main() -> None:
    """Generate, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranges", type=int, nargs="+", default=[5000, 10000, 20000])
    parser.add_argument("--depths", type=int, nargs="+", default=[8, 1000, 0], help="0: all ranges in one tower")
    parser.add_argument("--to", choices=("parquet", "dict"), default="parquet")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, metavar="OUT", help="write the first of the captures there and measure nothing")
    options = parser.parse_args()
    if options.write:
        options.write.unlink(missing_ok=True)
        print(f"{options.write}: {write(options.write, options.ranges[0], options.depths[0])} rows")
        return
    table = measured(options)
    if options.json:
        print(json.dumps({"rows": table, "repeat": options.repeat}, indent=1))
        return
    print(f"{'depth':>7} {'ranges':>7} {'rows':>7} {'CPU s':>7} {'MiB':>6} {'us a row':>9} {'output MB':>10}")
    for row in table:
        print("{depth:7} {ranges:7} {rows:7} {cpu_s:7.2f} {peak_mib:6.0f} {us_per_row:9.0f} {output_mb:10.1f}".format(**row))


if __name__ == "__main__":
    main()
