"""The machine -> which recording tools it has: where each is installed, which release it is, whether there is a GPU.

Runs the tools themselves and the driver's library, each with a time limit. Imports no torch; knows nothing of captures.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_RELEASE = re.compile(r"\d+(?:\.\d+){1,4}")
# Launchers put the rank of a process here: torchrun, accelerate and deepspeed; Open MPI; MPICH and Intel MPI; MVAPICH; srun.
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")


def job_rank() -> str:
    """The rank of this process in a distributed job, as the launcher's variables have it; empty where there is none.

    A job of one task under Slurm is no distributed job, although its variables are set.
    """
    names = (*_RANKS, "SLURM_PROCID") if os.environ.get("SLURM_STEP_NUM_TASKS", "1") != "1" else _RANKS
    return next((rank for name in names if (rank := os.environ.get(name, "")).isdecimal()), "")


def environment_with_pyprof() -> dict[str, str]:
    """The environment, in which a Python process imports this very pyprof, installed or not."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


def ask(*command: str, seconds: float = 60, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a tool without input; its exit code (-1: it could not be run or did not end in time) and everything it printed.

    A process that the tool leaves behind is not waited for, as it would be if it had a pipe of ours.
    """
    with tempfile.TemporaryFile() as printed:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, timeout=seconds, check=False, env=env
            )
        except subprocess.TimeoutExpired:
            return -1, f"no answer within {seconds:g} s"
        except OSError as error:
            return -1, error.strerror or type(error).__name__
        printed.seek(0)
        return done.returncode, printed.read().decode(errors="replace")


def release(path: str, *, seconds: float = 30) -> str:
    """The release of a tool: the last dotted number that its --version prints; empty where it prints none."""
    code, text = ask(path, "--version", seconds=seconds)
    found = _RELEASE.findall(text)
    return found[-1] if code == 0 and found else ""


def cuda_devices() -> int:
    """Number of devices that the CUDA driver shows to a program started here (CUDA_VISIBLE_DEVICES counts); 0 without a driver.

    Counted in a process of its own: once a process has used the driver, its forks cannot use CUDA.
    """
    code, text = ask(sys.executable, "-I", "-S", os.path.abspath(__file__))
    return int(text) if code == 0 and text.strip().isdecimal() else 0


def _count_devices() -> int:
    """Count them with libcuda, in this process."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value


if __name__ == "__main__":
    print(_count_devices())
