"""Range texts -> ranges that a tool records: the only place that calls NVTX.

Uses what every release of the PyPI package `nvtx` has had since 0.2.8: a domain handle, a registered string, event attributes,
and the functions that push and pop. `nvtx.Domain` is not used: since 0.2.12 it calls nvtxDomainIsEnabled, which Nsight Systems
2023.4 and older do not implement, and then returns a domain that silently drops every range.

A tool keeps every distinct text for ever, so texts are counted and capped for the whole process. Knows nothing of torch or ops.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pyprof.errors import ToolError

MAX_TEXTS = 6_144
"""Distinct texts with shapes in one process; each costs about 1.4 kB under Nsight Systems."""

MAX_TEXT_BYTES = 4_000_000
"""Bytes of distinct texts with shapes in one process."""

_COLOR = 0x76B900


@runtime_checkable
class Backend(Protocol):
    """Anything that records ranges; tests use one that keeps a list.

    prepare turns a text into the handle that push takes, and is called once for each distinct text; push and pop are called on
    the thread that runs the op, nested like brackets.
    """

    push: Callable[[Any], object]
    pop: Callable[[], object]

    def prepare(self, text: str) -> object:
        """The handle of a text."""


class NvtxBackend:
    """Ranges in NVTX's default domain, like those of emit_nvtx and torch.cuda.nvtx, so that all nest in one stack.

    sequence: returns the number that each range carries as its payload (int64Value in an export), never in its text: autograd's
    sequence number when the range begins, by which the backward pass of what runs inside is found.
    Raises ToolError if the `nvtx` package is missing or lacks a part that is used.
    """

    push: Callable[[object], object]
    pop: Callable[[], object]

    def __init__(self, sequence: Callable[[], int] | None = None) -> None:
        try:
            lib = import_module("nvtx._lib.lib")
            self._string = lib.RegisteredString
            self._attributes = lib.EventAttributes
            self._domain = lib.DomainHandle(None)
            self._push = lib.push_range
            self.pop = partial(lib.pop_range, self._domain)
            self._leading = self._find_signature()
        except ImportError as error:
            raise ToolError(
                "the Python package `nvtx` is not installed: no range can be recorded", "pip install nvtx"
            ) from error
        except (AttributeError, TypeError, ValueError) as error:
            reason = f"this release of the Python package `nvtx` cannot be used: {error}"
            raise ToolError(reason, "pip install 'nvtx>=0.2.8'") from error
        self.registry = Registry(self)  # one for the process: the tool keeps its texts while another backend is in use
        if sequence is not None and self._has_payload():
            self.push = self._numbered_push(sequence)
            return
        push, domain = self._push, self._domain  # with ready-made event attributes
        self.prepare = lambda text: self._new_attributes(self._string(domain, text))  # type: ignore[method-assign]
        self.push = lambda handle: push(handle, domain)

    def _has_payload(self) -> bool:
        """Whether event attributes can carry a number, which the oldest releases cannot."""
        try:
            self._new_attributes(self._string(self._domain, "pyprof")).payload = 1
        except AttributeError:
            return False
        return True

    def _new_attributes(self, message: object) -> Any:
        return self._attributes(*self._leading, message, _COLOR)

    def _numbered_push(self, sequence: Callable[[], int]) -> Callable[[object], object]:
        """Push with a number as payload; each thread has its own event attributes, which the tool copies."""
        push, domain, local, make = self._push, self._domain, threading.local(), self._new_attributes
        spare = make(self._string(domain, "pyprof"))

        def numbered(handle: object) -> None:
            attributes = spare
            try:
                try:
                    attributes = local.attributes
                except AttributeError:
                    attributes = local.attributes = make(handle)
                attributes.message = handle
                attributes.payload = sequence()
            finally:  # even where a signal's handler raises in here: the caller closes what it opens
                push(attributes, domain)

        return numbered

    def _find_signature(self) -> tuple[None, ...]:
        """Arguments before the message: a domain since 0.2.14 (used only for arrays as payload), none in older releases."""
        probe = self._string(self._domain, "pyprof")
        try:
            self._attributes(None, probe, _COLOR)
        except (TypeError, AttributeError):
            self._attributes(probe, _COLOR)
            return ()
        return (None,)

    def prepare(self, text: str) -> object:
        """Register the text with the tool."""
        return self._string(self._domain, text)


class Registry:
    """Text -> handle, each text prepared once, with a cap on the number of texts and of bytes.

    backend: whose handles they are; capped: how often the cap refused a text.
    """

    def __init__(self, backend: Backend, max_texts: int = MAX_TEXTS, max_bytes: int = MAX_TEXT_BYTES) -> None:
        self.backend = backend
        self._handles: dict[str, object] = {}
        self._max_texts = max_texts
        self._bytes = 0
        self._max_bytes = max_bytes
        self.capped = 0

    def __len__(self) -> int:
        return len(self._handles)

    def find(self, text: str, *, reserve: bool = False) -> object:
        """The handle of a text, or None if it is new and the cap is reached.

        reserve: the text is one of few (an op without its arguments, a layer), for which the same amount is set aside.
        """
        handle = self._handles.get(text)
        if handle is not None:
            return handle
        scale = 2 if reserve else 1
        if len(self._handles) >= self._max_texts * scale or self._bytes + len(text) > self._max_bytes * scale:
            self.capped += 1
            return None
        handle = self._handles[text] = self.backend.prepare(text)
        self._bytes += len(text)
        return handle


_VARIABLES = ("NSYS_PROFILING_SESSION_ID", "NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH", "CUDA_INJECTION64_PATH")
_LIBRARIES = (
    *("ToolsInjection", "cuda-injection64", "nvtx-injection", "libnvtxinj", "libcuinj", "rocprof"),
    "libnvperf_host_injection",
)


def tool_attached() -> str:
    """The evidence that a tool records this process's NVTX ranges; the empty string where there is none.

    Read from the environment and the loaded libraries, since nvtxDomainIsEnabled returns false under tools that do record.
    """
    for name in _VARIABLES:
        if os.environ.get(name):
            return name
    preload = os.environ.get("LD_PRELOAD", "")
    for name in _LIBRARIES:
        if name in preload:
            return f"LD_PRELOAD ({name})"
    try:
        maps = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return ""
    return next((name for name in _LIBRARIES if name in maps), "")
