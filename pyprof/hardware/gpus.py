"""A GPU as a capture or the user describes it -> the device and its limits.

A device is looked up in the table by the name that the tools print, and where several have one name by its multiprocessors and
its memory; else it is described from its compute capability. Numbers of a capture take precedence over the table.
Must not know names of kernels or file formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeGuard

from pyprof.errors import InputError
from pyprof.hardware.devices import PRECISIONS, Capability, Gpu, is_named, load, ops_per_clock, peaks_from_clock


class RecordedGpu(NamedTuple):
    """Numbers of a device that a capture recorded; None is unknown. clock_hz: the highest that it may reach."""

    cc: Capability | None = None
    sms: int | None = None
    clock_hz: float | None = None
    dram_bytes_per_s: float | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None


NOTHING = RecordedGpu()


def find(name: str, recorded: RecordedGpu = NOTHING) -> tuple[Gpu, list[str]]:
    """The device that a tool calls `name`, with the numbers that were recorded, and notes (one line each) on what was inferred.

    A name that is not in the table is described by its compute capability: its peaks are SMs times operations a clock times
    clock if all three are known, else absent.
    """
    gpu, notes = _find(name, recorded)
    return gpu.with_measured(dram_bytes_per_s=recorded.dram_bytes_per_s, l2_bytes=recorded.l2_bytes), notes


def _find(name: str, recorded: RecordedGpu) -> tuple[Gpu, list[str]]:
    called = _called(name)
    alike = [gpu for gpu in called if recorded.cc is None or gpu.capability == recorded.cc]
    if alike:
        return _adapt(_narrowed(alike, name, recorded), name, recorded)
    generic = _GENERIC.fullmatch(name.strip()) is not None
    if (generic or not name.strip()) and (unnamed := _without_name(name.strip(), recorded)):
        return unnamed
    gpu, notes = _by_capability(name, recorded)
    if generic:
        notes = [f"{name} is the name of many devices of AMD, and nothing else tells which: --gpu NAME gives its peak rates"]
    if called and recorded.cc is not None:
        major, minor = recorded.cc
        wrong = f"{name}: compute capability {major}.{minor} is recorded, {called[0].name} has {called[0].arch} in the table"
        notes = [wrong, *notes]
    return gpu, notes


def _called(name: str) -> list[Gpu]:
    """The rows that have this name."""
    return [gpu for gpu, names in load() if is_named(names, name.strip())]


_GENERIC = re.compile(r"(?:AMD )?(?:Radeon(?: ?\(TM\))?(?: Pro)?(?: Graphics)?|(?:Radeon )?Instinct|Device [0-9a-fA-F]{4})")
_SLICE = re.compile(r"\bMIG\b")


def _narrowed(alike: Sequence[Gpu], name: str, recorded: RecordedGpu) -> list[Gpu]:
    """Narrow devices of one name by the recorded multiprocessors and memory, unless none of them has these."""
    found = [gpu for gpu in alike if gpu.sms == recorded.sms] or list(alike)
    if (memory := recorded.memory_bytes) and not _SLICE.search(name):
        # Drivers report up to a tenth less than the GB (or GiB) that a device is sold with.
        fits = [gpu for gpu in found if any(0.9e9 * size < memory < 1.01 * size * (1 << 30) for size in gpu.memory_gb)]
        found = fits or found
    return found


def _adapt(alike: Sequence[Gpu], name: str, recorded: RecordedGpu) -> tuple[Gpu, list[str]]:
    """Adapt the table's device to what was recorded: a slice or a variant has fewer multiprocessors."""
    gpu, notes = _common(alike), []
    if len(alike) > 1:
        notes.append(f"{name} may be {_listed(alike)}: only the rates that they share are used")
    whole, sms = gpu.sms, recorded.sms
    if sms and whole and sms != whole:
        notes.append(f"{name} has {sms} multiprocessors, {gpu.name} has {whole}: peak rates are scaled by their ratio")
    if (sms and whole and sms != whole) or not gpu.peaks:
        gpu = gpu.with_measured(sms=sms, clock_hz=recorded.clock_hz)
    if _SLICE.search(name) or (gpu.amd and sms and whole and 2 * sms <= whole):
        notes.append(f"{name} is a slice: its share of memory bandwidth and L2 is unknown")
        gpu = gpu._replace(dram_bytes_per_s=None, l2_bytes=None)
    if gpu.confidence == "low":
        notes.append(f"{gpu.name}: the peak rates are of low confidence ({gpu.source})")
    return gpu._replace(name=name), notes


def _common(alike: Sequence[Gpu]) -> Gpu:
    """A device with the values that all of these share; the rest is unknown."""
    first, *others = alike
    if not others:
        return first
    shared = {key: rate for key, rate in first.peaks.items() if all(one.peaks.get(key) == rate for one in others)}
    numbers = {key: getattr(first, key) for key in _NUMBERS if all(getattr(one, key) == getattr(first, key) for one in others)}
    gpu = Gpu(_listed(alike), first.arch, **{**dict.fromkeys(_NUMBERS), **numbers}, peaks=shared, confidence="medium")
    return gpu._replace(source=first.source, memory_gb=first.memory_gb, halved=first.halved)


_NUMBERS = ("sms", "boost_hz", "tensor_hz", "dram_bytes_per_s", "l2_bytes", "l2_bytes_per_s")


def _listed(alike: Iterable[Gpu]) -> str:
    return " or ".join(gpu.name for gpu in alike)


def _without_name(name: str, recorded: RecordedGpu) -> tuple[Gpu, list[str]] | None:
    """The values that AMD devices of this capability, multiprocessors and memory share; ROCm may leave the name out, or give
    one that many have."""
    alike = [gpu for gpu, _ in load() if gpu.amd and gpu.capability == recorded.cc and gpu.sms == recorded.sms]
    if not alike:
        return None
    found = _narrowed(alike, "", recorded)
    gpu = _common(found)
    rates = "whose common rates are used" if len(found) > 1 else "by its memory" if len(alike) > 1 else "the only one"
    called = f"{name} is the name of many devices" if name else "the device has no name"
    return gpu, [f"{called}: {gpu.arch} with {recorded.sms} compute units is {gpu.name}, {rates}"]


# GeForce parts multiply these at half rate when they accumulate in fp32, as torch does by default.
_GEFORCE_HALF = frozenset({"tf32", "fp16", "bf16", "fp8"})
# Parts of compute capability 7.5 that have none: GTX 1650, MX450, Quadro T2000, T1000.
_WITHOUT_TENSOR_CORES = re.compile(r"\b(?:GTX 16|MX\d|T\d{3})")
_NEAREST = {"5.3": "5.2", "6.2": "6.1", "7.2": "7.0", "12.1": "12.0"}


def _by_capability(name: str, recorded: RecordedGpu) -> tuple[Gpu, list[str]]:
    """A device that is not in the table."""
    cc, sms, clock_hz = recorded.cc, recorded.sms, recorded.clock_hz
    arch = _architecture(name, cc)
    rates = arch if ops_per_clock(arch) else _NEAREST.get(arch, "")
    halved = _GEFORCE_HALF if "GeForce" in name else ()
    peaks = peaks_from_clock(rates, sms, clock_hz, halved) if rates and sms and clock_hz else {}
    if arch == "7.5" and _WITHOUT_TENSOR_CORES.search(name):
        peaks = {key: rate for key, rate in peaks.items() if key in ("fp64", "fp32")}
    missing = f"{name or 'the device'} is not in the table of GPUs"
    if peaks:
        note = f"{missing}: peak rates are {sms} SMs x operations a clock of compute capability {rates} x {clock_hz:.3g} Hz"
        note += ", memory bandwidth as recorded" if recorded.dram_bytes_per_s else ", memory bandwidth unknown (use --gpu)"
    else:
        note = f"{missing} and too little is recorded: no peak rates (use --gpu)"
    gpu = Gpu(name, arch, sms, clock_hz, clock_hz, None, None, peaks, "low" if peaks else "", "compute capability")
    return gpu, [note]


def _architecture(name: str, cc: Capability | None) -> str:
    """Compute capability as text, or the gfx name of a device of AMD, x for a stepping that is not recorded."""
    if cc is None:
        return ""
    major, minor = cc
    # NVIDIA's devices of major number 9 are 9.0.
    if not re.match(r"AMD\b|.*\b(?:Radeon|Instinct)\b", name) and not (major == 9 and minor > 0):
        return f"{major}.{minor}"
    return next((gpu.arch for gpu, _ in load() if gpu.amd and gpu.capability == cc), f"gfx{major}{minor}x")


def named(given: str) -> Gpu:
    """The device that the user names: from the table or a JSON file. Raises InputError if unknown or several."""
    if given.endswith(".json") or Path(given).is_file():
        return from_file(given)
    found = _of_table(given)
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - _OFFERED} more" if len(found) > _OFFERED else ""
        variants = ", ".join(map(_variant, found[:_OFFERED]))
        raise InputError(
            f"{given!r} is several devices: {variants}{more}", f"give one of these names in full, such as {found[0].name!r}"
        )
    import difflib

    near = difflib.get_close_matches(given, [gpu.name for gpu, _ in load()], 3, 0.4)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise InputError(f"there is no device {given!r} in the table", f"{hint}give one of them, or a JSON file: {_EXAMPLE}")


_OFFERED = 8


def _variant(gpu: Gpu) -> str:
    """`NVIDIA A100 (108 SMs, 40 GB, 1555 GB/s)`: a name with what tells the device from others of that name."""
    size = "/".join(f"{size:g}" for size in gpu.memory_gb)
    rate = "" if gpu.dram_bytes_per_s is None else f", {gpu.dram_bytes_per_s / 1e9:.0f} GB/s"
    units = "" if gpu.sms is None else f"{gpu.sms} {'CUs' if gpu.amd else 'SMs'}, "
    return f"{gpu.name} ({units}{size} GB{rate})"


_BRANDS = re.compile(r"\b(?:nvidia|amd|geforce|tesla|instinct|[rg]tx(?=[ -]?[a-z]?\d))\b")


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", _BRANDS.sub("", name.lower()))


def _of_table(given: str) -> list[Gpu]:
    """The devices that a user may mean: by the table's name, by a driver's, or by words with which the words of names begin."""
    named = [gpu for gpu, _ in load() if _plain(gpu.name) == _plain(given)]
    if named or (named := _called(given)):
        return named
    # Words may be cut short (sxm), numbers may not: an A1000 is no A100.
    parts = re.findall("[a-z0-9]+", _BRANDS.sub("", given.lower()))
    words = [re.compile(rf"\b{part}" + (r"(?!\d)" if part[-1].isdigit() else "")) for part in parts]
    return [gpu for gpu, _ in load() if words and all(word.search(gpu.name.lower()) for word in words)]


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
        if len(like) != 1:
            hint = "use a name as torch.cuda.get_device_name() prints it"
            raise InputError(f"{path}: `like` names {'several devices' if like else 'no device'} of the table", hint)
        base = like[0]._replace(confidence="user", source=str(path))
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
