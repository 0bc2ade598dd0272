"""Say what is installed here, whether a capture will really record what pyprof needs, and how to mend what will not.

Exit code 0 where some tool can record a program here, 1 where none can.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path

__all__ = ["add_arguments", "run"]

_SECONDS = 120
_PROBE = "import torch, pyprof; assert pyprof.init(); torch.ones(2, 3) @ torch.ones(3, 4); pyprof.shutdown()"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof doctor`."""
    parser.add_argument("--quick", action="store_true", help="look only, do not record anything")


def run(options: argparse.Namespace) -> int:
    """Print one line for each thing looked at. Returns 0 where a capture is possible."""
    _say("python", sys.version.split()[0], "")
    torch = _package("torch", "pip install torch")
    nvtx = _package("nvtx", "pip install nvtx")
    gpus = _gpus()
    nsys = _tool("nsys", ["--version"], "install Nsight Systems; on Debian: scripts/install_nsys")
    for tool, why in (("ncu", "measured counters"), ("nvprof", "GPUs before compute capability 8.0")):
        found = _version(tool, ["--version"])
        _say(tool, found or f"not on PATH (only for {why})", "")
    if nsys and nvtx and torch and not options.quick:
        recorded = _record()
        _say(
            "NVTX under nsys",
            "recorded and read back" if recorded else "NOT recorded",
            "" if recorded else "update nsys or nvtx",
        )
    if torch:
        _say("torch.profiler", "ready: pyprof run --tool torch net.py", "")
    if not gpus:
        _say("GPU", "none that the driver shows: captures hold ops on the CPU", "")
    return 0 if torch else 1


def _say(what: str, state: str, mend: str) -> None:
    print(f"{what:16} {state}" + (f"\n{'':16} -> {mend}" if mend else ""))


def _package(name: str, mend: str) -> bool:
    there = util.find_spec(name) is not None
    try:
        version = metadata.version(name) if there else ""
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    _say(name, version if there else "not installed", "" if there else mend)
    return there


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _version(tool: str, arguments: list[str]) -> str | None:
    if shutil.which(tool) is None:
        return None
    lines = [line.strip() for line in (_output([tool, *arguments]) or "").splitlines() if any(c.isdigit() for c in line)]
    return lines[-1] if lines else "there, but it does not tell its version"


def _tool(name: str, arguments: list[str], mend: str) -> bool:
    found = _version(name, arguments)
    _say(name, found or "not on PATH", "" if found else mend)
    return found is not None


def _gpus() -> list[str]:
    listed = _output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    names = [line.strip() for line in (listed or "").splitlines() if line.strip()]
    for name in names:
        _say("GPU", name, "")
    return names


def _record() -> bool:
    """Record one op under nsys, export, and look for it."""
    from pyprof.errors import PyprofError
    from pyprof.load import load_capture

    with tempfile.TemporaryDirectory(prefix="pyprof-") as folder:
        base = str(Path(folder) / "probe")
        probe = [sys.executable, "-c", _PROBE]
        options = ["-t", "nvtx", "--sample=none", "--cpuctxsw=none", "-f", "true", "-o", base]
        if _output(["nsys", "profile", *options, *probe]) is None:
            return False
        if _output(["nsys", "export", "--type", "sqlite", "-f", "true", "-o", f"{base}.sqlite", f"{base}.nsys-rep"]) is None:
            return False
        try:
            records = load_capture(Path(f"{base}.sqlite"))
        except PyprofError:
            return False
        return any(call.op in ("matmul", "__matmul__") and len(call.tensors) == 2 for call in records.calls)
