"""One task on many items -> their results as they are ready: here, in processes of this machine, or on a dask cluster.

All through the interface of concurrent.futures. A task that raises, or whose process dies, is
reported with its item and the others go on. Nothing here knows captures.
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

from pyprof.errors import ToolError, unusable

if TYPE_CHECKING:
    from distributed import Client

_NO_WORKER_S = 30

Item = TypeVar("Item")
Result = TypeVar("Result")
Task = Callable[[Item], Result]


def run_all(task: Task[Item, Result], items: Sequence[Item], jobs: int) -> Iterator[tuple[Item, Result | Exception]]:
    """Each item with the task's result, or with what it raised; at most `jobs` at a time.

    A process that dies takes its whole pool with it. Items that had not begun are then done by a new pool, and each item that
    was being done is done again alone, so that the one at fault is known.
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
    """As `run_all`, on the workers of a dask cluster, which need pyprof and the same files. A failed task is tried twice.

    Raises ToolError if dask is not installed or the scheduler does not answer.
    """
    client = _client(scheduler)
    with client:
        again = []
        for item, result in _gathered(client.get_executor(pure=False), task, items):
            # A result is lost with the worker that held it, when another task ended that worker.
            if isinstance(result, Exception) and not isinstance(result, CancelledError):
                again.append(item)
            else:
                yield item, _explained(result, scheduler)
        for item in again:  # each alone: dask blames all tasks that a lost worker was given, not only the one that ended it
            for _, result in _gathered(client.get_executor(pure=False), task, [item]):
                yield item, _explained(result, scheduler)


def _client(scheduler: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        raise unusable("--dask", "distributed", error, "pip install 'pyprof[dask]'") from error
    try:
        return Client(scheduler)
    except (OSError, ValueError) as error:
        raise ToolError(
            f"no dask scheduler answers at {scheduler}: {error}", "give its address, such as tcp://host:8786"
        ) from error


def _without_cluster(error: Exception, scheduler: str) -> ToolError:
    """dask cancels every task when it loses its scheduler, and gives no reason."""
    if isinstance(error, CancelledError):
        return ToolError(f"the dask scheduler at {scheduler} is gone", "start it and run the same command again")
    return ToolError(f"the dask scheduler at {scheduler} has no workers", f"dask worker {scheduler}")


def _explained(result: Result | Exception, scheduler: str) -> Result | Exception:
    return _without_cluster(result, scheduler) if isinstance(result, CancelledError) else result


def _tried(task: Task[Item, Result], item: Item) -> Result | Exception:
    try:
        return task(item)
    except Exception as error:  # whatever it is, it is reported and the others go on
        return error


def _in_pool(task: Task[Item, Result], items: Sequence[Item], jobs: int) -> Iterator[tuple[Item, Result | Exception]]:
    """The processes are terminated where the caller ends early: an interrupt shall not wait for what they are doing."""
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
    """Results in the order in which they come; tasks that were not begun are cancelled when the caller stops asking."""
    done = False
    tasks: dict[Future[Result], Item] = {}
    try:
        for item in items:
            try:
                tasks[executor.submit(task, item)] = item
            except BrokenProcessPool as error:  # a process died while others were still being handed out
                yield item, error
        for future in as_completed(tasks):
            yield tasks[future], _tried(Future.result, future)
        done = True
    finally:
        for future in tasks:
            future.cancel()
        executor.shutdown(wait=done)


def _interruptible(task: Task[Item, Result], item: Item) -> Result:
    """In a process of the pool: SIGTERM ends the task as an exception does, so that it leaves no partial file."""
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        return task(item)
    finally:
        signal.signal(signal.SIGTERM, before)


def _begin_process() -> None:
    """End this process when the one that started it, and reads its results, is killed; an interrupt is for that one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def wait() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise ToolError("its process was terminated", "run the same command again")
