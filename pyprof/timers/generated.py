"""A file with kernels that TorchInductor generated -> how long each takes alone, in every configuration, and at which rate.

A compiled module of C++ kernels is run once on inputs of its own, and each kernel then timed on the buffers that it was given.
A file of one Triton kernel (`# kernel path: ...` in a module, TORCHINDUCTOR_BENCHMARK_KERNEL=1) brings its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pyprof.errors import InputError, ToolError, UsageError
from pyprof.hardware import cpus, gpus
from pyprof.recording.generated import load_module, own_inputs, wrap_kernels
from pyprof.report.compiled.kernel_source import Kernel, triton_kernel
from pyprof.report.compiled.module import read_module
from pyprof.timers.timing import Timing, cache_bytes, timeit

__all__ = ["COLUMNS", "Result", "bench"]

_ROUNDS = 5
_FEWEST, _MOST = 10, 10_000
# field of a result, header, what it is, digits (None: text, 0: a whole number)
COLUMNS: tuple[tuple[str, str, str, int | None], ...] = (
    ("kernel", "Kernel", "its name", None),
    ("config", "Config", "of a Triton kernel", None),
    ("time_us", "Time(us)", "median", 2),
    ("best_us", "best(us)", "shortest", 2),
    ("p99_us", "p99(us)", "one in a hundred took longer", 2),
    ("spread", "Spread(%)", "of the middle half, over the median", 1),
    ("calls", "Calls", "so many were timed", 0),
    ("bytes", "Bytes", "read and written", 0),
    ("gbs", "GB/s", "by the median", 2),
    ("peak", "Peak(%)", "of the bandwidth of the memory", 1),
    ("regs", "Regs", "registers per thread", 0),
    ("spills", "Spills", "registers that were spilled", 0),
    ("smem", "SMem", "shared memory per block, in bytes", 0),
)


@dataclass(frozen=True)
class Result:
    """One kernel in one configuration. bytes: None unknown; peak_rate: bytes/s of the memory, None unknown."""

    kernel: str
    config: str
    timing: Timing
    bytes: int | None
    peak_rate: float | None
    regs: int | None = None
    spills: int | None = None
    smem: int | None = None

    @property
    def time_us(self) -> float:
        return self.timing.median_s * 1e6

    @property
    def best_us(self) -> float:
        return self.timing.best_s * 1e6

    @property
    def p99_us(self) -> float:
        return self.timing.p99_s * 1e6

    @property
    def spread(self) -> float:
        return self.timing.spread * 100

    @property
    def calls(self) -> int:
        return len(self.timing.times_s)

    @property
    def gbs(self) -> float | None:
        """10^9 bytes a second."""
        return None if self.bytes is None or not self.timing.median_s else self.bytes / self.timing.median_s / 1e9

    @property
    def peak(self) -> float | None:
        """Percent of the bandwidth of the memory."""
        return None if self.gbs is None or not self.peak_rate else 100 * self.gbs * 1e9 / self.peak_rate


def bench(path: Path, kernel: str | None = None, seconds: float = 0.3) -> list[Result]:
    """Time the kernels of a file, or only the one of that name, each for about so many seconds.

    Raises InputError where the file holds none, UsageError where none has that name, ToolError where they cannot run here.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file", "give a compiled module, or the file of one Triton kernel")
    own = triton_kernel(path.read_text(encoding="utf-8", errors="replace"))
    if own is not None:
        return _triton(path, own, seconds)
    found = read_module(path)
    names = [fused.name for fused in found.fused if fused.kernel.category == "cpp_fused"]
    if not names:
        others = [fused.name for fused in found.fused]
        if others:
            raise UsageError(
                f"{path}: its {len(others)} kernels are Triton's, each in a file of its own",
                "pyprof inductor bench FILE, with a file that `# kernel path:` in it names",
            )
        raise InputError(f"{path}: no generated kernel in it", "give a compiled module, or the file of one Triton kernel")
    if kernel is not None and kernel not in names:
        raise UsageError(f"{path}: no C++ kernel {kernel!r} in it", f"there are {', '.join(names)}")
    peak = cpus.peak()
    moved = {fused.name: fused.sites[0].bytes if fused.sites else None for fused in found.fused}
    results = []
    for name, (function, arguments) in _first_calls(path, load_module(path)).items():
        if kernel is None or name == kernel:
            timing = _time_restoring(function, arguments, seconds)
            results.append(Result(name, "-", timing, moved.get(name), peak.dram_gbs * 1e9 if peak else None))
    return results


def _first_calls(path: Path, module: ModuleType) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """Each C++ kernel with the arguments of its first call, as they were before it."""
    seen: dict[str, tuple[Callable[..., Any], list[Any]]] = {}

    def wrap(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def first(*arguments: Any) -> Any:
            if name not in seen:
                seen[name] = kernel, _copies(arguments)
            return kernel(*arguments)

        return first

    wrap_kernels(module, wrap)
    own_inputs(module)()
    if not seen:
        raise InputError(f"{path}: running it called none of its kernels", "look into its `call`")
    return seen


def _copies(arguments: Sequence[Any]) -> list[Any]:
    """Copies of tensors, of which those that share memory share it again."""
    import torch

    storages: dict[int, Any] = {}
    copies: list[Any] = []
    for argument in arguments:
        if not isinstance(argument, torch.Tensor):
            copies.append(argument)
            continue
        storage = argument.untyped_storage()
        held = storages.setdefault(storage.data_ptr(), storage.clone())
        copy = torch.empty(0, dtype=argument.dtype, device=argument.device)
        copies.append(copy.set_(held, argument.storage_offset(), argument.size(), argument.stride()))
    return copies


def _time_restoring(function: Callable[..., Any], arguments: list[Any], seconds: float) -> Timing:
    """Time a kernel on a CPU with cold caches and the same contents each time: one that works in place would run off to values
    that take longer."""
    import torch

    working = _copies(arguments)
    pairs = [(new, old) for new, old in zip(working, arguments, strict=True) if isinstance(new, torch.Tensor)]
    flush = torch.zeros(min(max(2 * (cache_bytes() or 0), 32 << 20), 512 << 20), dtype=torch.int8)
    times: list[float] = []
    ends: float | None = None
    while len(times) < _FEWEST or (len(times) < _MOST and time.perf_counter() < (ends or 0)):
        for new, old in pairs:
            new.copy_(old)
        flush.add_(1)
        begun = time.perf_counter()
        function(*working)
        spent = time.perf_counter() - begun
        if ends is None:  # the first call is there to warm up
            ends = time.perf_counter() + seconds
        else:
            times.append(spent)
    return Timing("cpu", tuple(times), tuple(times))


# ---------------------------------------------------------------------------------------------- Triton


def _triton(path: Path, source: Kernel, seconds: float) -> list[Result]:
    """Every configuration of the kernel in its own file."""
    import importlib.util

    hint = "run it where the GPU is; `pyprof inductor CAPTURE` reports on what was recorded there"
    if importlib.util.find_spec("torch") is None:
        raise ToolError("this needs torch, which is not installed", "pip install torch")
    import torch

    if not torch.cuda.is_available():
        raise ToolError(f"{path}: a Triton kernel, and torch has no GPU here", hint)
    if importlib.util.find_spec("triton") is None:
        raise ToolError(f"{path}: a Triton kernel, and the package triton is not installed", "pip install triton")
    module = load_module(path)
    if not hasattr(module, "get_args"):
        raise UsageError(
            f"{path}: generated without its benchmark",
            "compile with TORCHINDUCTOR_BENCHMARK_KERNEL=1, or pyprof run --inductor",
        )
    return triton_results(module, source, torch, seconds)


def triton_results(module: Any, source: Kernel, torch: Any, seconds: float) -> list[Result]:
    """Results of a kernel file that was loaded, most rapid configuration first."""
    arguments = tuple(module.get_args())
    tuner = next(v for v in vars(module).values() if hasattr(v, "launchers") and hasattr(v, "precompile"))
    tuner.precompile()
    peak, moved = _gpu_peak(torch), moved_bytes(source, arguments)
    name = next(iter(sorted(source.names)), "triton")
    results = []
    for launcher in tuner.launchers:
        timing = _time_launcher(tuner, launcher, arguments, torch, seconds)
        facts = [getattr(launcher, fact, None) for fact in ("n_regs", "n_spills", "shared")]
        results.append(Result(name, str(launcher.config), timing, moved, peak, *facts))
    return sorted(results, key=lambda result: result.timing.median_s)


def _time_launcher(tuner: Any, launcher: Any, arguments: tuple[Any, ...], torch: Any, seconds: float) -> Timing:
    """By events on the stream; releases of torch whose launchers want a grid time them by their own benchmark, in rounds."""
    stream = torch.cuda.current_stream().cuda_stream
    try:
        launcher(*arguments, stream=stream)
    except TypeError:
        rounds = tuple(tuner.bench(launcher, *arguments) / 1e3 for _ in range(_ROUNDS))
        return Timing("cuda", rounds, rounds)
    return timeit(lambda: launcher(*arguments, stream=stream), seconds=seconds, device="cuda", launches=False)


def moved_bytes(source: Kernel, arguments: Sequence[Any]) -> int | None:
    """Bytes that a launch with these arguments reads and writes; what Inductor reckoned where the source does not tell."""
    total = 0
    for pointer, value in zip(source.arguments, arguments, strict=False):
        if pointer is None:
            continue
        if pointer.itemsize is None or not hasattr(value, "untyped_storage"):
            return None if source.num_gb is None else round(source.num_gb * 1e9)
        stored = value.untyped_storage().nbytes()
        size = stored if pointer.most is None else min(stored, pointer.most * pointer.itemsize)
        total += size * (int(pointer.reads) + int(pointer.writes))
    return total


def _gpu_peak(torch: Any) -> float | None:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    found, _ = gpus.find(properties.name, (properties.major, properties.minor), properties.multi_processor_count, None)
    return found.dram_bytes_per_s
