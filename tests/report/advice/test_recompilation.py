"""Frames that are compiled again in each step: how often, how long, and why, where a ledger tells it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.timeline import advice_of, overview_of

SIZE = "tensor 'x' size mismatch at index 0. expected 8, actual {}"


def _capture(folder: Path, steps: int, frames: int, reasons: tuple[str, ...] = ()) -> Path:
    """Steps of 1,000 us: each compiles its frames, 200 us each, and runs an op of 100 us for each; all in a ledger."""
    events = []

    def event(name: str, at: int, took: int, kind: str = "cpu_op") -> None:
        events.append({"ph": "X", "cat": kind, "name": name, "pid": 7, "tid": 7, "ts": at, "dur": took, "args": {}})

    for step in range(steps):
        event("Optimizer.step#SGD.step", 1_000 * step + 990, 9, "user_annotation")
        for frame in range(frames):
            begin = 1_000 * step + 300 * frame
            event("_compile.compile_inner (dynamo_timed)", begin, 200)
            event(f"dynamo_data: compile_id={frame}/{step}", begin + 10, 1, "user_annotation")
            event("compile_attempt_0 (dynamo_timed)", begin + 20, 100)
            event("aten::mm", begin + 200, 100)
    path = folder / "net.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    lines = [
        {"compile": "recompile", "step": 1, "frame": "forward", "reason": one, "file": "a/net.py", "line": 6} for one in reasons
    ]
    lines += [
        {"compile": "graph_break", "step": 0, "frame": "forward", "reason": "Tensor.item()", "file": "net.py", "line": 8}
    ] * bool(lines)
    (folder / "net.steps.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return path


def test_frames_times_and_share_are_those_of_the_trace(tmp_path: Path) -> None:
    """Steps 2 to 4 of four hold three compilations of each of three frames: 9 x 200 of 3,000 us."""
    advice = advice_of(overview_of(_capture(tmp_path, 4, 3)))
    found = advice["recompilation"]
    assert found.evidence == "torch.compile compiles 3 frames 3 times each: 1.80 ms of 3.00 ms (60 %)"
    assert (found.saves_ns, found.time_ns) == (1_800_000, 1_800_000) and "TORCH_LOGS" in found.do
    assert next(iter(advice)) == "recompilation" and "warmup" not in advice


def test_one_frame_that_is_compiled_once_more(tmp_path: Path) -> None:
    found = advice_of(overview_of(_capture(tmp_path, 2, 1)))["recompilation"]
    assert found.evidence.startswith("torch.compile compiles 1 frame once: ")


def test_the_ledger_says_why(tmp_path: Path) -> None:
    found = advice_of(overview_of(_capture(tmp_path, 4, 3, tuple(map(SIZE.format, (9, 10))))))["recompilation"]
    assert "; 2 x forward (net.py:6), first since tensor 'x' size mismatch at index 0. expected 8, actual 9; " in found.evidence
    assert found.evidence.endswith("; 1 graph break, first at net.py:8: Tensor.item()")
    assert "dynamic=True" in found.do and "mark_dynamic(x, 0)" in found.do


def test_another_guard_is_not_a_size(tmp_path: Path) -> None:
    found = advice_of(overview_of(_capture(tmp_path, 4, 1, ("0/1: self.training == True",))))["recompilation"]
    assert found.do.startswith("keep equal") and found.do.endswith(": self.training == True")


def test_a_first_compilation_is_no_recompilation(tmp_path: Path) -> None:
    path = _capture(tmp_path, 4, 1)
    path.write_text(path.read_text().replace("compile_id=0/", "compile_id=9/0, at "))
    assert "recompilation" not in advice_of(overview_of(path))
