"""A training step under autocast and the same one with its casts written by hand: op by op the same types, FLOPs and bytes.

tests/programs/autocast_step.py, recorded by torch.profiler, under the real Nsight Systems, and there with emit_nvtx too.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from pyprof.loading.load import load_capture
from pyprof.model.records import DIRECTIONS
from pyprof.prof import formulas
from pyprof.prof.frame import Frame
from tests.test_nsys_real import PROGRAMS, ROOT, find_nsys, record, run

pytestmark = [pytest.mark.nsys, pytest.mark.torch]

PROGRAM = PROGRAMS / "autocast_step.py"
Row = tuple[str, str, str, int, int]  # op, direction, params, FLOPs, bytes


def rows_of(path: Path) -> Counter[Row]:
    """The ops of a capture that do work, without views (Python's broadcasting is called before the casts)."""
    frame = Frame(load_capture(path))
    records, costs = frame.records, frame.costs
    found: Counter[Row] = Counter()
    for row in range(len(records)):
        call, own = records.calls[records["call"][row]], records.calls[records["own"][row]]
        flops, moved = int(costs.flops[row]), int(costs.bytes[row])
        if not formulas.is_structural(own.name) and (flops, moved) != (0, 0):
            found[call.op, DIRECTIONS[records["dir"][row]], formulas.params(call), flops, moved] += 1
    return found


def recorded(folder: Path, casts: str, dtype: str, tool: str) -> Counter[Row]:
    if tool == "torch":
        folder.mkdir()
        run(sys.executable, PROGRAM, casts, dtype, tool, folder / "net.json", env={**os.environ, "PYTHONPATH": str(ROOT)})
        return rows_of(folder / "net.json")
    folder.mkdir()
    build: list[str | Path] = []
    if tool == "nsys and emit_nvtx":
        include = Path(find_nsys()).resolve().parent.parent / "target-linux-x64" / "nvtx" / "include"
        if not include.is_dir() or shutil.which("c++") is None:
            pytest.skip("needs a C++ compiler and the NVTX headers that come with nsys")
        build = [folder, include]
    return rows_of(record(folder, PROGRAM, casts, dtype, "nsys", *build))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("tool", ["torch", "nsys", "nsys and emit_nvtx"])
def test_autocast_is_as_cast_by_hand(tmp_path: Path, tool: str, dtype: str) -> None:
    amp, hand = (recorded(tmp_path / casts, casts, dtype, tool) for casts in ("amp", "hand"))
    if tool == "nsys":  # without emit_nvtx nothing marks the casts inside an op, or the backward
        amp, hand = (Counter({row: n for row, n in rows.items() if row[0] != "to"}) for rows in (amp, hand))
    assert amp == hand
    assert sum(amp.values()) > (100 if tool == "nsys" else 250)
    tag = "bf16" if dtype == "bfloat16" else "fp16"
    assert amp["linear", "fprop", f"M=64,N=32,K=48,{tag}", 2 * 64 * 32 * 48, 2 * (64 * 48 + 32 * 48 + 32 + 64 * 32)] == 2
    products = [row for row in amp if row[2].startswith("M=")]
    assert {row[2].rpartition(",")[2] for row in products} == {tag, "fp32"}
    if tool != "nsys":
        assert any(row[1] == "bprop" and row[0] == "to" for row in amp)
