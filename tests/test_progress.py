"""The bar on standard error: drawn while something takes long, gone when it ends, absent where nobody looks."""

import io
import sys
import time
from pathlib import Path

import pytest

from pyprof import messages
from tests.terminals import Screen, bare, on_terminal
from tests.tiny import Nsys


def _screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Standard error as a terminal. Called by each test: between a fixture and its test pytest puts its own stream there."""
    terminal = Screen()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in {"_watched": -1, "_begun": 0.0, "_QUIET_S": 0.02, "_LEAST_S": 0.02, "_REFRESH_S": 0.01}.items():
        monkeypatch.setattr(messages, name, value)
    return terminal


def _until(screen: Screen, text: str) -> None:
    for _ in range(1000):
        if text in bare(screen.getvalue()):
            return
        time.sleep(0.01)
    raise AssertionError(screen.getvalue())


def test_a_long_stage_has_a_bar_that_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _screen(monkeypatch)
    messages.watch()
    with messages.stage("reading [red]net.json"), messages.stage("a part of it"):
        messages.done(0.5)
        _until(screen, "reading [red]net.json")
    drawn = screen.getvalue()
    assert "━" in drawn and "a part of it" not in drawn
    assert drawn.endswith("\x1b[2K")  # the line is erased


def test_a_short_stage_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _screen(monkeypatch)
    monkeypatch.setattr(messages, "_QUIET_S", 60.0)
    messages.watch()
    with messages.stage("reading"):
        pass
    assert screen.getvalue() == ""


def test_what_is_asked_of_a_closed_file_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _screen(monkeypatch)

    def share() -> float:
        raise ValueError("closed")

    messages.watch()
    with messages.stage("reading", share):
        _until(screen, "reading")
    assert "reading" in bare(screen.getvalue())


@pytest.mark.parametrize("case", ["library", "dumb", "pipe", "child"])
def test_nothing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    screen = _screen(monkeypatch)
    if case == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    if case == "pipe":
        monkeypatch.setattr(sys, "stderr", io.StringIO())
    if case != "library":
        messages.watch()
    if case == "child":
        monkeypatch.setattr(messages.os, "getpid", lambda: -2)
    with messages.stage("reading"):
        assert messages._current is None
    assert screen.getvalue() == ""


def test_a_quick_command_on_a_terminal_shows_none(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel("k", None, 1, 2)
    drawn = on_terminal(["prof", str(n.write(tmp_path / "net.sqlite")), "--csv", "-c", "idx"], stderr=True)
    assert drawn.startswith("Idx\r\n1\r\n") and "reading" not in drawn
