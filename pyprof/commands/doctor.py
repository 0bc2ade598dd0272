"""Print what is installed here, whether recording really works, and how to fix what does not.

The exit code is 0 if some tool can record a program here, 1 if none can.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path

from pyprof.errors import PyprofError, ToolError
from pyprof.messages import stage
from pyprof.parse.sources.nsys_report import find_nsys
from pyprof.recording import probe
from pyprof.recording.nsys import profile
from pyprof.recording.tools import ask, release

_SECONDS = 120
_PROBE = (sys.executable, os.path.abspath(probe.__file__))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof doctor`."""
    parser.add_argument("--quick", action="store_true", help="only look: neither import torch nor record anything")
    parser.add_argument("--calibrate", action="store_true", help="measure this CPU's peak rates, and keep them for the reports")


def run(options: argparse.Namespace) -> int:
    """Print one line for each item. Returns 0 if a capture is possible."""
    from pyprof import __version__

    _print("pyprof", __version__)
    _print("python", sys.version.split()[0])
    _cpu(options.calibrate)
    gpus = _gpus()
    torch = _torch(options.quick, bool(gpus))
    nvtx = _nvtx()
    nsys = find_nsys()
    if nsys is None:
        _print("nsys", "not found", "scripts/install_nsys   (Debian and Ubuntu; else install Nsight Systems)")
    else:
        _print("nsys", f"{release(nsys) or 'of unknown release'} ({nsys})")
    _print("nvprof", _found("nvprof") or "not found (needed only for GPUs before compute capability 8.0)")
    _print("ncu", _found("ncu") or "not found (needed only for measured counters)")
    tools = ["torch.profiler"] if torch else []
    if nsys and nvtx and torch and (options.quick or _records(nsys)):
        tools.append("nsys")
    what = "ops and kernels" if gpus else "ops on the CPU (no GPU here)"
    _print("capture", f"{what} by {' and '.join(tools)}: pyprof run net.py" if tools else "not possible, see above")
    return 0 if tools else 1


def _print(item: str, state: str, fix: str = "") -> None:
    print(f"{item:16} {state}" + (f"\n{'':16} -> {fix}" if fix else ""))


def _cpu(measure: bool) -> None:
    """The peak rates of the CPU, measured now or earlier. Raises ToolError if they cannot be measured or stored."""
    from pyprof.hardware import cpus

    if measure:
        from pyprof.timers import calibrate

        try:
            cpus.save(calibrate.measure())
        except OSError as error:
            raise ToolError(f"{cpus.cache_path()}: cannot be written: {error.strerror}", "set XDG_CACHE_HOME") from error
    found = cpus.peak()
    if found is None:
        _print("CPU", f"{cpus.cpu_name()}, its peak rates are not measured", "pyprof doctor --calibrate")
        return
    rates = ", ".join(f"{rate:.3g} {tag}" for tag, rate in found.tflops.items())
    _print("CPU", f"{found.name}: TFLOP/s {rates}; {found.dram_gbs:.3g} GB/s with {found.threads} threads")


def _gpus() -> list[str]:
    code, listed = ask("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", seconds=60)
    names = [line.strip() for line in listed.splitlines() if line.strip()] if code == 0 else []
    for name in names:
        _print("GPU", f"{name} (name, driver)")
    if not names and shutil.which("nvidia-smi"):
        _print("GPU", f"nvidia-smi lists none: {_last_line(listed)}", "nvidia-smi")
    elif not names:
        _print("GPU", "none: captures will contain ops on the CPU")
    return names


def _last_line(text: str) -> str:
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"])[-1]


def _torch(quick: bool, gpu: bool) -> bool:
    """Whether torch can be imported, found out in another process."""
    version = _package("torch", "pip install torch")
    if version is None:
        return False
    if quick:
        _print("torch", version)
        return True
    with stage("importing torch"):
        code, text = ask(*_PROBE, "torch", seconds=_SECONDS)
    if code:
        _print("torch", f"{version}, cannot be imported: {_last_line(text)}", "pip install --force-reinstall torch")
        return False
    found = json.loads(text.splitlines()[-1])
    cuda = f"CUDA {found['cuda']}" if found["cuda"] else "without CUDA"
    fix = ""
    if gpu and not found["devices"]:
        cuda += ", cannot use the GPU"
        fix = "pip install --force-reinstall torch" if not found["cuda"] else "python -c 'import torch; torch.cuda.init()'"
    _print("torch", f"{found['version']}, {cuda}", fix)
    return True


def _package(name: str, fix: str) -> str | None:
    """The version of a package; None, with a line printed, if it is not installed."""
    if util.find_spec(name) is None:
        _print(name, "not installed", fix)
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _nvtx() -> bool:
    """Whether the package nvtx can record; the backend checks every part of it that pyprof uses."""
    version = _package("nvtx", "pip install nvtx")
    if version is None:
        return False
    from pyprof.nvtx.backend import NvtxBackend

    try:
        NvtxBackend()
    except PyprofError as error:
        _print("nvtx", f"{version}: {error}", error.hint)
        return False
    _print("nvtx", version)
    return True


def _found(name: str) -> str:
    """The release and the path of a tool; empty if it is not installed."""
    path = shutil.which(name)
    return f"{release(path) or 'of unknown release'} ({path})" if path else ""


def _records(nsys: str) -> bool:
    """Record one op under nsys, export it, read it back, and print the outcome."""
    with tempfile.TemporaryDirectory(prefix="pyprof-doctor-") as folder:
        with stage("recording under nsys"):
            problem = _record(nsys, str(Path(folder) / "probe"))
    if problem:
        _print("NVTX under nsys", f"NOT recorded: {problem[0]}", problem[1])
    else:
        _print("NVTX under nsys", "recorded and read back")
    return not problem


def _record(nsys: str, base: str) -> tuple[str, str] | None:
    """The problem and its fix; None if the op was read back."""
    from pyprof.loading.load import load_capture

    flags = ("-t", "nvtx", "--sample=none", "--cpuctxsw=none", "-f", "true", "-o", base)
    report = Path(f"{base}.nsys-rep")
    code, text = profile(nsys, report, *flags, *_PROBE, "op", seconds=_SECONDS)
    if code or not report.exists():
        return f"nsys profile failed: {_last_line(text)}", f"{nsys} status --environment"
    export = (nsys, "export", "--type", "sqlite", "-f", "true", "-o", f"{base}.sqlite", f"{base}.nsys-rep")
    code, text = ask(*export, seconds=_SECONDS)
    if code:
        return f"nsys export failed: {_last_line(text)}", "scripts/install_nsys"
    try:
        calls = load_capture(Path(f"{base}.sqlite")).calls
    except PyprofError as error:
        return f"{error}".replace(f"{base}.sqlite", "the capture"), "pip install --upgrade nvtx"
    if not any(call.op == "mm" and [t.shape for t in call.tensors] == [(2, 3), (3, 4)] for call in calls):
        return "the text of its range was not read back", "pip install --upgrade nvtx"
    return None
