"""What must agree across the project: imports go one way, exports exist, the README lists what there is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter

import pytest

import pyprof
from pyprof.cli import COMMANDS
from pyprof.help import topics
from pyprof.model.dtypes import DTYPES, lookup
from tests.conftest import ROOT

PACKAGE = ROOT / "pyprof"
# Rooms in their order: a file imports from its own room and from those above it in this list. Of nested rooms the deepest counts.
ORDER = [
    {"errors", "__init__"},
    {"messages", "columns"},
    {"model"},
    {"hardware", "tables", "memory", "help"},
    {"parse/sources", "nvtx", "parse"},
    {"parse/attribution"},
    {"parse/records", "parse"},
    {"prof"},
    {"report/time", "loading"},
    {"report/ranks"},
    {"report/advice"},
    {"report", "compiled", "recording"},
    {"counters", "timers", "scrub"},
    {"api"},
    {"mcp"},
    {"commands"},
    {"cli"},
    {"__main__", "parse/__main__", "prof/__main__", "examples"},
]
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {
    str(path.relative_to(PACKAGE.parent).with_suffix("")).removesuffix("/__init__").replace("/", "."): path for path in FILES
}
# Packages that are slow to import or need a GPU stack, and the only rooms that may import them.
PRIVATE = {"torch": {"nvtx", "recording", "timers", "examples"}, "sqlalchemy": {"parse/sources"}, "mcp": {"mcp"}}


def _room(module: str) -> str:
    """`pyprof.parse.sources.nsys` -> `parse/sources`: the deepest room that holds a module."""
    parts = module.split(".")[1:] or ["__init__"]
    rooms = set().union(*ORDER)
    return next(room for end in range(len(parts), 0, -1) if (room := "/".join(parts[:end])) in rooms)


def _imports(tree: ast.AST) -> set[str]:
    """Modules imported anywhere in a file, inside functions as well, but not those that only a type checker imports."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
        else:
            found |= _imports(node)
    return found


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Each module as a syntax tree."""
    return {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


@pytest.fixture(scope="module")
def nodes(trees: dict[str, ast.Module]) -> dict[str, list[ast.AST]]:
    """All parts of each module."""
    return {module: [*ast.walk(tree)] for module, tree in trees.items()}


@pytest.fixture(scope="module")
def imports(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    return {module: _imports(tree) for module, tree in trees.items()}


def test_imports_go_one_way(imports: dict[str, set[str]]) -> None:
    level = {room: number for number, rooms in enumerate(ORDER) for room in rooms}
    wrong = []
    for module, names in imports.items():
        room = _room(module)
        for imported in names:
            top = imported.partition(".")[0]
            if top in PRIVATE and room not in PRIVATE[top]:
                wrong.append(f"{module} imports {top}")
            if top == "pyprof" and (there := _room(imported)) != room and level[there] >= level[room]:
                wrong.append(f"{module} in {room} imports {imported} of {there}")
    assert not wrong


def test_no_modules_import_each_other_in_a_circle(imports: dict[str, set[str]]) -> None:
    graph = {module: {name for name in imported if name in MODULES} for module, imported in imports.items()}
    while leaves := [module for module, imported in graph.items() if not imported & graph.keys()]:
        for module in leaves:
            del graph[module]
    assert not graph, f"on a circle, or above one: {sorted(graph)}"


def test_files_are_small_documented_and_evaluate_nothing(trees: dict[str, ast.Module], nodes: dict[str, list[ast.AST]]) -> None:
    for module, tree in trees.items():
        assert ast.get_docstring(tree), f"{module} says what it turns into what"
        assert MODULES[module].read_text().count("\n") <= 450, module
        for node in nodes[module]:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{module}: {node.name} is long"
            if isinstance(node, ast.Call):
                assert getattr(node.func, "id", "") not in ("eval", "exec"), module
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, module


def test_public_names_exist_and_importing_pyprof_imports_neither_torch_nor_pandas() -> None:
    code = "import sys, pyprof, pyprof.cli; sys.exit(bool({'torch', 'pandas', 'numpy', 'sqlalchemy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    assert sorted(pyprof.__all__) == pyprof.__all__ and set(dir(pyprof)) >= set(pyprof.__all__)
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


def test_the_readme_lists_every_command_and_every_topic() -> None:
    readme = (ROOT / "README.md").read_text()
    assert not [command.name for command in COMMANDS if f"`pyprof {command.name}" not in readme]
    assert not [topic for topic in topics() if f"`{topic}`" not in readme]
    assert readme.count("\n") <= 150, "a newcomer reads it whole"


def test_no_two_test_files_have_one_name() -> None:
    """pytest collects neither then, though each runs alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))


def test_what_is_public_is_said_once() -> None:
    """By a name without an underscore; packages that pass names on list them."""
    listing = [path.name for path in FILES if path.name != "__init__.py" and "\n__all__" in path.read_text(encoding="utf-8")]
    assert not listing


def test_no_two_classes_have_one_name(nodes: dict[str, list[ast.AST]]) -> None:
    names = Counter(node.name for parts in nodes.values() for node in parts if isinstance(node, ast.ClassDef))
    assert not {name for name, count in names.items() if count > 1}


def test_docstrings_open_with_their_subject(nodes: dict[str, list[ast.AST]]) -> None:
    for module, parts in nodes.items():
        for node in parts:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
                text = ast.get_docstring(node) or ""
                assert not re.match(r"(What|Of|Those|That|Such|The same)\b", text), f"{module}: {text[:60]}"
