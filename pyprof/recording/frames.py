"""Python frames that a recording leaves out, millions that say nothing: those of imports, and of torch.compile as it compiles.

torch.profiler records each call of a Python function, at 24 bytes until the recording ends and 1,500 from then on. Its tracer
is the interpreter's profile function, which is held off for a thread here (from Python 3.11). What runs meanwhile lies in the
frame that holds off: the same function ends it, since calls and returns that are recorded must pair. Modules in the
folder of the program itself are recorded as they are imported: they may be the program.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyprof.nvtx.patch import Patches

machinery: Any = import_module("importlib._bootstrap")
loaders: Any = import_module("importlib._bootstrap_external")

_Action = Callable[[], object]
_local = threading.local()  # held: how often this thread holds frames off; since: counts the recordings that ended that
_libraries = tuple({os.path.join(path, "") for name, path in sysconfig.get_paths().items() if name != "data"})
_patches: Patches | None = None
_around: list[tuple[_Action, _Action]] = []  # what is called as a compilation begins and ends
at_first_use: list[_Action] = []  # and as the program uses torch.compile for the first time

try:
    _state, _stop, _go_on = (
        getattr(ctypes.pythonapi, f"PyThreadState_{name}") for name in ("Get", "EnterTracing", "LeaveTracing")
    )
    _state.restype, _stop.argtypes, _go_on.argtypes = ctypes.c_void_p, [ctypes.c_void_p], [ctypes.c_void_p]
except AttributeError:  # before Python 3.11
    _state = None


def hold_off() -> int | None:
    """Record no frames of this thread until `go_on`, which takes the result. Not while a debugger traces the thread: it would
    see nothing either."""
    if _state is None or _patches is None or sys.gettrace() is not None:
        return None
    _local.held = getattr(_local, "held", 0) + 1
    since: int = getattr(_local, "since", 0)
    _stop(_state())
    return since


def go_on(since: int | None) -> None:
    """Record frames of this thread as before the matching `hold_off`."""
    if since is not None and since == getattr(_local, "since", 0):
        _local.held -= 1
        _go_on(_state())


def begin() -> None:
    """Before a recording with frames begins on this thread: it holds the frames around it, and their returns must follow."""
    global _patches
    while getattr(_local, "held", 0):
        _local.held -= 1
        _go_on(_state())
    _local.since = getattr(_local, "since", 0) + 1
    if _patches is None and _state is not None:
        from pyprof.nvtx.patch import Patches

        _patches = Patches()
        _patches.replace(machinery, "_find_and_load", _unrecorded(machinery._find_and_load))
        _patches.replace(loaders._LoaderBasics, "exec_module", _program_recorded(loaders._LoaderBasics.exec_module))


def end() -> None:
    """After a recording with frames."""
    global _patches
    if _patches is not None:
        _patches.undo()
        _patches = None


def _like(function: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """The function under the name and file of another one: so Python leaves it out of tracebacks of imports."""
    code = other.__code__
    names: dict[str, Any] = {"co_filename": code.co_filename, "co_name": code.co_name, "co_firstlineno": code.co_firstlineno}
    if hasattr(code, "co_qualname"):
        names["co_qualname"] = code.co_qualname
    function.__code__ = function.__code__.replace(**names)
    return function


def _unrecorded(orig: Callable[..., ModuleType]) -> Callable[..., Any]:
    def _find_and_load(name: str, import_: Callable[..., ModuleType]) -> ModuleType:
        since = hold_off()
        try:
            return orig(name, import_)
        finally:
            go_on(since)

    return _like(_find_and_load, orig)


def _program_recorded(orig: Callable[..., None]) -> Callable[..., Any]:
    """Run the code of a module, with its frames where it lies in the folder of the program and in none of libraries."""
    home = os.path.join(os.path.abspath(sys.path[0] if sys.path and sys.path[0] else os.curdir), "")

    def exec_module(self: object, module: ModuleType) -> None:
        path = getattr(getattr(module, "__spec__", None), "origin", None)
        path = os.path.abspath(path) if isinstance(path, str) else ""
        own = path.startswith(home) and not path.startswith(_libraries)
        held = getattr(_local, "held", 0) if own else 0
        for _ in range(held):  # by no function of ours, whose return would be recorded and its call not
            _local.held -= 1
            _go_on(_state())
        since = getattr(_local, "since", 0)
        try:
            orig(self, module)
        finally:
            if held and since == _local.since:
                _local.held += held
                for _ in range(held):
                    _stop(_state())

    return _like(exec_module, orig)


def around_compiles(begins: _Action, ends: _Action) -> None:
    """Call these when torch.compile begins and ends compiling, and record no frames between, from its first use on: importing
    it takes seconds."""
    import torch

    _around.append((begins, ends))
    if len(_around) > 1:
        return

    from pyprof.nvtx.patch import Patches

    patches, compiler = Patches(), torch.compile

    def compile(*args: Any, **kwargs: Any) -> Any:
        patches.undo()
        for action in at_first_use:
            action()
        with suppress(ImportError, AttributeError):  # an older torch
            from torch._dynamo.callback import CompilationCallbackHandler as Handler
            from torch._dynamo.callback import callback_handler

            install = getattr(Handler, "install_callbacks", None)
            if install is None:
                callback_handler.register_start_callback(lambda *_: _call(0))
                callback_handler.register_end_callback(lambda *_: _call(1))
            else:
                Handler.install_callbacks = lambda *args, **kwargs: _Compiling(install(*args, **kwargs))
        return compiler(*args, **kwargs)

    patches.wrap(torch, "compile", compile)


def _call(which: int) -> None:
    for actions in _around:
        actions[which]()


class _Compiling:
    """torch's own `with` around compiling, with ours around it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._since: int | None = None
        self._outermost = False

    def __enter__(self) -> None:
        self._outermost = not getattr(_local, "compiling", False)
        if self._outermost:
            _call(0)
            _local.compiling = True
        self._since = hold_off()
        self._inner.__enter__()

    def __exit__(self, *error: object) -> object:
        try:
            return self._inner.__exit__(*error)
        finally:
            go_on(self._since)
            if self._outermost:
                _local.compiling = False
                _call(1)


def inside_ranges() -> bool:
    """Whether this thread is inside of a backward pass or of compiled code, whose ranges are torch's own."""
    import torch

    codes = getattr(sys.modules.get("torch._dynamo.convert_frame"), "output_codes", None)
    if codes is None or torch._C._current_graph_task_id() != -1:
        return True
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False
