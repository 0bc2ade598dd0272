"""Which processes run, and an end to those with a mark."""

import os
import signal
import subprocess
import sys

from pyprof.recording.nsys import end_marked, is_running

_WAITS = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]


def _start(**variables: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(_WAITS, env={**os.environ, **variables}, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.stdout.close()
    return process


def test_only_those_with_the_mark_are_ended() -> None:
    marked, longer, other = _start(PYPROF_MARK="a"), _start(PYPROF_MARK="ab"), _start()
    end_marked("PYPROF_MARK", "a")
    assert [is_running(process.pid) for process in (marked, longer, other)] == [False, True, True]
    for process in (longer, other):
        process.kill()
    assert [process.wait() for process in (marked, longer, other)] == [-signal.SIGKILL] * 3


def test_a_process_that_nobody_has_waited_for_runs_no_more() -> None:
    assert is_running(os.getpid())
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(process.pid)
    process.wait()
    assert not is_running(process.pid)


def test_no_process_has_the_mark() -> None:
    end_marked("PYPROF_MARK", "of nobody")
