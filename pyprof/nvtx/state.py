"""The switches and counters that all wrappers share: one object, read on every call. No torch here."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

from pyprof.nvtx.backend import Backend, Registry

__all__ = ["MAX_CALLS", "STATE", "State", "Stats"]

MAX_CALLS = 8_192
"""Distinct calls (op, call site, shapes, dtypes, scalars) remembered before all are forgotten and described anew."""


class Stats:
    """What went on since the last `init()`: texts (distinct ones registered), capped (markers that lost their arguments because
    too many distinct texts were registered), errors (of ours, while describing), last_error (the text of the newest)."""

    __slots__ = ("capped", "errors", "last_error", "texts")

    def __init__(self, texts: int = 0, capped: int = 0, errors: int = 0, last_error: str = "") -> None:
        self.texts = texts
        self.capped = capped
        self.errors = errors
        self.last_error = last_error

    def __repr__(self) -> str:
        return f"Stats(texts={self.texts}, capped={self.capped}, errors={self.errors}, last_error={self.last_error!r})"


def _nothing(*_: Any) -> None:
    return None


class State:
    """on: whether ranges are recorded now; stack: whether whole stacks are recorded; push, pop: the backend's own;

    generation: counts backends, so that whoever keeps a handle sees that it is of an earlier one; local: per thread.
    """

    __slots__ = (
        "_backend",
        "_lock",
        "_warned",
        "caches",
        "calls",
        "errors",
        "generation",
        "last_error",
        "local",
        "on",
        "pop",
        "push",
        "registry",
        "stack",
        "variants",
    )

    def __init__(self) -> None:
        self.on = False
        self.stack = False
        self.push: Callable[[Any], Any] = _nothing
        self.pop: Callable[[], Any] = _nothing
        self.registry: Registry | None = None
        self.caches: list[dict[Any, Any]] = []
        self.calls = 0
        self.generation = 0
        self.variants: dict[str, int] = {}
        self.errors = 0
        self.last_error = ""
        self.local = threading.local()
        self._backend: Backend | None = None
        self._warned = False
        self._lock = threading.Lock()

    def use(self, backend: Backend) -> None:
        """Send ranges to this backend from now on."""
        if backend is self._backend:
            return
        self._backend = backend
        own = getattr(backend, "registry", None)
        self.registry = Registry(backend) if own is None else own  # an empty one counts as false
        self.push, self.pop = backend.push, backend.pop
        self.generation += 1
        self.variants.clear()
        self.forget()

    @property
    def backend(self) -> Backend | None:
        """Who records now."""
        return self._backend

    def forget(self) -> None:
        """Drop what is remembered of calls; needed where handles or ids of code objects lose their meaning."""
        for cache in self.caches:
            cache.clear()
        self.calls = 0

    def remember(self, cache: dict[Any, Any], key: Any, handle: Any) -> None:
        """Keep the handle of a call, dropping all that is kept where that is too much."""
        if self.calls >= MAX_CALLS:
            self.forget()
        cache[key] = handle
        self.calls += 1

    def count_variant(self, text: str) -> int:
        """How many new texts there were that differ from this one in a fraction only, this one included."""
        if len(self.variants) >= MAX_CALLS:
            self.variants.clear()
        count = self.variants[text] = self.variants.get(text, 0) + 1
        return count

    def trouble(self, error: BaseException, where: str) -> None:
        """Count an error of ours, and warn of the first one."""
        with self._lock:
            self.errors += 1
            self.last_error = f"{where}: {type(error).__name__}: {error}"
            first, self._warned = not self._warned, True
        if first:
            _warn(f"pyprof could not describe a call of {self.last_error} (said once; the program is not affected)")

    def reset_counts(self) -> None:
        """Begin counting anew."""
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


def _warn(text: str) -> None:
    """Warn without ever raising: a program that turns warnings into errors must not fail because of us."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    except RuntimeWarning:
        print(f"pyprof: {text}", file=sys.stderr)


STATE = State()
