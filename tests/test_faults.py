"""Outputs under faults: killed, interrupted, terminated at some calls of the writing, stopped by a quota. All: scripts/faults."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults import OUTPUTS, STRIKES, calls, cases, fill, strike

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks, and limits the size of files"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
KINDS = ("parse .dict", "parse .parquet", "prof .csv", "scrub")


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_is_whole_or_as_it_was_wherever_the_process_is_struck(kind: str, tmp_path: Path) -> None:
    for case in cases(kind, tmp_path):
        count = calls(case[2], case[3])
        assert count > 20
        for number, how in enumerate(STRIKES):
            for point in range(number, count + 1, max(count // 4, 1)):
                strike(case, point, how)


@pytest.mark.parametrize("kind", KINDS)
def test_a_quota_is_one_line_and_leaves_what_was(kind: str, tmp_path: Path) -> None:
    for case in cases(kind, tmp_path):
        for part in (0, 0.9):
            fill(case, int(len(case[4]) * part))


@pytest.mark.slow
@pytest.mark.parametrize("kind", OUTPUTS)
def test_every_kind_of_output_at_many_calls(kind: str, tmp_path: Path) -> None:
    for case in cases(kind, tmp_path):
        count = calls(case[2], case[3])
        for how in STRIKES:
            for point in range(0, count + 1, max(count // 40, 1)):
                strike(case, point, how)
        for size in range(0, len(case[4]), max(len(case[4]) // 20, 1)):
            fill(case, size)
