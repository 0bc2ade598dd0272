"""A running program -> the moments at which its training steps begin.

Step 0 begins when counting starts. If the program calls `pyprof.step()`, each call begins the next step; else a step
ends with the optimizer's step, the first optimizer's if there are several. Knows nothing of recording.
"""

from __future__ import annotations

import functools
import re
import threading
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING

from pyprof.errors import UsageError

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from pyprof.nvtx.patch import Patches

Steps = tuple[tuple[int, int], ...]

_MARK = "_pyprof_clock"


def parse_steps(text: str) -> Steps:
    """`A:B` as ((A, B),): steps A to B - 1; `A:B,C:D` is two such windows, in order and without overlap; `all` is ().

    Raises UsageError for anything else.
    """
    found: list[tuple[int, int]] = []
    if text == "all":
        return ()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", part)
        first, last = (int(match[1]), int(match[2])) if match is not None else (0, 0)
        if first >= last or (found and first < found[-1][1]):
            raise UsageError(
                f"--steps takes A:B with A before B, several in order, not {text!r}",
                "for example --steps 10:12, two steps; 10:12,110:112, two and later two more; all, the whole program",
            )
        found.append((first, last))
    return tuple(found)


class StepWindow:
    """For each (A, B), in order, calls `enter` once when step A begins and `leave` once when step B - 1 has ended.

    A step that is counted again is not recorded again.
    """

    def __init__(self, steps: Steps, enter: Callable[[], None], leave: Callable[[], None]) -> None:
        self._left = list(steps)
        self.open = False
        self._enter, self._leave = enter, leave

    def begins(self, number: int) -> None:
        """Called when a step begins: open the window at its first step, close it after its last."""
        if self.open and not self._within(number):
            self.close()
        while self._left and number >= self._left[0][1]:  # skipped
            del self._left[0]
        if not self.open and self._within(number):
            self.open = True
            self._enter()

    def _within(self, number: int) -> bool:
        return bool(self._left) and self._left[0][0] <= number < self._left[0][1]

    def close(self) -> None:
        """Call `leave` if the window is open."""
        if self.open:
            self.open = False
            del self._left[0]
            self._leave()


class StepClock:
    """Calls `begins(number)` when a step begins, on the thread that begins it. number: the current step; by: what marks steps,
    as in the ledger; tokens: that the program said for the current one.

    mark: open a range for each step that the optimizer ends, as `pyprof.step()` does for its own. Ranges belong to a thread, so
    only the thread that started the clock marks; strayed: whether an optimizer's step ended on another one.

    torch calls the hook of an optimizer's step inside the range that it opens around the step. What we do between two steps
    must happen outside of that range, so `step` of the optimizer classes is wrapped too, and acts on the hook when the
    outermost call returns.
    """

    def __init__(self, begins: Callable[[int], None], *, mark: bool = False) -> None:
        self.number, self.by = 0, "optimizer"
        self.tokens: int | None = None
        self.strayed = False
        self._mark, self._thread = mark, threading.get_ident()
        self._begins = begins
        self._calls = 0
        self._optimizer: weakref.ref[object] | None = None
        self._local = threading.local()
        self._patches: Patches
        self._hook: RemovableHandle | None = None

    def start(self, *, in_step: bool = False) -> None:
        """Begin step 0 and start counting. in_step: mark that step too, with all that the program does before it."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from pyprof.nvtx import api
        from pyprof.nvtx.compiling import hide_from_compiler
        from pyprof.nvtx.loops import wrap_classes
        from pyprof.nvtx.patch import Patches

        hide_from_compiler(self._stepped, self._returned)
        api.step_listeners.append(self._announced)
        self._hook = register_optimizer_step_post_hook(self._stepped)
        self._patches = Patches()
        wrap_classes(self._patches, self._wrap, lambda: self._hook is not None)
        (self._begin_marked if in_step else self._begin)(0)

    def stop(self) -> None:
        """Stop counting, and leave torch as it was."""
        from pyprof.nvtx import api

        if self._hook is None:
            return
        api.step_listeners.remove(self._announced)
        self._hook.remove()
        self._hook = None
        self._patches.undo()
        if self._mark:
            api.end_step()

    def _begin(self, number: int) -> None:
        self.number = number
        self._begins(number)

    def _begin_marked(self, number: int) -> None:
        """Begin a step that the program itself does not mark."""
        from pyprof.nvtx import api

        here = threading.get_ident() == self._thread
        self.strayed = self.strayed or not here
        if self._mark and here:
            api.end_step()
        self._begin(number)
        if self._mark and here:
            api.open_step(number)

    def _announced(self, tokens: int | None) -> None:
        """Called when the program calls pyprof.step()."""
        self._calls += 1
        self.by, self.tokens = "step", tokens
        self._begin(self._calls - 1)

    def _stepped(self, optimizer: object, _args: object, _kwargs: object) -> None:
        """Called by torch's hook when an optimizer has stepped."""
        if self._calls:
            return
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is not optimizer:
            return
        if getattr(self._local, "depth", 0):
            self._local.pending = True
        else:  # this step function was taken before counting began, as learning-rate schedulers do
            self._begin_marked(self.number + 1)

    def _returned(self) -> None:
        """Called when an optimizer's `step` has returned."""
        self._local.depth -= 1
        if not self._local.depth and getattr(self._local, "pending", False):
            self._local.pending = False
            self._begin_marked(self.number + 1)

    def _wrap(self, cls: type) -> None:
        """Wrap this class's own `step`, if it has one that torch has prepared."""
        from pyprof.nvtx.compiling import pass_through_compiler

        own = vars(cls).get("step")
        if not isinstance(own, FunctionType) or not getattr(own, "hooked", False) or vars(own).get(_MARK) is own:
            return
        local, returned = self._local, self._returned

        @functools.wraps(own)
        def step(*args: object, **kwargs: object) -> object:
            local.depth = getattr(local, "depth", 0) + 1
            try:
                return own(*args, **kwargs)
            finally:
                returned()

        vars(step).update({_MARK: step, "_torchdynamo_inline": own})
        pass_through_compiler(step)
        self._patches.replace(cls, "step", step)
