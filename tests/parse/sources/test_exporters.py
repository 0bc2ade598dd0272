"""One report of nsys 2020.4, exported by it and by each newer nsys that Debian has: the same records, and those of the program.

tests/data/README.md says how the files were made; `python scripts/compat.py --only nsys` does the same with the tools themselves.
"""

import gzip
from pathlib import Path

import pytest

from pyprof.cli import main
from tests.conftest import ROOT

EXPORTS = sorted((ROOT / "tests/data/exporters").glob("nsys_ops.*.sqlite.gz"))


def _records(capture: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["parse", "--kinds", "all", str(capture)]) == 0
    return capsys.readouterr().out


def test_every_exporter_gives_the_same_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [path.name.split(".", 1)[1] for path in EXPORTS] == [
        f"{v}.sqlite.gz" for v in ("2020.4", "2022.4", "2023.4", "2024.2")
    ]
    found = {}
    for path in EXPORTS:
        capture = tmp_path / path.name.removesuffix(".gz")
        capture.write_bytes(gzip.decompress(path.read_bytes()))
        found[path.name] = _records(capture, capsys)
    assert len(set(found.values())) == 1 and found[EXPORTS[0].name].count("\n") == 22


def test_they_are_those_of_another_recording_of_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded and exported by 2023.4, which tests/test_nsys_real.py holds against what the program says of itself."""
    columns = ["-c", "dir,op,params,layer,flops,bytes,src", "--csv"]
    capture = tmp_path / "net.sqlite"
    capture.write_bytes(gzip.decompress(EXPORTS[0].read_bytes()))
    assert main(["prof", *columns, str(capture)]) == 0
    oldest = capsys.readouterr().out
    assert main(["prof", *columns, str(ROOT / "tests/data/nsys_ops.sqlite")]) == 0
    assert oldest == capsys.readouterr().out and oldest.count("\n") == 23
