"""Small programs to profile and to copy from, each with what it shows and what to look for. They need torch, and no GPU.

`pyprof run -m pyprof.examples.training` runs one; `pyprof help examples` lists them all.
"""

from __future__ import annotations

import ast
from pathlib import Path


def list_text() -> str:
    """Each program with the first line of its docstring, for `pyprof help examples`; none is run for it."""
    paths = sorted(path for path in Path(__file__).parent.glob("*.py") if path.name != "__init__.py")
    about = [ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in paths]
    return "\n".join(f"{path.stem:12} {text.partition(chr(10))[0]}" for path, text in zip(paths, about, strict=True))
