"""Advice on programs that run on a CPU: what `pyprof bench --advice` can try there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.timeline import advice_of, overview_of


class Cpu:
    """Ops one after another on one thread, each with the sizes of its arguments and its time in us."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.at = 0

    def op(self, name: str, dims: list[list[int]], us: int) -> Cpu:
        args = {"Input Dims": dims, "Input type": ["float"] * len(dims)}
        self.events.append(
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 7, "ts": self.at, "dur": us, "args": args}
        )
        self.at += us
        return self

    def write(self, folder: Path) -> Path:
        path = folder / "net.json"
        path.write_text(json.dumps({"schemaVersion": 1, "record_shapes": 1, "traceEvents": self.events}))
        return path


@pytest.mark.parametrize("length", [128, 64])
def test_scores_that_are_written_out(tmp_path: Path, length: int) -> None:
    """Softmax and scale of long sequences would go; what the products take is not told without a peak."""
    heads, scores = [8, 4, length, 32], [8, 4, length, length]
    cpu = Cpu().op("aten::matmul", [heads, [8, 4, 32, length]], 100).op("aten::mul", [scores, []], 50)
    cpu.op("aten::softmax", [scores], 300).op("aten::matmul", [scores, heads], 100)
    found = advice_of(overview_of(cpu.write(tmp_path))).get("fused_attention")
    if length < 128:
        assert found is None
        return
    assert found is not None and found.saves_ns == found.time_ns == 350_000
    assert found.evidence.startswith("attention is not fused: 2 ops on its scores take 350 us: 1 x softmax")
    assert "scaled_dot_product_attention" in found.do


def test_an_optimizer_of_many_ops(tmp_path: Path) -> None:
    """20 ops of 20 us; one pass takes as long as addcdiv_, which moves 4 tensors, for 7."""
    cpu = Cpu().op("aten::mm", [[64, 64], [64, 64]], 600)
    begin = cpu.at
    for _ in range(10):
        cpu.op("aten::mul_", [[1000], []], 20).op("aten::addcdiv_", [[1000], [1000], [1000]], 20)
    step = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#AdamW.step", "pid": 7, "tid": 7, "ts": begin - 1}
    cpu.events.append({**step, "dur": cpu.at - begin + 2, "args": {}})
    found = advice_of(overview_of(cpu.write(tmp_path)))["fused_optimizer"]
    assert found.evidence.startswith("20 ops of AdamW take 400 us, one pass over the parameters 350 us: 10 x ")
    assert found.saves_ns == 50_000 and found.do == "AdamW(..., fused=True)"
