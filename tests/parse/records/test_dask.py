"""A data set, and the parts of one capture, made on a dask cluster of this machine."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from pyprof.cli import main
from pyprof.errors import InputError, ToolError
from pyprof.formats import op_rules
from pyprof.loading import open_trace
from pyprof.parse.attribution import in_slices
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.records import workers
from pyprof.parse.records.dataset import stored
from pyprof.parse.records.netdict.write import lines
from pyprof.parse.records.workers import on_dask, parts_on_dask
from pyprof.parse.sources.sqlite_pages import reader
from tests.conftest import ROOT
from tests.tiny import Nsys

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
dask = pytest.importorskip("dask", reason="--dask needs distributed, which is not installed")
distributed = pytest.importorskip("distributed", reason="--dask needs distributed, which is not installed")
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]  # warnings of dask's own


@pytest.fixture
def fresh() -> object:
    """The address of a cluster none of whose workers was killed before: dask does not always bring such a one back."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def scheduler() -> object:
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


def test_a_task_that_ends_its_workers_is_told_and_the_others_go_on(scheduler: str) -> None:
    found = dict(on_dask(_dies_at_three, list(range(6)), scheduler))
    assert isinstance(found.pop(3), Exception) and found == {n: n * n for n in range(6) if n != 3}


@pytest.mark.parametrize("capture", sorted((ROOT / "tests" / "data").glob("*.sqlite")), ids=lambda path: path.name)
def test_one_capture_in_parts_while_a_worker_is_killed(fresh: str, capture: Path, tmp_path: Path) -> None:
    """One of two workers stands still, so that it has parts which it never ends, and is killed when the other has ended some."""
    expected = attribute(open_trace(capture), op_rules(), 8)
    with distributed.Client(fresh) as client:
        client.wait_for_workers(2, timeout=60)
        stopped = client.run(os.getpid)[min(client.nthreads())]
    os.kill(stopped, signal.SIGSTOP)

    def end() -> None:
        _until(lambda: any(tmp_path.glob("*.result")))
        os.kill(stopped, signal.SIGKILL)

    ending = threading.Thread(target=end)
    ending.start()
    with (
        mock.patch.object(in_slices, "_LEAST_AMONG_PROCESSES", 1),
        mock.patch.object(reader, "_LEAST_SHARED_BYTES", 1),
        parts_on_dask(fresh, tmp_path),
    ):
        found = attribute(open_trace(capture), op_rules(), 8)
    ending.join()
    assert [*lines(found)] == [*lines(expected)]
    assert found.messages() == expected.messages()


def test_one_capture_by_the_command(fresh: str, tmp_path: Path) -> None:
    capture = str(next((ROOT / "tests" / "data").glob("*.sqlite")))
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    assert main(["parse", capture, "-o", str(here), "--jobs", "1"]) == 0
    with mock.patch.object(reader, "_LEAST_SHARED_BYTES", 1):
        assert main(["parse", capture, "-o", str(there), "--dask", fresh]) == 0
    assert here.read_bytes() == there.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.parquet", "there.parquet"]  # and nothing hidden


def test_a_worker_that_sees_another_file(tmp_path: Path) -> None:
    capture = tmp_path / "net.sqlite"
    n = Nsys()
    n.kernel("k", 5, 200, 210)
    n.write(capture)
    with capture.open("rb") as stream:
        sent = pickle.dumps(reader.PageReader(stream.fileno(), capture))
        assert pickle.loads(sent).pages > 1
        os.utime(capture, (1, 1))
        with pytest.raises(InputError, match="a worker cannot read it: another file is there"):
            pickle.loads(sent)
    capture.unlink()
    with pytest.raises(InputError, match="a worker cannot read it: No such file"):
        pickle.loads(sent)


def test_a_cluster_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_NO_WORKER_S", 0.1)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as cluster,
        pytest.raises(ToolError, match="has no workers"),
        parts_on_dask(cluster.scheduler_address, tmp_path),
    ):
        pass


def test_no_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import dask

    n = Nsys()
    n.kernel("k", 5, 200, 210)
    n.write(tmp_path / "rank0.sqlite")
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        assert main(["parse", str(tmp_path), "-o", str(tmp_path / "set"), "--dask", "tcp://127.0.0.1:9"]) == 1
    assert "no dask scheduler answers" in capsys.readouterr().err
    assert main(["parse", str(tmp_path / "rank0.sqlite"), "--dask", "tcp://127.0.0.1:9"]) == 2


def _waits(path: str) -> str:
    Path(path).touch()
    time.sleep(60)
    return path


def test_a_scheduler_that_is_killed_is_named(tmp_path: Path) -> None:
    """dask itself gives `CancelledError` without a reason."""
    env = os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s", "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    address, python = f"tcp://127.0.0.1:{port}", [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    options = {"cwd": tmp_path, "env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*python, "--port", port, "--no-dashboard", "--host", "127.0.0.1"], **options)  # type: ignore[call-overload]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
    process = subprocess.Popen([*worker, "--death-timeout", "5"], **options)  # type: ignore[call-overload]
    try:
        _until(lambda: _answers(int(port)))
        began = tmp_path / "began"
        ending = threading.Thread(target=lambda: (_until(began.exists), server.kill()))
        ending.start()
        with dask.config.set({"distributed.comm.timeouts.connect": "2s"}):
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


def _until(happened: Callable[[], bool]) -> None:
    for _ in range(6000):
        if happened():
            return
        time.sleep(0.01)
