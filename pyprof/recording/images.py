"""The ends of a process that Python does not announce: a fork's child, and another program in its place (os.exec*).

torch.profiler leaves a thread that a forked child does not have, and for which the child waits as it ends: the destructors of
torch's libraries are left out there. A program that replaces itself by another one is recorded again from the beginning.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

getpid = os.getpid  # a program may put another function in its place
_execve = os.execve


def end_forks() -> None:
    """Let each process that is forked from this one end."""
    os.register_at_fork(after_in_child=_end_at_once)


def _end_at_once() -> None:
    """As this process ends, after Python is done: write what C has buffered, and leave with the exit code."""
    with suppress(OSError, AttributeError):  # on_exit is glibc's
        library = ctypes.CDLL(None)
        leave, flush = (ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in ("_exit", "fflush"))
        library.on_exit(leave, None)
        library.__cxa_atexit(flush, None, None)


class Replaced:
    """Records the program that takes this one's place. Before: called first, when this one's recording must end."""

    def __init__(self, folder: str, inject: str) -> None:
        self.before: Callable[[], None] = lambda: None
        self._folder, self._inject = folder, inject

    def watch(self) -> None:
        """Wrap the functions that replace a process."""
        for name in ("execv", "execve"):
            setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, orig: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
        @functools.wraps(orig)
        def replace(path: Any, args: Any, *env: Any) -> NoReturn:
            given: Mapping[Any, Any] = env[0] if env else os.environ
            if os.access(path, os.X_OK):
                self.before()
            with_ours = {**given, "PYPROF_RUN": self._folder}
            theirs = given.get("PYTHONPATH")
            with_ours["PYTHONPATH"] = os.pathsep.join(filter(None, [self._inject, theirs]))
            if theirs is not None:
                with_ours["PYPROF_RUN_PYTHONPATH"] = theirs
            _execve(path, args, with_ours)

        return replace
