"""Generated modules recorded by themselves, where no compiler is needed: written here in the form that TorchInductor gives them."""

import gzip
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

from pyprof.errors import InputError, ToolError, UsageError
from pyprof.recording.generated import load_module, own_inputs, record_module

MODULE = """
import torch
def cpp_fused_add_0(out, x): out.copy_(x + 1)
def get_args(): return [torch.ones(8)]
def call(args):
    out = torch.empty(8)
    cpp_fused_add_0(out, args.pop())
    return (out,)
"""


@pytest.mark.slow
def test_a_module_is_recorded_and_an_older_trace_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(MODULE)
    (tmp_path / "net.json.gz").write_text("mine")
    monkeypatch.chdir(tmp_path)
    trace = record_module(Path("net.py"), times=3)
    assert trace == Path("net.2.json.gz") and (tmp_path / "net.json.gz").read_text() == "mine"
    assert gzip.decompress(trace.read_bytes()).count(b'"name": "cpp_fused_add_0"') == 3
    assert record_module(Path("net.py"), name="own.json", times=1) == Path("own.json")
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "net.py",
        "net.json.gz",
        "net.2.json.gz",
        "own.json",
    }


def test_a_module_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODULE + "raise ValueError('boom')")
    with pytest.raises(InputError, match="boom"):
        load_module(Path("net.py"))
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1")  # as it ends then
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ToolError, match=r"net\.py: it could not be run \(exit code 1\)"):
        record_module(Path("net.py"))
    with pytest.raises(InputError, match=r"gone\.py: no such file"):
        record_module(Path("gone.py"))
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"net.py", "python"}


def test_inputs_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(MODULE)
    (tmp_path / "old.py").write_text("def benchmark_compiled_module(times, repeat): return times, repeat")
    (tmp_path / "kernel.py").write_text("")
    (out,) = own_inputs(load_module(tmp_path / "new.py"))()
    assert out.tolist() == [2.0] * 8
    assert own_inputs(load_module(tmp_path / "old.py"))() == (1, 1)
    with pytest.raises(UsageError, match="it has neither"):
        own_inputs(load_module(tmp_path / "kernel.py"))
