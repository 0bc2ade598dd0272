"""One function -> the same function with a range around each call: the path of every op, and therefore short.

A call builds a key from its arguments and the caller's line, looks up the handle of the range, pushes, calls, pops. Only calls
with a new key are described in text. No error of ours reaches the program, and exceptions of the op, or of
whatever else interrupts, pass unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch

from pyprof.model.markers import encode_op
from pyprof.model.opcall import UNKNOWN, OpCall
from pyprof.nvtx.autocast import add_region, autocast_text, in_autocast
from pyprof.nvtx.callsite import add_stack, find_frame, library_codes, sites
from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.describe import Unkeyable, add_key, describe_call
from pyprof.nvtx.state import NO_RANGE, STATE, Range, State
from pyprof.nvtx.traceback import Function, Runner, close_again, closing, hide, interrupted, runner

MAX_MARKER_BYTES = 60_000
"""Nsight Systems silently drops ranges whose text is longer than 65,416 bytes."""

MAX_VARIANTS = 64
"""Texts of one op with the same shapes that may differ in fractions only; further ones are recorded without the fractions."""

_MAX_NESTED = 32  # arguments; keys are compared by recursion

_Call = tuple[tuple[object, ...], dict[str, object]]
_Entry = tuple[object, Callable[[Any], object], Callable[[], object], Runner]  # the parts of a Range, and who calls
_Cache = dict[object, _Entry]

_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_mode_active = torch._C._is_torch_function_mode_enabled
_tracing = torch._C._get_tracing_state
_no_modes = torch._C.DisableTorchFunction


class OpName(NamedTuple):
    """The name under which calls are recorded: module and op as users know them; names: see `describe_call`."""

    module: str
    op: str
    names: tuple[str, ...] = ()

    def bare(self) -> OpCall:
        """A call without a description of its arguments."""
        return OpCall(self.module, self.op, described=False)


def _without_floats(value: object) -> object:
    if isinstance(value, float):
        return UNKNOWN
    if isinstance(value, (list, tuple)):
        return type(value)(map(_without_floats, value))
    return value


def _settle(call: OpCall) -> OpCall:
    """The call as it is recorded: without its fractions where they have had too many values already.

    Otherwise a learning rate that changes with each step would use up all texts that may be registered.
    """
    args = tuple(map(_without_floats, call.args))
    kwargs = tuple((name, _without_floats(value)) for name, value in call.kwargs)
    if args == call.args and kwargs == call.kwargs:
        return call
    blurred = call._replace(args=args, kwargs=kwargs)
    return blurred if STATE.count_variant(blurred.name + str(blurred)) > MAX_VARIANTS else call


def _find(name: OpName, call: OpCall, src: tuple[str, ...], autocast: str = "") -> Range | None:
    """The range of a call; with less text where it would be too long, or where too many are registered."""
    bare = name.bare()
    for shown, lines in ((_settle(call), src), (bare, src), (bare, src[-1:]), (bare, ())):
        text = encode_op(shown, lines, autocast if shown.described else "")
        if len(text.encode("utf-8", "backslashreplace")) < MAX_MARKER_BYTES:
            found = STATE.find(text, reserve=not shown.described)
            if found is not None:
                return found
    return None


def _describe_guarded(name: OpName, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[OpCall, str]:
    """The call and the autocast region around it, found so that no mode, subclass or tracer of the program sees its tensors
    being queried."""
    if _tracing() is not None:  # torch.jit.trace records each access to a shape
        return name.bare(), ""
    with _no_modes():
        return describe_call(name.module, name.op, name.names, args, kwargs), autocast_text(args, kwargs)


def slow_entry(name: OpName, key: object, cache: _Cache, call: _Call, frame: FrameType) -> _Entry:
    """Range and runner of a call that is new. key: what to remember it by; None if it cannot be remembered."""
    args, kwargs = call
    run, since = runner(frame), STATE.forgotten
    try:
        described, autocast = _describe_guarded(name, args, kwargs)
        found = _find(name, described, sites(frame, whole=STATE.stack), autocast)
        if key is not None and found is not None:
            STATE.remember(cache, key, (*found, run), since)
    except Exception as error:  # a defect of ours costs the description of the arguments, never the user's run
        if interrupted(error):
            raise
        STATE.trouble(error, f"{name.module}.{name.op}")
        try:
            found = _find(name, name.bare(), ())
        except Exception as second:
            if interrupted(second):
                raise
            found = None
    return (*(found or NO_RANGE), run)


def guarded_key(caller: FrameType, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """`call_key` where a TorchFunctionMode would see each access to a shape; None if torch.jit.trace would record it."""
    if _tracing() is not None:
        return None
    with _no_modes():
        return call_key(caller, args, kwargs)


def call_key(caller: FrameType, args: tuple[Any, ...], kwargs: dict[str, object]) -> object:
    """Key that tells this call from others: the place of the call, the user's line, `add_key` of the arguments, and the
    autocast region around it.

    Nested tuples, since making them is faster than growing lists. Raises what `add_key` raises.
    """
    code = caller.f_code
    key: object = (id(code), caller.f_lasti)
    if STATE.stack:
        key = add_stack(caller.f_back, key)
    elif library_codes.get(id(code)) is not False:
        frame = find_frame(caller)
        if frame is not None and frame is not caller:
            key = (key, id(frame.f_code), frame.f_lasti)
    if len(args) > _MAX_NESTED:
        key = _flat_key(key, args)
    else:
        for value in args:
            kind = type(value)
            if kind is _Tensor or kind is _Parameter:
                key = (key, value.shape, value.dtype, value.requires_grad, value.is_contiguous() or value.stride())
            elif kind is int or kind is bool or kind is str:
                key = (key, kind, value)
            else:
                key = _flat_key(key, (value,))
    if in_autocast():
        key = add_region(key, args, kwargs)
    return _flat_key(_flat_key(key, kwargs), kwargs.values()) if kwargs else key


def _flat_key(outer: object, values: Iterable[object]) -> object:
    key = [outer]
    add_key(values, key)
    return tuple(key)


def make_wrapper(orig: Function, name: OpName, depth: int = 1) -> Function:
    """A plain function that calls `orig` inside a range while recording is on.

    depth: number of frames up to the caller's; those between are ours.
    """
    state: State = STATE
    cache: _Cache = {}
    state.caches.append(cache)
    find = cache.get
    get_frame, mode_active, tracing = sys._getframe, _mode_active, _tracing

    def wrapper(*args: object, **kwargs: object) -> object:
        if not state.on:
            try:
                return orig(*args, **kwargs)
            except BaseException as error:
                hide(error, 1)
                raise
        caller = get_frame(depth)
        try:
            if mode_active() or tracing() is not None:
                key = guarded_key(caller, args, kwargs)
            else:
                key = call_key(caller, args, kwargs)
            entry = find(key)
        except Unkeyable:
            key = entry = None
        except Exception as error:  # a tensor without strides, a size that cannot be hashed: they can still be described
            if interrupted(error):
                raise
            key = entry = None
        if entry is None:
            entry = slow_entry(name, key, cache, (args, kwargs), caller)
        handle, push, pop, run = entry
        try:
            push(handle)
            return run(orig, args, kwargs)
        except BaseException as error:
            pop = closing(error, push, pop)
            hide(error, 2)
            raise
        finally:
            try:
                pop()
            except BaseException as error:
                close_again(error, pop)
                raise

    pass_through_compiler(wrapper)
    return wrapper


hide_from_compiler(slow_entry, call_key, guarded_key)
