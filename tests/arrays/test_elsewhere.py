"""Tasks in processes that share files with this one and no memory: results in order, things lent, tasks done again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pyprof.arrays import elsewhere
from pyprof.arrays.elsewhere import Lent, in_processes, most, spread
from pyprof.arrays.processes import several
from pyprof.arrays.types import Array
from pyprof.errors import InputError, ToolError


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with ThreadPoolExecutor(2) as executor, spread(executor, 4, tmp_path):
        yield tmp_path


def _numbered(lent: Lent[dict[str, Array]], number: int) -> tuple[int, int, Array, bool]:
    values = lent.thing["values"]
    return number, threading.get_ident(), values[:number] + number, values.flags.writeable


def test_results_come_in_the_order_of_tasks_from_copies_of_what_is_lent(place: Path) -> None:
    assert most() == 4
    one_value = np.broadcast_to(np.int64(7), 1 << 20)
    lent = Lent({"values": np.arange(1000), "same": one_value})
    found = in_processes([partial(_numbered, lent, number) for number in range(4)])
    assert [number for number, *_ in found] == [0, 1, 2, 3]
    here = threading.get_ident()
    assert found[0][1] == here and here not in {thread for _, thread, _, _ in found[1:]}
    for number, _, values, writeable in found:
        assert values.tolist() == [2 * number - at for at in range(number, 0, -1)]
        assert writeable == (number == 0)  # the rest have copies
    assert sum(path.stat().st_size for path in place.iterdir()) < 1 << 20


def test_elsewhere_is_here_where_nothing_is_spread() -> None:
    thing = {"values": np.arange(3)}
    with several(3):
        assert most() in (1, 3)
    assert Lent(thing).thing is thing
    assert in_processes([partial(int, "5")]) == [5]


def _fails(number: int) -> int:
    if number == 2:
        raise InputError("net.sqlite: odd", "export it again")
    return number


def test_what_a_task_raises_is_raised_here(place: Path) -> None:
    with pytest.raises(InputError, match=r"net\.sqlite: odd"):
        in_processes([partial(_fails, number) for number in range(4)])


def test_a_task_may_be_done_twice(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor, spread(executor, 2, tmp_path):
        in_processes([partial(int, "1"), partial(int, "2")])
    (task,) = tmp_path.glob("*.task")
    result = str(task.with_suffix(".result"))
    before = Path(result).read_bytes()
    assert elsewhere._do(str(task), result) == result and Path(result).read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (".task", ".result")]


def test_a_folder_that_is_not_seen(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="does not see") as error:
        elsewhere._do(str(tmp_path / "0.task"), str(tmp_path / "0.result"))
    assert "all workers see" in error.value.hint
