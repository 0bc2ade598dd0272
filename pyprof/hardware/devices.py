"""gpus.csv -> the devices that are known: multiprocessors, clocks, bandwidth, caches, peaks by precision and unit.

gpus.csv holds one device a row; every rate in it is dense (no structured sparsity) in TFLOP/s. A row without rates has those
that follow from its multiprocessors, the operations a clock of its architecture (architectures.csv) and its clock, and its
source says so; half_rate names the precisions that its makers halved. match: what its name may be, without maker and brand, as
a regular expression; several devices may have one name and differ in multiprocessors or memory. bus_bits x pin_gbps (data rate
of one pin) is the bandwidth, where both are known.
Must not know names of kernels, file formats, or what a capture says of a device; `gpus` does.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pyprof.hardware.names import may_match
from pyprof.hardware.occupancy import SmLimits, architectures, limits

Capability = tuple[int, int]

# Columns of gpus.csv that hold peaks. fp64 and fp32: CUDA cores (vector units); the others: Tensor Cores (matrix cores).
PRECISIONS = ("fp64", "fp64_tensor", "fp32", "fp32_tensor", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
_MATRIX_UNITS = frozenset({"hmma", "wgmma", "tcgen05", "imma", "dmma", "qmma", "omma", "mma", "mfma"})


class Gpu(NamedTuple):
    """One device.

    arch: compute capability as text, or AMD's gfx name; sms: multiprocessors; boost_hz, tensor_hz: the clocks behind the peaks
    of CUDA and Tensor Cores; peaks: FLOP/s, dense, by precision (see PRECISIONS); l2_bytes_per_s: of the whole cache, read,
    where the maker says so (whitepapers of A100, which has V100's too, and of CDNA 3); memory_gb: the sizes of memory that it
    is sold with; halved: precisions at half of its architecture's rate. Unknown is None, in peaks absent.
    """

    name: str
    arch: str
    sms: int | None
    boost_hz: float | None
    tensor_hz: float | None
    dram_bytes_per_s: float | None
    l2_bytes: int | None
    peaks: Mapping[str, float] = MappingProxyType({})
    confidence: str = ""
    source: str = ""
    note: str = ""
    l2_bytes_per_s: float | None = None
    memory_gb: tuple[float, ...] = ()
    halved: tuple[str, ...] = ()

    @property
    def cc(self) -> Capability | None:
        """Compute capability; None if the device has none (AMD)."""
        match = re.fullmatch(r"(\d+)\.(\d+)", self.arch)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def capability(self) -> Capability | None:
        """Compute capability as torch records it, also for AMD's devices: 9.4 for a gfx942."""
        match = re.fullmatch(r"gfx(\d+)(\d)[0-9a-fx]", self.arch)
        return (int(match[1]), int(match[2])) if match else self.cc

    @property
    def amd(self) -> bool:
        """Whether it is a device of AMD, whose compute capability means nothing to NVIDIA's."""
        return self.arch.startswith("gfx")

    @property
    def limits(self) -> SmLimits | None:
        """The resources of one multiprocessor; None if unknown."""
        return limits(self.cc)

    def peak(self, math: str, unit: str) -> float | None:
        """The dense peak in FLOP/s for arithmetic in a precision on a unit (named as in `kernels`); None if unknown."""
        if unit in _MATRIX_UNITS:
            if math == "tf32x3":
                tf32 = self.peaks.get("tf32")
                return None if tf32 is None else tf32 / 3
            return self.peaks.get(f"{math}_tensor", None if math == "fp64" else self.peaks.get(math))
        if unit == "hfma2":
            ops = architectures().get(self.arch, {}).get("half_vector")
            return None if ops is None or not self.sms or not self.boost_hz else ops * self.sms * self.boost_hz
        # CUDA cores widen half types to fp32 when they load them.
        return self.peaks.get("fp64" if math == "fp64" else "fp32")

    def with_measured(
        self,
        *,
        sms: int | None = None,
        clock_hz: float | None = None,
        dram_bytes_per_s: float | None = None,
        l2_bytes: int | None = None,
    ) -> Gpu:
        """This device with the numbers that a capture recorded. Another SM count scales the peaks.

        A recorded clock is the highest that the device may reach, not the one that the published peaks rest on, so it is used
        only where the table has none.
        """
        gpu = self
        if sms and self.sms and sms != self.sms:
            ratio = sms / self.sms
            gpu = gpu._replace(peaks={key: rate * ratio for key, rate in self.peaks.items()})
        if not gpu.peaks and sms and clock_hz:
            gpu = gpu._replace(peaks=peaks_from_clock(self.arch, sms, clock_hz, self.halved))
        return gpu._replace(
            sms=sms or gpu.sms,
            boost_hz=gpu.boost_hz or clock_hz,
            dram_bytes_per_s=dram_bytes_per_s or gpu.dram_bytes_per_s,
            l2_bytes=l2_bytes or gpu.l2_bytes,
        )


def ops_per_clock(arch: str) -> dict[str, int]:
    """Dense floating-point operations a clock and multiprocessor by precision, 2 for a fused multiply-add; empty if unknown.

    Sources: the architecture whitepapers and the throughput table of the CUDA programming guide. GeForce parts accumulate half
    types in fp32 at half of these rates.
    """
    row = architectures().get(arch, {})
    return {precision: row[precision] for precision in PRECISIONS if precision in row}


def peaks_from_clock(arch: str, sms: int, clock_hz: float, halved: Collection[str] = ()) -> dict[str, float]:
    """Peaks: multiprocessors times operations a clock times clock, some at half of that."""
    return {key: float(ops) * sms * clock_hz / (2 if key in halved else 1) for key, ops in ops_per_clock(arch).items()}


def _number(text: str, scale: float) -> float | None:
    return float(text) * scale if text else None


@lru_cache(maxsize=1)
def load() -> tuple[tuple[Gpu, str], ...]:
    """The rows of gpus.csv, each with the regex of its names."""
    text = Path(__file__).with_name("gpus.csv").read_text(encoding="utf-8")
    return tuple((_row(row), row["match"]) for row in csv.DictReader(text.splitlines()))


def is_named(names: str, name: str) -> bool:
    """Whether tools give this name to a device; names: the regex of the names that it may have."""
    if not may_match(names, name):
        return False
    whole = rf"(?:NVIDIA |AMD )?(?:GeForce |Tesla |(?:Radeon )?Instinct )?(?:{names})(?: MIG .+|(?:[ _]OAM)?(?: [VH]F)*)"
    return re.fullmatch(whole, name) is not None


def _row(row: dict[str, str]) -> Gpu:
    l2, l2_rate = _number(row["l2_mib"], 1 << 20), _number(row["l2_bytes_per_clock"], 1e6 * float(row["boost_mhz"] or 0))
    gpu = Gpu(
        name=row["name"],
        arch=row["cc"],
        sms=int(row["sms"]) if row["sms"] else None,
        boost_hz=_number(row["boost_mhz"], 1e6),
        tensor_hz=_number(row["tensor_mhz"], 1e6),
        dram_bytes_per_s=_number(row["dram_gbs"], 1e9),
        l2_bytes=None if l2 is None else int(l2),
        peaks={p: float(row[p]) * 1e12 for p in PRECISIONS if row[p]},
        confidence=row["confidence"],
        source=row["source"],
        note=row["note"],
        l2_bytes_per_s=l2_rate,
        memory_gb=tuple(map(float, row["memory_gb"].split("/"))),
        halved=tuple(row["half_rate"].split()),
    )
    return gpu if gpu.peaks else gpu.with_measured(sms=gpu.sms, clock_hz=gpu.boost_hz)


def gpus_text() -> str:
    """For `pyprof help hardware`, a line for each device: architecture, SMs, DRAM, L2, dense peaks in TFLOP/s; - is unknown."""
    lines = [["name", "arch", "SMs", "GB/s", "MiB", *(name.replace("_tensor", "t") for name in PRECISIONS), "sure"]]
    for gpu, _ in load():
        numbers = [(gpu.sms, 1), (gpu.dram_bytes_per_s, 1e9), (gpu.l2_bytes, 1 << 20)]
        numbers += [(gpu.peaks.get(name), 1e12) for name in PRECISIONS]
        cells = ["-" if number is None else f"{number / unit:.4g}" for number, unit in numbers]
        lines.append([gpu.name, gpu.arch, *cells, gpu.confidence])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(" ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
