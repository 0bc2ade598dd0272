"""torch.distributed on two processes over gloo: told, and the same with the instrumenter as without."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no torch.distributed with gloo", allow_module_level=True)

PROGRAM = Path(__file__).with_name("collectives.py")


def run_pair(folder: Path, how: str) -> list[dict[str, Any]]:
    """Both processes' reports."""
    store = str(folder / f"store_{how}")
    pair = [
        subprocess.Popen([sys.executable, str(PROGRAM), str(rank), store, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    found = []
    for process in pair:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
        found.append(json.loads(out))
    return found


@pytest.mark.slow
def test_collectives_ddp_fsdp_and_dtensor_are_told_and_unchanged(tmp_path: Path) -> None:
    on, off = run_pair(tmp_path, "on"), run_pair(tmp_path, "off")
    for told, plain in zip(on, off, strict=True):
        assert told["results"] == plain["results"]
        assert (told["open"], told["errors"], plain["told"]) == (0, "", [])
    both = [
        *["all_reduce([fp32[4]])"] * 2,
        *("broadcast([fp32[4]])", "reduce([fp32[4]])", "all_gather([[fp32[4], fp32[4]]], [fp32[4]])"),
        *("all_gather_into_tensor(fp32[8], fp32[4])", "reduce_scatter_tensor(fp32[2], fp32[4])"),
        "reduce_scatter([fp32[2]], [[fp32[2], fp32[2]]])",
        "all_to_all_single(fp32[4], fp32[4], output_split_sizes=[2, 2], input_split_sizes=[2, 2])",
    ]
    for told in on:
        assert told["told"][: len(both)] == both
        assert {"torch.ops._c10d_functional.all_reduce"} <= set(told["later"])
    assert "gather([[fp32[4], fp32[4]]], [fp32[4]])" in on[0]["told"]
    assert "scatter([fp32[4]], [[fp32[4], fp32[4]]])" in on[0]["told"]
    assert on[0]["told"].count("send([fp32[4]], dst=1, tag=0)") == 2
    assert on[1]["told"].count("recv([fp32[4]], src=0, tag=0)") == 2
    assert [call.partition("(")[0] for call in on[0]["told"][-4:-2]] == ["barrier", "monitored_barrier"]
