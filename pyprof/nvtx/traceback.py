"""Calling a function as if the caller did it: tracebacks show no frame of this package, and warnings keep their place.

A warning of a C function is attributed to the file and line of the innermost Python frame, and Python remembers by that place
which warnings it has shown. So each call goes through a one-line function whose code claims the place of the original call.
Frames that a wrapper adds to a traceback are removed as the exception passes (from Python 3.11; before it `raise` adds them
again).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from opcode import opmap
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from pyprof.nvtx.callsite import note
from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.state import NO_RANGE

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
    """A function that makes calls as if from this frame's current line: `runner(frame)(function, args, kwargs)`."""
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


def interrupted(error: BaseException) -> bool:
    """Whether an exception that reached us was raised by the program, and not by our work or by what this calls: by a handler
    of a signal, a debugger, another thread.

    Python calls the first two between any two instructions and gives them the frame, or its code, that they interrupt. What
    another thread raises has neither a frame nor arguments, at an instruction that raises nothing.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        outer, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            found = value if type(value) is tuple else (value,)
            if any(one is outer or one is outer.f_code for one in found):
                return True
    return not (error.args or isinstance(error, _BARE)) and trace is not None and _opcode(trace) not in _RAISING


_BARE = (StopIteration, MemoryError)  # which functions in C raise without arguments
_RAISING = (opmap["RAISE_VARARGS"], opmap["RERAISE"])


def _opcode(trace: TracebackType) -> int:
    """The instruction at which a frame was left; -1 where it had not begun."""
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] if trace.tb_lasti >= 0 else -1


def _begun(error: BaseException, function: Callable[..., object]) -> bool:
    """Whether a function called by the frame that caught `error` did anything: one written in Python can be interrupted before
    its first instruction."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    inner = error.__traceback__ and error.__traceback__.tb_next
    return code is None or not inner or inner.tb_frame.f_code is not code or _opcode(inner) not in (-1, opmap.get("RESUME"))


def closing(error: BaseException, push: Callable[[Any], object], pop: Callable[[], object]) -> Callable[[], object]:
    """The function that closes a range where `push`, or what ran after it, raised: one that does nothing if it never opened."""
    return pop if _begun(error, push) else NO_RANGE.pop


def close_again(error: BaseException, pop: Callable[[], object]) -> None:
    """Close a range whose `pop` was interrupted before it began."""
    if not _begun(error, pop):
        pop()


pass_through_compiler(_plain)
hide_from_compiler(interrupted, closing, close_again)
