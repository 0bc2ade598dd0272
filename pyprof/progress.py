"""A stage of the work -> a bar on standard error while it takes long, which vanishes when it ends; where nobody looks, nothing.

    with stage("reading net.json.gz"):
        ...
        done(0.3)                           # of it is done

Only the command line switches it on, and only on a terminal: the library and pipes see and pay nothing. Knows no command.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pyprof.visible import one_line

_QUIET_S = 1.0  # of the first stage on: what ends before has no bar
_LEAST_S = 0.2  # of each later stage
_REFRESH_S = 0.1
_watched = -1  # the process whose stages are shown
_begun = 0.0  # when the first of them began
_current: _Bar | None = None


def watch() -> None:
    """Show the stages of this process, not of those that it starts, where standard error is a terminal that can draw."""
    global _watched
    if sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        _watched = os.getpid()


@contextmanager
def stage(text: str, share: Callable[[], float | None] | None = None) -> Iterator[None]:
    """Work of perhaps more than a second. share: asked now and then how much is done, from 0 to 1, None unknown.

    A stage within a stage is part of it.
    """
    global _begun, _current
    if _current is not None or _watched != os.getpid():
        yield
        return
    now = time.monotonic()
    _begun = _begun or now
    _current = bar = _Bar(one_line(text), share, max(_begun + _QUIET_S - now, _LEAST_S))
    try:
        yield
    finally:
        _current = None
        bar.stop()


def done(share: float) -> None:
    """So much of the stage is done, from 0 to 1."""
    if _current is not None:
        _current.share_done = share


class _Bar:
    """The bar of one stage, drawn by a thread of its own after a while."""

    def __init__(self, text: str, share: Callable[[], float | None] | None, wait_s: float) -> None:
        import threading

        self.text, self.share, self.wait_s = text, share, wait_s
        self.share_done: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and leave the screen as it was."""
        self._ended.set()
        self._thread.join()

    def _draw(self) -> None:
        if self._ended.wait(self.wait_s):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        console = Console(file=sys.stderr)
        with Progress(*columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False) as progress:
            task = progress.add_task(self.text, total=None)
            while True:
                if (part := self._asked()) is not None:
                    progress.update(task, total=1.0, completed=min(part, 1.0))
                progress.refresh()
                if self._ended.wait(_REFRESH_S):
                    return

    def _asked(self) -> float | None:
        if self.share is not None:
            with suppress(OSError, ValueError):  # a file that was closed meanwhile
                return self.share()
        return self.share_done
