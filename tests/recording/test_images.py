"""A recorded program that forks, replaces itself or takes torch apart ends as it would alone, and is recorded."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

from tests.children import LIGHT
from tests.recording.test_run import _run

FORKS = """
import os, sys, torch
torch.ones(3) @ torch.ones(3)
child = os.fork()
torch.ones(3) @ torch.ones(3)
if not child: sys.exit(3)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.environ.get("KINETO_LOG_LEVEL"))
os.getpid = lambda: 1
for name in [name for name in sys.modules if name.startswith("torch")]: del sys.modules[name]
sys.exit(5)
"""
REPLACES = """
import os, sys, torch
if len(sys.argv) == 1:
    try: os.execvp("/none/at/all", ["none"])
    except FileNotFoundError: os.execv(sys.executable, [sys.executable, __file__, "again"])
torch.ones(3) @ torch.ones(3)
print("again", "PYPROF_RUN" in os.environ)
"""


@pytest.mark.skipif(sys.platform != "linux" or "musl" in os.confstr("CS_GNU_LIBC_VERSION"), reason="on_exit is glibc's")
def test_a_child_ends_and_the_process_is_known_whatever_the_program_replaces(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(LIGHT + FORKS)
    done = _run(tmp_path, "--tool", "torch", "own.py")
    assert (done.returncode, done.stdout) == (5, "child 3 None\n"), done.stderr
    assert "matmul" in done.stderr and "USDT" not in done.stderr


@pytest.mark.slow
def test_what_replaces_a_program_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(LIGHT + REPLACES)
    done = _run(tmp_path, "--tool", "torch", "own.py")
    assert (done.returncode, done.stdout) == (0, "again False\n"), done.stderr
    assert "pyprof: the program replaced itself by another one (os.exec)" in done.stderr
    assert "matmul" in done.stderr and len(list(tmp_path.glob("own*.json.gz"))) == 1
