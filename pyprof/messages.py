"""Messages to people: notes on standard error, bars of progress, and names made safe to show.

Names of kernels, layers, ranges and files come from whoever wrote the program and sent the capture. A character that is not
printable (control characters, escape sequences, marks that turn the direction of writing, halves of characters) is shown as
JSON writes it: `\\u001b[31m`, `\\u202e`. Every table, screen, page and message goes through here.

A stage of the work has a bar on standard error while it takes long, which vanishes when it ends:

    with stage("reading net.json.gz"):
        ...
        done(0.3)                           # of it is done

Only the command line switches bars on, and only on a terminal: the library and pipes see and pay nothing.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

MOST = 4_000  # characters of a name: templates' names reach thousands, a hostile one has megabytes
_SUSPECT = re.compile(r"[^ -~]")  # `re` has no class for unprintable characters
_QUIET_S = 1.0  # of the first stage on: what ends before has no bar
_LEAST_S = 0.2  # of each later stage
_REFRESH_S = 0.1
_TOLD_S = 2.0
_watched = -1  # the process whose stages are shown
_begun = 0.0  # when the first of them began
_current: _Bar | None = None


def visible(text: str) -> str:
    """Replace every unprintable character by its JSON escape; the result is also valid inside JSON."""
    if text.isprintable():
        return text

    def escaped(found: re.Match[str]) -> str:
        character = found[0]
        if character.isprintable():
            return character
        units = character.encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return _SUSPECT.sub(escaped, text)


def one_line(text: str, most: int = MOST) -> str:
    """A text as one visible line, with single blanks; without its middle where it has more than `most` characters."""
    return cut(visible(cut(" ".join(text.split()), most)), most)


def cut(text: str, most: int) -> str:
    """A text of at most `most` characters: its beginning and its end, an ellipsis between."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[len(text) - (most - 1 - most // 2) :]}"


def tell(text: str) -> None:
    """Print a line on standard error. Raises OSError if that is full."""
    print(cut(visible(cut(text, MOST)), MOST), file=sys.stderr, flush=True)


@contextmanager
def told_late(text: str, begun: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Tell what is under way once it has taken two seconds, where no bar of a stage shows it. begun: whether it has begun."""
    ended = threading.Event()

    def watch_it() -> None:
        since = None
        while not ended.wait(_TOLD_S / 8):
            since = since or (time.monotonic() if begun() else None)
            if since and time.monotonic() > since + _TOLD_S and _current is None:
                with suppress(OSError):
                    tell(f"pyprof: {text} ...")
                return

    thread = threading.Thread(target=watch_it, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


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
                part = self.share_done
                if self.share is not None:
                    with suppress(OSError, ValueError):  # a file that was closed meanwhile
                        part = self.share()
                if part is not None:
                    progress.update(task, total=1.0, completed=min(part, 1.0))
                progress.refresh()
                if self._ended.wait(_REFRESH_S):
                    return
