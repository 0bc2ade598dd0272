"""A file with kernels that TorchInductor generated -> the time of each kernel alone, in every configuration, and its rate.

A compiled module of C++ kernels is run once on its own inputs, and each kernel is then timed on the buffers that it received.
A file of one Triton kernel (`# kernel path: ...` in a module, TORCHINDUCTOR_BENCHMARK_KERNEL=1) contains its own inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from pyprof.compiled.kernel_source import Kernel, triton_kernel
from pyprof.compiled.module import read_module
from pyprof.errors import InputError, ToolError, UsageError
from pyprof.hardware import cpus, gpus
from pyprof.recording.generated import load_module, own_inputs, wrap_kernels
from pyprof.timers.timing import CpuClock, Timing, timeit, torch_for

if TYPE_CHECKING:
    import torch

Kernels = dict[str, tuple[Callable[..., object], list[object]]]  # by name: a kernel and the arguments of a call

_ROUNDS = 5
_MIN_CALLS, _MAX_CALLS = 10, 10_000


def _column(header: str, about: str, digits: int | None = 0) -> Any:
    """A field of a result: its header and meaning where it is printed, and digits (None: text, 0: an integer)."""
    return field(default=None, metadata={"header": header, "about": about, "digits": digits})


@dataclass(frozen=True)
class KernelResult:
    """One kernel in one configuration. None: unknown."""

    kernel: str = _column("Kernel", "its name", None)
    config: str = _column("Config", "of a Triton kernel", None)
    time_us: float = _column("Time(us)", "median", 2)
    best_us: float = _column("best(us)", "shortest", 2)
    p99_us: float = _column("p99(us)", "one in a hundred took longer", 2)
    spread: float = _column("Spread(%)", "of the middle half, over the median", 1)
    calls: int = _column("Calls", "so many were timed")
    bytes: int | None = _column("Bytes", "read and written")
    gbs: float | None = _column("GB/s", "by the median", 2)
    peak: float | None = _column("Peak(%)", "of the bandwidth of the memory", 1)
    regs: int | None = _column("Regs", "registers per thread")
    spills: int | None = _column("Spills", "registers that were spilled")
    smem: int | None = _column("SMem", "shared memory per block, in bytes")


def _result(kernel: str, config: str, timing: Timing, moved: int | None, peak_rate: float | None) -> KernelResult:
    """One timing as a result. moved: bytes of a call; peak_rate: bytes/s of the memory. None: unknown."""
    rate = None if moved is None or not timing.median_s else moved / timing.median_s
    times = (timing.median_s * 1e6, timing.best_s * 1e6, timing.p99_s * 1e6, timing.spread * 100, len(timing.times_s))
    gbs, peak = None if rate is None else rate / 1e9, None if rate is None or not peak_rate else 100 * rate / peak_rate
    return KernelResult(kernel, config, *times, moved, gbs, peak)


def bench(path: Path, kernel: str | None = None, seconds: float = 0.3) -> list[KernelResult]:
    """Time the kernels of a file, or only the one named `kernel`, each for about `seconds`.

    Raises InputError if the file contains none, UsageError if none has that name, ToolError if they cannot run here.
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
        raise UsageError(f"{path}: has no C++ kernel {kernel!r}", f"its kernels: {', '.join(names)}")
    peak = cpus.peak()
    moved = {fused.name: fused.sites[0].bytes if fused.sites else None for fused in found.fused}
    results = []
    for name, (function, arguments) in _first_calls(path, load_module(path)).items():
        if kernel is None or name == kernel:
            timing = _time_restoring(function, arguments, seconds)
            results.append(_result(name, "-", timing, moved.get(name), peak.dram_gbs * 1e9 if peak else None))
    return results


def _first_calls(path: Path, module: ModuleType) -> Kernels:
    """Each C++ kernel with copies of the arguments of its first call, made before it."""
    seen: Kernels = {}

    def wrap(name: str, kernel: Callable[..., object]) -> Callable[..., object]:
        def first(*arguments: object) -> object:
            if name not in seen:
                seen[name] = kernel, _copies(arguments)
            return kernel(*arguments)

        return first

    wrap_kernels(module, wrap)
    own_inputs(module)()
    if not seen:
        raise InputError(f"{path}: running it called none of its kernels", "check its function `call`")
    return seen


def _copies(arguments: Sequence[object]) -> list[object]:
    """Copies of tensors; those that share memory share it in the copies too. Other arguments as they are."""
    import torch

    storages: dict[int, torch.UntypedStorage] = {}
    copies: list[object] = []
    for argument in arguments:
        if not isinstance(argument, torch.Tensor):
            copies.append(argument)
            continue
        storage = argument.untyped_storage()
        copied = storages.setdefault(storage.data_ptr(), storage.clone())
        copy = torch.empty(0, dtype=argument.dtype, device=argument.device)
        copies.append(copy.set_(copied, argument.storage_offset(), argument.size(), argument.stride()))
    return copies


def _time_restoring(function: Callable[..., object], arguments: list[object], seconds: float) -> Timing:
    """Time a kernel on a CPU with cold caches and the same contents each time, since the values of a kernel that works in place
    would drift to ones that take longer."""
    import torch

    working = _copies(arguments)
    pairs = [(new, old) for new, old in zip(working, arguments, strict=True) if isinstance(new, torch.Tensor)]
    clock = CpuClock(torch, flush=True)
    times: list[float] = []
    ends: float | None = None
    while len(times) < _MIN_CALLS or (len(times) < _MAX_CALLS and time.perf_counter() < (ends or 0)):
        for new, old in pairs:
            new.copy_(old)
        (spent,), _ = clock.measure(function, working, 1)
        if ends is None:  # the first call warms up
            ends = time.perf_counter() + seconds
        else:
            times.append(spent)
    return Timing("cpu", tuple(times), tuple(times))


def _triton(path: Path, source: Kernel, seconds: float) -> list[KernelResult]:
    """Time every configuration of the Triton kernel in a file."""
    torch = torch_for("timing generated kernels")
    if not torch.cuda.is_available():
        hint = "run it on a machine with a GPU; `pyprof inductor CAPTURE` reports on a capture from there"
        raise ToolError(f"{path}: a Triton kernel, and torch has no GPU here", hint)
    if find_spec("triton") is None:
        raise ToolError(f"{path}: a Triton kernel, and the package triton is not installed", "pip install triton")
    module = load_module(path)
    if not hasattr(module, "get_args"):
        raise UsageError(
            f"{path}: generated without its benchmark",
            "compile with TORCHINDUCTOR_BENCHMARK_KERNEL=1, or pyprof run --inductor",
        )
    return triton_results(module, source, torch, seconds)


def triton_results(module: ModuleType, source: Kernel, torch: ModuleType, seconds: float) -> list[KernelResult]:
    """Results of a loaded kernel file, fastest configuration first."""
    arguments = tuple(module.get_args())
    tuner: _Tuner = next(v for v in vars(module).values() if hasattr(v, "launchers") and hasattr(v, "precompile"))
    tuner.precompile()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    recorded = gpus.RecordedGpu((properties.major, properties.minor), properties.multi_processor_count)
    peak, moved = gpus.find(properties.name, recorded)[0].dram_bytes_per_s, moved_bytes(source, arguments)
    name = next(iter(sorted(source.names)), "triton")
    results = []
    for launcher in tuner.launchers:
        timing = _time_launcher(tuner, launcher, arguments, torch, seconds)
        regs, spills, smem = (getattr(launcher, fact, None) for fact in ("n_regs", "n_spills", "shared"))
        result = _result(name, str(launcher.config), timing, moved, peak)
        results.append(replace(result, regs=regs, spills=spills, smem=smem))
    return sorted(results, key=lambda result: result.time_us)


class _Launcher(Protocol):
    config: object

    def __call__(self, *arguments: object, stream: int) -> object: ...


class _Tuner(Protocol):
    """Inductor's autotuner of one kernel: a launcher for each configuration."""

    launchers: list[_Launcher]

    def precompile(self) -> object: ...

    def bench(self, launcher: _Launcher, *arguments: object) -> float:
        """Milliseconds of one launch."""


def _time_launcher(tuner: _Tuner, launcher: _Launcher, args: Sequence[object], torch: ModuleType, seconds: float) -> Timing:
    """Time one configuration by events on the current stream; where torch's launchers take a grid, by the tuner's benchmark."""
    stream = torch.cuda.current_stream().cuda_stream
    try:
        launcher(*args, stream=stream)
    except TypeError:
        rounds = tuple(tuner.bench(launcher, *args) / 1e3 for _ in range(_ROUNDS))
        return Timing("cuda", rounds, rounds)
    return timeit(lambda: launcher(*args, stream=stream), seconds=seconds, device="cuda", launches=False)


def moved_bytes(source: Kernel, arguments: Sequence[object]) -> int | None:
    """Bytes that a launch with these arguments reads and writes; Inductor's estimate if the source does not determine them."""
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
