"""A GPU's name or compute capability -> its limits: multiprocessors, clocks, bandwidth, caches, peaks by precision and unit.

gpus.csv holds one device a row; every rate in it is dense (no structured sparsity) in TFLOP/s. A device is looked up by the
name that the tools print, else described from its compute capability. Numbers of a capture take precedence over the table.
Must not know names of kernels or file formats.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeGuard

from pyprof.errors import InputError
from pyprof.hardware.occupancy import SmLimits, architectures, limits

Capability = tuple[int, int]

# Columns of gpus.csv that hold peaks. fp64 and fp32: CUDA cores; the others: Tensor Cores.
PRECISIONS = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
_MATRIX_UNITS = frozenset({"hmma", "wgmma", "tcgen05", "imma", "dmma", "qmma", "omma", "mma", "mfma"})


class Gpu(NamedTuple):
    """One device.

    arch: compute capability as text, or AMD's gfx name; sms: multiprocessors; boost_hz, tensor_hz: the clocks behind the peaks
    of CUDA and Tensor Cores; peaks: FLOP/s, dense, by precision (see PRECISIONS); l2_bytes_per_s: of the whole cache, read,
    where the maker says so (whitepapers of A100, which has V100's too, and of CDNA 3). Unknown is None, in peaks absent.
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

    @property
    def cc(self) -> Capability | None:
        """Compute capability; None if the device has none (AMD)."""
        match = re.fullmatch(r"(\d+)\.(\d+)", self.arch)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def capability(self) -> Capability | None:
        """What torch records as compute capability, of AMD's devices too: 9.4 of a gfx942."""
        match = re.fullmatch(r"gfx(\d+)(\d)[0-9a-f]", self.arch)
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
            return self.peaks.get("fp64_tensor" if math == "fp64" else math)
        if unit == "hfma2":
            return self._half_vector()
        # CUDA cores widen half types to fp32 when they load them.
        return self.peaks.get("fp64" if math == "fp64" else "fp32")

    def _half_vector(self) -> float | None:
        ops = architectures().get(self.arch, {}).get("half_vector")
        return None if ops is None or not self.sms or not self.boost_hz else ops * self.sms * self.boost_hz

    def with_measured(
        self,
        *,
        sms: int | None = None,
        clock_hz: float | None = None,
        dram_bytes_per_s: float | None = None,
        l2_bytes: int | None = None,
    ) -> Gpu:
        """The same device with the numbers that a capture recorded. Another SM count scales the peaks.

        A recorded clock is the highest that the device may reach, not the one that the published peaks rest on, so it is used
        only where the table has none.
        """
        gpu = self
        if sms and self.sms and sms != self.sms:
            ratio = sms / self.sms
            gpu = gpu._replace(peaks={key: rate * ratio for key, rate in self.peaks.items()})
        if not gpu.peaks and sms and clock_hz:
            gpu = gpu._replace(peaks=_from_clock(self.arch, sms, clock_hz))
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


def _from_clock(arch: str, sms: int, clock_hz: float) -> dict[str, float]:
    """Peaks: multiprocessors times operations a clock times clock."""
    return {precision: float(ops) * sms * clock_hz for precision, ops in ops_per_clock(arch).items()}


def _number(text: str, scale: float) -> float | None:
    return float(text) * scale if text else None


@lru_cache(maxsize=1)
def load() -> tuple[tuple[Gpu, tuple[re.Pattern[str], ...]], ...]:
    """The rows of gpus.csv, each with the patterns of its names."""
    text = Path(__file__).with_name("gpus.csv").read_text(encoding="utf-8")
    return tuple(
        (_row(row), tuple(re.compile(p) for p in row["match"].split("|"))) for row in csv.DictReader(text.splitlines())
    )


def _row(row: dict[str, str]) -> Gpu:
    l2, l2_rate = _number(row["l2_mib"], 1 << 20), _number(row["l2_bytes_per_clock"], 1e6 * float(row["boost_mhz"] or 0))
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
        l2_bytes_per_s=l2_rate,
    )


def _lookup(name: str) -> Gpu | None:
    """The row whose pattern matches the longest part of the name: `GB300` is not a `B300`, nor `L40S` an `L40`."""
    found = [(len(match[0]), gpu) for gpu, patterns in load() for pattern in patterns if (match := pattern.search(name))]
    return max(found, key=itemgetter(0), default=(0, None))[1]


def find(
    name: str, cc: Capability | None = None, sms: int | None = None, clock_hz: float | None = None
) -> tuple[Gpu, list[str]]:
    """The device that a tool calls `name`, and notes (one line each) on what was inferred.

    cc, sms, clock_hz: as recorded in the capture, None unknown. A name that is not in the table is described by its compute
    capability: its peaks are SMs times operations a clock times clock if all three are known, else absent.
    """
    found = _lookup(name)
    if found is not None and (cc is None or found.capability == cc):
        return _adapt(found, name, sms)
    if not name.strip() and (unnamed := _without_name(cc, sms)) is not None:
        return unnamed
    gpu, notes = _by_capability(name, cc, sms, clock_hz)
    if found is not None and cc is not None:
        mismatch = f"{name}: compute capability {cc[0]}.{cc[1]} is recorded, {found.name} has {found.arch} in the table"
        notes = [mismatch, *notes]
    return gpu, notes


def _adapt(gpu: Gpu, name: str, sms: int | None) -> tuple[Gpu, list[str]]:
    """A device of the table with what was recorded: a MIG slice or a variant has fewer multiprocessors."""
    notes = []
    if sms and gpu.sms and sms != gpu.sms:
        notes.append(f"{name} has {sms} multiprocessors, {gpu.name} has {gpu.sms}: peak rates are scaled by their ratio")
        gpu = gpu.with_measured(sms=sms)
    if re.search(r"\bMIG\b", name):
        notes.append(f"{name} is a slice: its share of memory bandwidth and L2 is unknown")
        gpu = gpu._replace(dram_bytes_per_s=None, l2_bytes=None)
    if gpu.confidence == "low":
        notes.append(f"{gpu.name}: the peak rates are of low confidence ({gpu.source})")
    return gpu._replace(name=name), notes


def _without_name(cc: Capability | None, sms: int | None) -> tuple[Gpu, list[str]] | None:
    """What all AMD devices of this capability and number of multiprocessors have in common; ROCm may leave the name out."""
    alike = [gpu for gpu, _ in load() if gpu.amd and gpu.capability == cc and gpu.sms == sms]
    if not alike:
        return None
    first, *others = alike
    peaks = {key: rate for key, rate in first.peaks.items() if all(one.peaks.get(key) == rate for one in others)}
    names = " or ".join(gpu.name for gpu in alike)
    note = f"the device has no name: {first.arch} with {sms} multiprocessors is {names}, whose common rates are used"
    gpu = first._replace(name=names, peaks=peaks, confidence="medium", source="capability", note="")
    if any(one.dram_bytes_per_s != first.dram_bytes_per_s for one in others):
        gpu = gpu._replace(dram_bytes_per_s=None)
    if any(one.l2_bytes_per_s != first.l2_bytes_per_s for one in others):
        gpu = gpu._replace(l2_bytes_per_s=None)
    if any((one.boost_hz, one.l2_bytes) != (first.boost_hz, first.l2_bytes) for one in others):
        gpu = gpu._replace(boost_hz=None, tensor_hz=None, l2_bytes=None)
    return gpu, [note]


# GeForce parts multiply these at half rate when they accumulate in fp32, as torch does by default.
_GEFORCE_HALF = frozenset({"tf32", "fp16", "bf16", "fp8"})
_NEAREST = {"5.3": "5.2", "6.2": "6.1", "7.2": "7.0", "8.7": "8.6", "12.1": "12.0"}


def _by_capability(name: str, cc: Capability | None, sms: int | None, clock_hz: float | None) -> tuple[Gpu, list[str]]:
    arch = f"{cc[0]}.{cc[1]}" if cc else ""
    rates = arch if ops_per_clock(arch) else _NEAREST.get(arch, "")
    peaks = _from_clock(rates, sms, clock_hz) if rates and sms and clock_hz else {}
    if "GeForce" in name:
        peaks = {key: rate / 2 if key in _GEFORCE_HALF else rate for key, rate in peaks.items()}
    if peaks:
        how = f"peak rates are {sms} SMs x operations a clock of compute capability {rates} x {clock_hz or 0:.3g} Hz"
        note = f"{name} is not in the table of GPUs: {how}"
    else:
        note = f"{name or 'the device'} is not in the table of GPUs and too little is recorded: no peak rates (use --gpu)"
    gpu = Gpu(name, arch, sms, clock_hz, clock_hz, None, None, peaks, "low" if peaks else "", "compute capability")
    return gpu, [note]


def named(given: str) -> Gpu:
    """The device that the user names: one of the table, or a JSON file. Raises InputError if it is neither."""
    if given.endswith(".json") or Path(given).is_file():
        return from_file(given)
    found = _of_table(given)
    if found is None:
        import difflib

        names = [gpu.name for gpu, _ in load()]
        # One model is sold in several forms, whose names begin with what most people call it.
        near = [name for name in names if name.lower().startswith(given.lower()) and given]
        near = near or difflib.get_close_matches(given, names, 3, 0.4)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise InputError(f"there is no device {given!r} in the table", f"{hint}give one of them, or a JSON file: {_EXAMPLE}")
    return found


def _of_table(given: str) -> Gpu | None:
    """A device by the name that a driver prints or that the table uses."""
    return _lookup(given) or next((gpu for gpu, _ in load() if gpu.name.lower() == given.lower()), None)


_EXAMPLE = '{"name": "mine", "like": "NVIDIA H200", "sms": 132}'
_FIELDS = ("name", "arch", "sms", "boost_hz", "tensor_hz", "dram_bytes_per_s", "l2_bytes", "peaks")


def from_file(path: str | Path) -> Gpu:
    """A device described by the user: a JSON object with the fields of Gpu, peaks in FLOP/s by precision.

    `like` names a device of the table that provides what is not given. Raises InputError.
    """
    import json

    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})", "check the path and its permissions") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})", f"an example: {_EXAMPLE}") from error
    if not isinstance(given, dict):
        raise InputError(f"{path}: not a JSON object", f"an example: {_EXAMPLE}")
    return _from_fields(path, given)


def _from_fields(path: str | Path, given: dict[str, object]) -> Gpu:
    unknown = set(given) - {*_FIELDS, "like"}
    if unknown:
        raise InputError(f"{path}: unknown field {sorted(unknown)[0]!r}", f"fields: {', '.join(_FIELDS)}, like")
    base = Gpu("custom", "", None, None, None, None, None, confidence="user", source=str(path))
    if "like" in given:
        like = _of_table(str(given.pop("like")))
        if like is None:
            hint = "use a name as torch.cuda.get_device_name() prints it"
            raise InputError(f"{path}: `like` names no device of the table", hint)
        base = like._replace(confidence="user", source=str(path))
    peaks = given.pop("peaks", {})
    wrong = [k for k, v in given.items() if k not in ("name", "arch") and not _positive(v)]
    wrong += [k for k in ("name", "arch") if k in given and not isinstance(given[k], str)]
    if wrong:
        hint = "name and arch are texts, all others positive numbers"
        raise InputError(f"{path}: {wrong[0]} cannot be {given[wrong[0]]!r}", hint)
    if not isinstance(peaks, dict) or not all(p in PRECISIONS and _positive(v) for p, v in peaks.items()):
        raise InputError(f"{path}: peaks must be FLOP/s by precision", f"precisions: {', '.join(PRECISIONS)}")
    whole = {key: int(value) for key in ("sms", "l2_bytes") if _positive(value := given.get(key))}
    return Gpu(**{**base._asdict(), **given, **whole, "peaks": {**base.peaks, **peaks}})


def _positive(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
