"""The tables of devices and of kernels' families -> texts for `pyprof help hardware`."""

from __future__ import annotations

from pyprof.hardware.devices import PRECISIONS, Gpu, load
from pyprof.hardware.kernels import rules


def gpus_text() -> str:
    """One line a device: architecture, multiprocessors, DRAM, L2, dense peaks in TFLOP/s; - is unknown or not there."""
    head = ["name", "arch", "SMs", "GB/s", "MiB", *(name.replace("_tensor", "t") for name in PRECISIONS), "sure"]
    lines = [head, *(_gpu(gpu) for gpu, _ in load())]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(" ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def _gpu(gpu: Gpu) -> list[str]:
    bandwidth = None if gpu.dram_bytes_per_s is None else gpu.dram_bytes_per_s / 1e9
    l2 = None if gpu.l2_bytes is None else gpu.l2_bytes / (1 << 20)
    rates = [None if (rate := gpu.peaks.get(name)) is None else rate / 1e12 for name in PRECISIONS]
    return [gpu.name, gpu.arch, *map(_short, (gpu.sms, bandwidth, l2, *rates)), gpu.confidence]


def _short(number: float | None) -> str:
    return "-" if number is None else f"{number:.4g}"


def families_text() -> str:
    """One line a family of kernels: kind, role, unit, Tensor Cores, and a name that the first of its rules matches."""
    lines, seen = [], set()
    for rule in rules():
        kernel = rule.kernel
        if kernel.family not in seen:
            seen.add(kernel.family)
            about = f"{kernel.family:28} {kernel.kind:10} {kernel.role:5} {kernel.unit:8} {kernel.tensor_core:5} {rule.example}"
            lines.append(about if len(about) <= 120 else about[:117] + "...")
    return "\n".join([f"{'family':28} {'kind':10} {'role':5} {'unit':8} {'TC':5} example", *lines])
