"""Telling torch.compile to leave the frames of this package alone.

torch.compile looks at every Python frame that starts below a compiled call, ours included. Goes to the C part of torch, since
importing torch._dynamo takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["hide_from_compiler", "pass_through_compiler"]

_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def _mark(function: Callable[..., Any], below: bool) -> None:
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None or _frames is None:
        return
    if hasattr(_frames, "set_code_exec_strategy"):
        action = _frames._FrameAction
        _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(action.SKIP, action.SKIP if below else action.DEFAULT))
    elif hasattr(_frames, "skip_code"):  # torch 2.6 and older: no word about the frames below
        _frames.skip_code(code)


def pass_through_compiler(*functions: Callable[..., Any]) -> None:
    """These frames are not compiled, what they call is: for wrappers. All functions made from the same code are meant."""
    for function in functions:
        _mark(function, below=False)


def hide_from_compiler(*functions: Callable[..., Any]) -> None:
    """Neither these frames nor anything that they call are compiled: for our own work around a call."""
    for function in functions:
        _mark(function, below=True)
