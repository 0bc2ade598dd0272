"""torch.profiler records once at a time: tells a recording that another one is about to begin, so that it can end before.

Without that the second takes the first one's state over, and ending the first crashes the process. No files, no schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Rivals"]

_STARTERS = ("_prepare_profiler", "_enable_profiler")  # in torch.autograd.profiler: every recording in Python begins by these


class Rivals:
    """Calls `began` once, before anybody else begins to record, while it watches."""

    def __init__(self, began: Callable[[], None]) -> None:
        self._began = began
        self._ours = 0
        self._before: dict[str, tuple[Any, Any]] = {}

    @contextmanager
    def ours(self) -> Iterator[None]:
        """What begins in here is the recording's own."""
        self._ours += 1
        try:
            yield
        finally:
            self._ours -= 1

    def watch(self) -> None:
        """From now on."""
        from torch.autograd import profiler

        for name in _STARTERS:
            starter = getattr(profiler, name, None)
            if starter is not None:
                watched = self._watched(starter)
                self._before[name] = (starter, watched)
                setattr(profiler, name, watched)

    def leave(self) -> None:
        """No more; torch is as it was."""
        from torch.autograd import profiler

        for name, (starter, watched) in self._before.items():
            if getattr(profiler, name) is watched:
                setattr(profiler, name, starter)
        self._before.clear()

    def _watched(self, starter: Callable[..., Any]) -> Callable[..., Any]:
        def start(*args: Any, **kwargs: Any) -> Any:
            if not self._ours and self._before:
                self.leave()
                self._began()
            return starter(*args, **kwargs)

        return start
