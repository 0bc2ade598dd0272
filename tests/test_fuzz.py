"""Whole files of every format: each command gives a result. scripts/checks/run fuzz changes them by the thousand."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.checks.fuzzing import places
from scripts.checks.fuzzing.corpus import READERS, files_of
from scripts.checks.fuzzing.oracle import Case, arguments, complaint, make


@pytest.fixture(scope="module", autouse=True)
def no_process_left() -> Iterator[None]:
    yield
    places.close()


@pytest.mark.parametrize("reader", READERS)
def test_whole_files_and_some_changed_ones(tmp_path: Path, reader: str) -> None:
    folder = tmp_path / "in"
    for name, content in files_of(reader).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    whole = Case(folder, next(iter(files_of(reader))), reader, None, False)
    for seed in range(3):
        drawn = random.Random(seed)
        case = make(drawn, reader, tmp_path / f"changed{seed}") if seed else whole
        (out := tmp_path / f"out{seed}").mkdir()
        command = arguments(drawn, case, out)
        assert (complaint(case, command), command) == (None, command)
