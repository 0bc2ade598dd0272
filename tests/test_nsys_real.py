"""Programs under the real Nsight Systems: what was recorded is what the program did, call by call.

nsys comes from PATH or from the folder of scripts/install_nsys. No GPU is needed: NVTX ranges are recorded without one. The same
is asked of captures that scripts/make_test_data recorded in that way, so that machines without nsys test the reading half.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyprof.model.markers import Kind, Marker, decode, split_ids
from pyprof.model.opcall import DTypeArg, TensorSpec, contiguous_strides
from pyprof.recording.nsys import profile

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "programs"
DATA = ROOT / "tests" / "data"
LIVE = pytest.param("live", marks=[pytest.mark.nsys, pytest.mark.torch])


def find_nsys() -> str:
    home = os.environ.get("PYPROF_NSYS_HOME") or str(Path.home() / ".cache/pyprof/nsys")
    found = shutil.which("nsys") or shutil.which("nsys", path=f"{home}/bin")
    if found is None:
        # A machine that promised to have it (.ci/run) must not pass by skipping.
        (pytest.fail if os.environ.get("PYPROF_REQUIRE_NSYS") else pytest.skip)(
            "nsys is not here; scripts/install_nsys gets it"
        )
    return found


def run(*words: str | Path, **more: Any) -> str:
    more.setdefault("input", "")
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, f"{words}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def record(folder: Path, *program: str | Path) -> Path:
    """Run a Python program under nsys, NVTX only, forked processes too; the exported database."""
    nsys, env = find_nsys(), {**os.environ, "PYTHONPATH": str(ROOT)}
    flags = ["-t", "nvtx", "--sample=none", "--cpuctxsw=none", "--trace-fork-before-exec=true", "-f", "true"]
    report = folder / "net.nsys-rep"
    words = (*flags, "-o", str(folder / "net"), sys.executable, *map(str, program))
    code, text = profile(nsys, report, *words, seconds=300, env=env)
    assert code == 0, text
    run(nsys, "export", "--type", "sqlite", "-q", "true", "-o", folder / "net.sqlite", report, env=env)
    return folder / "net.sqlite"


@dataclass
class Range:
    start_ns: int
    end_ns: int
    tid: int
    pid: int
    marker: Marker

    def holds(self, other: Range) -> bool:
        return self.tid == other.tid and self.start_ns <= other.start_ns and other.end_ns <= self.end_ns and self is not other


def query(database: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a database, read by plain SQL and not by pyprof.parse."""
    connection = sqlite3.connect(database)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def read_ranges(database: Path) -> list[Range]:
    """All push/pop ranges by start."""
    sql = """SELECT start, end, globalTid & 0xFFFFFF, globalTid >> 24 & 0xFFFFFF, COALESCE(text, value) FROM NVTX_EVENTS
             LEFT JOIN StringIds ON id = textId WHERE eventType = 59 ORDER BY start, end DESC"""
    ranges = []
    for start, end, tid, pid, text in query(database, sql):
        bare, seq, _, keyed = split_ids(text)
        ranges.append(Range(start, end, tid, pid, decode(bare, keyed=keyed, numbered=seq >= 0)))
    return ranges


def where(found: Range, ranges: list[Range]) -> str:
    """The main thread is the one that began."""
    if found.pid != ranges[0].pid:
        return "child"
    return "main" if found.tid == ranges[0].tid else "thread"


@dataclass
class Ops:
    """Ranges of a run, what the program says that it did, and the database."""

    ranges: list[Range]
    truth: list[dict[str, Any]]
    database: Path

    def calls(self) -> list[tuple[Range, dict[str, Any]]]:
        """Each recorded call beside what the program wrote down: first the main thread's, then the other's, then the child's."""
        order = ["main", "thread", "child"]
        calls = [r for r in self.ranges if r.marker.kind is Kind.OP]
        calls.sort(key=lambda r: order.index(where(r, self.ranges)))
        said = sorted(self.truth, key=lambda t: order.index(t["where"]))
        assert [c.marker.name for c in calls] == [t["op"] for t in said]
        return list(zip(calls, said, strict=True))


def same(found: Any, truth: Any) -> bool:
    """Whether a decoded argument is what the program wrote down."""
    if isinstance(truth, dict) and "shape" in truth:
        shape = tuple(truth["shape"])
        strides = tuple(truth["strides"]) if truth["strides"] else contiguous_strides(shape)
        return found == TensorSpec(shape, truth["dtype"], strides, True if truth["grad"] else None)
    if isinstance(truth, dict) and "slice" in truth:
        return found == slice(*truth["slice"])
    if isinstance(truth, dict) and "torch" in truth:
        return found == DTypeArg(truth["torch"])
    kind, items = (tuple, truth["tuple"]) if isinstance(truth, dict) else (list, truth)
    if isinstance(items, list):
        return type(found) is kind and len(found) == len(items) and all(map(same, found, items))
    return type(found) is type(truth) and found == truth


@pytest.fixture(scope="module", params=["recorded", LIVE])
def ops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ops:
    """programs/nsys_ops.py, run now or earlier."""
    database, truth = DATA / "nsys_ops.sqlite", DATA / "nsys_ops.truth.json"
    if request.param == "live":
        folder = tmp_path_factory.mktemp("ops")
        database = record(folder, PROGRAMS / "nsys_ops.py", folder / "truth.json")
        truth = folder / "truth.json"
    return Ops(read_ranges(database), json.loads(truth.read_text()), database)


def test_each_call_is_recorded_once_with_its_arguments(ops: Ops) -> None:
    """Nothing more and nothing less: so nvtx's domain that drops ranges is not in use, and nothing came after shutdown."""
    for found, said in ops.calls():
        call = found.marker.call
        assert call is not None
        assert (where(found, ops.ranges), call.module, call.op) == (said["where"], said["mod"], said["op"])
        assert same(list(call.args), said["args"]), f"{call} is not {said}"
        assert dict(call.kwargs).keys() == said["kwargs"].keys()
        assert all(same(v, said["kwargs"][k]) for k, v in call.kwargs), f"{call} is not {said}"


# How the program spells calls whose line does not say `op(`.
SPELT = {
    "__mul__": "a * -3",
    "__getitem__": "a[",
    "add_": "optimizer.step()",
    "linear": "self.layers[1](",
    "relu": "torch.relu(",
}


def test_each_call_tells_its_source_line(ops: Ops) -> None:
    lines = (PROGRAMS / "nsys_ops.py").read_text().splitlines()
    for found, _ in ops.calls():
        (src,) = found.marker.src
        path, _, number = src.rpartition(":")
        assert Path(path).name == "nsys_ops.py"
        if ops.database.parent != DATA:  # the program may have grown since it was recorded
            assert SPELT.get(found.marker.name, f"{found.marker.name}(") in lines[int(number) - 1], found.marker.text


def test_each_call_stands_in_its_layers(ops: Ops) -> None:
    for found, said in ops.calls():
        assert [r.marker.name for r in ops.ranges if r.holds(found)] == said["layers"], found.marker.text


def test_every_range_is_closed(ops: Ops) -> None:
    """Also that of a call which raised: what is never popped ends with the session in nsys's export."""
    ((session_end,),) = query(ops.database, "SELECT max(stopTime) FROM ANALYSIS_DETAILS")
    assert ops.ranges
    assert all(r.end_ns is not None and r.start_ns <= r.end_ns < session_end for r in ops.ranges)


def test_layers_steps_and_optimizers_are_told_apart(ops: Ops) -> None:
    named = {kind: [r.marker.name for r in ops.ranges if r.marker.kind is kind] for kind in Kind}
    assert named[Kind.LAYER] == ["Net", "layers.0", "layers.1"]
    assert named[Kind.OPTIMIZER] == ["SGD.step"]
    assert [r.marker.step for r in ops.ranges if r.marker.kind is Kind.STEP] == [3]
    assert not named[Kind.USER]


def test_the_pipeline_prints_one_row_for_each_leaf_call(ops: Ops) -> None:
    """From the database through parse and prof, as a user types it."""
    parsed = run(sys.executable, "-m", "pyprof.parse", ops.database, cwd=ROOT)
    table = run(sys.executable, "-m", "pyprof.prof", "--csv", "-c", "kind,op,layer,pid,sil", input=parsed, cwd=ROOT)
    rows = list(csv.DictReader(io.StringIO(table)))
    calls = [found for found, _ in ops.calls()]
    leaves = [c for c in calls if not any(c.holds(other) for other in calls)]
    leaves.sort(key=lambda r: r.start_ns)
    assert [r["Op"] for r in rows] == [r.marker.name for r in leaves]
    assert [int(r["Sil(ns)"]) for r in rows] == [r.end_ns - r.start_ns for r in leaves]
    assert {r["Kind"] for r in rows} == {"cpu"}
    assert [r["Layer"] for r in rows if r["Op"] == "linear"] == ["layers.0", "layers.1"]


@pytest.fixture(scope="module", params=["recorded", LIVE])
def emitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/emit_nvtx_cpu.py, run now or earlier."""
    if request.param == "recorded":
        return DATA / "nsys_emit_nvtx.sqlite"
    include = Path(find_nsys()).resolve().parent / "nvtx" / "include"
    if not include.is_dir() or shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler and the NVTX headers that come with nsys")
    folder = tmp_path_factory.mktemp("emit")
    return record(folder, PROGRAMS / "emit_nvtx_cpu.py", folder, include)


def test_every_text_of_emit_nvtx_is_understood(emitted: Path) -> None:
    """Against a plain reading of the texts: cut at the literal keys."""
    rows = query(emitted, "SELECT text FROM NVTX_EVENTS WHERE eventType = 59 AND text IS NOT NULL ORDER BY start")
    assert len(rows) > 100
    for (text,) in rows:
        bare, seq, op_id, keyed = split_ids(text)
        marker = decode(bare, keyed=keyed, numbered=seq >= 0)
        name, *rest = re.split(r", (?=(?:seq|op_id|sizes|input_op_ids) = )", text)
        keys = dict(part.split(" = ", 1) for part in rest)
        assert (seq, op_id) == (int(keys.get("seq", -1)), int(keys["op_id"]))
        kind = (
            Kind.ENGINE
            if name.startswith("autograd::engine")
            else Kind.DISPATCH
            if name.startswith("aten::")
            else Kind.BACKWARD
        )
        assert (marker.kind, marker.name) == (kind, name.removeprefix("autograd::engine::evaluate_function: "))
        if kind is not Kind.ENGINE:
            assert marker.call is not None
            shapes = [tuple(dims) for dims in json.loads(keys["sizes"]) if dims]
            assert [tensor.shape for tensor in marker.call.tensors] == shapes


def test_backward_kernels_are_given_their_forward_calls(emitted: Path) -> None:
    """conv2d's and linear's backward rows carry the layer, line and shapes of the forward call, by sequence number alone."""
    parsed = run(sys.executable, "-m", "pyprof.parse", emitted, cwd=ROOT)
    table = run(sys.executable, "-m", "pyprof.prof", "--csv", "-c", "dir,op,layer,inner,params,flops", input=parsed, cwd=ROOT)
    rows = list(csv.DictReader(io.StringIO(table)))
    conv = [r for r in rows if r["Op"] == "conv2d"]
    assert [(r["Direction"], r["Layer"]) for r in conv] == [("fprop", "conv"), ("bprop", "conv")]
    assert conv[0]["Params"] == conv[1]["Params"]
    assert "N=4,C=3,H=6,W=6,K=8" in conv[0]["Params"]
    assert int(conv[0]["FLOPs"]) == 2 * 4 * 8 * 6 * 6 * 3 * 3 * 3
    products = [r for r in rows if r["Op"] == "linear" and r["Direction"] == "bprop" and "mm" in r["Inner"]]
    assert [int(r["FLOPs"]) for r in products] == [2 * 4 * 10 * 288] * 2
    assert {r["Layer"] for r in products} == {"fc"}


@pytest.mark.nsys
def test_layerwise_ranges_of_engines_are_layers(tmp_path: Path) -> None:
    from pyprof.loading.load import load_capture

    records = load_capture(record(tmp_path, PROGRAMS / "nsys_layerwise.py"))
    assert [records.calls[code].name for code in records["call"].tolist()] == ["aten::mm"], "a layer is no op"
    stack = records.stacks[int(records["scope"][0])]
    assert stack.layer == ("model.layers.0.mlp",)
    assert stack.reprs == ("{'Module': 'model.layers.0', 'Inputs': [[32, 64]]}", "model.layers.0.mlp in=[[32, 64]]")
