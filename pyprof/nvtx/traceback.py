"""Calling a function as if the caller did it itself: no frame of this package in tracebacks, and warnings keep their place.

A warning of a C function is given the file and line of the innermost Python frame, and Python remembers by that place which
warnings it has shown. So a call goes through a function of one line that says it lies where the call was written. What a
wrapper leaves in a traceback is taken out as the exception passes (from Python 3.11; before it, `raise` puts it back).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from pyprof.nvtx.callsite import note_library
from pyprof.nvtx.compiling import pass_through_compiler

__all__ = ["Runner", "hide", "runner"]

Runner = Callable[[Callable[..., Any], "tuple[Any, ...]", "dict[str, Any]"], Any]

_MAX_SITES = 65_536

_plain: Runner = lambda call, args, kwargs: call(*args, **kwargs)  # noqa: E731 - all of it must be on one line
_template: CodeType = _plain.__code__
_runners: dict[tuple[int, int], tuple[CodeType, Runner]] = {}  # with the code object, so that its id stays its own
_globals: dict[str, dict[str, Any]] = {}


def _make(caller: FrameType) -> Runner:
    code = caller.f_code
    place: dict[str, Any] = {"co_filename": code.co_filename, "co_name": code.co_name}
    if hasattr(code, "co_qualname"):
        place["co_qualname"] = code.co_qualname
    made = _template.replace(co_firstlineno=caller.f_lineno or code.co_firstlineno, **place)
    module = str(caller.f_globals.get("__name__", "<string>"))
    # The names of the caller's module are not referred to: they may hold tensors.
    names = _globals.setdefault(module, {"__name__": module, "__builtins__": builtins})
    found = FunctionType(made, names, code.co_name)
    note_library(made)  # our frame, whatever file it says
    pass_through_compiler(found)
    return found


def runner(caller: FrameType) -> Runner:
    """What makes a call in the place of this frame's current line: `runner(frame)(function, args, kwargs)`."""
    key = (id(caller.f_code), caller.f_lasti)
    known = _runners.get(key)
    if known is None:
        if len(_runners) >= _MAX_SITES:
            _runners.clear()
        known = _runners[key] = (caller.f_code, _make(caller))
    return known[1]


def hide(error: BaseException, frames: int) -> None:
    """Take this many frames out of the near end of an exception's traceback; to be followed by a bare `raise`."""
    trace = error.__traceback__
    while frames and trace is not None:
        trace = trace.tb_next
        frames -= 1
    error.__traceback__ = trace


pass_through_compiler(_plain)
