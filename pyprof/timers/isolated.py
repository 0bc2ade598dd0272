"""A function from a capture or a generated file -> its result, from a child process with limits of time and memory.

The work comes from a file, and torch may crash on it, hang, or use up memory: only the child process ends then.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeVar

from pyprof.errors import PyprofError, ToolError
from pyprof.memory import free_bytes
from pyprof.timers.replay import Work, replay_work
from pyprof.timers.timing import Timing, timeit

_LIMIT_S = 60.0  # for one measurement beside the time asked for, the start of the process included
T = TypeVar("T")
_HINT = "choose a smaller op, or another --device"


class TimingJob(NamedTuple):
    """Work to measure, on a device, for some seconds; flush: with a cold cache; tf32: products of fp32 in TF32."""

    work: Work
    device: str
    seconds: float
    flush: bool
    tf32: bool = False

    def run(self) -> Timing:
        """Measure in this process."""
        work = replay_work(self.work, self.device, tf32=self.tf32)
        return timeit(work, seconds=self.seconds, flush=self.flush, device=self.device)


class Isolated:
    """A child process that runs calls one after another; a context manager. It starts with the first call."""

    def __init__(self, limit_s: float = _LIMIT_S) -> None:
        self.limit_s = limit_s
        self._process: multiprocessing.process.BaseProcess | None = None

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def time(self, job: TimingJob) -> Timing:
        """The times of a job. Raises ToolError or UsageError if it cannot be run here, takes too long, or ends the process."""
        return self.call(TimingJob.run, job, seconds=job.seconds, on_cpu=job.device == "cpu")

    def call(self, function: Callable[..., T], *arguments: object, seconds: float = 0.0, on_cpu: bool = True) -> T:
        """Call a module's function in the process, and return its result. seconds: expected time beyond the limit.

        on_cpu: it may have no more memory than is free; CUDA reserves more addresses than there is memory. Raises as `time`.
        """
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._ours, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        self._ours.send((function, arguments, on_cpu))
        limit_s = self.limit_s + seconds
        if not self._ours.poll(limit_s):
            self._end()
            raise ToolError(f"it was stopped after {limit_s:.0f} s", _HINT)
        try:
            found: T | PyprofError = self._ours.recv()
        except (EOFError, ConnectionError):
            code = self._end()
            how = signal.Signals(-code).name if code is not None and -code in set(signal.Signals) else f"exit code {code}"
            raise ToolError(f"torch ended its process: {how}", _HINT) from None
        if isinstance(found, PyprofError):
            raise found
        return found

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        self._ours.close()
        process.join(0.2)
        process.kill()
        process.join()
        return process.exitcode


def _serve(pipe: Connection) -> None:
    """Run calls and send their results until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process says when to end
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(_answer(*pipe.recv()))


def _answer(function: Callable[..., T], arguments: tuple[object, ...], on_cpu: bool) -> T | PyprofError:
    try:
        if on_cpu:
            _limit_memory()
        return function(*arguments)
    except PyprofError as error:
        return error
    except Exception as error:  # whatever torch raises over what a file names, the others are measured
        lines = str(error).strip().splitlines()
        return ToolError(f"it cannot be run here: {lines[0] if lines else type(error).__name__}", _HINT)


def _limit_memory() -> None:
    """Let this process have no more memory than is free: out of memory, the system kills other programs."""
    free = free_bytes()
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm") as stream:
            taken = int(stream.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if free is not None:
            resource.setrlimit(resource.RLIMIT_AS, (taken + free, hard))
