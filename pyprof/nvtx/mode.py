"""The other way to record ops: a TorchFunctionMode, which replaces no function of torch.

For programs that check which object a function of torch is. It costs more: each op, and each attribute such as `x.shape`, goes
through torch's Python dispatch. Functions written in Python (`F.multi_head_attention_forward`) are recorded as they are called
and what they call is not, since a mode is off while it handles a call.

Modes belong to a thread: the one that calls `init`, and every thread that `threading` starts afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import torch
from torch.overrides import TorchFunctionMode

from pyprof.nvtx.compiling import pass_through_compiler
from pyprof.nvtx.patch import Patches, targets
from pyprof.nvtx.state import STATE, State
from pyprof.nvtx.traceback import Function, hide
from pyprof.nvtx.wrapper import OpName, make_wrapper

_Table = dict[Function, Function]

# torch 2.2 has it under another name.
is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling


def _written_in_python() -> Iterator[tuple[Function, OpName]]:
    """The functions of torch written in Python that reach a mode, with the names that they are recorded under."""
    for owner, functions in torch.overrides.get_overridable_functions().items():
        module = "Tensor" if owner is torch.Tensor else getattr(owner, "__name__", "")
        if module in ("torch", "torch.functional", "Tensor", "torch.nn.functional", "torch.linalg"):
            for function in functions:
                name = getattr(function, "__name__", "")
                if hasattr(function, "__code__") and not name.startswith("__"):
                    yield function, OpName("torch" if module == "torch.functional" else module, name)


class RangeMode(TorchFunctionMode):  # type: ignore[misc]
    """Opens a range around each op that reaches it."""

    def __init__(self, table: _Table) -> None:
        super().__init__()
        self.table = table
        self.state: State = STATE

    def __torch_function__(
        self, func: Function, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        if is_compiling():
            return func(*args, **(kwargs or {}))
        call = self.table.get(func, func) if self.state.on else func
        try:
            return call(*args, **(kwargs or {}))
        except BaseException as error:
            hide(error, 1)
            raise


pass_through_compiler(RangeMode.__torch_function__)


def _stack() -> list[object]:
    """Take all modes off this thread, innermost first."""
    return [torch.overrides._pop_mode() for _ in range(torch.overrides._len_torch_function_stack())]


def _restore(modes: list[object]) -> None:
    for mode in reversed(modes):
        torch.overrides._push_mode(mode)


def enter(mode: RangeMode) -> None:
    """Put the mode below the program's, so that leaving one of theirs removes theirs; the default device stays below it."""
    from torch.utils._device import DeviceContext

    modes = _stack()
    last = 1 if modes and isinstance(modes[-1], DeviceContext) else 0
    modes.insert(len(modes) - last, mode)
    _restore(modes)


def leave(mode: RangeMode) -> None:
    """Take the mode off this thread, wherever it is on the stack."""
    _restore([other for other in _stack() if other is not mode])


def patch_mode(patches: Patches) -> None:
    """Record the ops of this thread, and of threads that start later, by a mode."""
    table: _Table = {}
    for target, name in (*((target, name) for _, _, target, name in targets()), *_written_in_python()):
        if target not in table:
            table[target] = make_wrapper(target, name, depth=2)
    mode = RangeMode(table)
    orig: Function = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _bootstrap_inner(self: threading.Thread) -> None:
        enter(mode)
        orig(self)

    patches.wrap(threading.Thread, "_bootstrap_inner", _bootstrap_inner)
    enter(mode)
    patches.at_undo(lambda: leave(mode))
