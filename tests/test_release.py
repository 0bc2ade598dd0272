"""What is given to others: one version, a wheel with every file, which works alone in an environment of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyprof
from tests.conftest import ROOT


def test_the_version_is_said_once() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text and 'path = "pyprof/__init__.py"' in text
    assert not re.search(r"^version *=", text, re.M) and re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", pyprof.__version__)


@pytest.mark.slow
def test_the_wheel_alone_reads_a_capture(tmp_path: Path) -> None:
    """scripts/release builds it from the sdist, installs it into a new environment and forbids it to open this checkout."""
    done = subprocess.run(
        [ROOT / "scripts/release", tmp_path / "dist"],
        capture_output=True,
        text=True,
        timeout=900,
        env={**_bare(), "PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.suffix for path in (tmp_path / "dist").iterdir()) == [".gz", ".whl"]
    assert (
        "By op" in done.stderr
        and f"pyprof {pyprof.__version__} from " in done.stderr
        and str(ROOT / "pyprof") not in done.stderr
    )
    sizes = dict(re.findall(r"(\.whl|\.gz|environment): (\d+) [kM]B", done.stdout))
    assert int(sizes[".whl"]) < 2_000 and int(sizes[".gz"]) < 4_000, "kB: nothing large slipped in"
    assert "import pyprof: " in done.stdout


def _bare() -> dict[str, str]:

    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYPROF_VENV")}
