"""`pyprof doctor` with tools that are there, missing, silent or broken."""

from __future__ import annotations

import importlib.util
import stat
from pathlib import Path

import pytest

from pyprof.cli import main


def _tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["doctor", *arguments])
    return code, capsys.readouterr().out


def test_nothing_but_python(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("pyprof.doctor.util.find_spec", lambda name: None)
    code, out = _doctor(capsys)
    assert code == 1 and "-> pip install torch" in out and "-> pip install nvtx" in out
    assert "-> install Nsight Systems" in out and "GPU              none that the driver shows" in out


def test_tools_tell_their_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    _tool(tmp_path, "nsys", "echo 'NVIDIA Nsight Systems version 2026.1.1'")
    _tool(tmp_path, "nvidia-smi", "echo 'NVIDIA H200, 580.1'")
    _tool(tmp_path, "ncu", "exit 3")
    code, out = _doctor(capsys, "--quick")
    assert "NVIDIA Nsight Systems version 2026.1.1" in out and "GPU              NVIDIA H200, 580.1" in out
    assert "there, but it does not tell its version" in out and "NVTX under nsys" not in out
    assert "hunter2" not in out and "none that the driver shows" not in out
    assert code == (0 if importlib.util.find_spec("torch") else 1)


def test_an_nsys_that_records_nothing_is_said_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs torch")
    monkeypatch.setenv("PATH", str(tmp_path))
    _tool(tmp_path, "nsys", 'case "$1" in --version) echo 2023.4;; *) exit 1;; esac')
    _, out = _doctor(capsys)
    assert "NVTX under nsys  NOT recorded" in out and "-> update nsys or nvtx" in out


@pytest.mark.nsys
def test_a_real_nsys_records(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs torch")
    from tests.test_nsys_real import find_nsys

    monkeypatch.setenv("PATH", str(Path(find_nsys()).parent), prepend=":")
    code, out = _doctor(capsys)
    assert code == 0 and "NVTX under nsys  recorded and read back" in out
