"""`pyprof completion SHELL`: the script, asked in the shell itself what it would complete."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.cli import COMMANDS, main
from pyprof.commands.completion import SHELLS
from tests.conftest import ROOT

BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p pyprof); function=${function##*-F }; ${function%% *} pyprof "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = "source $argv[1]; complete -C $argv[2]"
ZSH = "PROMPT=; fpath=(./functions $fpath); autoload -Uz compinit && compinit -u -D; print REA''DY\n"
ASKED = [
    ("pyprof di", "diff"),
    ("pyprof prof --fo", "--formulas"),
    ("pyprof run --tool ns", "nsys"),
    ("pyprof help getti", "getting-started"),
    ("pyprof summary cap", "capture.json"),
]


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", request.param]) == 0
    path = tmp_path / f"pyprof.{request.param}"
    path.write_text(capsys.readouterr().out)
    return path


def _in_bash(script: Path, typed: str, _: str) -> str:
    return _run("bash", "-c", BASH, "bash", str(script), *typed.split(" "), folder=script.parent)


def _in_fish(script: Path, typed: str, _: str) -> str:
    return _run("fish", "-c", FISH, str(script), typed, folder=script.parent)


def _run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


def _in_zsh(script: Path, typed: str, completed: str) -> str:
    """zsh completes on a terminal alone: what it shows there once Tab was pressed."""
    functions = script.parent / "functions"
    functions.mkdir()
    (functions / "_pyprof").write_bytes(script.read_bytes())
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(script.parent)
        os.environ["TERM"] = "dumb"
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        os.write(terminal, ZSH.encode())
        _until(terminal, "READY")
        os.write(terminal, f"{typed}\t\t".encode())
        return _until(terminal, completed)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _until(terminal: int, text: str) -> str:
    """What comes from a terminal, until a text does, or nothing more for 20 seconds."""
    shown = ""
    while text not in shown and select.select([terminal], [], [], 20)[0]:
        shown += os.read(terminal, 1 << 16).decode(errors="replace")
    return shown


ASK = {"bash": _in_bash, "zsh": _in_zsh, "fish": _in_fish}


@pytest.mark.parametrize("script", SHELLS, indirect=True)
@pytest.mark.parametrize(("typed", "completed"), ASKED)
def test_a_shell_completes(script: Path, typed: str, completed: str) -> None:
    name = script.suffix[1:]
    if shutil.which(name) is None:
        pytest.skip(f"needs the shell {name}, which is not on PATH")
    (script.parent / "capture.json").touch()
    assert completed in ASK[name](script, typed, completed)


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_every_command_is_in_it(script: Path) -> None:
    assert not [command.name for command in COMMANDS if command.name not in script.read_text()]


def test_starting_pyprof_does_not_load_what_writes_it() -> None:
    code = "import sys; from pyprof.cli import main; main(['help', 'terms']); sys.exit('shtab' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_without_shtab_there_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1 and "pip install shtab" in capsys.readouterr().err
    assert main(["completion", "tcsh"]) == 2
