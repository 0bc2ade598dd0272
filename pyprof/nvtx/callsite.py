"""A running frame -> the user's own source line, `file:line`, found by walking outwards past torch and pyprof.

Whether a code object is a library's is decided once, by where its file lies, and remembered by the id of the code object (which
is kept alive, so that the id stays its own). Lines are looked up only when a text is made. Knows nothing of ops.
"""

from __future__ import annotations

import os
import sysconfig
from types import CodeType, FrameType
from typing import Any, Literal

import torch

from pyprof.nvtx.state import STATE

__all__ = [
    "add_stack",
    "find_frame",
    "is_library",
    "note_anchor",
    "note_library",
    "site",
    "stack_frames",
    "stack_sites",
]

MAX_DEPTH = 200
"""Frames looked at before giving up on finding one of the user's."""

_MAX_CODES = 65_536

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OURS = (os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), ""), os.path.join(_PACKAGE, ""))
_STANDARD = tuple({os.path.join(sysconfig.get_paths()[name], "") for name in ("stdlib", "platstdlib")})
_SITE = tuple(
    {os.path.join(sysconfig.get_paths()[name], "") for name in ("purelib", "platlib")}
)  # lies within the standard one

_ANCHOR: Literal[2] = 2

library_codes: dict[int, bool | Literal[2]] = {}
_alive: list[CodeType] = []


def is_library(code: CodeType) -> bool:
    """Whether a code object belongs to torch, to this package or to Python's own library; remembered."""
    name = code.co_filename
    if name.startswith("<"):
        found = name.startswith(("<frozen", "<eval_with_key", "<string>"))  # generated code, not a file to look into
    else:
        path = name if os.path.isabs(name) else os.path.abspath(name)
        found = path.startswith(_OURS) or (path.startswith(_STANDARD) and not path.startswith(_SITE))
    _note(code, found)
    return found


def _note(code: CodeType, library: bool) -> None:
    if len(_alive) >= _MAX_CODES:
        library_codes.clear()
        _alive.clear()
        STATE.forget()
    _alive.append(code)
    library_codes[id(code)] = library


def note_library(code: CodeType) -> None:
    """Take a code object for a library's, wherever its file lies."""
    _note(code, True)


def add_stack(frame: FrameType | None, outer: Any) -> tuple[Any, ...]:
    """`outer` and what tells this stack from others: code object and position of each frame of the user's, innermost first."""
    get, key = library_codes.get, [outer]
    add = key.append
    left = MAX_DEPTH
    while frame is not None and left:
        code = frame.f_code
        known = id(code)
        library = get(known)
        if library is None:
            library = is_library(code)
        if not library:
            add(known)
            add(frame.f_lasti)
            left -= 1
        frame = frame.f_back
    return tuple(key)


def note_anchor(code: CodeType) -> None:
    """Take a code object for one of ours around much of torch's own work: what leads to its frame is looked up once.

    Whoever runs it sets `STATE.local.anchor` to None at its end, so that no frame is kept.
    """
    _note(code, True)
    library_codes[id(code)] = _ANCHOR


def find_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's, starting with `frame` and going outwards; None where there is none."""
    get, depth, anchor = library_codes.get, 0, None
    while frame is not None and depth < MAX_DEPTH:
        code = frame.f_code
        library = get(id(code))
        if library is None:
            library = is_library(code)
        if not library:
            break
        if library is _ANCHOR:
            known = getattr(STATE.local, "anchor", None)
            if known is not None and known[0] is frame:
                frame = known[1]
                break
            anchor = anchor or frame
        frame = frame.f_back
        depth += 1
    else:
        frame = None
    if anchor is not None:  # while it runs, the frames that led to it stand still
        STATE.local.anchor = (anchor, frame)
    return frame


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
