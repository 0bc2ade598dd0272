"""`pyprof run`: the program keeps its arguments, streams and exit code, and what it did comes out as a table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

from pyprof.capture.steps import parse_steps
from pyprof.errors import UsageError
from tests.conftest import ROOT

PROGRAM = """
import sys, torch
print("argv", sys.argv, __name__, sys.stdin.read().strip(), flush=True)
import beside
net = torch.nn.Linear(8, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for size in (2, 3, 5, 7):
    net(torch.ones(size, 8)).sum().backward()
    opt.step()
beside.end(sys.argv[1])
"""
BESIDE = """
import os, signal, sys, time
def end(how):
    if how == "exit": sys.exit(7)
    if how == "text": sys.exit("said at the end")
    if how == "raise": raise ValueError("boom")
    if how == "wait":
        print("waiting", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "net.py").write_text(PROGRAM)
    (folder / "beside.py").write_text(BESIDE)
    return folder / "net.py"


def _command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "pyprof", "run", *map(str, arguments)]


def _run(folder: Path, *arguments: str | Path, path: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"] + path}
    return subprocess.run(
        _command(*arguments), capture_output=True, text=True, input="hello", cwd=folder, env=env, timeout=300, check=False
    )


@pytest.mark.parametrize(
    ("how", "code", "said"), [("ok", 0, ""), ("exit", 7, ""), ("text", 1, "said at the end"), ("raise", 1, "ValueError: boom")]
)
def test_the_program_is_itself(program: Path, tmp_path: Path, how: str, code: int, said: str) -> None:
    done = _run(tmp_path, "--tool", "torch", "-o", "out", program, how, "--flag", "-c", "3")
    assert done.returncode == code and said in done.stderr
    assert done.stdout.startswith(f"argv {[str(program), how, '--flag', '-c', '3']} __main__ hello\n")
    assert "linear" in done.stdout and (tmp_path / "out.dict").exists() and "pyprof.prof" in done.stderr
    if how == "raise":
        trace = done.stderr[done.stderr.index("Traceback") :]
        assert "net.py" in trace.splitlines()[1] and "runpy" not in trace and "bootstrap" not in trace


def test_only_the_chosen_steps_are_recorded(program: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, "--tool", "torch", "--steps", "1:3", "-o", "out", "--top", "100", program, "ok")
    assert done.returncode == 0
    sizes = {size for size in (2, 3, 5, 7) if f"M={size},N=4,K=8" in done.stdout}
    assert sizes == {3, 5}


def test_a_module_and_a_rank(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    done = _run(program.parent, "--tool", "torch", "-o", "out", "-m", "net", "ok")
    assert done.returncode == 0 and (program.parent / "out.rank3.dict").exists()


def test_a_signal_reaches_the_program(program: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        _command("--tool", "torch", "-o", "out", program, "wait"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=tmp_path, env=env,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("waiting"):
            break
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and time.monotonic() - begun < 50


@pytest.mark.nsys
def test_under_nsys_with_chosen_steps(program: Path, tmp_path: Path) -> None:
    from tests.test_nsys_real import find_nsys

    program.write_text("import pyprof; pyprof.init()\n" + PROGRAM)
    path = os.pathsep + str(Path(find_nsys()).parent)
    done = _run(tmp_path, "--tool", "nsys", "--steps", "2:3", "-o", "out", "--top", "100", program, "exit", path=path)
    assert done.returncode == 7, done.stderr
    assert {size for size in (2, 3, 5, 7) if f"M={size},N=4,K=8" in done.stdout} == {5}
    assert "fprop net" not in done.stdout and (tmp_path / "out.sqlite").exists()


@pytest.mark.parametrize("text", ["10", "5:5", "7:3", "a:b", "-1:2"])
def test_steps_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--steps takes A:B"):
        parse_steps(text)


def test_wrong_usage(tmp_path: Path) -> None:
    assert _run(tmp_path, "missing.py").returncode == 2
    done = _run(tmp_path, "--tool", "torch", "--steps", "3:1", __file__)
    assert done.returncode == 2 and "for example --steps 10:12" in done.stderr
