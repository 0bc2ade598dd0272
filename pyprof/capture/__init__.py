"""Running a program, or a part of one, so that a capture comes of it.

The package can be called: `pyprof.capture("net")` is what `pyprof.capture.torchprof.capture("net")` is. As soon as anything in
a subpackage is imported Python puts it under its name into the package, over whatever was there; so the name is this module
always, and the module takes the call.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from pyprof.capture.torchprof import Capture, Schedule


class _CallableModule(ModuleType):
    """This package's own module."""

    def __call__(
        self,
        path: str | os.PathLike[str],
        *,
        schedule: Schedule | None = None,
        shapes: bool = True,
        stacks: bool = True,
        table: int = 10,
        on_trace: Callable[[Path], None] | None = None,
    ) -> Capture:
        """See `pyprof.capture.torchprof.capture`."""
        from pyprof.capture.torchprof import capture

        return capture(path, schedule=schedule, shapes=shapes, stacks=stacks, table=table, on_trace=on_trace)


sys.modules[__name__].__class__ = _CallableModule
