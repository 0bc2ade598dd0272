"""nsys that fails by itself is started again; a program that ran is not."""

import os
import sys
from pathlib import Path

import pytest

from pyprof.recording.nsys import STARTS, is_running, profile

FAILS = f"""#!{sys.executable}
import os, subprocess, sys
with open("starts", "a") as starts:
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, file=starts)
print("start", len(open("starts").readlines()))
{{report}}
sys.exit({{code}})
"""


@pytest.mark.parametrize(
    ("code", "report", "starts"),
    [
        (1, "", STARTS),
        (0, "", STARTS),  # it says that all went well
        (0, "len(open('starts').readlines()) < 2 or open('net.nsys-rep', 'w')", 2),
        (0, "open('net.nsys-rep', 'w')", 1),
        (1, "open('net.nsys-rep', 'w')", 1),
    ],
)
def test_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, report: str, starts: int) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nsys").write_text(FAILS.format(code=code, report=report))
    (tmp_path / "nsys").chmod(0o755)
    found = profile("./nsys", tmp_path / "net.nsys-rep", "-o", "net", "program", seconds=60)
    left = [int(line) for line in (tmp_path / "starts").read_text().split()]
    assert found == (code, f"start {starts}\n") and len(left) == starts
    kept = 1 if report else 0
    assert [is_running(pid) for pid in left] == [False] * (starts - kept) + [True] * kept
    for pid in left[starts - kept :]:
        os.kill(pid, 9)
