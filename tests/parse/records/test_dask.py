"""A data set made on a dask cluster of this machine."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from pyprof.cli import main
from pyprof.parse.records.dataset import stored
from pyprof.parse.records.workers import on_dask
from tests.conftest import ROOT
from tests.parse.records.test_workers import _wait
from tests.tiny import Nsys

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
pytestmark = [
    pytest.mark.skipif(find_spec("distributed") is None, reason="--dask needs distributed, which is not installed"),
    pytest.mark.filterwarnings("default"),  # warnings of dask's own
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def defaults() -> None:
    """Of distributed: first imported under dask.config.set, they would go with its block."""
    import distributed  # noqa: F401


@pytest.fixture(scope="module")
def scheduler() -> object:
    import distributed

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        yield cluster.scheduler_address


def test_many_captures_on_a_cluster(scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(5):
        n = Nsys()
        n.kernel("k", 5, 200, 210 + rank)
        n.write(tmp_path / f"rank{rank}.sqlite")
    (tmp_path / "rank3.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    command = ["parse", str(tmp_path / "rank*.sqlite"), "-o", str(tmp_path / "set"), "--dask", scheduler]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "rank3.sqlite: failed: " in said and "4 of 5 captures" in said
    assert [path.parent.name for path in stored(tmp_path / "set")] == ["rank=0", "rank=1", "rank=2", "rank=4"]
    assert main(command) == 1 and capsys.readouterr().err.count("was there") == 4


def _dies_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_a_task_that_kills_its_workers_is_reported_and_the_others_go_on(scheduler: str) -> None:
    found = dict(on_dask(_dies_at_three, list(range(6)), scheduler))
    assert isinstance(found.pop(3), Exception) and found == {n: n * n for n in range(6) if n != 3}


def test_one_capture_is_parsed_here(tmp_path: Path) -> None:
    capture = str(next((ROOT / "tests" / "data").glob("*.sqlite")))
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    assert main(["parse", capture, "-o", str(here)]) == 0
    assert main(["parse", capture, "-o", str(there), "--dask", "tcp://127.0.0.1:9"]) == 0
    assert here.read_bytes() == there.read_bytes()


def test_no_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import dask

    n = Nsys()
    n.kernel("k", 5, 200, 210)
    n.write(tmp_path / "rank0.sqlite")
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        assert main(["parse", str(tmp_path), "-o", str(tmp_path / "set"), "--dask", "tcp://127.0.0.1:9"]) == 1
    assert "no dask scheduler answers" in capsys.readouterr().err


def _waits(path: str) -> str:
    Path(path).touch()
    time.sleep(60)
    return path


def test_a_scheduler_that_is_killed_is_named(tmp_path: Path) -> None:
    """dask itself gives `CancelledError` without a reason."""
    import dask

    env = os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "20s", "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    address, python = f"tcp://127.0.0.1:{port}", [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    options = {"cwd": tmp_path, "env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*python, "--port", port, "--no-dashboard", "--host", "127.0.0.1"], **options)  # type: ignore[call-overload]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
    process = subprocess.Popen([*worker, "--death-timeout", "60"], **options)  # type: ignore[call-overload]
    try:
        _wait(lambda: _answers(int(port)))
        began = tmp_path / "began"

        def end() -> None:
            try:
                _wait(began.exists)
            finally:
                server.kill()  # else the task would be waited for without end

        ending = threading.Thread(target=end)
        ending.start()
        with dask.config.set({"distributed.comm.timeouts.connect": "10s"}):
            results = dict(on_dask(_waits, [str(began)], address))
        ending.join()
    finally:
        for started in (server, process):
            started.kill()
            started.wait()
    assert str(results[str(began)]) == f"the dask scheduler at {address} is gone"


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
