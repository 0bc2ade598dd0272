"""`python -m pyprof.capture.bootstrap TOOL STEPS TRACE PROGRAM...`: run a program as `python PROGRAM...` would, recorded.

What `pyprof run` starts. The program sees its own argv, `__main__`, sys.path, standard streams and signals; an exception is
printed without our frames, and the exit code is the program's.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyprof.capture.steps import StepCounter, parse_steps

__all__ = ["main"]


@contextmanager
def _torch_profiler(steps: tuple[int, int] | None, trace: str) -> Iterator[None]:
    from pyprof.capture.torchprof import Schedule, capture

    if steps is None:
        with capture(trace):
            yield
        return
    first, last = steps
    warmup = min(first, 1)
    with capture(trace, schedule=Schedule(skip=first - warmup, warmup=warmup, active=last - first)) as recording:
        with StepCounter(lambda done: recording.step()):
            yield


@contextmanager
def _nvtx(steps: tuple[int, int] | None, _trace: str) -> Iterator[None]:
    from pyprof.capture.profile import profile

    with profile(steps):
        yield


_TOOLS = {"torch": _torch_profiler, "nsys": _nvtx}


def _run_program(program: list[str]) -> None:
    if program[0] == "-m":
        sys.argv[:] = program[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = program
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")


def _own_frames(frame: Any) -> bool:
    name = frame.f_code.co_filename
    return name == __file__ or name.startswith("<frozen runpy") or os.path.basename(name) in ("runpy.py", "contextlib.py")


def _print_exception(error: BaseException) -> None:
    """As the interpreter would, beginning with the program's first frame."""
    trace = error.__traceback__
    while trace is not None and _own_frames(trace.tb_frame):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def main() -> int:
    """Run the program of our own command line; returns its exit code."""
    tool, steps, trace, *program = sys.argv[1:]
    window = None if steps == "all" else parse_steps(steps)
    try:
        with _TOOLS[tool](window, trace):
            _run_program(program)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        print(leaving.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        _print_exception(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
