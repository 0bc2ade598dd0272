"""A running frame -> the user's own source line, `file:line`, found by walking outwards past torch and pyprof.

Whether a code object is a library's is decided once, by where its file lies, and remembered by the id of the code object (which
is kept alive, so that the id stays its own). Lines are looked up only when a text is made. Knows nothing of ops.
"""

from __future__ import annotations

import os
import sysconfig
from types import CodeType, FrameType

import torch

from pyprof.nvtx.state import STATE

__all__ = ["find_frame", "is_library", "site", "stack_frames", "stack_sites"]

MAX_DEPTH = 200
"""Frames looked at before giving up on finding one of the user's."""

_MAX_CODES = 65_536

_OURS = (os.path.dirname(os.path.abspath(torch.__file__)) + os.sep, os.path.dirname(os.path.abspath(__file__)) + os.sep)
_STANDARD = tuple({os.path.join(sysconfig.get_paths()[name], "") for name in ("stdlib", "platstdlib")})
_SITE = tuple(
    {os.path.join(sysconfig.get_paths()[name], "") for name in ("purelib", "platlib")}
)  # lies within the standard one

library_codes: dict[int, bool] = {}
_alive: list[CodeType] = []


def is_library(code: CodeType) -> bool:
    """Whether a code object belongs to torch, to this package or to Python's own library; remembered."""
    name = code.co_filename
    if name.startswith("<"):
        found = name.startswith(("<frozen", "<eval_with_key", "<string>"))  # generated code, not a file to look into
    else:
        path = name if os.path.isabs(name) else os.path.abspath(name)
        found = path.startswith(_OURS) or (path.startswith(_STANDARD) and not path.startswith(_SITE))
    if len(_alive) >= _MAX_CODES:
        library_codes.clear()
        _alive.clear()
        STATE.forget()
    _alive.append(code)
    library_codes[id(code)] = found
    return found


def find_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's, starting with `frame` and going outwards; None where there is none."""
    get = library_codes.get
    depth = 0
    while frame is not None and depth < MAX_DEPTH:
        code = frame.f_code
        library = get(id(code))
        if library is None:
            library = is_library(code)
        if not library:
            return frame
        frame = frame.f_back
        depth += 1
    return None


def stack_frames(frame: FrameType | None) -> list[FrameType]:
    """All frames of the user's, innermost first."""
    found: list[FrameType] = []
    while (frame := find_frame(frame)) is not None and len(found) < MAX_DEPTH:
        found.append(frame)
        frame = frame.f_back
    return found


def _shorten(path: str) -> str:
    """The path from the current folder where it lies within, else as it is."""
    here = os.getcwd()
    if len(here) > 1 and path.startswith(here + os.sep):
        return path[len(here) + 1 :]
    return path


def site(frame: FrameType | None) -> str:
    """`file:line` of a frame; the empty string for None."""
    if frame is None:
        return ""
    return f"{_shorten(frame.f_code.co_filename)}:{frame.f_lineno or frame.f_code.co_firstlineno}"


def stack_sites(frames: list[FrameType]) -> tuple[str, ...]:
    """`file:line` of each frame, outermost first."""
    return tuple(site(frame) for frame in reversed(frames))
