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

MAX_DEPTH = 200
"""Frames visited before the search for one of the user's is given up."""

_MAX_CODES = 65_536

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OURS = (os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), ""), os.path.join(_PACKAGE, ""))
_STANDARD = tuple({os.path.join(sysconfig.get_paths()[name], "") for name in ("stdlib", "platstdlib")})
_SITE = tuple({os.path.join(sysconfig.get_paths()[name], "") for name in ("purelib", "platlib")})  # within the standard one

ANCHOR: Literal[2] = 2
"""Noted of the code of a wrapper of ours around many ops: the user's frame outside of it is looked up once for all.

The code sets `STATE.local.anchor` to None at its end, so that no frame is kept alive."""

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
    note(code, found)
    return found


def note(code: CodeType, library: bool | Literal[2]) -> None:
    """Remember whether a code object belongs to a library, wherever its file is; see also `ANCHOR`."""
    if len(_alive) >= _MAX_CODES:
        library_codes.clear()
        _alive.clear()
        STATE.forget()
    _alive.append(code)
    library_codes[id(code)] = library


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


def find_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost of the user's frames, from `frame` outwards; None if there is none."""
    get, depth, anchor = library_codes.get, 0, None
    while frame is not None and depth < MAX_DEPTH:
        code = frame.f_code
        library = get(id(code))
        if library is None:
            library = is_library(code)
        if not library:
            break
        if library is ANCHOR:
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


def sites(frame: FrameType | None, *, whole: bool) -> tuple[str, ...]:
    """`file:line` of the innermost of the user's frames from `frame` outwards, or of the whole stack, outermost first.

    Paths inside the current folder are relative to it.
    """
    here = os.path.join(os.getcwd(), "")
    found: list[str] = []
    while (frame := find_frame(frame)) is not None and len(found) < (MAX_DEPTH if whole else 1):
        path = frame.f_code.co_filename
        if len(here) > 1:
            path = path.removeprefix(here)
        found.append(f"{path}:{frame.f_lineno or frame.f_code.co_firstlineno}")
        frame = frame.f_back
    return tuple(reversed(found))
