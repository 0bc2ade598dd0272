"""torch.profiler records once at a time: ends one recording before another one begins.

Otherwise the second takes over the state of the first, and ending the first crashes the process. And a range that was opened
while one recording ran and ends while the next one runs writes into memory that the first has given up, unless the two are of
different kinds: recordings of all threads and of the starting thread only find their state in different places. No files, no
schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from pyprof.nvtx.patch import Patches


_STARTERS = ("_prepare_profiler", "_enable_profiler")  # in torch.autograd.profiler: every recording in Python begins with these

P = ParamSpec("P")
R = TypeVar("R")

_open: dict[int, bool] = {}  # ranges by record_function that began while we recorded -> whether that recorded all threads


def next_kind() -> bool | None:
    """Whether the next recording may record all threads; None if none may begin, since ranges of both kinds are open."""
    kinds = set(_open.values())
    return None if len(kinds) == 2 else True not in kinds


class Exclusive:
    """Between `watch` and `release` calls `give_way` once, before anything else begins to record."""

    def __init__(self, give_way: Callable[[], None]) -> None:
        self.all_threads = True  # in place of the starting thread and autograd's
        self._give_way = give_way
        self._ours = 0
        self._patches: Patches | None = None

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Recordings that begin inside this `with` belong to the watched one."""
        self._ours += 1
        try:
            yield
        finally:
            self._ours -= 1

    def watch(self) -> None:
        """Begin to watch, by wrapping torch's functions that start a recording or open a range."""
        from torch.autograd import profiler

        from pyprof.nvtx.patch import Patches

        self._patches = Patches()
        for name in _STARTERS:
            starter = getattr(profiler, name, None)
            if starter is not None:
                self._patches.replace(profiler, name, self._watched(starter))
        enter, leave = profiler.record_function.__enter__, profiler.record_function.__exit__

        def entered(self_: object) -> object:
            if not self._ours:
                _open[id(self_)] = self.all_threads
            return enter(self_)

        def left(self_: object, *error: object) -> object:
            _open.pop(id(self_), None)
            return leave(self_, *error)

        self._patches.replace(profiler.record_function, "__enter__", entered)
        self._patches.replace(profiler.record_function, "__exit__", left)

    def release(self) -> None:
        """Stop watching, and leave torch as it was."""
        if self._patches is not None:
            self._patches.undo()

    def _watched(self, starter: Callable[P, R]) -> Callable[P, R]:
        def start(*args: P.args, **kwargs: P.kwargs) -> R:
            if not self._ours and self._patches:
                self.release()
                self._give_way()
            return starter(*args, **kwargs)

        return start
