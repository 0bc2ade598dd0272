"""A running frame -> the user's own source line, `file:line`, found by walking outwards past torch and pyprof.

Whether a code object belongs to a library is decided once, by the folder of its file, and remembered by the id of the code
object (which is kept alive, so that no other object gets this id). Lines are looked up only when a text is made. Knows nothing
of ops.
"""

from __future__ import annotations

import os
import sysconfig
from types import CodeType, FrameType
from typing import Literal

import torch

from pyprof.nvtx.state import STATE

__all__ = ["add_stack", "find_frame", "is_library", "note_anchor", "note_library", "site", "stack_frames", "stack_sites"]

MAX_DEPTH = 200
"""Frames visited before the search for one of the user's is given up."""

_MAX_CODES = 65_536

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OURS = (os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), ""), os.path.join(_PACKAGE, ""))
_STANDARD = tuple({os.path.join(sysconfig.get_paths()[name], "") for name in ("stdlib", "platstdlib")})
_SITE = tuple({os.path.join(sysconfig.get_paths()[name], "") for name in ("purelib", "platlib")})  # within the standard one

_ANCHOR: Literal[2] = 2

library_codes: dict[int, bool | Literal[2]] = {}
_alive: list[CodeType] = []


def is_library(code: CodeType) -> bool:
    """Whether a code object belongs to torch, to this package or to Python's own library; remembers the answer."""
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
    """Treat a code object as a library's, wherever its file is."""
    _note(code, True)


def add_stack(frame: FrameType | None, outer: object) -> tuple[object, ...]:
    """`outer` with the code object and position of each of the user's frames, innermost first, as a key of this stack."""
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
    """Treat a code object as a wrapper of ours around many ops: the user's frame outside of it is looked up once for all.

    Its code sets `STATE.local.anchor` to None at the end, so that no frame is kept alive.
    """
    _note(code, True)
    library_codes[id(code)] = _ANCHOR


def find_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost of the user's frames, from `frame` outwards; None where there is none."""
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
    if anchor is not None:  # the frames outside of it do not move while it runs
        STATE.local.anchor = (anchor, frame)
    return frame


def stack_frames(frame: FrameType | None) -> list[FrameType]:
    """All of the user's frames, innermost first."""
    found: list[FrameType] = []
    while (frame := find_frame(frame)) is not None and len(found) < MAX_DEPTH:
        found.append(frame)
        frame = frame.f_back
    return found


def _shorten(path: str) -> str:
    """The path relative to the current folder where it is inside, else unchanged."""
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
