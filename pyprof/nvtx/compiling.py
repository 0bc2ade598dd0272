"""Making torch.compile leave the frames of this package alone.

torch.compile looks at every Python frame that starts below a compiled call, including ours. This uses the C part of torch,
since importing torch._dynamo takes seconds.
"""

from __future__ import annotations

from typing import Any

import torch

_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def _mark(function: object, below: bool) -> None:
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None or _frames is None:
        return
    if hasattr(_frames, "set_code_exec_strategy"):
        action = _frames._FrameAction
        _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(action.SKIP, action.SKIP if below else action.DEFAULT))
    elif hasattr(_frames, "skip_code"):  # torch 2.6 and older, where the frames below cannot be chosen
        _frames.skip_code(code)


def pass_through_compiler(*functions: object) -> None:
    """Let torch.compile skip these functions' own frames but compile the functions they call: for wrappers. Applies to the
    code object, and so to all functions made from it."""
    for function in functions:
        _mark(function, below=False)


def hide_from_compiler(*functions: object) -> None:
    """Neither frames of these functions nor anything that they call are compiled: for our own work around a call."""
    for function in functions:
        _mark(function, below=True)
