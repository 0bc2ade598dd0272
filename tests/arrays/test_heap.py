"""Memory is given back where the system takes it, and nothing happens elsewhere."""

from __future__ import annotations

import sys

import pytest

from pyprof.arrays.heap import trim


@pytest.mark.parametrize("system", [sys.platform, "win32"])
def test_it_never_fails(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    trim()
