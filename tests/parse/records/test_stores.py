"""Stores that stop answering, and a server of S3 that fails half-way: one line or an interrupt's end, and the next run completes."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyprof.cli import main
from pyprof.loading.load import load
from pyprof.parse.records.dataset import stored
from pyprof.parse.records.locations import Remote
from tests.conftest import ROOT
from tests.tiny import Nsys

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
fsspec = pytest.importorskip("fsspec", reason="URLs need fsspec")

# A store with one capture of which one call never returns, nor does any later one that writes.
_STALLING = """
import sys, threading
from pathlib import Path
import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from pyprof.cli import main

where, source, *command = sys.argv[1:]

class Store(MemoryFileSystem):
    pass

def stall(*_, **__):
    print("stalls", flush=True)
    threading.Event().wait()

fsspec.register_implementation("memory", Store, clobber=True)
Store().pipe_file("/run/rank0.sqlite", Path(source).read_bytes())
setattr(Store, where, stall)
Store.rm_file = stall
sys.exit(main(command))
"""


@pytest.mark.parametrize("where", ["isdir", "get_file", "exists", "put_file"])
def test_an_interrupt_ends_the_wait_for_a_store_that_has_stopped_answering(where: str, tmp_path: Path) -> None:
    n = Nsys()
    n.kernel("k", 5, 200, 210)
    source = n.write(tmp_path / "x.sqlite")
    command = ["parse", "memory://run/", "-o", "memory://out/set", "--jobs", "1"]
    program = [sys.executable, "-c", _STALLING, where, str(source), *command]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stderr is not None
        assert run.stdout.readline() == "stalls\n"
        time.sleep(0.1)  # until it waits
        run.send_signal(signal.SIGINT)
        try:
            assert run.wait(60) == 130, run.stderr.read()
        finally:
            run.kill()
        assert "Traceback" not in run.stderr.read()


class Failing:
    """A WSGI application in front of another one, which refuses what is written from the third file on, while `broken`."""

    def __init__(self, application: Any) -> None:
        self.application, self.written, self.broken = application, 0, True

    def __call__(self, request: dict[str, Any], begin: Any) -> Any:
        if request["REQUEST_METHOD"] in ("PUT", "POST") and request["PATH_INFO"].endswith(".parquet"):
            self.written += 1
            if self.broken and self.written > 2:
                begin("403 Forbidden", [("Content-Type", "application/xml")])
                return [b"<Error><Code>AccessDenied</Code><Message>the quota is\nused up</Message></Error>"]
        return self.application(request, begin)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    pytest.importorskip("s3fs", reason="S3 needs s3fs")
    moto = pytest.importorskip("moto.server", reason="a local server of S3 needs moto[server]")
    from werkzeug.serving import make_server

    application = Failing(moto.DomainDispatcherApplication(moto.create_backend_app))
    serving = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    variables = {"ENDPOINT_URL": f"http://127.0.0.1:{serving.port}", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}
    for name, value in {**variables, "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    fsspec.filesystem("s3").clear_instance_cache()
    yield application
    serving.shutdown()
    thread.join()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_server_of_s3_that_fails_half_way(
    server: Failing, jobs: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, runs = fsspec.filesystem("s3"), f"run{jobs}"
    store.mkdir(runs)
    for rank in range(4):
        n = Nsys()
        for i in range(2 + rank):
            n.kernel("k", 100 * i + 5, 100 * i + 200, 100 * i + 210)
        store.put_file(str(n.write(tmp_path / f"rank{rank}.sqlite")), f"{runs}/rank{rank}.sqlite")
    command = ["parse", f"s3://{runs}", "-o", f"s3://{runs}/set", "--jobs", jobs]
    assert main(command) == 1
    said = capfd.readouterr().err
    assert said.count("failed: ") == 2 and said.count("\n") == 5 and "the quota is used up" in said, said
    assert "2 of 4 captures" in said and len(stored(Remote(f"s3://{runs}/set"))) == 2
    server.broken = False
    store.invalidate_cache()
    assert main(command) == 0
    said = capfd.readouterr().err
    assert said.count("was there") == 2 and "4 of 4 captures" in said, said
    store.invalidate_cache()
    assert [len(load(str(file))) for file in stored(Remote(f"s3://{runs}/set"))] == [2, 3, 4, 5]
