"""Tasks in threads: results in order, few at once, and none left at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pyprof.arrays.threads import in_order


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_results_come_in_order_and_few_at_once(jobs: int) -> None:
    lock, working, most = threading.Lock(), 0, 0

    def task(number: int) -> int:
        nonlocal working, most
        with lock:
            working += 1
            most = max(most, working)
        time.sleep(0.002 * (number % 3))
        with lock:
            working -= 1
        return number

    given = 0

    def tasks() -> Iterator[Callable[[], int]]:
        nonlocal given
        for number in range(20):
            given += 1
            yield lambda number=number: task(number)  # type: ignore[misc]

    taken = 0
    for found in in_order(tasks(), jobs):
        assert found == taken
        taken += 1
        assert given - taken <= jobs
    assert taken == 20
    assert most <= jobs


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_a_task_raises_is_raised_and_none_is_left_at_work(jobs: int) -> None:
    def fails() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(in_order(iter([lambda: 1, fails, lambda: 2]), jobs))
    assert not [one for one in threading.enumerate() if "ThreadPoolExecutor" in one.name]


def test_no_tasks() -> None:
    assert list(in_order(iter([]), 2)) == []
