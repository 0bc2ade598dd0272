"""Tasks on one capture, done one after another by this process, under names that others still use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")
LEAST_ROWS = 1 << 18


@contextmanager
def several(jobs: int) -> Iterator[None]:
    """Does nothing."""
    yield


def most() -> int:
    """How many processes work on one capture: 1."""
    return 1


def available() -> int:
    """How many processes work on one capture: 1."""
    return 1


def at_once(tasks: Sequence[Callable[[], Result]], rows: int) -> list[Result]:
    """The results of the tasks."""
    return [task() for task in tasks]
