"""The other way in: a TorchFunctionMode tells the ops, and no function of torch is replaced.

For programs that look at which object a function of torch is. It costs more: each op takes torch's way to Python and back,
attributes such as `x.shape` too. Functions written in Python (`F.multi_head_attention_forward`) are told as they are called,
and what they call is not, since a mode is off while it handles a call.

Modes are of one thread: the thread that calls `init`, and every one started by `threading` afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pyprof.nvtx.compiling import pass_through_compiler
from pyprof.nvtx.patch import Patches, dress, targets
from pyprof.nvtx.state import STATE, State
from pyprof.nvtx.traceback import hide
from pyprof.nvtx.wrapper import Told, make_wrapper

__all__ = ["patch_mode"]

_Table = dict[Any, Callable[..., Any]]


def _written_in_python() -> Iterable[tuple[Any, Told]]:
    """The functions of torch written in Python that a mode is asked about, with what they are told as."""
    for owner, functions in torch.overrides.get_overridable_functions().items():
        told = "Tensor" if owner is torch.Tensor else getattr(owner, "__name__", "")
        if told in ("torch", "torch.functional", "Tensor", "torch.nn.functional", "torch.linalg"):
            for function in functions:
                name = getattr(function, "__name__", "")
                if hasattr(function, "__code__") and not name.startswith("__"):
                    yield function, Told("torch" if told == "torch.functional" else told, name)


def _table() -> _Table:
    """Function -> its wrapper, made once."""
    found: _Table = {}
    for _, _, orig, told in targets():
        if orig not in found:
            found[orig] = make_wrapper(orig, told, depth=2)
    for orig, told in _written_in_python():
        if orig not in found:
            found[orig] = make_wrapper(orig, told, depth=2)
    return found


class Telling(TorchFunctionMode):  # type: ignore[misc]
    """Puts a range around each op that reaches it."""

    def __init__(self, table: _Table) -> None:
        super().__init__()
        self.table = table
        self.state: State = STATE

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_compiling():
            return func(*args, **(kwargs or {}))
        call = self.table.get(func, func) if self.state.on else func
        try:
            return call(*args, **(kwargs or {}))
        except BaseException as error:
            hide(error, 1)
            raise


pass_through_compiler(Telling.__torch_function__)


def _stack() -> list[Any]:
    """Take all modes of this thread off, innermost first."""
    return [torch.overrides._pop_mode() for _ in range(torch.overrides._len_torch_function_stack())]


def _restore(modes: list[Any]) -> None:
    for mode in reversed(modes):
        torch.overrides._push_mode(mode)


def enter(mode: Telling) -> None:
    """Put the mode below the program's, so that leaving one of theirs takes theirs off; the default device stays last."""
    from torch.utils._device import DeviceContext

    modes = _stack()
    last = 1 if modes and isinstance(modes[-1], DeviceContext) else 0
    modes.insert(len(modes) - last, mode)
    _restore(modes)


def leave(mode: Telling) -> None:
    """Take the mode off this thread, wherever it is on the stack."""
    _restore([other for other in _stack() if other is not mode])


def patch_mode(patches: Patches) -> None:
    """Tell the ops of this thread and of threads that begin later by a mode."""
    mode = Telling(_table())
    orig: Callable[..., Any] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _bootstrap_inner(self: threading.Thread) -> None:
        enter(mode)
        orig(self)

    dress(_bootstrap_inner, orig, (orig.__module__, orig.__qualname__))
    patches.replace(threading.Thread, "_bootstrap_inner", _bootstrap_inner)
    enter(mode)
    patches.at_undo(lambda: leave(mode))
