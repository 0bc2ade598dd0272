"""An nsys report (.nsys-rep, .qdrep) -> its SQLite export, made by nsys itself, of the same or a newer version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyprof.errors import ToolError


def find_nsys() -> str | None:
    """Path of nsys: on PATH, else where scripts/install_nsys puts it."""
    home = os.environ.get("PYPROF_NSYS_HOME") or str(Path.home() / ".cache" / "pyprof" / "nsys")
    return shutil.which("nsys") or shutil.which("nsys", path=str(Path(home) / "bin"))


_NEWER = re.compile(r"created in Nsight Systems version \(([\d.]+).*?newer than your current version \(([\d.]+)", re.DOTALL)


@contextmanager
def exported(path: Path, name: str) -> Iterator[Path]:
    """The export of a report as a temporary file; name: the report's name for people.

    Raises ToolError if nsys is missing, older than the report or cannot export it.
    """
    beside = Path(name).with_suffix(".sqlite")
    command = f"nsys export --type sqlite -o {beside} {name}"
    there = f"an export lies beside it: {beside}" if beside.is_file() else ""
    nsys = find_nsys()
    if nsys is None:
        problem = f"{name}: an nsys report must be exported first, and nsys is not on PATH"
        raise ToolError(problem, there or f"where nsys is: {command}")
    with tempfile.TemporaryDirectory(prefix="pyprof-") as folder:
        target = Path(folder) / "export.sqlite"
        arguments = [nsys, "export", "--type", "sqlite", "--output", str(target), str(path)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if newer := _NEWER.search(done.stderr + done.stdout):
            problem = f"{name}: of nsys {newer[1]}, newer than the nsys here, {newer[2]}"
            raise ToolError(problem, there or f"with nsys {newer[1]} or newer: {command}")
        if done.returncode or not target.exists():
            message = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise ToolError(f"{name}: nsys could not export it: {message[-1]}", there or f"try by hand: {command}")
        yield target
