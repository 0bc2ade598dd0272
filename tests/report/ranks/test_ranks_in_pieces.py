"""The tables of ranks do not depend on how many rows are handled at a time, nor on where their columns lie."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyprof.arrays import sorting, spool
from pyprof.cli import main
from tests.rank_records import Job, write_rank

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")


def printed(capsys: pytest.CaptureFixture[str], *files: Path) -> list[object]:
    """Every table of `pyprof ranks`."""
    assert main(["ranks", *map(str, files), "--format", "json"]) == 0
    out = capsys.readouterr().out
    tables: list[object] = json.loads(out)
    return tables


def printed_in_pieces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rows: int, *files: Path
) -> list[object]:
    with monkeypatch.context() as patch:
        patch.setattr(spool, "PIECE_ROWS", rows)
        patch.setattr(sorting, "PIECE_ROWS", rows)
        patch.setattr(spool, "_LEAST_BYTES", 64)
        patch.setattr(spool, "_MOST_MAPPED_BYTES", 0)
        return printed(capsys, *files)


def test_generated_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job(3, 2, 4, 5, offsets=(0, 7_000, -90_000), straggler=(1, 2, 400), jitter=200, utc_ns=1_700_000_000_000_000_000)
    for rank in range(job.ranks):
        write_rank(tmp_path / "job", rank, job.records(rank))
    whole = printed(capsys, tmp_path / "job")
    assert len(json.dumps(whole)) > 2000
    assert printed_in_pieces(monkeypatch, capsys, 3, tmp_path / "job") == whole


@pytest.mark.parametrize("name", ["kineto/v100_dlrm_8ranks", "nsys/h100_2gpu_train.nsys2026.2.sqlite"])
def test_given_ranks(name: str, captures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    whole = printed(capsys, captures / name)
    assert printed_in_pieces(monkeypatch, capsys, 61, captures / name) == whole
