"""What an op and the ops that it calls count together; over torch's whole operator database: scripts/checks/run formulas."""

from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from pyprof.loading.load import load
from pyprof.model.opcall import CONVERSIONS
from pyprof.prof.cost import cost_records


def test_a_conversion_costs_what_the_copy_inside_it_moved(tmp_path: Path) -> None:
    one: Any = torch.rand(10, 20)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        one.to(torch.float32)  # as it is
        one.to(torch.float64)
        one.t().contiguous()
        one.t().to(torch.bfloat16)
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    records = load(str(tmp_path / "trace.json"))
    moved, shown = cost_records(records).bytes, {}
    for row, code in enumerate(records["own"].tolist()):
        if records.calls[code].name in CONVERSIONS:
            shown[row] = (records.calls[code].op, int(moved[row]))
    assert list(shown.values()) == [("to", 0), ("to", 2400), ("contiguous", 1600), ("to", 1200)]
