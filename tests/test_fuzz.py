"""Changed files of every format: a result or one line and a hint, in time, nothing lost. scripts/fuzz does the same for hours."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzzing.corpus import READERS, files_of
from tests.fuzzing.oracle import Case, arguments, complaint, make


@pytest.mark.parametrize("reader", READERS)
def test_the_files_that_are_changed_are_whole(tmp_path: Path, reader: str) -> None:
    folder = tmp_path / "in"
    for name, content in files_of(reader).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    case = Case(folder, next(iter(files_of(reader))), reader, None, False)
    for seed in range(12):
        command = arguments(random.Random(seed), case, tmp_path)
        assert (complaint(case, command), command) == (None, command)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 30))
def test_a_changed_file_gives_a_result_or_one_line(tmp_path: Path, reader: str, seed: int) -> None:
    shutil.rmtree(tmp_path)
    drawn = random.Random(f"{reader} {seed}")
    case = make(drawn, reader, tmp_path / "in")
    (tmp_path / "out").mkdir()
    command = arguments(drawn, case, tmp_path / "out")
    assert (complaint(case, command), command) == (None, command)
