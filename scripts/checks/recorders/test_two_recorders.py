"""One program on this machine, recorded twice: under the real Nsight Systems and by torch.profiler; op by op the same."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from pyprof.loading.load import load_capture
from pyprof.model.opcall import OpCall
from pyprof.model.records import DIRECTIONS, PHASES
from pyprof.prof import formulas
from pyprof.prof.frame import Frame
from tests.test_nsys_real import PROGRAMS, ROOT, find_nsys, record, run

pytestmark = [pytest.mark.nsys, pytest.mark.torch]

# What a Python call is called, and the dispatcher's op which it becomes.
ALIASES = {"cross_entropy": "cross_entropy_loss", "__add__": "add"}


class Row(NamedTuple):
    """One op of a CPU capture."""

    op: str
    direction: str
    phase: str
    shapes: list[tuple[int, ...]]
    flops: int
    bytes: int
    own: OpCall
    layer: tuple[str, ...]


def rows_of(path: Path) -> list[Row]:
    records = load_capture(path)
    costs = Frame(records).costs
    found = []
    for row in range(len(records)):
        call, own = records.calls[records["call"][row]], records.calls[records["own"][row]]
        shapes = [t.shape for t in call.tensors if t.shape]  # emit_nvtx prints a 0-dimensional tensor like a number
        op = "view" if formulas.is_structural(call.name) else ALIASES.get(call.op, call.op)
        layer = records.stacks[records["scope"][row]].layer
        direction, phase = DIRECTIONS[records["dir"][row]], PHASES[records["phase"][row]]
        found.append(Row(op, direction, phase, shapes, int(costs.flops[row]), int(costs.bytes[row]), own, layer))
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], list[Row]]:
    """Rows of the nsys capture, of the torch.profiler trace."""
    include = Path(find_nsys()).resolve().parent.parent / "target-linux-x64" / "nvtx" / "include"
    if not include.is_dir():
        include = Path(find_nsys()).resolve().parent / "nvtx" / "include"
    if not include.is_dir() or shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler and the NVTX headers that come with nsys")
    folder, program = tmp_path_factory.mktemp("twice"), PROGRAMS / "recorded_twice.py"
    run(sys.executable, program, "torch", folder / "net.json", env={**os.environ, "PYTHONPATH": str(ROOT)})
    return rows_of(record(folder, program, "nsys", folder, include)), rows_of(folder / "net.json")


def test_ops_directions_and_shapes_are_the_same_in_the_same_order(both: tuple[list[Row], list[Row]]) -> None:
    nsys, torch = both
    assert len(nsys) == len(torch) > 100
    assert [(r.op, r.direction, r.phase) for r in nsys] == [(r.op, r.direction, r.phase) for r in torch]
    assert {r.phase for r in nsys} == {"forward", "backward", "optimizer"}
    for a, b in zip(nsys, torch, strict=True):
        # What C++ casts, of which no text carries a size, is the one shape that a run under nsys cannot tell.
        assert a.shapes == b.shapes or not a.own.described, (a, b)


def test_layers_are_the_same_paths_in_forward_and_backward(both: tuple[list[Row], list[Row]]) -> None:
    nsys, torch = ([row for row in rows if row.phase != "optimizer"] for rows in both)
    assert [(r.op, r.layer) for r in torch] == [(r.op, r.layer) for r in nsys]
    deepest = [row.phase for row in torch if row.layer == ("head.1.1",)]
    assert set(deepest) == {"forward", "backward"}
    assert {row.layer for row in torch} >= {("Net",), ("conv",), ("bn",), ("qkv",), ("head.0",), ("head.1.0",), ("head.1.1",)}


def test_flops_and_bytes_are_the_same(both: tuple[list[Row], list[Row]]) -> None:
    """Bytes under nsys are unknown where C++ started an op and no forward marker tells its types; else equal."""
    counts = {"equal": 0, "unknown": 0, "wrapped": 0, "expanded": 0}
    for a, b in zip(*both, strict=True):
        assert a.flops == b.flops or (a.flops == -1 and not a.own.tensors), (a, b)
        numbers = sum(not t.shape for t in b.own.tensors)
        if a.bytes == b.bytes:
            counts["equal"] += 1
        elif a.bytes == -1:
            assert not a.own.tensors or any(t.dtype is None for t in a.own.tensors), (a, b)
            counts["unknown"] += 1
        elif any(0 in (t.strides or ()) for t in b.own.tensors):
            counts["expanded"] += 1  # emit_nvtx does not print strides
        else:
            # A Python number beside a tensor is wrapped by torch into a tensor of 8 bytes, which Kineto shows as one.
            assert numbers and b.bytes - a.bytes == 8, (a, b)
            counts["wrapped"] += 1
    total = sum(counts.values())
    assert counts["equal"] >= 0.65 * total and counts["expanded"] <= 2, counts
    matmul = [(a.flops, a.bytes) for a, b in zip(*both, strict=True) if formulas.matmul_class(b.own.name)]
    assert len(matmul) >= 9 and all(flops > 0 and moved > 0 for flops, moved in matmul)
