"""`pyprof doctor` with tools that are there, missing, silent or broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.cli import main
from pyprof.commands import doctor
from tests.conftest import ROOT

TORCH = '{\\"version\\": \\"2.13.0\\", \\"cuda\\": %s, \\"devices\\": %s}'


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, and no nsys elsewhere; a secret in the environment that nobody may print."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYPROF_NSYS_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    return tmp_path


def _put(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def _doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["doctor", *arguments])
    out = capsys.readouterr().out
    assert "hunter2" not in out
    return code, out


def test_nothing_but_python(tools: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyprof.commands.doctor.util.find_spec", lambda name: None)
    code, out = _doctor(capsys)
    assert code == 1 and "-> pip install torch" in out and "-> pip install nvtx" in out
    assert "-> scripts/install_nsys" in out and "GPU              none: captures will" in out
    assert "capture          not possible" in out


def test_tools_tell_their_releases(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="needs torch")
    _put(tools, "nsys", "echo 'NVIDIA Nsight Systems version 2026.1.1.204-261136740051v0'")
    _put(tools, "nvidia-smi", "echo 'NVIDIA H200, 580.1'")
    _put(tools, "ncu", "exit 3")
    _put(tools, "nvprof", "echo 'nvprof: NVIDIA (R) Cuda command line profiler'; echo 'Release version 11.8.86 (21)'")
    code, out = _doctor(capsys, "--quick")
    assert code == 0
    assert f"nsys             2026.1.1.204 ({tools}/nsys)" in out and "GPU              NVIDIA H200, 580.1" in out
    assert f"nvprof           11.8.86 ({tools}/nvprof)" in out and f"ncu              of unknown release ({tools}/ncu)" in out
    assert "NVTX under nsys" not in out
    assert "capture          ops and kernels by torch.profiler and nsys: pyprof run net.py" in out


@pytest.mark.parametrize(
    ("torch", "said", "mend", "code"),
    [
        (f"echo '{TORCH % ('null', '[]')}'".replace("\\", ""), "2.13.0, without CUDA, cannot use the GPU", "pip install --force", 0),
        (f"echo '{TORCH % ('13.0', '[]')}'".replace("\\", ""), "CUDA 13.0, cannot use the GPU", "torch.cuda.init()", 0),
        ("echo 'libcudart.so.13: cannot open shared object file' >&2; exit 1", "cannot be imported: libcudart.so.13", "pip in", 1),
    ],
)  # fmt: skip
def test_a_torch_that_does_not_work(
    tools: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    torch: str,
    said: str,
    mend: str,
    code: int,
) -> None:
    _put(tools, "nvidia-smi", "echo 'NVIDIA H200, 580.1'")
    monkeypatch.setattr(doctor, "_PROBE", (_put(tools, "probe", torch),))
    monkeypatch.setattr(doctor, "_package", lambda name, mend: "2.13.0")
    found, out = _doctor(capsys)
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("torch "))
    assert said in lines[at] and mend in lines[at + 1] and found == code


@pytest.mark.parametrize(
    ("script", "said", "mend"),
    [
        ('case "$1" in --version) echo 2023.4;; *) echo bad driver; exit 1;; esac', "nsys profile failed: bad driver", "status"),
        ('case "$1" in profile) : >"$9.nsys-rep";; export) echo no importer; exit 1;; esac', "export failed: no imp", "install"),
        ('case "$1" in profile) : >"$9.nsys-rep";; export) /bin/cp "$CAPTURE" "$7";; esac', "was not read back", "--upgrade nvtx"),
    ],
)  # fmt: skip
def test_an_nsys_that_does_not_record(
    tools: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: str, said: str, mend: str
) -> None:
    pytest.importorskip("torch", reason="needs torch")
    monkeypatch.setenv("CAPTURE", str(ROOT / "tests/data/nsys_emit_nvtx.sqlite"))
    monkeypatch.setattr(doctor, "_torch", lambda quick, gpu: True)
    _put(tools, "nsys", script)
    code, out = _doctor(capsys)
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("NVTX under nsys"))
    assert "NOT recorded" in lines[at] and said in lines[at] and mend in lines[at + 1]
    assert code == 0 and "by torch.profiler:" in out  # which still can


@pytest.mark.nsys
@pytest.mark.slow
def test_a_real_nsys_records(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    from tests.test_nsys_real import find_nsys

    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": os.pathsep.join([os.environ["PATH"], str(Path(find_nsys()).parent)])}
    command = [sys.executable, "-m", "pyprof", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    assert "NVTX under nsys  recorded and read back" in done.stdout and "torch.profiler and nsys" in done.stdout
