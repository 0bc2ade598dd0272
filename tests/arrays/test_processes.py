"""Tasks in forked processes: results in order, columns shared, errors raised here, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pyprof.arrays import processes, spool
from pyprof.arrays.processes import KilledError, in_processes, most, several
from pyprof.errors import InputError, ToolError
from tests.children import children

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are forked, and looked for in /proc")


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """No process that a test has started is left."""
    before = children()
    yield
    assert children() <= before


def test_results_come_in_the_order_of_tasks():
    def task(number):
        return lambda: (number, os.getpid(), {"values": np.arange(number * 100_000), "name": "x" * number})

    found = in_processes([task(number) for number in range(4)])
    assert [number for number, _, _ in found] == [0, 1, 2, 3]
    assert found[0][1] == os.getpid() and len({pid for _, pid, _ in found}) == 4
    for number, _, rest in found:
        assert (rest["values"] == np.arange(number * 100_000)).all() and rest["name"] == "x" * number


def test_columns_are_shared(tmp_path):
    with spool.columns_on_disk(tmp_path):
        column = spool.shared(np.zeros(1000, np.int64))

    def fill(begin):
        def task():
            column[begin : begin + 250] = begin + 1

        return task

    in_processes([fill(begin) for begin in (0, 250, 500, 750)])
    assert column.tolist() == np.repeat([1, 251, 501, 751], 250).tolist()
    assert spool.shared(column) is column


def test_what_a_task_raises_is_raised_here():
    def fail():
        raise InputError("net.sqlite: odd", "export it again")

    with pytest.raises(InputError, match=r"net\.sqlite: odd") as caught:
        in_processes([lambda: 1, lambda: 2, fail])
    assert caught.value.hint == "export it again"


def test_a_killed_process_is_an_error_of_ours():
    with pytest.raises(ToolError, match="was killed"):
        in_processes([lambda: 1, lambda: os.kill(os.getpid(), signal.SIGKILL)])


def test_none_is_left_when_the_first_task_ends_by_an_interrupt():
    def interrupted():
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_processes([interrupted, lambda: time.sleep(60)])
    assert time.monotonic() - begin < 30


def test_an_interrupt_right_after_the_fork_is_the_parents(monkeypatch):
    fork = os.fork

    def interrupted():
        number = fork()
        if not number:
            os.kill(os.getpid(), signal.SIGINT)
        return number

    monkeypatch.setattr(processes.os, "fork", interrupted)
    assert in_processes([lambda: "first", lambda: "second"]) == ["first", "second"]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends a process with its parent on Linux")
def test_a_process_ends_with_its_parent(tmp_path):
    pid = tmp_path / "pid"
    program = (
        "import os, time, pathlib\n"
        "from pyprof.arrays.processes import in_processes\n"
        f"def sleep():\n    pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n    time.sleep(600)\n"
        "in_processes([lambda: time.sleep(600), sleep])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait()
    for _ in range(200):
        status = f"/proc/{pid.read_text()}/stat"
        if not os.path.exists(status) or " Z " in open_text(status):
            return
        time.sleep(0.05)
    pytest.fail("the process lives on")


def open_text(path: str) -> str:
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return " Z "


def test_how_many_is_asked_for():
    assert most() == 1
    with several(3):
        assert most() == 3
    assert most() == 1


def test_what_a_killed_process_was_to_do_is_done_here(monkeypatch):
    monkeypatch.setattr(processes, "LEAST_ROWS", 1)
    here = os.getpid()

    def second():
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return "second"

    with several(2):
        assert processes.at_once([lambda: "first", second], 10) == ["first", "second"]


def test_an_error_of_a_task_is_not_tried_again(monkeypatch):
    monkeypatch.setattr(processes, "LEAST_ROWS", 1)
    done = []

    def fail():
        raise ToolError("no tool", "install it")

    with several(2), pytest.raises(ToolError, match="no tool"):
        processes.at_once([lambda: done.append(1), fail], 10)
    assert done == [1]


def test_one_process_where_memory_is_limited():
    program = "from pyprof import memory; from pyprof.arrays.processes import available; memory.limit('4G'); print(available())"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "1"


def test_a_process_that_cannot_be_started_is_told(monkeypatch):
    def none():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", none)
    with pytest.raises(ToolError, match="no process can be started: Resource"):
        in_processes([lambda: 1, lambda: 2])


@pytest.mark.parametrize("result", ["np.zeros(1_000_000)", "[np.zeros(100) for _ in range(1000)]", "[*range(100_000)]"])
def test_a_result_that_no_disk_holds_is_told(tmp_path, result):
    program = (
        "import resource, signal\n"
        "import numpy as np\n"
        "from pyprof.arrays.processes import in_processes\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n    in_processes([lambda: 1, lambda: RESULT])\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", program.replace("RESULT", result)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.startswith("ToolError the result of a process cannot be kept: File too large")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("end", "says"), [(lambda: os.kill(os.getpid(), 9), "was killed"), (lambda: os._exit(1), "cannot be kept")]
)
def test_a_process_without_a_result_is_told_as_what_it_is(end, says):
    with pytest.raises(KilledError, match=says):
        in_processes([lambda: 1, end])
