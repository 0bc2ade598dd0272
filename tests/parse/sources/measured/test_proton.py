"""Profiles of Triton's Proton."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.errors import InputError
from pyprof.loading.load import load_counters
from pyprof.parse.sources.measured.proton import is_hatchet, read_chrome_trace, read_hatchet


def node(name: str, *children: dict[str, Any], **metrics: object) -> dict[str, Any]:
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}


def kernel(name: str, time: object, *children: dict[str, Any], **metrics: object) -> dict[str, Any]:
    return node(name, *children, **{"time (ns)": time, "device_id": "0", "device_type": "CUDA", **metrics})


def test_kernels_below_their_scopes() -> None:
    tree = node(
        "ROOT", node("step", node("forward", kernel("mm", 50, count=2, flops16=4e9, bytes=300)), kernel("copy", 7, count=1))
    )
    facts = {"CUDA": {"0": {"arch": "90", "num_sms": 132}}}
    found = read_hatchet(io.BytesIO(json.dumps([tree, facts]).encode()), "p.hatchet")
    assert [(one.name, one.scopes, one.times, one.device, one.cc) for one in found.launches] == [
        ("mm", ("step", "forward"), 2, 0, "9.0"),
        ("copy", ("step",), 1, 0, "9.0"),
    ]
    assert found.of("gpu__time_duration.sum").tolist() == [50, 7]
    assert found.of("flops16")[0] == 4e9 and found.of("bytes")[0] == 300


def test_nodes_that_are_more_than_kernels() -> None:
    """A kernel may hold others below it, and a scope figures of its own, some of them lists."""
    outer = kernel("outer", 10, kernel("inner", 5, count=1), count=2)
    tree = node("ROOT", node("layer", outer, kernel("copy", 7, count=1), flops8=100.0, bytes=20, sizes=[1, 2]))
    tree["children"][0]["children"][0]["metrics"]["device_type"] = "HIP"
    facts = {"CUDA": {"0": {"arch": "100a"}}, "HIP": {"0": {"arch": "gfx942"}}}
    found = read_hatchet(io.BytesIO(json.dumps([tree, facts]).encode()), "p.hatchet")
    assert [(one.name, one.scopes, one.times, one.cc, one.is_scope) for one in found.launches] == [
        ("outer", ("layer",), 2, "", False),
        ("inner", ("layer", "outer"), 1, "10.0", False),
        ("copy", ("layer",), 1, "10.0", False),
        ("layer", (), 4, "", True),
    ]
    assert found.of("gpu__time_duration.sum").tolist() == [10, 5, 7, 22] and found.of("flops8")[3] == 100


def kernel_event(name: str, ts: float, tid: int, *scopes: str, **metrics: str) -> dict[str, Any]:
    args = {"call_stack": ["ROOT", *scopes, name], **({"metrics": metrics} if metrics else {})}
    return {"name": name, "cat": "kernel", "ph": "X", "ts": ts, "dur": 1.5, "tid": tid, "args": args}


def test_a_trace_of_an_older_version_has_a_line_for_each_stream(tmp_path: Path) -> None:
    streams = [[kernel_event("b", 2.0, 7, "forward")], [kernel_event("a", 1.0, 20), kernel_event("c", 3.0, 20)]]
    path = tmp_path / "p.chrome_trace"
    path.write_text("".join(json.dumps({"displayTimeUnit": "us", "traceEvents": events}) + "\n" for events in streams))
    found, _ = load_counters(str(path))
    assert [(one.name, one.scopes, one.stream) for one in found.launches] == [
        ("a", (), 20),
        ("b", ("forward",), 7),
        ("c", (), 20),
    ]
    assert found.of("gpu__time_duration.sum").tolist() == [1500] * 3


def test_a_trace_with_scopes_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lane = {"ph": "M", "pid": 0, "tid": 200007, "name": "thread_name", "args": {"name": "GPU Stream 7"}}
    scope = {"cat": "metric", "ph": "X", "ts": 0.0, "dur": 9.0, "tid": 1}
    figures = {"call_stack": ["ROOT", "step"], "metrics": {"flops": "500", "bytes": "[1,2]"}}
    events = [
        lane,
        {**scope, "name": "step: <flops, 500>", "args": figures},
        {**scope, "name": "step: <flops, 500>", "args": figures},
        {**scope, "cat": "scope", "name": "forward", "args": {"call_stack": ["ROOT", "forward"]}},
        {"ph": "s", "cat": "flow", "name": "launch->kernel", "id": 3, "ts": 1.0, "tid": 1},
        kernel_event("mm", 5.0, 200007, "step", flops16="4000000000"),
    ]
    path = tmp_path / "p.chrome_trace"
    path.write_text(json.dumps({"displayTimeUnit": "us", "traceEvents": events}, separators=(",", ":")))
    assert main(["counters", str(path), "-c", "kind,name,stream,flops_model,tool_ns,ranges", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["kernel,mm,7,4000000000,1500,step", "scope,step,na,1000,1500,-"]
    assert main(["prof", str(path)]) == 1
    assert "measured counters, not a capture" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"traceEvents": 3}', '{"traceEvents": [', '{"traceEvents": []}\n{"tr'])
def test_damaged_traces(text: str) -> None:
    with pytest.raises(InputError, match="not a trace of Proton"):
        read_chrome_trace(io.BytesIO(text.encode()), "p.chrome_trace")


@pytest.mark.parametrize("text", ["[]", "[{", "[1]", '[{"frame": {"name": 3}, "children": []}]', "[" * 100_000])
def test_damaged_files(text: str) -> None:
    with pytest.raises(InputError, match="not a profile of Proton"):
        read_hatchet(io.BytesIO(text.encode()), "p.hatchet")


def test_a_tree_without_kernels() -> None:
    with pytest.raises(InputError, match="no kernel ran"):
        read_hatchet(io.BytesIO(json.dumps([node("ROOT", node("scope"))]).encode()), "p.hatchet")


def test_a_published_profile(captures: Path) -> None:
    path = captures / "proton" / "proton.hatchet"
    assert is_hatchet(path.read_text()[:4096])
    found, trace = load_counters(str(path))
    assert trace is None and len(found) == 18 and {one.cc for one in found.launches} == {"9.0"}
    softmax = [row for row, one in enumerate(found.launches) if one.name == "softmax_kernel"]
    assert [found.of("gpu__time_duration.sum")[row] for row in softmax] == [4671, 4672, 4768]
    assert found.launches[softmax[0]].scopes == ("tritonbench_run_op_softmax", "x_val_[4096, 256]", "triton_softmax")


def test_a_stream_of_thousands_of_digits_is_unknown() -> None:
    event = kernel_event("k", 1.0, 7) | {"tid": "stream " + "9" * 5000}
    found = read_chrome_trace(io.BytesIO(json.dumps({"traceEvents": [event]}).encode()), "p.chrome_trace")
    assert [(one.name, one.stream) for one in found.launches] == [("k", -1)]


def test_figures_beyond_any_float_are_unknown() -> None:
    tree = node("ROOT", kernel("mm", 10**400, count=1, flops16=10**400, bytes=300))
    found = read_hatchet(io.BytesIO(json.dumps([tree, {}]).encode()), "p.hatchet")
    assert np.isnan(found.of("gpu__time_duration.sum")[0]) and "flops16" not in found.metrics and found.of("bytes")[0] == 300
