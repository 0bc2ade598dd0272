"""Calling a function as if the caller did it: tracebacks show no frame of this package, and warnings keep their place.

A warning of a C function is attributed to the file and line of the innermost Python frame, and Python remembers by that place
which warnings it has shown. So each call goes through a one-line function whose code claims the place of the original call.
Frames that a wrapper adds to a traceback are removed as the exception passes (from Python 3.11; before it `raise` adds them
again).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from pyprof.nvtx.callsite import note
from pyprof.nvtx.compiling import pass_through_compiler

Function = Callable[..., object]
Runner = Callable[[Function, "tuple[object, ...]", "dict[str, object]"], object]

_MAX_SITES = 65_536

_plain: Runner = lambda call, args, kwargs: call(*args, **kwargs)  # noqa: E731 - all of it must be on one line
_template: CodeType = _plain.__code__
_runners: dict[tuple[int, int], tuple[CodeType, Runner]] = {}  # holds the code object, so that no other one gets its id
_globals: dict[str, dict[str, object]] = {}


def _make(caller: FrameType) -> Runner:
    code = caller.f_code
    place: dict[str, Any] = {"co_filename": code.co_filename, "co_name": code.co_name}
    if hasattr(code, "co_qualname"):
        place["co_qualname"] = code.co_qualname
    made = _template.replace(co_firstlineno=caller.f_lineno or code.co_firstlineno, **place)
    module = str(caller.f_globals.get("__name__", "<string>"))
    # The caller's own globals are not referred to: they may hold tensors.
    names = _globals.setdefault(module, {"__name__": module, "__builtins__": builtins})
    found = FunctionType(made, names, code.co_name)
    note(made, library=True)  # a frame of ours, whatever file it claims
    pass_through_compiler(found)
    return found


def runner(caller: FrameType) -> Runner:
    """A function that calls in the place of this frame's current line: `runner(frame)(function, args, kwargs)`."""
    key = (id(caller.f_code), caller.f_lasti)
    known = _runners.get(key)
    if known is None:
        if len(_runners) >= _MAX_SITES:
            _runners.clear()
        known = _runners[key] = (caller.f_code, _make(caller))
    return known[1]


def hide(error: BaseException, frames: int) -> None:
    """Remove this many of the outermost frames from an exception's traceback; a bare `raise` must follow."""
    trace = error.__traceback__
    while frames and trace is not None:
        trace = trace.tb_next
        frames -= 1
    error.__traceback__ = trace


pass_through_compiler(_plain)
