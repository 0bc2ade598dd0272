"""Time of ops that run again inside backward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyprof.loading.load import load
from pyprof.prof.frame import Frame
from pyprof.report.advice import recomputation
from pyprof.report.time.overview import Overview
from tests.timeline import Timeline


@pytest.mark.parametrize("again", [0, 1])
def test_forward_that_runs_again(tmp_path: Path, again: int) -> None:
    timeline = Timeline().op("relu(fp32[1000000])", ("relu_kernel", 500)).op("F.gelu(fp32[1000000])", ("gelu_kernel", 300))
    records = load(str(timeline.nsys.write(tmp_path / "net.sqlite")), with_host=True)
    records.columns["recomputed"] = np.array([0, again], np.int8)
    overview = Overview(Frame(records))
    advice = recomputation.find(overview)
    if not again:
        assert advice is None
        return
    assert advice is not None and advice.time_ns == 300_000
    assert advice.change is not None and overview.replay.saves_ns(advice.change) == 300_000
    assert "only if memory allows" in advice.do and advice.places[0].op == "gelu"
