"""A device -> the command line of Nsight Compute that counts what `pyprof counters` reads: FLOPs and bytes of every level.

Runs nothing. The names hold for Nsight Compute 2024.1 (`ncu --query-metrics --chip ...`); those of compute capabilities 10 and
12 are from captures that others published; what a device lacks is printed as n/a.
"""

from __future__ import annotations

import re

from pyprof.errors import UsageError
from pyprof.hardware import devices, gpus

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
    """The compute capability that a name stands for; that of all models whose names begin so (`H100`)."""
    if gpu.lower() in _CHIPS:
        return _CHIPS[gpu.lower()]
    if capability := re.fullmatch(r"(?:sm_?|cc ?)?(\d+)\.?(\d)", gpu.lower()):
        return f"{capability[1]}.{capability[2]}"
    models = {model.arch for model, _ in devices.load() if model.name.lower().startswith(gpu.lower())}
    return models.pop() if len(models) == 1 else gpus.named(gpu).arch
