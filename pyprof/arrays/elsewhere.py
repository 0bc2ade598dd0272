"""A name that others still use: work on one capture is done by this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def spread(executor: Executor, parts: int, folder: Path) -> Iterator[None]:
    """Does nothing."""
    yield
