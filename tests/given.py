"""Given captures, each read once in a process. Tests share what is found in one, so none changes it."""

import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from pyprof.loading.load import load_capture
from pyprof.model.records import Records


def slow(*names: str) -> list[Any]:
    """Names of captures that are parameters of `scripts/test --all` alone: another of their kind is one of the quick run."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@lru_cache(maxsize=8)
def records_of(path: Path) -> Records:
    return load_capture(path)


@lru_cache(maxsize=2)
def trace_of(path: Path) -> dict[str, Any]:
    """A torch.profiler trace as the json module reads it."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), strict=False)
    return found
