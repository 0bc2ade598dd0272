"""What the host did in pauses, on a trace of two threads that fits on a screen."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.loading.load import open_trace
from pyprof.model.trace import Trace
from pyprof.parse.attribution.pauses import LOADING, PYTHON, begin_of, doing

MAIN, ENGINE = 100, 101


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Step 3 from 1000 to 9000: loads data, then a range of the user's with an op in it; its backward runs on another thread."""
    ranges: list[tuple[str, str, int, int, int]] = [
        ("user_annotation", "ProfilerStep#3", 1000, 9000, MAIN),
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1100, 2000, MAIN),
        ("cpu_op", "aten::stack", 1150, 1950, MAIN),
        ("user_annotation", "evaluate 17", 3000, 6000, MAIN),
        ("cpu_op", "aten::sort", 4000, 5000, MAIN),
        ("cpu_op", "autograd::engine::evaluate_function: MulBackward0", 7500, 7600, ENGINE),
    ]
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": cat, "name": name, "pid": MAIN, "tid": tid, "ts": begin, "dur": end - begin, "args": {}}
        for cat, name, begin, end, tid in ranges
    ]
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return open_trace(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("tid", "begin", "end", "expected"),
    [
        (MAIN, 1050, 2010, LOADING),  # not the op within, which is what loading does
        (MAIN, 4100, 4900, "sort"),
        (MAIN, 3000, 5900, "evaluate"),  # the op takes less than half of it; its number changes from step to step
        (MAIN, 6500, 7400, PYTHON),
        (MAIN, 20_000, 30_000, ""),
        (ENGINE, 4100, 4900, "sort"),  # the engine's thread had nothing to do then
    ],
)
def test_what_covers_at_least_half_of_a_pause(trace: Trace, tid: int, begin: int, end: int, expected: str) -> None:
    us = 1000
    times = (np.array([t * us]) for t in (begin, end))
    (found,) = doing(trace, np.array([MAIN]), np.array([tid]), *times)
    assert found.removeprefix("aten::") == expected


def test_when_a_process_began(trace: Trace) -> None:
    assert [begin_of(trace, MAIN, step, 10_000) for step in (3, 4)] == [1_000_000, -1]
    assert begin_of(trace, 7, 3, 10_000) == -1
