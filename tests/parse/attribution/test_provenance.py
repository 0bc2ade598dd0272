"""Source lines of compiled kernels from Inductor's kernel_information.json beside the trace."""

import json
from pathlib import Path

from pyprof.loading.load import load
from tests.graph_traces import _x, write


def test_kernels_have_the_lines_that_they_were_made_from(tmp_path: Path) -> None:
    names = ("triton_poi_fused_add_0", "triton_poi_fused_mul_1", "triton_red_fused_sum_2", "gemm")
    events = []
    for at, name in enumerate(names):
        events.append(_x("cuda_runtime", "cuLaunchKernel", 100 * at, 2, correlation=at + 1))
        events.append(_x("kernel", name, 100 * at + 50, 5, 7, 0, device=0, stream=7, correlation=at + 1))
    run = write(tmp_path / "run.json", events)
    made = 'File "/app/net.py", line 10, in main\n    net(x)\n  File "/app/net.py", line {}, in forward\n    y = x + 1\n'
    information = {
        "triton_poi_fused_add_0:3": {
            "stack_traces": [made.format(21), made.format(22), made.format(21)],
            "pre_grad_nodes": ["add"],
        },
        "triton_poi_fused_mul_1:4": {"stack_traces": [made.format(30)]},
        "triton_poi_fused_mul_1:5": {"stack_traces": [made.format(31)]},  # of two of one name that differ none is known
        "triton_red_fused_sum_2:6": {"stack_traces": []},
    }
    (tmp_path / "kernel_information.json").write_text(json.dumps(information))
    records = load(str(run))
    lines = [records.stacks[code].trace for code in records["scope"].tolist()]
    assert lines == [("/app/net.py:21", "/app/net.py:22"), (), (), ()]
    assert "kernels with source lines from kernel_information.json: 1" in records.notes
    (tmp_path / "kernel_information.json").write_text("{not json")
    assert load(str(run)).stacks[0].trace == ()
