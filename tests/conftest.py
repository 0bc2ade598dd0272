"""Shared by all tests: which of them may run at the same time, where captures are, and a terminal of known width."""

import os
import signal
from pathlib import Path

import pytest
import setuptools  # noqa: F401  # replaces distutils, so it must come before whatever test imports that first
from hypothesis import settings

from tests import ROOT

SHARED = ROOT.parent / "shared"


# Machines are noisy, so no test asserts a time. The same examples in every run: what one run finds, the next finds too, whatever
# ran beside it. `--hypothesis-profile explore` draws new ones.
settings.register_profile("explore", deadline=None)
settings.register_profile("few", deadline=None, derandomize=True, max_examples=10)  # scripts/compat.py
settings.register_profile("thorough", deadline=None, derandomize=True)  # scripts/test --all
settings.register_profile("pyprof", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("pyprof")

# What a shell runs in the background ignores Control-C, and so would all programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if workers := os.environ.get(
    "PYTEST_XDIST_WORKER_COUNT"
):  # they share the cores: torch shall not start threads for all in each
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(workers))))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under `--dist loadgroup` one worker runs all tests of a file, which share recordings and captures, and one all those that
    need nsys: two sessions of it at once disturb each other."""
    for item in items:
        nsys = item.get_closest_marker("nsys")
        item.add_marker(pytest.mark.xdist_group("nsys" if nsys else item.nodeid.partition("::")[0]))


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


def _folder(name: str) -> Path:
    path = SHARED / name
    if not path.is_dir():
        pytest.skip(f"needs the folder ../shared/{name} beside the project, which is not there")
    return path


@pytest.fixture
def captures() -> Path:
    """Real captures from real GPUs."""
    return _folder("captures")


@pytest.fixture
def reference() -> Path:
    """Reference facts."""
    return _folder("reference")


@pytest.fixture
def data() -> Path:
    """Data that the project recorded or generated itself."""
    return ROOT / "tests" / "data"
