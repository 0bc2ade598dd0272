"""The switches and counters that all wrappers share: one object, read on every call. No torch here."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from pyprof.nvtx.backend import Backend, Registry

E = TypeVar("E")

MAX_CALLS = 8_192
"""Distinct calls (op, call site, shapes, dtypes, scalars) remembered before all are forgotten and described anew."""


class Stats(NamedTuple):
    """Counters since the last `init()`.

    texts: distinct texts registered; capped: ranges that lost their arguments because too many texts were registered; errors:
    failures of ours while describing calls; last_error: the newest one.
    """

    texts: int = 0
    capped: int = 0
    errors: int = 0
    last_error: str = ""


class Range(NamedTuple):
    """A range that can be opened: its handle and the functions of the recorder that made it, whatever is switched meanwhile."""

    handle: object
    push: Callable[[Any], object]
    pop: Callable[[], object]


def _nothing(*_: object) -> None:
    """Push or pop no range."""


NO_RANGE = Range(None, _nothing, _nothing)


class State:
    """on: whether ranges are recorded now; stack: whether whole stacks are recorded; backend: the recorder in use.

    generation: counts backends, so that holders of a range notice when it is outdated; forgotten: counts how often the
    remembered calls were dropped; local: values of each thread. Any thread may change all this while others run ops.
    """

    def __init__(self) -> None:
        self.on = False
        self.stack = False
        self.backend: Backend | None = None
        self.registry: Registry | None = None
        self.caches: list[dict[object, Any]] = []
        self.calls = 0
        self.generation = 0
        self.forgotten = 0
        self.variants: dict[str, int] = {}
        self.errors = 0
        self.last_error = ""
        self.local = threading.local()
        self._warned = False
        self.renew_lock()

    def renew_lock(self) -> None:
        """Make a new lock: in a forked process the thread that held the old one does not exist."""
        self._lock = threading.RLock()  # a destructor or a signal's handler may run ops while it is held

    def use(self, backend: Backend) -> None:
        """Send ranges to this backend from now on."""
        if backend is self.backend:
            return
        self.backend = backend
        own = getattr(backend, "registry", None)
        self.registry = Registry(backend) if own is None else own  # an empty one is falsy
        self.generation += 1
        self.variants.clear()
        self.forget()

    def find(self, text: str, *, reserve: bool = False) -> Range | None:
        """The range of a text; None without a backend, or where too many texts are registered (see `Registry.find`)."""
        registry = self.registry
        handle = None if registry is None else registry.find(text, reserve=reserve)
        return None if registry is None or handle is None else Range(handle, registry.backend.push, registry.backend.pop)

    def forget(self) -> None:
        """Drop all remembered calls, where ranges or ids of code objects become invalid."""
        with self._lock:
            self.forgotten += 1
            for cache in self.caches:
                cache.clear()
            self.calls = 0

    def remember(self, cache: dict[object, E], key: object, entry: E, since: int) -> None:
        """Keep what was found out about a call, dropping all other calls where there are too many.

        since: the count of `forgotten` before it was found out; it is not kept where it may be outdated by now.
        """
        with self._lock:
            if since != self.forgotten:
                return
            if self.calls >= MAX_CALLS:
                self.forget()
            cache[key] = entry
            self.calls += 1

    def count_variant(self, text: str) -> int:
        """How many new texts so far differ from this one only in a fraction, including this one."""
        if len(self.variants) >= MAX_CALLS:
            self.variants.clear()
        count = self.variants[text] = self.variants.get(text, 0) + 1
        return count

    def trouble(self, error: BaseException, where: str) -> None:
        """Count a failure of ours, and warn of the first one."""
        with self._lock:
            self.errors += 1
            self.last_error = f"{where}: {type(error).__name__}: {error}"
            first, self._warned = not self._warned, True
        if first:
            text = f"pyprof could not describe a call of {self.last_error} (shown once; the program is not affected)"
            try:  # a program that turns warnings into errors must not fail because of us
                warnings.warn(text, RuntimeWarning, stacklevel=3)
            except RuntimeWarning:
                print(f"pyprof: {text}", file=sys.stderr)

    def reset_counts(self) -> None:
        """Start counting from zero."""
        self.errors = 0
        self.last_error = ""
        self._warned = False
        if self.registry is not None:
            self.registry.capped = 0

    def stats(self) -> Stats:
        """A copy of the counters."""
        registry = self.registry
        texts, capped = (len(registry), registry.capped) if registry is not None else (0, 0)
        return Stats(texts, capped, self.errors, self.last_error)


STATE = State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=STATE.renew_lock)
