"""Frames of imports and of compiling are left out of a recording, and those around them are told rightly."""

import gzip
import json
import sys

import pytest

pytest.importorskip("torch", reason="needs torch")

from tests.children import LIGHT
from tests.recording.test_run import _run

LIBRARY = "def deep(n): return n and deep(n - 1)\nfor _ in range(100): deep(50)\n"
PROGRAM = """
import torch
def outer():
    import library
    return innermost_work(torch.ones(3))
def innermost_work(x): return x.add(1)
def fails():
    import broken
def graph(x): return torch.relu(x) + 1
outer()
import own
try: fails()
except ZeroDivisionError as error:
    trace, files = error.__traceback__, []
    while trace: files.append(trace.tb_frame.f_code.co_filename); trace = trace.tb_next
    print([name.rpartition("/")[2] for name in files if "importlib" not in name])
{compiling}
outer()
"""
COMPILING = 'torch.compile(graph, backend="aot_eager")(torch.ones(3))'


@pytest.fixture(scope="module", params=["imports", pytest.param("compiling", marks=pytest.mark.slow)])
def frames(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, str], str]:
    """Names of all frames, name of the frame around each (the last of that name), what the program printed."""
    folder = tmp_path_factory.mktemp("frames")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "library.py").write_text(LIBRARY)
    (folder / "elsewhere" / "broken.py").write_text("1 / 0")
    (folder / "here").mkdir()
    (folder / "here" / "own.py").write_text("import torch\ndef own_work(): return torch.ones(2)\nown_work()\n")
    compiles = request.param == "compiling"
    work = PROGRAM.replace("{compiling}", COMPILING if compiles else "")
    begin = "import sys; sys.path.append('../elsewhere')\n"
    (folder / "here" / "net.py").write_text(begin + ("" if compiles else LIGHT) + work)
    done = _run(folder / "here", "--tool", "torch", "--steps", "all", "-o", "net", "net.py")
    assert done.returncode == 0, done.stderr
    with gzip.open(folder / "here" / "net.json.gz") as stream:
        found = [e for e in json.load(stream)["traceEvents"] if e.get("cat") == "python_function"]
    names = {e["args"]["Python id"]: e["name"].rpartition(": ")[2] for e in found}
    around = {names[e["args"]["Python id"]]: names.get(e["args"]["Python parent id"], "") for e in found}
    return list(names.values()), around, done.stdout


@pytest.mark.skipif(sys.version_info < (3, 11), reason="frames are left out from Python 3.11 on")
def test_which_frames_are_there(frames: tuple[list[str], dict[str, str], str]) -> None:
    names, around, printed = frames
    assert "deep" not in names and "aot_module_simplified" not in names and len(names) < 60_000
    assert around["innermost_work"] == "outer" and names.count("innermost_work") == 2
    assert "own_work" in names
    assert printed == "['net.py', 'net.py', 'broken.py']\n"
