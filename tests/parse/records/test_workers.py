"""Tasks in processes: results, tasks that raise, processes that die; and a run that is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from pyprof.errors import ToolError
from pyprof.parse.records.workers import on_dask, run_all
from tests import ROOT


def _dying(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    if number in (5, 6):
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_task_that_raises_is_reported_and_the_others_go_on(jobs: int) -> None:
    found = dict(run_all(abs, [-4, "x", 2, -1], jobs))  # type: ignore[list-item, arg-type]
    assert isinstance(found.pop("x"), TypeError) and found == {-4: 4, 2: 2, -1: 1}  # type: ignore[call-overload]
    assert list(run_all(abs, [], jobs)) == []


def test_a_process_that_dies_is_reported_and_the_others_go_on() -> None:
    found = dict(run_all(_dying, list(range(8)), 2))
    wrong = {n: type(error) for n, error in found.items() if isinstance(error, Exception)}
    assert wrong == {3: ValueError, 5: BrokenProcessPool, 6: BrokenProcessPool}
    assert {n: v for n, v in found.items() if n not in wrong} == {n: n * n for n in range(8) if n not in wrong}


_PROGRAM = """
import sys, time
from pathlib import Path
from pyprof.parse.records.workers import run_all

def slow(number):
    Path(sys.argv[1], str(number)).write_text("x")
    time.sleep(60)

if __name__ == "__main__":
    list(run_all(slow, [1, 2], 2))
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_processes_end_with_the_run_that_started_them(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    (tmp_path / "began").mkdir()
    command = [sys.executable, str(program), str(tmp_path / "began")]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as run:
        _wait(lambda: len(list((tmp_path / "began").iterdir())) == 2)
        children = [pid for pid in _processes() if _parent(pid) == run.pid]
        assert len(children) >= 2
        run.kill()
    _wait(lambda: not [pid for pid in children if _runs(pid)])


def _wait(happened: object) -> None:
    assert callable(happened)
    for _ in range(3600):
        if happened():
            return
        time.sleep(0.05)
    pytest.fail("did not happen within three minutes")


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _status(pid: int) -> list[str]:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["gone", "0"]


def _parent(pid: int) -> int:
    return int(_status(pid)[1])


def _runs(pid: int) -> bool:
    return _status(pid)[0] not in ("gone", "Z", "X")


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ToolError, match="distributed") as error:
        list(on_dask(abs, [1], "tcp://127.0.0.1:1"))
    assert "[dask]" in error.value.hint


def _asleep(path: str) -> str:
    """Signals that it runs, and leaves a file unless an exception ends it."""
    Path(path).touch()
    try:
        time.sleep(60)
    except ToolError:
        Path(path).unlink()
        raise
    return path


def test_an_early_end_waits_for_no_task_and_lets_each_clean_up(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "ab"]

    def interrupt() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)  # to the main thread

    threading.Thread(target=interrupt, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(run_all(_asleep, paths, 2))
    while any(tmp_path.iterdir()) and time.monotonic() - began < 50:
        time.sleep(0.01)
    assert not any(tmp_path.iterdir())
