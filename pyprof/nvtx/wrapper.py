"""One function -> the same function with a range around each call: the path that every op takes, so kept short.

A call builds a key from the arguments and the caller's line, finds the range's handle under it, pushes, calls, pops. Only a
new key is described in words. No error of ours reaches the program, and no exception of the op is touched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from pyprof.markers import encode_op
from pyprof.nvtx.callsite import add_stack, find_frame, library_codes, site, stack_frames, stack_sites
from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.describe import add_key, describe_call
from pyprof.nvtx.state import STATE, State
from pyprof.nvtx.traceback import Runner, hide, runner
from pyprof.opcall import UNKNOWN, OpCall

__all__ = ["MAX_MARKER_BYTES", "MAX_VARIANTS", "Told", "make_wrapper"]

MAX_MARKER_BYTES = 60_000
"""Nsight Systems drops a range whose text is longer than 65,416 bytes, without a word."""

MAX_VARIANTS = 64
"""Texts of one op with the same shapes that may differ in a fraction only; from then on the fraction is left out."""

_MAX_NESTED = 32  # arguments; keys are compared by recursion

_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_mode_active = torch._C._is_torch_function_mode_enabled
_tracing = torch._C._get_tracing_state
_no_modes = torch._C.DisableTorchFunction


@dataclass(frozen=True, slots=True)
class Told:
    """What a call is told as: module and op by the names that users know; names: see `describe_call`."""

    module: str
    op: str
    names: tuple[str, ...] = ()


def _fit(call: OpCall, src: str | tuple[str, ...]) -> tuple[str, bool]:
    """The marker's text, cut until it is short enough; the flag says whether the arguments are still in it."""
    text = encode_op(call, src)
    if len(text.encode("utf-8", "backslashreplace")) < MAX_MARKER_BYTES:
        return text, call.described
    bare = OpCall(call.module, call.op, described=False)
    text = encode_op(bare, src)
    if len(text.encode("utf-8", "backslashreplace")) >= MAX_MARKER_BYTES:
        text = encode_op(bare, src[-1] if isinstance(src, tuple) and src else "")
    return text, False


def _without_floats(value: Any) -> Any:
    if isinstance(value, float):
        return UNKNOWN
    if isinstance(value, (list, tuple)):
        return type(value)(map(_without_floats, value))
    return value


def _settle(call: OpCall) -> OpCall:
    """The call as it shall be told: without its fractions where these have taken too many values already.

    A learning rate that changes with each step would otherwise use up all the texts that may be registered.
    """
    args = tuple(map(_without_floats, call.args))
    kwargs = tuple((name, _without_floats(value)) for name, value in call.kwargs)
    if args == call.args and kwargs == call.kwargs:
        return call
    blurred = call._replace(args=args, kwargs=kwargs)
    return blurred if STATE.count_variant(blurred.name + str(blurred)) > MAX_VARIANTS else call


def _handle(told: Told, call: OpCall, src: str | tuple[str, ...]) -> Any:
    """The handle of a call's range; where too many texts are registered, of one that says less."""
    registry = STATE.registry
    if registry is None:
        return None
    text, described = _fit(_settle(call), src)
    handle = registry.find(text, reserve=not described)
    if handle is None:
        bare = OpCall(told.module, told.op, described=False)
        handle = registry.find(encode_op(bare, src), reserve=True) or registry.find(encode_op(bare), reserve=True)
    return handle


def _source(frame: FrameType | None) -> str | tuple[str, ...]:
    if STATE.stack:
        return stack_sites(stack_frames(frame))
    return site(find_frame(frame))


def _describe_guarded(told: Told, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpCall:
    """Describe without anything of the program seeing that its tensors are asked for their shapes."""
    if _tracing() is not None:  # torch.jit.trace records each look at a shape
        return OpCall(told.module, told.op, described=False)
    with _no_modes():
        return describe_call(told.module, told.op, told.names, args, kwargs)


def slow_entry(told: Told, key: Any, cache: dict[Any, Any], call: tuple[Any, ...], frame: FrameType) -> tuple[Any, Runner]:
    """Handle and runner of a call that is new (key: what to remember it by) or that cannot be remembered (None)."""
    args, kwargs = call
    run = runner(frame)
    try:
        handle = _handle(told, _describe_guarded(told, args, kwargs), _source(frame))
        if key is not None and handle is not None:
            STATE.remember(cache, key, (handle, run))
    except Exception as error:  # a defect of ours costs a marker's arguments, never the user's run
        STATE.trouble(error, f"{told.module}.{told.op}")
        try:
            handle = _handle(told, OpCall(told.module, told.op, described=False), "")
        except Exception:
            handle = None
    return handle, run


def guarded_key(caller: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`call_key` where a TorchFunctionMode would see each look at a shape; None where torch.jit.trace would record it."""
    if _tracing() is not None:
        return None
    with _no_modes():
        return call_key(caller, args, kwargs)


def call_key(caller: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What tells this call from others: the place of the call, the user's line, and what `add_key` says of the arguments.

    Nested tuples, since these are made faster than lists grow. Raises what `add_key` raises.
    """
    code = caller.f_code
    key: Any = (id(code), caller.f_lasti)
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
    return _flat_key(_flat_key(key, kwargs), kwargs.values()) if kwargs else key


def _flat_key(outer: Any, values: Iterable[Any]) -> Any:
    key = [outer]
    add_key(values, key)
    return tuple(key)


def _nothing() -> None:
    return None


def make_wrapper(orig: Callable[..., Any], told: Told, depth: int = 1) -> Callable[..., Any]:
    """A plain function that calls `orig` inside a range, as long as recording is on.

    depth: how many frames away the one is that wrote the call; those between are ours.
    """
    state: State = STATE
    cache: dict[Any, Any] = {}
    state.caches.append(cache)
    find = cache.get
    get_frame, mode_active, tracing = sys._getframe, _mode_active, _tracing

    def wrapper(*args: Any, **kwargs: Any) -> Any:
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
        except Exception:  # Unkeyable; a tensor that has no strides; a size that cannot be hashed: describe() knows how to ask
            key = entry = None
        if entry is None:
            entry = slow_entry(told, key, cache, (args, kwargs), caller)
        handle, run = entry
        if handle is None:
            pop = _nothing
        else:
            pop = state.pop
            state.push(handle)
        try:
            return run(orig, args, kwargs)
        except BaseException as error:
            hide(error, 2)
            raise
        finally:
            pop()

    pass_through_compiler(wrapper)
    return wrapper


hide_from_compiler(slow_entry, call_key, guarded_key)
