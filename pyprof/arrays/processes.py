"""Tasks on columns -> their results in order, each task in a process of its own that shares the columns.

The processes are forked, so that a task sees all that is there and nothing is sent to it; what it writes into columns that
`spool.shared` made is seen here. Results come back through files without a name: arrays in them are mapped, not copied. An
exception of a task is raised here. What a column means is not known here.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np

from pyprof.arrays import spool
from pyprof.errors import ToolError

Result = TypeVar("Result")


class KilledError(ToolError):
    """A process did not end by itself."""


_JOBS: ContextVar[int] = ContextVar("processes for one capture", default=1)
LEAST_ROWS = 1 << 18  # of fewer the start of a process takes as long as it saves
_UNKEPT, _ROOM = "the result of a process cannot be kept", "make room there, or set TMPDIR"
_ALIGNMENT = 64  # bytes, of arrays in a file of results


@contextmanager
def several(jobs: int) -> Iterator[None]:
    """Work on one capture inside may take so many processes."""
    token = _JOBS.set(jobs)
    try:
        yield
    finally:
        _JOBS.reset(token)


def most() -> int:
    """How many processes may work at a time; 1 where they cannot share memory."""
    return _JOBS.get() if hasattr(os, "fork") else 1


def available() -> int:
    """How many processes can work at a time: one a core that this one may use; one alone where its memory is limited, since
    that limit is of each."""
    with suppress(ImportError):
        import resource

        if resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY:
            return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_once(tasks: Sequence[Callable[[], Result]], rows: int) -> list[Result]:
    """The results of tasks on columns of so many rows, at the same time where that is worth the start of processes."""
    if most() < len(tasks) or rows < LEAST_ROWS:
        return [task() for task in tasks]
    spool.release()
    try:
        return in_processes(tasks)
    except KilledError:  # most likely for want of memory, of which one process takes less
        return [task() for task in tasks]


def in_processes(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of the tasks, all at work at the same time: the first in this process, each other in its own.

    Raises what the first failing task raises, ToolError where a process is killed. None is left when this ends, however.
    """
    children: list[tuple[int, BinaryIO]] = []
    try:
        for task in tasks[1:]:
            children += [_forked(task)]  # one by one: those that were begun are ended where the next cannot be
        results = [tasks[0]()]
        for at, (number, _) in enumerate(children):
            _, status = os.waitpid(number, 0)
            children[at] = 0, children[at][1]
            if status:
                raise (killed() if os.WIFSIGNALED(status) else KilledError(_UNKEPT, f"{_ROOM}, or use --jobs 1"))
        for _, stream in children:
            found = loaded(stream)
            if isinstance(found, BaseException):
                raise found
            results.append(cast("Result", found))
        return results
    finally:
        for number, stream in children:
            if number:
                end(number)
            stream.close()


def killed() -> KilledError:
    """The error for a process that did not end by itself."""
    return KilledError("a process that worked on the capture was killed", "give it more memory, or run with --jobs 1")


def _forked(task: Callable[[], Result]) -> tuple[int, BinaryIO]:
    """The number of a process that does the task, and the file with its result when that has ended."""
    import tempfile  # of several libraries, where there are processes alone

    stream = cast("BinaryIO", tempfile.TemporaryFile(prefix=".pyprof-", dir=spool.folder()))

    def stored() -> None:
        try:
            result: object = task()
        except Exception as error:
            result = error
        try:
            store(stream, result)
        except (OSError, pickle.PicklingError) as error:
            why = getattr(error, "strerror", None) or error
            # The stream may hold more for which there is no room, and would write it first.
            with open(os.dup(stream.fileno()), "r+b") as again:
                again.truncate(0)
                again.seek(0)
                store(again, ToolError(f"{_UNKEPT}: {why}", _ROOM))

    try:
        return begun(stored), stream
    except BaseException:
        stream.close()
        raise


def begun(task: Callable[[], None]) -> int:
    """The number of a process that does the task and ends, or is ended with this one. `end` it."""
    parent, number = os.getpid(), -1
    # A signal that comes before the child has its own handlers would end the parent's work in the child as well.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # what threads of this process do the child needs nothing of
            number = os.fork()
    except OSError as error:
        raise ToolError(f"no process can be started: {error.strerror}", "raise the limit on processes (ulimit -u)") from error
    finally:
        if number:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if number:
        return number
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: for the parent, which ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _end_with(parent)
        task()
        status = 0
    finally:
        os._exit(status)


def end(number: int) -> None:
    """End a process that was begun here, whatever it does."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


def _end_with(parent: int) -> None:
    """Let the system end this process when its parent is killed, where it can (Linux)."""
    with suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


class _Pickler(pickle.Pickler):
    """Arrays of one value for all rows take no more room than that."""

    def reducer_override(self, value: object) -> Any:
        if type(value) is np.ndarray and value.strides == (0,) and len(value):
            return np.broadcast_to, (value[0], value.shape)
        return NotImplemented


def store(stream: BinaryIO, result: object) -> None:
    """Arrays one after another, then the rest, then where all of these begin."""
    buffers: list[pickle.PickleBuffer] = []
    rest = io.BytesIO()
    _Pickler(rest, protocol=5, buffer_callback=buffers.append).dump(result)
    places = []
    for buffer in buffers:
        stream.seek(-(-stream.tell() // _ALIGNMENT) * _ALIGNMENT)
        raw = buffer.raw()
        places.append((stream.tell(), raw.nbytes))
        stream.write(raw)
        spool.touched()
    begin = stream.tell()
    stream.write(pickle.dumps((places, rest.getvalue())))
    stream.write(begin.to_bytes(8, "little"))
    stream.flush()


def loaded(stream: BinaryIO, *, writable: bool = True) -> object:
    """What `store` wrote; its arrays are mapped. writable: whether they and the file can be written to."""
    size = os.fstat(stream.fileno()).st_size
    mapped = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    spool.watch(mapped)
    whole = memoryview(mapped)
    begin = int.from_bytes(whole[-8:], "little")
    places, rest = pickle.loads(whole[begin:-8])
    return pickle.loads(rest, buffers=[whole[at : at + length] for at, length in places])
