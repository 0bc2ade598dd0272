"""The house in figures: lines, the largest file, import circles, and what the data passes on its way to a printed row.

    python scripts/bench/house.py [CAPTURE] [--columns idx,op,kernel,sil,flops] [--list]

Of the second `pyprof prof -c COLUMNS CAPTURE` in one process, so that imports are done: the files of pyprof that run, the
distinct functions in them (by co_qualname), and how often the capture is opened (an audit hook on `open`, `sqlite3.connect`).
Another version is measured by running its checkout's pyprof: PYTHONPATH=CHECKOUT python scripts/bench/house.py CAPTURE.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pyprof
from pyprof.cli import main as run_command

PACKAGE = Path(pyprof.__file__).parent


def sizes() -> tuple[int, int, str, int]:
    """Lines and files of the package, its largest file, and that one's lines."""
    lines = {path: path.read_text().count("\n") for path in PACKAGE.rglob("*.py")}
    largest = max(lines, key=lambda path: lines[path])
    return sum(lines.values()), len(lines), str(largest.relative_to(PACKAGE)), lines[largest]


def _imports(tree: ast.AST, modules: set[str]) -> set[str]:
    """Modules of the package that a file imports anywhere but under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
        else:
            found |= _imports(node, modules)
    return found & modules


def on_circles() -> list[str]:
    """Modules that import each other in a circle."""
    paths = {
        ".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): p
        for p in PACKAGE.rglob("*.py")
    }
    graph = {module: _imports(ast.parse(path.read_text()), set(paths)) - {module} for module, path in paths.items()}

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [*graph[start]]
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += graph[module]
        return seen

    return sorted(module for module in graph if module in reached(module))


def passed(capture: str, columns: str) -> tuple[dict[str, set[str]], list[str]]:
    """Functions that run for one `prof`, by file, and each opening of the capture."""
    functions: dict[str, set[str]] = {}
    opened: list[str] = []
    target = Path(capture).resolve().name

    def profile(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(PACKAGE)):
            functions.setdefault(str(Path(path).relative_to(PACKAGE)), set()).add(frame.f_code.co_qualname)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in ("open", "sqlite3.connect") and target in str(arguments[0]):
            opened.append(event)

    watching = False
    sys.addaudithook(audit)
    for last in (False, True):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            watching = last
            sys.setprofile(profile if last else None)
            run_command(["prof", "-c", columns, capture])
            sys.setprofile(None)
    watching = False
    return functions, opened


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", nargs="?")
    parser.add_argument("--columns", default="idx,op,kernel,sil,flops")
    parser.add_argument("--list", action="store_true", help="name the files and functions")
    options = parser.parse_args()
    lines, files, largest, most = sizes()
    print(f"lines {lines}, files {files}, largest {largest} ({most}), modules on import circles: {on_circles() or 'none'}")
    if options.capture:
        functions, opened = passed(options.capture, options.columns)
        total = sum(map(len, functions.values()))
        print(
            f"prof -c {options.columns}: {len(functions)} files, {total} functions; the capture is opened {len(opened)} times"
        )
        if options.list:
            for path, names in sorted(functions.items()):
                print(f"  {path} ({len(names)}): {' '.join(sorted(names))}")


if __name__ == "__main__":
    main()
