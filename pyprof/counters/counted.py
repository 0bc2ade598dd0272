"""Metrics of launches -> the FLOPs that they executed and the bytes that they moved, each only where it was counted.

FLOPs of CUDA cores are thread instructions with the predicate on: an FMA is 2, an addition or multiplication 1, in half, single
and double precision alike. Tensor Cores count their own operations (`sm__ops_path_tensor_...`); source types, opcodes and
sparsity are levels of one count, and only one level is summed. Knows no kernel's name and no op.

`command_line` prints how Nsight Compute counts all of this on a device. The names of metrics hold for Nsight Compute 2024.1
(`ncu --query-metrics --chip ...`); those of compute capabilities 10 and 12 are from captures that others published; what a
device lacks is printed as n/a.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pyprof.columns.types import Bools, Floats
from pyprof.errors import UsageError
from pyprof.hardware import devices, gpus
from pyprof.parse.sources.measured.launches import Measured

_LETTERS = {"fp16": "h", "fp32": "f", "fp64": "d"}
_WEIGHTS = {"add": 1, "mul": 1, "fma": 2}
_COUNTS = {"fp16": "flop_count_hp", "fp32": "flop_count_sp", "fp64": "flop_count_dp"}
_SOURCE = re.compile(r"sm__ops_path_tensor_src_(?P<type>[a-z]+\d+(?:_[a-z]+\d+)*?)(?P<to>_dst_[a-z\d]+)?\.sum")
_OPCODE = re.compile(r"sm__ops_path_tensor_op_(?P<type>[a-z\d]+_src_[a-z]+\d+(?:_[a-z]+\d+)*?)(?P<to>_dst_[a-z\d]+)?\.sum")
# Compute capabilities on which a product of known size showed that the tensor paths count FLOPs (2MNK), not multiply-adds.
CALIBRATED = frozenset({"10.3"})


class Counted(NamedTuple):
    """Counts of each launch; NaN is not counted.

    vector: FLOPs of CUDA cores by precision; tensor: of Tensor Cores; hfma_only: FLOPs of half-precision FMAs of launches that
    neither add nor multiply halves: compilers copy registers with them, so they are likely no arithmetic; dram_bytes, l2_bytes,
    l1_bytes: bytes to and from each level; time_ns: as the tool measured it, serialised and with clocks fixed; is_tensor_exact:
    whether what the tensor paths count is known to be FLOPs on this device.
    """

    vector: dict[str, Floats]
    tensor: Floats
    hfma_only: Floats
    dram_bytes: Floats
    l2_bytes: Floats
    l1_bytes: Floats
    time_ns: Floats
    is_tensor_exact: Bools

    @property
    def flops(self) -> Floats:
        """All FLOPs that were counted.

        Unknown where nothing was; and where Tensor Cores alone were counted and counted nothing, since CUDA cores then did it.
        """
        vector = known_sum(self.vector.values())
        only_tensor = np.where(self.tensor > 0, self.tensor, np.nan)
        return np.where(np.isnan(vector), only_tensor, vector + np.nan_to_num(self.tensor))

    @property
    def what(self) -> list[str]:
        """Which FLOPs were counted of each launch: `tensor,fp32,fp64`; empty where none."""
        parts = {"tensor": self.tensor, **self.vector}
        known = np.array([~np.isnan(values) for values in parts.values()])
        return [",".join(name for name, is_known in zip(parts, row, strict=True) if is_known) for row in known.T]


def counted(measured: Measured) -> Counted:
    """FLOPs, bytes and time of every launch, from its metrics."""
    time_ns = _first(measured.of("gpu__time_duration.sum"), measured.of("gpu__time_duration.avg"))
    vector: dict[str, Floats] = {}
    for precision, letter in _LETTERS.items():  # unknown where one of the three kinds of instruction was not counted
        parts = [weight * _instructions(measured, letter + op, time_ns) for op, weight in _WEIGHTS.items()]
        vector[precision] = _first(np.add.reduce(parts), measured.of(f"{_COUNTS[precision]}.sum"))
    add, mul, fma = (_instructions(measured, f"h{op}", time_ns) for op in _WEIGHTS)
    hfma_only = np.where((add == 0) & (mul == 0) & (fma > 0), 2 * fma, 0.0)
    exact = np.array([launch.cc in CALIBRATED for launch in measured.launches], np.bool_)
    tensor = np.fmax(*(_level(measured, pattern) for pattern in (_SOURCE, _OPCODE)))  # of both levels the one that saw more
    return Counted(vector, tensor, hfma_only, *_bytes(measured, time_ns), time_ns, exact)


def _instructions(measured: Measured, op: str, time_ns: Floats) -> Floats:
    """Thread instructions of an opcode (`ffma`): counted, or what ncu's roofline sections keep, their rate a cycle."""
    found = []
    for unit in ("smsp", "sm"):
        metric = f"{unit}__sass_thread_inst_executed_op_{op}_pred_on.sum"
        by_rate = measured.of(f"{unit}__cycles_elapsed.avg.per_second") * time_ns * 1e-9
        cycles = _first(measured.of(f"{unit}__cycles_elapsed.avg"), by_rate)
        found += [measured.of(metric), np.rint(measured.of(f"{metric}.per_cycle_elapsed") * cycles)]
    return _first(*found)


def _level(measured: Measured, pattern: re.Pattern[str]) -> Floats:
    """Operations of Tensor Cores by source type, or by opcode. A type's own count includes those by its result's type, which
    stand in for it."""
    own: dict[str, Floats] = {}
    by_result: dict[str, list[Floats]] = {}
    for metric, values in measured.metrics.items():
        if (match := pattern.fullmatch(metric)) is None:
            continue
        if match["to"] is None:
            own[match["type"]] = values
        else:
            by_result.setdefault(match["type"], []).append(values)
    unknown = np.full(len(measured), np.nan)
    kinds = (_first(own.get(kind, unknown), known_sum(by_result.get(kind, [unknown]))) for kind in own | by_result)
    return known_sum([unknown, *kinds])


def _bytes(measured: Measured, time_ns: Floats) -> tuple[Floats, Floats, Floats]:
    """Bytes of device memory, L2 and L1: counted, from sectors of 32 bytes, or from the rate and the time."""
    levels = []
    for level in ("dram__", "lts__t_", "l1tex__t_"):
        found = []
        for what, size in (("bytes", 1), ("sectors", 32)):
            for suffix, times in ((".sum", np.ones(len(measured))), (".sum.per_second", time_ns * 1e-9)):
                total, read, write = (size * measured.of(f"{level}{what}{of}{suffix}") for of in ("", "_read", "_write"))
                found.append(np.rint(_first(total, read + write) * times))
        levels.append(_first(*found[::2], *found[1::2]))
    return levels[0], levels[1], levels[2]


def _first(*columns: Floats) -> Floats:
    """The first known of these in each row."""
    found = columns[0]
    for column in columns[1:]:
        found = np.where(np.isnan(found), column, found)
    return found


def known_sum(columns: Iterable[Floats]) -> Floats:
    """Sum of the known values in each row; NaN if all are unknown."""
    parts = np.array(list(columns))
    return np.where(np.isnan(parts).all(axis=0), np.nan, np.nansum(parts, axis=0))


_EVERY = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_bytes.sum",
    "l1tex__t_bytes.sum",
    *(f"smsp__sass_thread_inst_executed_op_{letter}{op}_pred_on.sum" for letter in "fhd" for op in ("add", "mul", "fma")),
)
_AMPERE = "bf16_dst_fp32 fp16_dst_fp16 fp16_dst_fp32 tf32_dst_fp32 fp64 int8 int4 int1"
# What Tensor Cores read, by compute capability.
_TENSOR_SOURCES = {
    "7.0": "fp16_dst_fp16 fp16_dst_fp32",
    "7.5": "fp16_bf16_tf32_dst_fp32 fp16_dst_fp16 int8 int4 int1",
    "8.0": _AMPERE,
    "8.6": _AMPERE,
    "8.9": f"{_AMPERE} fp8",
    "9.0": "bf16_dst_fp32 fp16 tf32_dst_fp32 fp64 fp8 int8 int1",
    "12.0": f"{_AMPERE} fp8 fp4_dst_fp32",
}
_OPCODES = {"10.0": ("utcqmma_src_fp8_dst_fp32", "utchmma_src_bf16_dst_fp32", "utchmma_src_fp16_dst_fp32")}
_NEAREST = {"8.7": "8.6", "10.3": "10.0", "12.1": "12.0"}


def metrics(arch: str) -> list[str]:
    """The metrics for a compute capability as text; without one those that every device has."""
    arch = _NEAREST.get(arch, arch)
    sources = _TENSOR_SOURCES.get(arch, "").split()
    opcodes = _OPCODES.get(arch, ())
    tensor = [f"src_{source}" for source in sources] + [f"op_{opcode}" for opcode in opcodes]
    return [*_EVERY, *(f"sm__ops_path_tensor_{name}.sum" for name in tensor)]


# What `ncu --chip` calls them.
_CHIPS = {
    "gv100": "7.0",
    "tu102": "7.5",
    "ga100": "8.0",
    "ga102": "8.6",
    "ad102": "8.9",
    "gh100": "9.0",
    "gb100": "10.0",
    "gb202": "12.0",
}


def command_line(gpu: str) -> str:
    """The command for a device by its name, chip or compute capability; for any device where it is empty.

    Raises InputError for an unknown name, UsageError for a device that ncu does not measure.
    """
    arch = _arch(gpu.strip()) if gpu else ""
    if arch.startswith("gfx") or (arch and float(arch) < 7):
        raise UsageError(f"Nsight Compute does not measure {gpu}", "it measures NVIDIA devices from compute capability 7.0 on")
    listed = ",".join(metrics(arch))
    return f"ncu --csv --page raw --nvtx --target-processes all --log-file net.csv --metrics {listed} python net.py"


def _arch(gpu: str) -> str:
    """The compute capability of a GPU or chip name; a prefix (`H100`) is enough if all its models have the same."""
    if gpu.lower() in _CHIPS:
        return _CHIPS[gpu.lower()]
    if capability := re.fullmatch(r"(?:sm_?|cc ?)?(\d+)\.?(\d)", gpu.lower()):
        return f"{capability[1]}.{capability[2]}"
    models = {model.arch for model, _ in devices.load() if model.name.lower().startswith(gpu.lower())}
    return models.pop() if len(models) == 1 else gpus.named(gpu).arch
