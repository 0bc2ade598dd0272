"""`--max-memory`: what a size is, and a file that needs more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.errors import UsageError
from pyprof.memory import bytes_of


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
