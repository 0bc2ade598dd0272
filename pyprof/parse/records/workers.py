"""A task and many items -> results as they are ready, from processes of this machine or a dask cluster.

A task that raises or whose process dies is reported with its item, and the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pyprof.errors import ToolError, install_extra, unusable

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
Result = TypeVar("Result")
Task = Callable[[Item], Result]


def run_all(task: Task[Item, Result], items: Sequence[Item], jobs: int) -> Iterator[tuple[Item, Result | Exception]]:
    """Each item with the task's result or exception; at most `jobs` at a time.

    A process that dies breaks its pool. Unfinished items then run again: the first `jobs` of them one at a time, to find the
    one at fault, the rest in a new pool.
    """
    if min(jobs, len(items)) < 2:
        yield from ((item, _tried(task, item)) for item in items)
        return
    waiting = list(items)
    while waiting:
        unfinished = []
        for item, result in _in_pool(task, waiting, min(jobs, len(waiting))):
            if isinstance(result, BrokenProcessPool):
                unfinished.append(item)
            else:
                yield item, result
        unfinished.sort(key=waiting.index)
        for item in unfinished[:jobs]:
            yield from _in_pool(task, [item], 1)
        waiting = unfinished[jobs:]


def on_dask(task: Task[Item, Result], items: Sequence[Item], scheduler: str) -> Iterator[tuple[Item, Result | Exception]]:
    """As `run_all`, on the workers of a dask cluster, which must have pyprof and see the same files. Failures run twice.

    Raises ToolError if dask is not installed or the scheduler does not answer.
    """
    client = _client(scheduler)
    with client:
        again = []
        for item, result in _gathered(client.get_executor(pure=False), task, items):
            # A worker that another task killed takes the results it held with it.
            if isinstance(result, Exception) and not isinstance(result, CancelledError):
                again.append(item)
            else:
                yield item, _explained(result, scheduler)
        for item in again:  # one at a time: dask blames every task of a lost worker, not only the one that killed it
            for _, result in _gathered(client.get_executor(pure=False), task, [item]):
                yield item, _explained(result, scheduler)


def _client(scheduler: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        raise unusable("--dask", "distributed", error, install_extra("dask")) from error
    try:
        return Client(scheduler)
    except (OSError, ValueError) as error:
        raise ToolError(
            f"no dask scheduler answers at {scheduler}: {error}", "give its address, such as tcp://host:8786"
        ) from error


def _explained(result: Result | Exception, scheduler: str) -> Result | Exception:
    """The result; a cancelled task becomes an error that gives the reason, which dask leaves out when its scheduler is lost."""
    if not isinstance(result, CancelledError):
        return result
    return ToolError(f"the dask scheduler at {scheduler} is gone", "start it and run the same command again")


def _tried(task: Task[Item, Result], item: Item) -> Result | Exception:
    try:
        return task(item)
    except Exception as error:  # reported; the others go on
        return error


def _in_pool(task: Task[Item, Result], items: Sequence[Item], jobs: int) -> Iterator[tuple[Item, Result | Exception]]:
    """Run in a pool of processes, terminated if the caller stops early: an interrupt must not wait for them."""
    context = multiprocessing.get_context("spawn")
    others, done = {*multiprocessing.active_children()}, False
    try:
        executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_process)
        yield from _gathered(executor, partial(_interruptible, task), items)
        done = True
    finally:
        for process in () if done else {*multiprocessing.active_children()} - others:
            process.terminate()


def _gathered(executor: Executor, task: Task[Item, Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result | Exception]]:
    """Results as they complete; tasks that have not begun are cancelled if the caller stops early."""
    done = False
    tasks: dict[Future[Result], Item] = {}
    try:
        for item in items:
            try:
                tasks[executor.submit(task, item)] = item
            except BrokenProcessPool as error:  # a process died while tasks were still being submitted
                yield item, error
        for future in as_completed(tasks):
            yield tasks[future], _tried(Future.result, future)
        done = True
    finally:
        for future in tasks:
            future.cancel()
        executor.shutdown(wait=done)


def _interruptible(task: Task[Item, Result], item: Item) -> Result:
    """Run a task in a process of the pool; SIGTERM raises in it, so that it removes its partial file."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise ToolError("its process was terminated", "run the same command again")

    before = signal.signal(signal.SIGTERM, end)
    try:
        return task(item)
    finally:
        signal.signal(signal.SIGTERM, before)


def _begin_process() -> None:
    """Start of a pool process: ignore interrupts (the parent handles them) and end when the parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def wait() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()
