"""Fixtures shared by all tests: where captures are, and a terminal of known width."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


settings.register_profile("pyprof", deadline=None)  # machines are noisy: no test asserts a time
settings.load_profile("pyprof")


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
