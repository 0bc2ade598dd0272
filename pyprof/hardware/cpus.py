"""The peak rates of this machine's CPU <-> a JSON file in the user's cache, which `pyprof doctor --calibrate` writes.

{"name": CPU, "threads": N, "tflops": {"fp32": ..., "bf16": ...}, "dram_gbs": ...}. Must not know how they are measured.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
from pathlib import Path
from typing import NamedTuple


class CpuPeak(NamedTuple):
    """name: the CPU; threads: number of threads that were used; tflops: 10^12 FLOP/s of a large matrix product by dtype tag
    (`fp32`, `bf16`); dram_gbs: 10^9 bytes/s of a triad in memory, each array counted once."""

    name: str
    threads: int
    tflops: dict[str, float]
    dram_gbs: float


def cache_path() -> Path:
    """The path of the file: `cpu.json` in pyprof's folder of the user's cache (as XDG says, a relative path is ignored)."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
    return base / "pyprof" / "cpu.json"


def cpu_name(root: str = "/proc/cpuinfo") -> str:
    """The model name of the CPU, else its architecture."""
    with contextlib.suppress(OSError):
        for line in Path(root).read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def peak() -> CpuPeak | None:
    """The rates measured on this CPU; None if there are none, or for another CPU, or if the file is damaged."""
    try:
        found = json.loads(cache_path().read_text(encoding="utf-8"))
        tflops = {str(tag): float(rate) for tag, rate in found["tflops"].items()}
        stored = CpuPeak(str(found["name"]), int(found.get("threads", 0)), tflops, float(found["dram_gbs"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    rates = [*stored.tflops.values(), stored.dram_gbs]
    return stored if stored.name == cpu_name() and all(math.isfinite(rate) and rate > 0 for rate in rates) else None


def save(measured: CpuPeak) -> Path:
    """Write the file, whole or not at all; returns its path. Raises OSError if it cannot be written."""
    path = cache_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(measured._asdict(), indent=1) + "\n", encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path
