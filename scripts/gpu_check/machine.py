"""What the check runs on: the GPU, its driver, torch and the tools, as one line to paste into an issue. Records nothing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pyprof
from pyprof.errors import ToolError
from pyprof.parse.sources.nsys_report import find_nsys
from pyprof.recording import probe
from pyprof.recording.tools import ask, release

_HIDDEN = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Machine(NamedTuple):
    """gpu: the first that torch can use, empty without one; amd: torch was built for ROCm; nsys, ncu: paths, None without."""

    gpu: str
    driver: str
    torch: str
    amd: bool
    nsys: str | None
    ncu: str | None

    def __str__(self) -> str:
        nsys, ncu = (release(path) if path else "none" for path in (self.nsys, self.ncu))
        parts = (f"GPU {self.gpu or 'none'}", f"driver {self.driver or 'none'}", f"torch {self.torch}", f"nsys {nsys}")
        more = (f"ncu {ncu}", f"Python {platform.python_version()}", f"pyprof {pyprof.__version__}")
        return ", ".join((*parts, *more))


def hide_gpus() -> None:
    """Let programs that are started from now on see no GPU."""
    os.environ.update(dict.fromkeys(_HIDDEN, ""))


def look() -> Machine:
    """Raises ToolError where torch cannot be imported."""
    code, text = ask(sys.executable, os.path.abspath(probe.__file__), "torch", seconds=120)
    if code:
        raise ToolError(f"torch cannot be imported: {(text.splitlines() or [''])[-1]}", "pip install torch")
    found = json.loads(text.splitlines()[-1])
    gpu = (found["devices"] or [""])[0]
    driver, amd = _driver() if gpu else "", "rocm" in found["version"]
    return Machine(gpu, driver, found["version"], amd, find_nsys(), shutil.which("ncu"))


def _driver() -> str:
    """Of NVIDIA or of AMD."""
    code, text = ask("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if code == 0 and text.strip():
        return text.splitlines()[0].strip()
    amd = Path("/sys/module/amdgpu/version")
    return f"amdgpu {amd.read_text().strip()}" if amd.is_file() else "unknown"
