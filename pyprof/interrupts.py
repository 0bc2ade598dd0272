"""Ctrl-C and SIGTERM -> the end of a command within a second, also while a file system does not answer. Knows no command.

Python handles a signal when the main thread comes back from the system. While that waits for a file server that is gone, as of
NFS or FUSE, it does not come back and only SIGKILL ends it: the signal stays pending. A thread sees that and ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threading import Event

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_POLL_S = 0.25  # a signal that is pending twice in a row is not being handled
_CLEANING_S = 0.2  # what lies where nothing answers cannot be removed
_STACK_BYTES = 1 << 19  # of the thread: it counts as memory of the process


@contextmanager
def answered(clean: Callable[[], None]) -> Iterator[None]:
    """In this block SIGINT and SIGTERM end the process even where it waits for a file system, with exit code 130 or 143.

    clean: removes what would be left; it may hang. What handles the signals while the main thread runs is not changed.
    """
    if not hasattr(signal, "sigpending"):  # Windows
        yield
        return
    import threading

    done = threading.Event()
    before = threading.stack_size(_STACK_BYTES)
    try:
        threading.Thread(target=_watch, args=(done, clean), name="pyprof signals", daemon=True).start()
    finally:
        threading.stack_size(before)
    try:
        yield
    finally:
        done.set()


def _watch(done: Event, clean: Callable[[], None]) -> None:
    from threading import Thread

    signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)  # else sigpending would not tell of them
    before: set[signal.Signals] = set()
    while not done.wait(_POLL_S):
        pending = {*signal.sigpending()} & {*_NUMBERS}
        if pending & before:
            cleaning = Thread(target=clean, daemon=True)
            cleaning.start()
            cleaning.join(_CLEANING_S)
            _end(min(pending & before))
        before = pending


def _end(number: signal.Signals) -> None:
    """End this process and those that work for it; the main thread holds locks of streams and of Python's own ends."""
    if "multiprocessing" in sys.modules:
        import multiprocessing

        for process in multiprocessing.active_children():
            process.kill()
    with suppress(OSError):
        os.write(2, f"pyprof: error: {number.name} while a file system did not answer\n".encode())
    os._exit(128 + number)
