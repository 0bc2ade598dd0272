"""Functions that users call: init, shutdown, pause, resume, instrument, wrap, step. Puts all parts together."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType, TracebackType
from typing import Any

from pyprof.errors import ToolError, UsageError

try:
    import torch
except ImportError as error:
    raise ToolError(f"instrumenting needs torch, which cannot be imported: {error}", "pip install torch") from error

from pyprof.model.markers import encode_step
from pyprof.nvtx.backend import Backend, NvtxBackend, tool_attached
from pyprof.nvtx.compiling import hide_from_compiler
from pyprof.nvtx.layers import patch_layers
from pyprof.nvtx.loops import patch_loaders, patch_optimizers
from pyprof.nvtx.mode import patch_mode
from pyprof.nvtx.patch import Patches, dress, is_wrapper, patch_collectives, patch_custom_ops, patch_ops
from pyprof.nvtx.state import STATE, Stats
from pyprof.nvtx.traceback import close_again, closing
from pyprof.nvtx.wrapper import OpName, make_wrapper

_MODES = ("auto", "on")
_METHODS = ("patch", "mode")
_lock = threading.RLock()
_patches: Patches | None = None
_method = "patch"
_user_patches = Patches()
held_back = False  # whether `pyprof.profile` decides when to record, rather than the program's own init()
# Called with its tokens when a step begins, whether or not torch is instrumented.
step_listeners: list[Callable[[int | None], None]] = []


@cache
def _nvtx() -> Backend:
    return NvtxBackend(getattr(torch.autograd, "_get_sequence_nr", None))


def init(
    *,
    mode: str = "auto",
    stack: bool = False,
    backend: Backend | None = None,
    method: str = "patch",
    enable_function_stack: bool = False,
) -> bool:
    """Instrument torch: from now on each op, module, optimizer step and batch of a DataLoader runs inside an NVTX range,
    on every thread.

    mode: `auto` does nothing where no tool records NVTX ranges of this process, so that the call can stay in the program; `on`
    always instruments. stack: ranges of ops hold all of the user's source lines that led there, not only the innermost.
    backend: records instead of NVTX (implies `on`). method: `patch` replaces torch's C functions by stand-ins that equal them;
    `mode` replaces none and records ops by a TorchFunctionMode, for programs that check which object a function is: slower, and
    only for this thread and those that start later. enable_function_stack: `stack` as old programs call it. A second call
    changes these settings and instruments nothing twice.

    Returns whether torch is instrumented now. Raises ToolError if torch or the `nvtx` package is missing or cannot be used,
    since the capture would be empty; UsageError for an unknown mode or method.
    """
    for what, given, known in (("mode", mode, _MODES), ("method", method, _METHODS)):
        if given not in known:
            raise UsageError(f"pyprof.init: unknown {what} {given!r}", f"one of {', '.join(known)}")
    stack = stack or enable_function_stack
    with _lock:
        if _patches is None and backend is None and mode == "auto" and not tool_attached():
            return False
        chosen = backend if backend is not None else _nvtx()
        hide_from_compiler(chosen.push, chosen.pop)
        STATE.use(chosen)
        if STATE.stack != stack:
            STATE.stack = stack
            STATE.forget()
        if _patches is not None and _method != method:
            _take_out()
        if _patches is None:
            _put_in(method)
        STATE.on = STATE.on or mode == "on" or backend is not None or not held_back
        return True


def _put_in(method: str) -> None:
    """Instrument torch completely, or not at all."""
    global _patches, _method
    STATE.reset_counts()
    patches = Patches()
    try:
        patch_torch = patch_ops if method == "patch" else patch_mode
        for part in (patch_torch, patch_custom_ops, patch_collectives, patch_layers, patch_optimizers, patch_loaders):
            part(patches)
    except BaseException:
        patches.undo()
        raise
    _patches, _method = patches, method


def _take_out() -> None:
    global _patches
    if _patches is not None:
        _patches.undo()
        _patches = None


def shutdown() -> None:
    """Undo `init` and `wrap`: torch's attributes and the user's functions are what they were. May be called at any time."""
    with _lock:
        STATE.on = False
        end_step()
        _user_patches.undo()
        _take_out()
        STATE.forget()


def enabled() -> bool:
    """Whether ranges are recorded now."""
    return STATE.on


def pause() -> None:
    """Stop recording but leave torch instrumented; open ranges are still closed."""
    STATE.on = False


def resume() -> None:
    """Record again after `pause`, if torch is instrumented."""
    STATE.on = _patches is not None


def stats() -> Stats:
    """Counters since `init`: registered texts, ranges that lost their arguments to the cap, failures of ours."""
    return STATE.stats()


@contextmanager
def instrument(*, stack: bool = False, backend: Backend | None = None) -> Iterator[None]:
    """Instrument torch during a `with`; inside another one, or after `init`, the outer settings are restored at the end."""
    with _lock:
        outer = (_patches is not None, STATE.on, STATE.stack, STATE.backend)
        method = _method if outer[0] else "patch"
    init(mode="on", stack=stack, backend=backend if backend is not None else outer[3], method=method)
    try:
        yield
    finally:
        with _lock:
            if not outer[0]:
                shutdown()
            else:
                init(mode="on", stack=outer[2], backend=outer[3], method=method)
                STATE.on = outer[1]


def wrap(owner: object, name: str) -> None:
    """Record calls of a user's function in ranges, with its arguments: `wrap(mymodule, "attention")`.

    owner: a module or class; name: its function, method, staticmethod or classmethod. Active while torch is instrumented, until
    `shutdown`. Wrapping twice changes nothing. Raises UsageError if there is no such function.
    """
    with _lock:
        raw = inspect.getattr_static(owner, name, None)
        function: Any = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
        if not callable(function):
            where = getattr(owner, "__qualname__", getattr(owner, "__name__", repr(owner)))
            hint = "pass the module or class, then the function's name"
            raise UsageError(f"pyprof.wrap: {where} has no function {name!r}", hint)
        if is_wrapper(function):
            return
        new = make_wrapper(function, OpName(getattr(owner, "__name__", type(owner).__name__), name))
        module = getattr(function, "__module__", None) or getattr(owner, "__module__", "") or ""
        dress(new, function, (module, getattr(function, "__qualname__", name)))
        if isinstance(function, FunctionType):
            vars(new).update({k: v for k, v in vars(function).items() if k not in vars(new)})
            new.__annotations__ = function.__annotations__
        kept = type(raw)(new) if isinstance(raw, (staticmethod, classmethod)) else new
        _user_patches.replace(owner, name, kept)


class Step:
    """An open training step; the end of its `with` closes it, and so does the next step."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> Step:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if getattr(STATE.local, "step", None) is self:
            end_step()


def end_step() -> None:
    """Close the open step of this thread, if any."""
    local = STATE.local
    if getattr(local, "step", None) is not None:
        local.step, pop = None, local.step_pop
        try:
            pop()
        except BaseException as error:
            close_again(error, pop)
            raise


def open_step(number: int) -> Step:
    """Open the range of a training step on this thread, which must have no open one, if torch is instrumented."""
    opened = Step(number)
    around = STATE.find(encode_step(number), reserve=True) if STATE.on else None
    if around is not None:
        STATE.local.step_pop, STATE.local.step = around.pop, opened
        try:
            around.push(around.handle)
        except BaseException as error:
            if closing(error, around.push, around.pop) is not around.pop:
                STATE.local.step = None
            raise
    return opened


def step(number: int | None = None, *, tokens: int | None = None) -> Step:
    """Begin the next training step: call it at the top of the loop, or use `with pyprof.step():` around its body.

    number: counted from 0 by default. tokens: that the step computes, for tokens/s of a run. Only counts where torch is not
    instrumented.
    """
    local = STATE.local
    end_step()
    for listener in step_listeners:
        listener(tokens)
    count = getattr(local, "steps", 0) if number is None else number
    local.steps = count + 1
    return open_step(count)


def _renew_lock() -> None:
    """Make a new lock: in a forked process the thread that held the old one does not exist."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
hide_from_compiler(STATE.trouble, end_step)
