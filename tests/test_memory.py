"""`--max-memory`: what a size is, and a file that needs more."""

import errno
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pyprof import memory
from pyprof.cli import main
from pyprof.errors import UsageError
from pyprof.memory import bytes_of
from tests.tiny import Nsys


def test_sizes_as_people_write_them() -> None:
    assert [bytes_of(text) for text in ("500M", "4G", "4GiB", "1t", "67108864")] == [
        500 << 20,
        4 << 30,
        4 << 30,
        1 << 40,
        64 << 20,
    ]
    for text in ("", "x", "-1G", "1.5G", "63M", "4 G B", "9" * 5000):
        with pytest.raises(UsageError):
            bytes_of(text)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit counts only the heap elsewhere")
def test_a_file_that_needs_more_ends_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "net.dict"
    with path.open("wb") as stream:
        stream.write(b'{"kShortName": "')
        stream.truncate(600 << 20)  # one line, of which the disk holds nothing
    command = [sys.executable, "-m", "pyprof", "prof", str(path), "--max-memory", "256M"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0] == "pyprof: error: out of memory" and len(done.stderr.splitlines()) == 2


def test_a_mapping_or_process_for_which_none_is_left_is_no_fault_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("pyprof.cli._run_command", full)
    assert main(["summary", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("pyprof: error: out of memory\nhint: ")


def test_what_a_file_will_take_is_foreseen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with one row whose number is 100 million: as many kernels are expected, and nothing is read."""
    n = Nsys()
    n.kernel("k", 10, 100, 200)
    file = n.write(tmp_path / "n.sqlite")
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET rowid = 100000000")
        db.commit()
    with file.open("r+b") as stream:
        stream.truncate(2 << 30)  # room for them, of which the disk holds nothing
    for command in ("summary", "parse", "prof"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "machine_bytes", lambda: 8 << 30)
            assert main([command, str(file)]) == 1
        error, hint = capsys.readouterr().err.splitlines()
        assert f"{command} would take about" in error and "this machine has 8.0 GiB" in error and "--time" in hint


def test_a_part_of_records_is_not_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    n = Nsys()
    n.kernel("k", 10, 100, 200)
    assert main(["parse", str(n.write(tmp_path / "n.sqlite")), "-o", str(tmp_path / "n.parquet")]) == 0
    monkeypatch.setattr(memory, "machine_bytes", lambda: 1 << 20)
    assert main(["prof", str(tmp_path / "n.parquet")]) == 1
    assert "--time 0s:10s or --step A:B reads a part of it" in capsys.readouterr().err
    assert main(["prof", str(tmp_path / "n.parquet"), "--time", "0s:1s"]) == 0
