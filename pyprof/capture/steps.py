"""Training steps of a program that knows nothing of us, counted as they pass; something begins with one and ends with another.

A step ends with `optimizer.step()`; in a program that calls `pyprof.step()` it begins with that instead. Steps count from 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyprof.errors import UsageError

__all__ = ["StepCounter", "parse_steps"]


def parse_steps(text: str) -> tuple[int, int]:
    """`A:B` as (A, B): the steps from A up to and without B. Raises UsageError for anything else."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(
            f"--steps takes A:B with A before B, not {text!r}", "for example --steps 10:12, which records two steps"
        )
    return int(match[1]), int(match[2])


class StepCounter:
    """Calls `boundary(n)` when n steps are over, n = 1, 2, ...; use it in a `with`, on the thread that trains."""

    def __init__(self, boundary: Callable[[int], None]) -> None:
        self.done = 0
        self._boundary = boundary
        self._marked = False  # whether the program calls pyprof.step()
        self._hook: Any = None

    def __enter__(self) -> StepCounter:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from pyprof.nvtx import api

        self._hook = register_optimizer_step_post_hook(self._optimizer_stepped)
        api.step_listeners.append(self._step_begins)
        return self

    def __exit__(self, *_: object) -> None:
        from pyprof.nvtx import api

        self._hook.remove()
        api.step_listeners.remove(self._step_begins)

    def _optimizer_stepped(self, *_: Any) -> None:
        if not self._marked:
            self._over()

    def _step_begins(self) -> None:
        if self._marked:
            self._over()
        self._marked = True

    def _over(self) -> None:
        self.done += 1
        self._boundary(self.done)
