"""Tasks done one after another, under a name that others still use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

Result = TypeVar("Result")


def in_order(tasks: Iterator[Callable[[], Result]], jobs: int) -> Iterator[Result]:
    """The result of each task."""
    return (task() for task in tasks)
