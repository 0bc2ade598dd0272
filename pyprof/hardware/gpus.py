"""What a GPU can do at most: multiprocessors, clocks, bandwidth, caches, and its peak rate by precision and unit.

gpus.csv holds one device a row; every rate in it is dense (no structured sparsity) in TFLOP/s. A device is found by the name
that the tools print, else described from its compute capability. Numbers that a capture brings itself win over the table.
Knows nothing of kernels' names and formats.
"""

from __future__ import annotations

import csv
import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyprof.errors import InputError
from pyprof.hardware.occupancy import SmLimits, limits

__all__ = ["OPS_PER_CLOCK", "PRECISIONS", "Gpu", "find", "from_file", "load", "named"]

# Columns of gpus.csv that hold peaks. fp64 and fp32: CUDA cores; the others: Tensor Cores.
PRECISIONS = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
_MATRIX_UNITS = frozenset({"hmma", "wgmma", "tcgen05", "imma", "dmma", "qmma", "omma", "mma", "mfma"})

# Dense floating-point operations a clock and multiprocessor, 2 for a fused multiply-add. Sources: the architecture whitepapers
# and the throughput table of the CUDA programming guide. GeForce parts accumulate half types in fp32 at half of the rate given
# here.
OPS_PER_CLOCK: dict[str, dict[str, int]] = {
    "5.0": {"fp64": 8, "fp32": 256},
    "5.2": {"fp64": 8, "fp32": 256},
    "6.0": {"fp64": 64, "fp32": 128},
    "6.1": {"fp64": 8, "fp32": 256},
    "7.0": {"fp64": 64, "fp32": 128, "fp16": 1024},
    "7.5": {"fp64": 4, "fp32": 128, "fp16": 1024, "int8": 2048},
    "8.0": {"fp64": 64, "fp64_tensor": 128, "fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    "8.6": {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    "8.9": {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    "9.0": {"fp64": 128, "fp64_tensor": 256, "fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    "10.0": {
        "fp64": 128, "fp64_tensor": 128, "fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp4": 32768,
        "int8": 16384,
    },
    "10.3": {
        "fp64": 4, "fp64_tensor": 4, "fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp4": 49152,
        "int8": 512,
    },
    "12.0": {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "fp4": 4096, "int8": 2048},
    "gfx90a": {"fp64": 128, "fp64_tensor": 256, "fp32": 128, "fp16": 1024, "bf16": 1024, "int8": 1024},
    "gfx942": {
        "fp64": 128, "fp64_tensor": 256, "fp32": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "int8": 4096,
    },
    "gfx950": {
        "fp64": 128, "fp64_tensor": 128, "fp32": 256, "fp16": 4096, "bf16": 4096, "fp8": 8192, "fp4": 16384, "int8": 8192,
    },
}  # fmt: skip

# Half-precision arithmetic on CUDA cores, operations a clock and multiprocessor (the guide's results a clock, times 2).
_HALF_VECTOR = {"6.0": 256, "7.0": 256, "7.5": 256, "8.0": 512, "8.6": 256, "8.9": 256, "9.0": 512, "10.0": 512, "12.0": 256}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device.

    arch: compute capability as text, or AMD's gfx name; cc: the former as numbers, None for AMD. Rates are FLOP/s, dense, by
    precision (see PRECISIONS). limits: what one multiprocessor holds, None where not known. Anything unknown is None or absent.
    """

    name: str
    arch: str
    sms: int | None
    boost_hz: float | None
    tensor_hz: float | None
    dram_bytes_per_s: float | None
    l2_bytes: int | None
    peaks: Mapping[str, float] = field(default_factory=dict)
    confidence: str = ""
    source: str = ""
    note: str = ""

    @property
    def cc(self) -> tuple[int, int] | None:
        """Compute capability, None where the device has none."""
        match = re.fullmatch(r"(\d+)\.(\d+)", self.arch)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def limits(self) -> SmLimits | None:
        """What one multiprocessor holds."""
        return limits(self.cc)

    def peak(self, math: str, unit: str) -> float | None:
        """FLOP/s at most, dense, for arithmetic in a precision on a unit, named as in `kernels`; None where not known."""
        if unit in _MATRIX_UNITS:
            if math == "tf32x3":
                tf32 = self.peaks.get("tf32")
                return None if tf32 is None else tf32 / 3
            return self.peaks.get("fp64_tensor" if math == "fp64" else math)
        if unit == "hfma2":
            return self._half_vector()
        # Half types on CUDA cores are widened to fp32 on the way in.
        return self.peaks.get("fp64" if math == "fp64" else "fp32")

    def _half_vector(self) -> float | None:
        ops = _HALF_VECTOR.get(self.arch)
        return None if ops is None or not self.sms or not self.boost_hz else ops * self.sms * self.boost_hz

    def with_measured(
        self,
        *,
        sms: int | None = None,
        clock_hz: float | None = None,
        dram_bytes_per_s: float | None = None,
        l2_bytes: int | None = None,
    ) -> Gpu:
        """The same device with the numbers that a capture recorded; another SM count scales the peaks, a clock does not.

        A recorded clock is the one the device may reach, not the one that the published peaks rest on, so it only fills a gap.
        """
        gpu = self
        if sms and self.sms and sms != self.sms:
            ratio = sms / self.sms
            gpu = replace(gpu, peaks={key: rate * ratio for key, rate in self.peaks.items()})
        if not gpu.peaks and sms and clock_hz:
            gpu = replace(gpu, peaks=_from_clock(self.arch, sms, clock_hz))
        return replace(
            gpu,
            sms=sms or gpu.sms,
            boost_hz=gpu.boost_hz or clock_hz,
            dram_bytes_per_s=dram_bytes_per_s or gpu.dram_bytes_per_s,
            l2_bytes=l2_bytes or gpu.l2_bytes,
        )


def _from_clock(arch: str, sms: int, clock_hz: float) -> dict[str, float]:
    """Peaks as SMs times operations a clock times clock."""
    return {precision: float(ops) * sms * clock_hz for precision, ops in OPS_PER_CLOCK.get(arch, {}).items()}


# ------------------------------------------------------------------------------------------- the table


def _number(text: str, scale: float) -> float | None:
    return float(text) * scale if text else None


@lru_cache(maxsize=1)
def load() -> tuple[tuple[Gpu, tuple[re.Pattern[str], ...]], ...]:
    """The rows of gpus.csv, each with the patterns of the names it goes by."""
    text = files("pyprof.hardware").joinpath("gpus.csv").read_text(encoding="utf-8")
    return tuple(
        (_row(row), tuple(re.compile(p) for p in row["match"].split("|"))) for row in csv.DictReader(text.splitlines())
    )


def _row(row: dict[str, str]) -> Gpu:
    l2 = _number(row["l2_mib"], 1 << 20)
    return Gpu(
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
    )


def _lookup(name: str) -> Gpu | None:
    """The row whose pattern matches the longest part of the name: `GB300` is not a `B300`, nor `L40S` an `L40`."""
    best, length = None, 0
    for gpu, patterns in load():
        for pattern in patterns:
            match = pattern.search(name)
            if match and len(match[0]) > length:
                best, length = gpu, len(match[0])
    return best


def find(
    name: str, cc: tuple[int, int] | None = None, sms: int | None = None, clock_hz: float | None = None
) -> tuple[Gpu, list[str]]:
    """The device that a tool calls `name`, and notes (one line each) on what is guessed.

    cc, sms, clock_hz: what the capture says of it, None unknown. A name not in the table is described by its compute
    capability: peaks are SMs times operations a clock times clock where all three are known, else absent.
    """
    found = _lookup(name)
    if found is not None and (cc is None or found.cc == cc):
        return _adapt(found, name, sms)
    notes = []
    if found is not None:
        notes.append(
            f"{name}: the table's {found.name} has compute capability {found.arch}, this device {cc[0]}.{cc[1]}" if cc else ""
        )
    return _by_capability(name, cc, sms, clock_hz, notes)


def _adapt(gpu: Gpu, name: str, sms: int | None) -> tuple[Gpu, list[str]]:
    """A device of the table as the capture has it: a MIG slice or a variant has fewer multiprocessors."""
    notes = []
    if sms and gpu.sms and sms != gpu.sms:
        notes.append(f"{name} has {sms} multiprocessors, {gpu.name} has {gpu.sms}: peak rates scaled by that")
        gpu = gpu.with_measured(sms=sms)
    if re.search(r"\bMIG\b", name):
        notes.append(f"{name} is a slice: its share of memory bandwidth and L2 is not known")
        gpu = replace(gpu, dram_bytes_per_s=None, l2_bytes=None)
    if gpu.confidence == "low":
        notes.append(f"{gpu.name}: the peak rates are of low confidence ({gpu.source})")
    return replace(gpu, name=name), notes


# What GeForce parts accumulate in fp32 at half rate; torch accumulates so by default.
_GEFORCE_HALF = frozenset({"tf32", "fp16", "bf16", "fp8"})
_NEAREST = {"5.3": "5.2", "6.2": "6.1", "7.2": "7.0", "8.7": "8.6", "12.1": "12.0"}


def _by_capability(
    name: str, cc: tuple[int, int] | None, sms: int | None, clock_hz: float | None, notes: list[str]
) -> tuple[Gpu, list[str]]:
    arch = f"{cc[0]}.{cc[1]}" if cc else ""
    rates = arch if arch in OPS_PER_CLOCK else _NEAREST.get(arch, "")
    peaks = _from_clock(rates, sms, clock_hz) if rates and sms and clock_hz else {}
    if "GeForce" in name:
        peaks = {key: rate / 2 if key in _GEFORCE_HALF else rate for key, rate in peaks.items()}
    if peaks:
        notes.append(
            f"{name} is not in the table: peak rates are {sms} SMs x operations a clock of {rates} x {clock_hz or 0:.3g} Hz"
        )
    else:
        notes.append(f"{name or 'the device'} is not in the table and too little is known of it: no peak rates (give --gpu)")
    gpu = Gpu(name, arch, sms, clock_hz, clock_hz, None, None, peaks, "low" if peaks else "", "compute capability")
    return gpu, notes


# ---------------------------------------------------------------------------------------------- a file


def named(given: str) -> Gpu:
    """The device that the user names: one of the table, or a JSON file. Raises InputError for neither."""
    if given.endswith(".json") or Path(given).is_file():
        return from_file(given)
    found = _of_table(given)
    if found is None:
        names = [gpu.name for gpu, _ in load()]
        # One model is sold in several forms: their names begin with what most people call it.
        near = [name for name in names if name.lower().startswith(given.lower()) and given]
        near = near or difflib.get_close_matches(given, names, 3, 0.4)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise InputError(f"no device {given!r}", f"{hint}or a JSON file with its numbers, see pyprof.hardware.gpus.from_file")
    return found


def _of_table(given: str) -> Gpu | None:
    """A device by the name that a driver or the table has for it."""
    return _lookup(given) or next((gpu for gpu, _ in load() if gpu.name.lower() == given.lower()), None)


_FIELDS = ("name", "arch", "sms", "boost_hz", "tensor_hz", "dram_bytes_per_s", "l2_bytes", "peaks")


def from_file(path: str | Path) -> Gpu:
    """A device described by the user: a JSON object with the fields of Gpu, peaks in FLOP/s by precision.

    Optional: `like`, a device name of the table from which everything not given is taken. Raises InputError.
    """
    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise InputError(
            f"{path}: not JSON ({error})", 'an example: {"name": "mine", "like": "NVIDIA H200", "sms": 132}'
        ) from error
    if not isinstance(given, dict):
        raise InputError(f"{path}: a JSON object was expected")
    return _from_fields(path, given)


def _from_fields(path: str | Path, given: dict[str, Any]) -> Gpu:
    unknown = set(given) - {*_FIELDS, "like"}
    if unknown:
        raise InputError(f"{path}: no field {sorted(unknown)[0]!r}", f"fields: {', '.join(_FIELDS)}, like")
    base = Gpu("custom", "", None, None, None, None, None, confidence="user", source=str(path))
    if "like" in given:
        like = _of_table(str(given.pop("like")))
        if like is None:
            raise InputError(f"{path}: the table has no device like that", "names as torch.cuda.get_device_name() prints them")
        base = replace(like, confidence="user", source=str(path))
    peaks = given.pop("peaks", {})
    wrong = [k for k, v in given.items() if k not in ("name", "arch") and not _positive(v)]
    wrong += [k for k in ("name", "arch") if k in given and not isinstance(given[k], str)]
    if wrong:
        raise InputError(f"{path}: {wrong[0]} is not what was expected: {given[wrong[0]]!r}")
    if not isinstance(peaks, dict) or not all(p in PRECISIONS and _positive(v) for p, v in peaks.items()):
        raise InputError(f"{path}: peaks are FLOP/s by precision", f"precisions: {', '.join(PRECISIONS)}")
    for key in ("sms", "l2_bytes"):
        if key in given:
            given[key] = int(given[key])
    return replace(base, **given, peaks={**base.peaks, **peaks})


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
