"""What must agree across the project: imports go one way, exports exist, the README lists what there is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pyprof
from pyprof.cli import COMMANDS
from pyprof.dtypes import DTYPES, lookup
from pyprof.prof.columns import COLUMNS
from tests.conftest import ROOT

PACKAGE = ROOT / "pyprof"
# Each layer may import those before it.
LAYERS = [
    {"errors", "dtypes", "opcall", "markers", "hardware"},
    {"parse", "prof", "nvtx"},
    {"load", "dataframe", "doctor", "capture", "report", "counters", "timers"},
    {"cli", "__main__", "__init__"},
]
FILES = sorted(PACKAGE.rglob("*.py"))


def _part(module: str) -> str:
    return [*module.split("."), "__init__"][1]


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0].removesuffix(".py")
    level = next(i for i, layer in enumerate(LAYERS) if own in layer)
    for module in _imports(path):
        top = module.split(".")[0]
        if top == "torch":
            assert own in ("nvtx", "capture", "timers"), f"{relative} imports torch"
        if top == "sqlalchemy":
            assert relative.parts[:2] == ("parse", "sources"), f"{relative} imports sqlalchemy"
        if top == "pyprof" and relative.name not in ("command.py", "doctor.py", "__main__.py"):
            target = next(i for i, layer in enumerate(LAYERS) if _part(module) in layer)
            assert target <= level, f"{relative} imports {module}"
            if own == "nvtx":
                assert _part(module) not in ("parse", "prof")
            if own == "parse":
                assert _part(module) != "prof"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_are_small_documented_and_evaluate_nothing(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "says what it turns into what"
    assert path.read_text().count("\n") <= 450
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} is long"
        if isinstance(node, ast.Call):
            assert getattr(node.func, "id", "") not in ("eval", "exec")
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None


def test_public_names_exist_and_importing_pyprof_imports_neither_torch_nor_pandas() -> None:
    code = "import sys, pyprof, pyprof.cli; sys.exit(bool({'torch', 'pandas', 'numpy', 'sqlalchemy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    assert sorted(pyprof.__all__) == pyprof.__all__ and set(dir(pyprof)) == set(pyprof.__all__)
    torch_free = {"PyprofError", "__version__", "formula", "table"}
    assert all(getattr(pyprof, name) is not None for name in torch_free)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pyprof.nothing


def test_every_spelling_of_a_dtype_finds_it() -> None:
    for dtype in DTYPES:
        for spelling in (dtype.name, dtype.tag, *dtype.aliases, f"torch.{dtype.name}"):
            assert lookup(spelling) is dtype
    assert [lookup(text) for text in (None, "", "Scalar", "TensorList", "torch.")] == [None] * 5
    bfloat = lookup("c10::BFloat16")
    complex64 = lookup("c10::complex<float>")
    assert bfloat is not None and bfloat.bytes == 2 and complex64 is not None and complex64.name == "complex64"


def test_the_readme_lists_every_column_and_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    assert not [column.key for column in COLUMNS if f"`{column.key}`" not in readme]
    assert not [command.name for command in COMMANDS if f"pyprof {command.name}" not in readme]


def test_no_two_test_files_have_one_name() -> None:
    """pytest collects neither then, though each runs alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))
