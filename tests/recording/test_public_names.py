"""`pyprof.capture` and `pyprof.load` are functions in whatever order what is imported, at run time and for mypy."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import LIGHT
from tests.conftest import ROOT

ORDERS = [
    "import pyprof",
    "from pyprof import capture; import pyprof",
    "import pyprof.recording.steps",
    "import pyprof; pyprof.capture; import pyprof.recording.torchprof",
    "import pyprof; first = pyprof.capture; from pyprof.recording import steps; assert pyprof.capture is first",
    "from pyprof.recording.torchprof import capture, schedule; import pyprof; assert pyprof.schedule is schedule",
    "import pyprof.loading.load, pyprof.recording as package; assert package.__name__ == 'pyprof.recording'; import pyprof",
    "from pyprof import *; import pyprof; assert callable(capture)",
    "import pyprof; pyprof.profile; pyprof.schedule",
]
USE = """
made = pyprof.capture("net", schedule=pyprof.schedule(wait=1, warmup=1, active=2), table=0)
assert type(made).__name__ == "Capture" and made.schedule.first == 2
import pyprof.recording.torchprof
assert pyprof.recording.torchprof.capture is pyprof.capture and pyprof.capture("net").path == made.path
import pyprof.loading.load, pyprof.api
assert pyprof.load is pyprof.api.load and pyprof.load.__doc__
"""
TYPED = """
import pyprof
import pyprof.recording.steps
from pyprof.recording.steps import parse_steps

with pyprof.capture("net", schedule=pyprof.schedule(wait=1, warmup=1, active=2)) as p:
    p.step()
reveal_type(p)
pyprof.capture(1)
"""


@pytest.mark.slow
def test_every_order_of_imports() -> None:
    """Each order in a child of one process, which imported what takes long: torch and numpy, and nothing of pyprof."""
    pytest.importorskip("torch")
    code = f"""{LIGHT}
import os, sys, numpy, torch.profiler
for order in {ORDERS!r}:
    assert not any(name.startswith("pyprof") for name in sys.modules)
    if not (child := os.fork()):
        print(order, file=sys.stderr, flush=True)
        exec(order + {USE!r}, {{}})
        os._exit(0)
    assert not os.waitpid(child, 0)[1]
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_torch_one_line_says_so() -> None:
    code = """if True:
        import sys
        sys.modules["torch"] = None  # as if it were not installed
        import pyprof
        for use in ("init()", "instrument()", "step()", "wrap(1, 'x')", "profile().__enter__()", "capture('x').__enter__()"):
            try:
                eval(f"pyprof.{use}")
            except pyprof.PyprofError as error:
                print(error.hint, "torch" in str(error), len(str(error).splitlines()))"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("pip install torch True 1\n" * 6, "")


@pytest.mark.slow
def test_mypy_knows_what_it_returns(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(TYPED)
    command = f"{sys.executable} -m mypy --strict --config-file {ROOT}/pyproject.toml --cache-dir {tmp_path}".split()
    done = subprocess.run([*command, str(tmp_path / "user.py")], cwd=ROOT, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if "user.py" in line]
    assert len(said) == 2, done.stdout
    assert 'Revealed type is "pyprof.recording.torchprof.Capture"' in said[0] and 'has incompatible type "int"' in said[1]
