"""A module that TorchInductor generated -> a capture of it running on inputs of its own, as its own benchmark does.

`record_module` starts a process for this, since importing a generated module compiles kernels and runs its code; the process
runs this file as a program. Nothing here reads a trace.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from pyprof.errors import InputError, ToolError, UsageError, unusable
from pyprof.messages import tell
from pyprof.recording.results import Staging
from pyprof.recording.run import INDUCTOR
from pyprof.recording.tools import environment_with_pyprof

_WARM_UP = 3


def record_module(path: Path, name: str | None = None, times: int = 10) -> Path:
    """Run the module and record `times` calls; returns the trace, NAME.json.gz or by default named after the module.

    A file of that name stays, and the trace is then called NAME.2.json.gz. Raises InputError if the file is missing or the
    trace cannot be written, ToolError if the module does not run.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: no such file", "give the .py file that `Compiled module path:` or TORCH_LOGS=output_code names"
        )
    trace = Path((name or path.stem).removesuffix(".gz").removesuffix(".json")).absolute()
    env = {**INDUCTOR, **environment_with_pyprof()}
    with Staging(trace) as staging:
        made = staging.folder / f"{trace.name}{'.json' if (name or '').endswith('.json') else '.json.gz'}"
        command = [sys.executable, "-m", "pyprof.recording.generated", str(path.absolute()), str(made), str(times)]
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=2, check=False)
        if done.returncode or not made.exists():
            raise ToolError(f"{path}: it could not be run (exit code {done.returncode})", f"try by hand: python {path}")
        return staging.keep()(made)


def load_module(path: Path) -> ModuleType:
    """Import a generated module or kernel file, which compiles its kernels; its own benchmark is not run.

    Raises ToolError if torch is missing, InputError if the file cannot be imported.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise unusable("this", "torch", error, "pip install torch") from error
    import importlib.util

    spec = importlib.util.spec_from_file_location(f"generated_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file", "give a module that TorchInductor generated")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"{path}: it cannot be imported: {type(error).__name__}: {error}", f"try by hand: python {path}"
        ) from error
    return module


def own_inputs(module: ModuleType) -> Callable[[], object]:
    """A function that runs the module once on random inputs of its own. Raises UsageError if it has no such harness."""
    call, get_args = getattr(module, "call", None), getattr(module, "get_args", None)
    if callable(call) and callable(get_args):
        inputs = list(get_args())
        return lambda: call(list(inputs))
    benchmark = getattr(module, "benchmark_compiled_module", None)
    if callable(benchmark):  # before torch 2.10 or so, when inputs were made inside
        return lambda: benchmark(times=1, repeat=1)
    raise UsageError(
        f"{module.__file__}: it has neither get_args() nor benchmark_compiled_module()",
        "give a compiled module, not a kernel; `pyprof inductor bench` times a kernel",
    )


def wrap_kernels(module: ModuleType, wrap: Callable[[str, Callable[..., object]], Callable[..., object]]) -> None:
    """Put `wrap(name, kernel)` in place of each fused C++ kernel of a module."""
    for name, kernel in list(vars(module).items()):
        if name.startswith("cpp_fused") and callable(kernel):
            setattr(module, name, wrap(name, kernel))


def _record_kernels(path: Path, module: ModuleType) -> None:
    """Record C++ kernels generated without TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE, with their arguments."""
    if "RecordFunctionHandle" in path.read_text(encoding="utf-8", errors="replace"):
        return
    from torch._C._profiler import _RecordFunctionFast

    def wrap(name: str, kernel: Callable[..., object]) -> Callable[..., object]:
        def recorded(*args: object) -> object:
            with _RecordFunctionFast(name, args):
                return kernel(*args)

        return recorded

    wrap_kernels(module, wrap)


def main() -> int:
    """`python -m pyprof.recording.generated MODULE TRACE TIMES`. Returns the exit code."""
    from pyprof.recording.torchprof import Capture

    path, trace, times = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    try:
        module = load_module(path)
        run = own_inputs(module)
        _record_kernels(path, module)
        for _ in range(_WARM_UP):
            run()
        with Capture(trace, table=0) as capture:
            for _ in range(times):
                run()
                capture.step()
    except (InputError, ToolError, UsageError) as error:
        tell(f"pyprof: error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
