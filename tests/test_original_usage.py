"""The lines of the original's documentation, less `apex.`, work as they stand: in a program and on the command line."""

import ast
import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.cli import main
from tests.conftest import ROOT

# Where torch has no CUDA, what needs it becomes a no-op; the lines below the marker are the documentation's.
_PROGRAM = """
import contextlib
import torch
if not torch.cuda.is_available():
    torch.autograd.profiler.emit_nvtx = contextlib.nullcontext
    torch.cuda.profiler.start = torch.cuda.profiler.stop = lambda: None

import torch.cuda.profiler as profiler
import pyprof
pyprof.nvtx.init(enable_function_stack=True)

net = torch.nn.Linear(8, 4)
iters, iter_to_capture = 3, 1
with torch.autograd.profiler.emit_nvtx():
    for iter in range(iters):
        if iter == iter_to_capture:
            profiler.start()
        output = net(torch.ones(2, 8))
        output.sum().backward()
        if iter == iter_to_capture:
            profiler.stop()
print(tuple(output.shape), pyprof.nvtx.stats().errors)
"""
_LINES = ("-w 150", "", "-w 130 -c idx,dir,kernel,params,sil", "--csv -c idx,dir,kernel,params,sil", "-c idx,dir,sil")


@pytest.mark.torch
def test_a_program_as_the_original_documents_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(_PROGRAM)
    done = subprocess.run([sys.executable, "net.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "(2, 4) 0"), done.stderr


def test_stages_are_attributes_without_being_imported() -> None:
    stages = ["counters", "nvtx", "parse", "prof", "recording", "report", "timers"]
    code = f"""import pyprof, sys
assert not {{"torch", *(f"pyprof.{{stage}}" for stage in {stages})}} & set(sys.modules)
import pyprof.nvtx; assert "torch" not in sys.modules
print([getattr(pyprof, stage).__name__ for stage in {stages}])"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == [f"pyprof.{stage}" for stage in stages]


def test_command_lines_as_the_original_documents_them(
    tmp_path: Path, captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(captures / "nvprof" / "v100_lm" / "net.sql", tmp_path)

    def shell(line: str) -> str:
        line = line.replace("python", sys.executable, 1)
        return subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert shell("python -m pyprof.parse net.sql > net.dict") == ""
    records = (tmp_path / "net.dict").read_text().splitlines()
    assert len(records) == 160 and ast.literal_eval(records[0])["kShortName"] == "indexSelectLargeIndex"
    assert "usage: python -m pyprof.prof" in shell("python -m pyprof.prof -h")
    capsys.readouterr()
    printed = {}
    for words in _LINES:
        assert main(["prof", *words.split(), str(tmp_path / "net.dict")]) == 0
        printed[words] = capsys.readouterr().out.splitlines()
    assert {len(lines) for lines in printed.values()} == {161}
    assert max(map(len, printed["-w 150"])) <= 150 and max(map(len, printed["-w 130 -c idx,dir,kernel,params,sil"])) <= 130
    header, *rows = csv.reader(io.StringIO("\n".join(printed["--csv -c idx,dir,kernel,params,sil"])))
    assert header == ["Idx", "Direction", "Kernel", "Params", "Sil(ns)"]
    assert rows[0] == ["1", "fprop", "indexSelectLargeIndex", "[35,20]int64;[33278,200]fp32", "6624"]
    assert printed["-c idx,dir,sil"][1] == "1 fprop 6624"
    assert shell("python -m pyprof.prof < net.dict").splitlines() == printed[""]
    assert shell("python -m pyprof.prof -w 150 net.dict").splitlines() == printed["-w 150"]
