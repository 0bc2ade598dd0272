"""What this machine's CPU reaches, as `pyprof doctor --calibrate` measured it and keeps it in the user's cache.

A small JSON file: {"name": CPU, "threads": N, "tflops": {"fp32": ..., "bf16": ...}, "dram_gbs": ...}. No torch here.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["CpuPeak", "cache_path", "cpu_name", "peak", "save"]


@dataclass(frozen=True)
class CpuPeak:
    """name: the CPU; threads: how many worked; tflops: 10^12 FLOP/s of a large matrix product by dtype tag (`fp32`, `bf16`);
    dram_gbs: 10^9 bytes/s of a triad in memory, each array counted once."""

    name: str
    threads: int
    tflops: dict[str, float]
    dram_gbs: float


def cache_path() -> Path:
    """Where it is kept: `cpu.json` in pyprof's folder of the user's cache (XDG: a relative path is ignored)."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
    return base / "pyprof" / "cpu.json"


def cpu_name(root: str = "/proc/cpuinfo") -> str:
    """The CPU's own name, else its architecture."""
    with contextlib.suppress(OSError):
        for line in Path(root).read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def peak() -> CpuPeak | None:
    """What was measured on this CPU; None where nothing was, or on another CPU, or the file is damaged."""
    try:
        found: dict[str, Any] = json.loads(cache_path().read_text(encoding="utf-8"))
        tflops = {str(tag): float(rate) for tag, rate in found["tflops"].items()}
        kept = CpuPeak(str(found["name"]), int(found.get("threads", 0)), tflops, float(found["dram_gbs"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    rates = [*kept.tflops.values(), kept.dram_gbs]
    return kept if kept.name == cpu_name() and all(math.isfinite(rate) and rate > 0 for rate in rates) else None


def save(measured: CpuPeak) -> Path:
    """Keep it, whole or not at all; returns where. Raises OSError where that cannot be written."""
    path = cache_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(asdict(measured), indent=1) + "\n", encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path
