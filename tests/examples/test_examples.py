"""The programs of pyprof/examples: each runs as its docstring says, and shows what it says, on the CPU."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.cli import main
from pyprof.examples import list_text
from pyprof.prof.formulas import registry, user
from tests.children import LIGHT
from tests.conftest import ROOT
from tests.test_scripts import put, run

pytestmark = pytest.mark.torch
FOLDER = ROOT / "pyprof" / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def start(folder: Path, *words: str) -> str:
    """Run Python in a folder; what the program printed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def light(folder: Path, name: str) -> str:
    """A program that runs an example as `-m pyprof.examples.NAME` does, without torch's compiler."""
    module = f"pyprof.examples.{name}"
    (folder / f"{name}.py").write_text(f"{LIGHT}\nimport runpy\nrunpy.run_module({module!r}, run_name='__main__')")
    return f"{name}.py"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, str]]:
    lines = printed(capsys, *arguments, "--csv").splitlines()
    return [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]


@pytest.mark.parametrize("name", NAMES)
def test_each_says_how_it_is_run_and_what_to_look_for(name: str) -> None:
    text = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or ""
    assert f"pyprof.examples.{name}" in text and "What to look for: " in text
    assert f"{name:12} {text.splitlines()[0]}" in list_text()


@pytest.mark.slow
def test_the_demo_tells_its_story_in_four_screens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an environment that stands in for the one that it would make."""
    put(tmp_path / "venv/bin", "python", f'#!/usr/bin/env bash\nexec {sys.executable} "$@"\n')
    put(tmp_path / "venv/bin", "pyprof", f'#!/usr/bin/env bash\nexec {sys.executable} -m pyprof "$@"\n')
    sums = subprocess.run(["cksum"], input=(ROOT / "pyproject.toml").read_bytes(), capture_output=True, check=True).stdout
    put(tmp_path / "venv", ".pyprof-ready", f"capture {ROOT} {sums.decode()}")
    monkeypatch.setenv("PYPROF_VENV", str(tmp_path / "venv"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = tmp_path / "out"
    for ending in ("dict", "json.gz", "html"):
        put(folder, f"demo.{ending}", "of the last demo")
    done = run("demo", folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for said in ("Fused optimizer", "Fused attention", "Data loading"):
        assert said in done.stderr
    assert "fused=True" in done.stdout and "comparable: " in done.stdout and "removed: aten::masked_fill_" in done.stdout
    assert f"The page:         {folder}/demo.html" in done.stderr and "USDT" not in done.stderr
    made = {f"{name}.{ending}" for name in ("demo", "mended") for ending in ("dict", "json.gz", "steps.jsonl")}
    assert {path.name for path in folder.iterdir()} == {*made, "demo.html", "mended.txt"}


def test_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(tmp_path, "-m", "pyprof", "run", "--tool", "torch", light(tmp_path, "training")).startswith("loss ")
    capture = tmp_path / "training.json.gz"
    steps = json.loads(printed(capsys, "summary", capture, "--format", "json"))["steps"]["count"]
    linear = rows(capsys, "prof", capture, "--where", "op=linear", "--group-by", "dir,layer")
    flops = {(row["Direction"], row["Layer"]): int(row["FLOPs"]) for row in linear}
    # 8 pictures of 16 tokens; what the bias's gradient sums up is an op of its own.
    assert steps == 3 and flops["fprop", "block.qkv"] == steps * 2 * 8 * 16 * 64 * 192
    assert flops["bprop", "block.qkv"] == 2 * flops["fprop", "block.qkv"]
    convolutions = rows(capsys, "prof", capture, "--where", "op=conv2d,dir=fprop", "--group-by", "layer")
    assert {row["Layer"]: int(row["FLOPs"]) // steps for row in convolutions} == {
        "stem.0": 2 * 8 * 16 * 32 * 32 * 27, "stem.4": 2 * 8 * 64 * 4 * 4 * 256,
    }  # fmt: skip


@pytest.mark.slow
def test_inference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from pyprof.examples import inference

    monkeypatch.chdir(tmp_path)
    for words in ([], ["--batch", "32", "-o", "b32.json.gz"]):
        monkeypatch.setattr(sys, "argv", ["inference", *words])
        inference.main()
    out = capsys.readouterr().out
    assert out.startswith("inference.json.gz") and "3 steps, " in out
    assert {row["Phase"] for row in rows(capsys, "prof", tmp_path / "b32.json.gz", "--group-by", "phase")} == {"forward"}
    said = printed(capsys, "diff", tmp_path / "inference.json.gz", tmp_path / "b32.json.gz")
    assert "NOT comparable" in said and "FLOPs +300.0%" in said


@pytest.mark.slow
def test_custom_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    start(tmp_path, "-m", "pyprof", "run", "--tool", "torch", "-o", "net", light(tmp_path, "custom_op"))
    table = (tmp_path / "net.json.gz", "-c", "op,calls,flops,bytes")
    without = rows(capsys, "prof", *table, "--group-by", "op")
    assert {row["Op"]: row["Calls"] for row in without if row["Op"] in ("mul", "add")} == {"mul": "12", "add": "12"}
    monkeypatch.setattr(registry, "_FORWARD", dict(registry._FORWARD))  # a formula counts for the process that loaded it
    monkeypatch.setattr(user, "_LOADED", set())
    (own, *others) = rows(capsys, "prof", *table, "--formulas", FOLDER / "custom_op.py", "--group-by", "op")
    assert list(own.values()) == ["polynomial", "3", str(3 * 8 * 10**6), str(3 * 8 * 10**6)]
    assert not {"mul", "add"} & {row["Op"] for row in others}


@pytest.mark.slow
def test_ddp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    words = ("-m", "pyprof", "run", "--tool", "torch", "-o", "ddp", sys.executable)
    out = start(tmp_path, *words, *launcher, "-m", "pyprof.examples.ddp")
    assert {"rank 0: ", "rank 1: "} <= set(re.findall(r"rank \d: ", out))
    captures = sorted(tmp_path.glob("ddp.rank?.json.gz"))
    assert len(captures) == 2
    late = rows(capsys, "ranks", *captures, "--table", "ranks", "-c", "rank,late,met")
    assert [row["Rank"] for row in late] == ["0", "1"]
    # Rank 1 sleeps before each step; which comes last on a busy machine is not sure.
    assert int(late[0]["Met"]) == int(late[1]["Met"]) >= int(late[0]["Late"]) + int(late[1]["Late"]) > 0


@pytest.mark.slow
def test_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-m", "pyprof", "run", "--tool", "torch", "--inductor", "-o", "net")
    start(tmp_path, *words, "-m", "pyprof.examples.compiled")
    kernels = printed(capsys, "inductor", tmp_path / "net.json.gz", "--table", "kernels", "-c", "nodes", "--csv")
    assert any({"gelu", "native_layer_norm"} <= set(re.findall(r"\w+", line)) for line in kernels.splitlines())
    assert any("gelu_backward" in line for line in kernels.splitlines())
