"""The benchmarks run, on data of the smallest size; what they measure is not looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.tiny import Nsys

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")


def _run(script: str, *arguments: str) -> dict[str, object]:
    command = [sys.executable, str(ROOT / "scripts" / "bench" / script), *arguments, "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_ranks_finds_what_it_put_there() -> None:
    (row,) = _run("ranks.py", "--ranks", "4", "--kernels", "8000", "--repeat", "1")["rows"]  # type: ignore[misc]
    assert row["ranks"] == 4 and row["peak_mib"] > 0


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="reads what other processes take from /proc/stat")
def test_many_runs_pairs(tmp_path: Path) -> None:
    for rank in range(2):
        n = Nsys()
        n.kernel("k", 5, 200, 210)
        n.write(tmp_path / f"rank{rank}.sqlite")
    found = _run("many.py", str(tmp_path), "--jobs", "2", "--repeat", "1")
    assert len(found["pairs"]) == 1 and found["jobs"] == 2  # type: ignore[arg-type]


def test_deep_measures_each_depth() -> None:
    rows = _run("deep.py", "--ranges", "24", "48", "--depths", "8", "0", "--repeat", "1")["rows"]
    assert [(row["depth"], row["ranges"], row["rows"]) for row in rows] == [
        (8, 24, 72),
        (8, 48, 144),
        (24, 24, 72),
        (48, 48, 144),
    ]  # type: ignore[attr-defined]
