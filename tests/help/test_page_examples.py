"""Every example of the help pages runs, in a folder that holds the files which examples name."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from pyprof.cli import COMMANDS, main
from pyprof.help import commands, topics
from pyprof.prof.formulas import registry, user
from tests.children import pyprof_here
from tests.conftest import ROOT
from tests.help import page_files
from tests.terminals import Screen

FOLDER = ROOT / "pyprof" / "help"
PAGES = sorted(FOLDER.rglob("*.md"))
# What `# needs ...` behind an example may say, and how many examples say so: each of these is one that some machine does not run.
NEEDED = {"minutes": 7, "nsys": 1, "a GPU": 3, "a network": 1, "the package mcp": 1, "a checkout": 3, "captures of graphs": 1,
          "a dask cluster": 1}  # fmt: skip


# What leaves something in its process or takes it over; all else runs in this one, which saves Python's start.
APART = {"run", "bench", "doctor", "mcp", "--max-memory"}


class Block(NamedTuple):
    """Commands on lines that follow one another, or one that needs something (empty: nothing)."""

    page: str
    number: int
    commands: tuple[str, ...]
    needs: str = ""


def _blocks(path: Path) -> list[Block]:
    found: list[Block] = []
    for text in re.findall(r"(?:^ {4,}\$ .*\n)+", path.read_text(), re.MULTILINE):
        lines = [line.strip().removeprefix("$ ").partition("# needs ") for line in text.splitlines()]
        if plain := tuple(command.strip() for command, _, needs in lines if not needs):
            found.append(Block(path.stem, len(found), plain))
        found += [Block(path.stem, len(found) + more, (line[0].strip(),), line[2])
                  for more, line in enumerate(line for line in lines if line[2])]  # fmt: skip
    return found


BLOCKS = [block for path in PAGES for block in _blocks(path)]


def _slow(block: Block) -> bool:
    runs_torch = re.compile(r"pyprof (?:run|bench|doctor(?! --quick))")
    return block.needs == "minutes" or any(runs_torch.search(command) for command in block.commands)


def _parameter(block: Block) -> object:
    marks = [pytest.mark.slow] if _slow(block) else []
    if block.needs == "nsys":
        marks.append(pytest.mark.nsys)
    return pytest.param(block, id=f"{block.page}-{block.number}", marks=marks)


def _missing(needs: str) -> str | None:
    """Why an example cannot run here."""
    if needs in ("a network", "a checkout", "captures of graphs", "a dask cluster"):
        return f"needs {needs}, which is not in the folder of the examples"
    tools = {"nsys": "nsys", "a GPU": "nvidia-smi"}
    if needs in tools and shutil.which(tools[needs]) is None:
        return f"needs {needs}, and {tools[needs]} is not on PATH"
    if needs == "the package mcp" and find_spec("mcp") is None:
        return "needs the package mcp"
    return None


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_files.make(tmp_path_factory.mktemp("pages") / "files")


@pytest.fixture
def folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files, with `pyprof` and `python` of these tests first on PATH."""
    here = tmp_path / "here"
    shutil.copytree(files, here)
    shutil.copytree(ROOT / "scripts", here / "scripts")
    for name, words in (("pyprof", "-m pyprof"), ("python", "")):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setattr(registry, "_FORWARD", dict(registry._FORWARD))  # formulas of an example go with it
    monkeypatch.setattr(user, "_LOADED", set())
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize("block", [_parameter(block) for block in BLOCKS])
def test_a_shell_example_runs(block: Block, folder: Path) -> None:
    if (why := _missing(block.needs)) is not None:
        pytest.skip(why)
    for command in block.commands:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)  # operators of the shell are words
        lexer.whitespace_split = True
        words, target = [*lexer], None
        if ">" in words[-2:-1]:
            *words, _, target = words
        if words[0] == "pyprof" and not {*APART, *"|<>$;&", "||", "&&"} & {*words}:
            done = pyprof_here(Path(), *words[1:])
            if target:
                Path(target).write_text(done.stdout)
        else:
            done = subprocess.run(
                ["bash", "-eu", "-o", "pipefail", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
            )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "prof net.json.gz", "prof net.json.gz --group-by op,params", "prof net.json.gz --tree layer", "summary gpu.json",
        "summary before.sqlite after.sqlite", "summary ranks", "gaps gpu.json", "diff before.sqlite after.sqlite",
        "diff snapshot.pickle snapshot.pickle", "ranks ranks", "memory snapshot.pickle", "inductor compiled.json",
        "counters ncu.csv --trace counted.json", "timers timers.npz", "help", "doctor --quick",
    ],
)  # fmt: skip
def test_a_terminal_may_have_any_width(command: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    for columns in (1, 34):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "stdout", screen := Screen())
        assert main(command.split()) == 0 and screen.getvalue()


@pytest.mark.parametrize("path", [path for path in PAGES if "    >>> " in path.read_text()], ids=lambda path: path.stem)
def test_python_examples_print_what_the_page_says(path: Path, folder: Path) -> None:
    failed, tried = doctest.testfile(str(path), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried and not failed


def test_what_does_not_run_everywhere_says_so_in_one_way() -> None:
    said = Counter(block.needs for block in BLOCKS if block.needs)
    assert said == NEEDED
    assert not [
        path.name for path in PAGES if re.search(r"^ {4,}(?:pyprof|python|scripts/\S+) ", path.read_text(), re.MULTILINE)
    ]


def test_every_command_has_a_page_with_two_examples() -> None:
    assert commands() == sorted(command.name for command in COMMANDS)  # a page in pyprof/help/commands each
    assert not set(topics()) & set(commands())
    for name in commands():
        lines = [line for block in BLOCKS if block.page == name for line in block.commands]
        assert len([line for line in lines if f"pyprof {name}" in line]) >= 2 or name == "mcp"
