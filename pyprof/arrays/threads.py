"""Tasks -> their results in order, several at a time in threads: for work that leaves Python, such as compression.

What a task does is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def in_order(tasks: Iterator[Callable[[], Result]], jobs: int) -> Iterator[Result]:
    """The result of each task; at most so many are at work or waiting to be taken, one alone in this thread.

    Raises what a task raises. None is at work when this ends, however.
    """
    if jobs < 2:
        yield from (task() for task in tasks)
        return
    begun: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(jobs)
    try:
        for task in tasks:
            begun.append(executor.submit(task))
            if len(begun) > jobs:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        executor.shutdown(cancel_futures=True)
