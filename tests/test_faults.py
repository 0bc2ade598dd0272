"""Outputs under faults: killed, interrupted, terminated while they are written, a quota, a full disk, read-only places.

Thousands of such faults, and every kind of output: scripts/checks/run faults.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.checks.faults import ORDER, STRIKES, capture, cases, order, small_disk
from tests.conftest import ROOT

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks, limits the size of files, and looks into /proc"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
KINDS = ("parse FOLDER", "prof .csv", "scrub nsys")  # a data set, text, a database


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    with small_disk(tmp_path / "disk") as found:
        if found is None:
            pytest.skip("this user may not mount")
        yield found


@pytest.mark.parametrize("kind", [*KINDS[1:], pytest.param(KINDS[0], marks=pytest.mark.slow)])
def test_an_output_is_whole_or_as_it_was_whatever_happens(kind: str, tmp_path: Path) -> None:
    """Struck at some moments, stopped by a quota and by a full disk, refused by the folder: one line, and what was there stays.
    Contents are on the disk before the name, and the name before the end."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    with small_disk(tmp_path / "disk") as disk:
        for case in cases(kind, tmp_path, disk):
            assert order(case) == ORDER
            count = case.calls()
            assert count > 20
            for number, how in enumerate(STRIKES):
                for point in range(number, count + 1, max(count // 2, 1)):
                    case.strike(point, how)
            for part in (0, 0.9):
                case.fill(int(len(case.new) * part))
            for pages in (0, 1, len(case.new) // 4096) if disk is not None else ():
                case.fill_disk(pages)
            if os.geteuid() == 0:  # only root can become somebody else
                case.refused(case.run(user=65534))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_the_system_sees_them_in_this_order(tmp_path: Path) -> None:
    source, calls = capture(tmp_path / "net.sqlite"), tmp_path / "calls"
    (out := tmp_path / "out").mkdir()
    traced = f"strace -f -y -o {calls} -e trace=write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2".split()
    command = [sys.executable, "-m", "pyprof", "parse", str(source), "-o", str(out / "net.parquet")]
    done = subprocess.run([*traced, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        pytest.skip("this user may not trace")
    assert done.returncode == 0, done.stderr
    seen = [line.split("(")[0].split()[-1] for line in calls.read_text().splitlines() if str(out) in line]
    assert seen[-3:] == ["fsync", "rename", "fsync"] and {*seen[:-3]} == {"write"}


@pytest.mark.parametrize(
    "words",
    ["parse {} -o OUT/net.dict", "diff --save main {} --baselines OUT"],
)
def test_a_disk_that_is_mounted_read_only(words: str, tmp_path: Path, disk: Path) -> None:
    source = capture(tmp_path / "net.sqlite")
    (out := disk / "out").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    refused(words, source, out)


def refused(words: str, source: Path, out: Path) -> None:
    """AssertionError unless the command says in a line that it cannot write, with exit code 1, and leaves nothing."""
    arguments = [word.format(source).replace("OUT", str(out)) for word in words.split()]
    command = [sys.executable, "-m", "pyprof", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "cannot be" in done.stderr and str(out) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 3, done.stderr
    assert not list(out.iterdir())


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("free", [0, 2, 20])
def test_a_recording_on_a_full_disk(free: int, tmp_path: Path, disk: Path) -> None:
    program = tmp_path / "net.py"
    program.write_text("import torch\nfor _ in range(50):\n    torch.ones(9).add(1)\nprint('end of the program')\n")
    with (disk / "ballast").open("wb") as ballast:
        ballast.write(b"x" * (os.statvfs(disk).f_bavail - free) * os.statvfs(disk).f_frsize)
    command = [sys.executable, "-m", "pyprof", "run", "--tool", "torch", "-o", str(disk / "net"), str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    assert "No space left on device" in done.stderr or "is the disk full?" in done.stderr, done.stderr
    assert [path.name for path in disk.iterdir()] == ["ballast"]
