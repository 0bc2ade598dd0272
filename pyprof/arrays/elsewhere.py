"""Tasks on columns -> their results in order, each done by a process that shares files with this one and perhaps no memory.

Inside `spread` the tasks go to an executor, whose processes may run on other machines; everywhere else they are done as
`processes` does them. A task, what it is lent and what it returns lie in files of one folder that all see: arrays in them are
mapped, not copied. A task must be pure, for it is done again where the process that did it is lost: its result takes its name
when it is whole. What a column means is not known here.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar, cast

from pyprof.arrays import processes
from pyprof.arrays.spool import columns_on_disk
from pyprof.errors import ToolError

Result = TypeVar("Result")
Thing = TypeVar("Thing")


class _Place(NamedTuple):
    """Where tasks go: an executor, into how many parts the work on one capture is cut, the folder; names for files in it."""

    executor: Executor
    parts: int
    folder: Path
    names: Iterator[int]


_PLACE: ContextVar[_Place | None] = ContextVar("where tasks on columns are done", default=None)


@contextmanager
def spread(executor: Executor, parts: int, folder: Path) -> Iterator[None]:
    """Work on one capture inside is cut into so many parts, which go to an executor. folder: of this command alone, seen by
    all of its processes under this name."""
    token = _PLACE.set(_Place(executor, parts, folder.absolute(), count()))
    try:
        yield
    finally:
        _PLACE.reset(token)


def most() -> int:
    """Into how many parts work is cut, at most."""
    place = _PLACE.get()
    return processes.most() if place is None else place.parts


class Lent(Generic[Thing]):
    """A thing for several tasks. One that is done by another process of an executor gets a copy of its own, with arrays that
    cannot be written to."""

    def __init__(self, thing: Thing) -> None:
        place = _PLACE.get()
        self.thing = thing
        self._path = None if place is None else _store(place.folder / f"{next(place.names)}.lent", thing)

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str | None]]:
        return _borrowed, (self._path,)


def _borrowed(path: str) -> object:
    lent: Lent[object] = Lent.__new__(Lent)
    lent.thing, lent._path = _load(path), path
    return lent


def in_processes(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of the tasks: of the first, which is done in this process, and of all others, which are at work meanwhile.

    Raises what the first failing task raises, ToolError where its folder is not seen there.
    """
    place = _PLACE.get()
    if place is None:
        return processes.in_processes(tasks)
    futures = []
    try:
        for task in tasks[1:]:
            name = str(place.folder / str(next(place.names)))
            futures.append(place.executor.submit(_do, _store(Path(f"{name}.task"), task), f"{name}.result"))
        results = [tasks[0]()]
        results += [cast("Result", _load(future.result())) for future in futures]
    finally:
        for future in futures:
            future.cancel()
    return results


def _do(task: str, result: str) -> str:
    """In another process: do the task in a file and write its result to another, whose name is returned."""
    if not os.path.exists(task):
        raise ToolError(f"{platform.node()} does not see {task}", "write with -o to a folder that all workers see")
    with columns_on_disk():
        return _store(Path(result), cast("Callable[[], object]", _load(task))())


def _store(path: Path, thing: object) -> str:
    """Write a file, which is there whole or not at all; its name."""
    hidden = f"{path}.{os.urandom(4).hex()}"  # another process may do the same task
    with open(hidden, "xb") as stream:
        processes.store(stream, thing)
    os.replace(hidden, path)
    return str(path)


def _load(path: str) -> object:
    with open(path, "rb") as stream:
        return processes.loaded(stream, writable=False)
