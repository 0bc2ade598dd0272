"""A Triton kernel that times itself: its code for sm_90, compiled without a GPU, and what the interpreter measures."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")]


def _run(folder: Path, *words: str, **environment: str) -> str:
    """Output of the program; a process of its own, since Triton chooses its interpreter when it is imported."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "TRITON_CACHE_DIR": str(folder / "cache"), **environment}
    program = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "timers" / "triton_timed.py"), *words]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp64"])
def test_readings_keep_their_order_and_wait_for_the_load(tmp_path: Path, dtype: str) -> None:
    ptx, _, sass = _run(tmp_path, "compile", dtype).partition("SASS")
    assert ".target sm_90" in ptx
    kinds = r"%clock64|%globaltimer|%smid|ld\.global|nanosleep"
    found = [name for line in ptx.splitlines() if not line.strip().startswith("//") for name in re.findall(kinds, line)]
    order = [name for at, name in enumerate(found) if not at or found[at - 1] != name or name == "%clock64"]
    clock, timer, waited = "%clock64", "%globaltimer", "nanosleep"
    assert order == ["%smid", clock, timer, clock, clock, "ld.global", waited, clock, waited, clock, clock, timer]
    if sass:
        # Between the second reading that times the load and the next, the loaded value is compared, so that its arrival is timed.
        steps = re.findall(r"SR_CLOCKLO|LDG|[IDH]?SETP", sass)
        load = len(steps) - 1 - steps[::-1].index("LDG")
        assert steps[: load + 1].count("SR_CLOCKLO") == 3 and "SETP" in steps[load + 1], steps


@pytest.mark.torch
def test_the_interpreter_reads_the_hosts_clock(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    out = _run(tmp_path, "interpret", TRITON_INTERPRET="1")
    hz = float(out.rpartition("hz ")[2])
    assert 0.5e9 < hz < 2e9  # its ticks are ns
    assert re.search(r"LOAD +4 +\d", out) and re.search(r"SOLVE +4 +\d", out)
