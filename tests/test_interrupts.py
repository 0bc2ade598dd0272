"""Ctrl-C and SIGTERM end a command that waits for a file server which is gone, and nothing is left."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.stalling_files import unmount
from tests.tiny import Nsys

pytestmark = pytest.mark.skipif(not hasattr(signal, "sigpending"), reason="this system does not tell which signals are pending")
LONG_S = 60  # a machine may be busy; what hangs hangs for ever
_STANDS_STILL = """
import os, signal, sys, time
from pathlib import Path
from pyprof.tables.files import terminated_by_exception, whole_file
with terminated_by_exception(), whole_file(Path(sys.argv[1])) as stream:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})  # as if the system did not come back
    stream.write(b"half")
    print("waits", flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def stalling(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A folder with a file `net.sqlite` whose reads are never answered, and what serves it."""
    folder = tmp_path / "server"
    folder.mkdir()
    program = [sys.executable, "-m", "tests.stalling_files", str(folder), "net.sqlite"]
    server = subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None and server.stderr is not None
    try:
        if server.stdout.readline() != "mounted\n":
            pytest.skip(f"no file system can be mounted here: {server.stderr.read().splitlines()[-1:]}")
        yield folder, server
    finally:
        unmount(str(folder))
        server.kill()
        server.communicate()


@contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, *arguments]
    with subprocess.Popen(program, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_stays_pending_ends_the_process_and_its_hidden_file(tmp_path: Path, number: signal.Signals) -> None:
    with _started("-c", _STANDS_STILL, str(tmp_path / "out")) as process:
        assert process.stdout is not None and process.stdout.readline() == "waits\n"
        assert len([*tmp_path.iterdir()]) == 1
        process.send_signal(number)
        _, said = process.communicate(timeout=LONG_S)
        assert process.returncode == 128 + number
        assert said == f"pyprof: error: {number.name} while a file system did not answer\n"
        assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_capture_on_a_file_system_that_never_answers(
    stalling: tuple[Path, subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    folder, server = stalling
    with _started("-m", "pyprof.parse", str(folder / "net.sqlite"), "-o", str(tmp_path / "net.dict")) as process:
        assert server.stdout is not None and server.stdout.readline() == "read\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=LONG_S)
        assert (process.returncode, said.count("\n")) == (128 + number, 1)
        assert [path.name for path in tmp_path.iterdir()] == ["server"]


def test_processes_that_wait_for_it_end_with_their_parent(stalling: tuple[Path, subprocess.Popen[str]], tmp_path: Path) -> None:
    folder, server = stalling
    capture = Nsys()
    capture.kernel("k", 20, 30, 40)
    there = [str(folder / "net.sqlite"), *(str(capture.write(tmp_path / f"{name}.sqlite")) for name in "ab")]
    with _started("-m", "pyprof.parse", *there, "-o", str(tmp_path / "out"), "--jobs", "2") as process:
        assert server.stdout is not None and server.stdout.readline() == "read\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LONG_S)
        assert process.returncode == 130
        assert server.poll() is None and not _readers(folder / "net.sqlite")


def _readers(path: Path) -> list[str]:
    """Processes that have the file open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) == str(path) for link in (process / "fd").iterdir()):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found
