"""Copies to be given away: no planted secret is in the raw bytes of any format, and the tables are the same."""

import gzip
import json
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.parse.sources.nsys_report import find_nsys
from pyprof.recording.nsys import profile
from pyprof.scrub.identities import Identities, Rules

SECRETS = ("hunter2", "node17.secret.example", "node17", "adalove", "sshd", "GPU-1234", "--api-key", "0000:3b:00.0")


def scrub(source: Path, target: Path, *options: str) -> int:
    return main(["scrub", str(source), "-o", str(target), *options])


def csv(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    columns = "idx,layer,trace,mod,op,kernel,name,params,sil,flops,src,corr,tid"
    assert main(["prof", str(path), "--csv", "--kinds", "all", "-c", columns]) == 0
    return capsys.readouterr().out


def holds(path: Path, secrets: tuple[str, ...] = SECRETS) -> list[str]:
    content = path.read_bytes()
    content += gzip.decompress(content) if content.startswith(b"\x1f\x8b") else b""
    return [secret for secret in secrets if secret.encode() in content or secret.encode("utf-16-le") in content]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export of nsys with secrets wherever it puts them, and in its free pages."""
    path = tmp_path / "in.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        INSERT INTO StringIds VALUES (1, 'mm(fp32[2,3];fp32[3,2]) #pyprof{"src":"/home/adalove/work/net.py:7"}'), (2, 'sshd'), (3, 'python'),
            (4, 'TOKEN=hunter2'), (5, 'void gemm<float>(float*)');
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER,
            jsonText TEXT);
        INSERT INTO NVTX_EVENTS VALUES (1, 9, 59, NULL, 77, 1, 'hunter2'),
            (11, 19, 59, 'in /home/adalove/x.py, 1/2 on node17', 77, NULL, NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (2, 3, 77, 1, 5), (12, 13, 77, 2, 5);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER, globalPid INTEGER, correlationId INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 8, 5, 0, 1), (15, 18, 5, 0, 2);
        CREATE TABLE ThreadNames (nameId INTEGER, globalTid INTEGER);
        INSERT INTO ThreadNames VALUES (3, 77), (2, 78);
        CREATE TABLE PROCESSES (name TEXT); INSERT INTO PROCESSES VALUES ('sshd');
        CREATE TABLE ProcessStreams (text TEXT); INSERT INTO ProcessStreams VALUES ('train.py --api-key hunter2');
        CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
        INSERT INTO META_DATA_CAPTURE VALUES ('ENV', 'TOKEN=hunter2'), ('HOSTNAME', 'node17.secret.example');
        CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_HOST', 'node17.secret.example'), ('EXPORT_SCHEMA_VERSION', '3.7.2');
        CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, uuid TEXT, busLocation TEXT);
        INSERT INTO TARGET_INFO_GPU VALUES (0, 'H100', 'GPU-1234', '0000:3b:00.0');
        CREATE TABLE A_TABLE_OF_THE_FUTURE (value TEXT); INSERT INTO A_TABLE_OF_THE_FUTURE VALUES ('node17.secret.example');
        CREATE TABLE CUPTI_ACTIVITY_KIND_FUTURE (start INTEGER, note TEXT, more BLOB);
        INSERT INTO CUPTI_ACTIVITY_KIND_FUTURE VALUES (4, 'hunter2', x'68756e74657232');
        CREATE TABLE t (x TEXT); INSERT INTO t VALUES ('hunter2 was deleted from here'); DELETE FROM t; DROP TABLE t;
    """)
    connection.close()
    return path


def test_an_export_of_nsys_keeps_its_tables_and_no_secret(
    export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, out = export.read_bytes(), tmp_path / "out.sqlite"
    assert holds(export) == list(SECRETS)
    assert scrub(export, out) == 0
    assert "1 of users, 2 of hosts" in capsys.readouterr().err
    assert export.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == ["in.sqlite", "out.sqlite"]
    assert holds(out) == []
    assert csv(out, capsys) == csv(export, capsys).replace("adalove", "user").replace("node17", "host")
    with sqlite3.connect(out) as connection:
        assert connection.execute("SELECT name FROM META_DATA_EXPORT").fetchall() == [("EXPORT_SCHEMA_VERSION",)]
        assert connection.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_FUTURE").fetchall() == [(4, None, None)]
        threads = connection.execute("SELECT value, globalTid FROM ThreadNames JOIN StringIds ON id = nameId").fetchall()
        assert threads == [("python", 77)]


def test_paths_are_cut_to_the_project_and_to_packages_on_request(export: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.sqlite"
    assert scrub(export, out, "--cut-paths") == 0
    assert b'"src":"net.py:7"' in out.read_bytes()
    assert scrub(export, out, "--cut-paths", "--project", "/home/adalove") == 0
    assert b'"src":"work/net.py:7"' in out.read_bytes()
    cut = Identities(Rules(cut_paths=True)).scrubbed
    shown = cut("/opt/env/lib/python3.11/site-packages/torch/nn/linear.py(5): forward")
    assert shown == "site-packages/torch/nn/linear.py(5): forward"
    assert cut("1/2 and/or a ratio") == "1/2 and/or a ratio"


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_trace_of_torch_keeps_its_tables_and_no_secret(
    data: Path, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {"host_name": "node17.secret.example", "env": {"USER": "adalove", "TOKEN": "hunter2"}, "by": "/home/adalove/t.json"}
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "sshd"}},
        {"ph": "X", "cat": "user_annotation", "name": "run on node17 of adalove", "pid": 1, "tid": 1, "ts": 1, "dur": 2,
         "args": {"command": "train.py --api-key hunter2", "nested": {"gpu": ["GPU-1234", "0000:3b:00.0"]}, "External id": 9}},
    ]  # fmt: skip
    trace = gzip.decompress((data / "kineto_cpu.json.gz").read_bytes()).decode()  # not quite JSON, as torch writes it
    trace = trace.replace("{", "{" + json.dumps(facts)[1:-1] + ",", 1)
    trace = trace.replace('"traceEvents": [', '"traceEvents": [' + json.dumps(events)[1:-1] + ",")
    source, out = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
    source.write_bytes(gzip.compress(trace.encode()) if suffix.endswith("gz") else trace.encode())
    assert holds(source) == list(SECRETS)
    assert scrub(source, out) == 0
    assert holds(out) == [] and out.read_bytes().startswith(b"\x1f\x8b") == suffix.endswith("gz")
    assert csv(out, capsys) == csv(source, capsys)


def test_layers_that_torch_writes_on_kernels_of_graphs_are_kept(tmp_path: Path) -> None:
    args = {"module_fqn": "layers.0.mlp", "graph node id": 4, "correlation": 1, "note": "train.py --api-key hunter2"}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": args}
    source, out = tmp_path / "in.json", tmp_path / "out.json"
    flags = {"schemaVersion": 1, "record_shapes": 1, "with_stack": 0}
    source.write_text(json.dumps({**flags, "note": "hunter2", "traceEvents": [kernel]}))
    assert scrub(source, out) == 0
    found = json.loads(out.read_text())
    (kept,) = found.pop("traceEvents")
    assert found == flags and kept["args"] == {"module_fqn": "layers.0.mlp", "graph node id": 4, "correlation": 1}


def test_halves_of_characters_beside_the_events_do_not_stop_it(tmp_path: Path) -> None:
    args = {"stream": 7, "labels": "\ud800"}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": args}
    device = {"name": "\ud800", "a\ud800": 1, "id": 0}
    source, out = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps({"schemaVersion": "\ud800", "deviceProperties": [device], "traceEvents": [kernel]}))
    assert scrub(source, out) == 0
    assert json.loads(out.read_text())["deviceProperties"] == [{"name": "?", "a?": 1, "id": 0}]


@pytest.mark.parametrize("suffix", ["dict", "jsonl", "parquet"])
def test_records_keep_their_tables_and_no_secret(
    export: Path, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records, out = tmp_path / f"net.{suffix}", tmp_path / f"out.{suffix}"
    assert main(["parse", str(export), "-o", str(records)]) == 0
    assert holds(records) if suffix != "parquet" else "adalove" in csv(records, capsys)
    assert scrub(records, out, "--remove", "node17") == 0
    assert holds(out) == [] and not [s for s in SECRETS if s in csv(out, capsys)]
    assert csv(out, capsys) == csv(records, capsys).replace("adalove", "user").replace("node17", "removed")


@pytest.mark.parametrize(
    "name",
    [
        "nvprof/v100_lm/net.sql",
        pytest.param("nsys/h100_2gpu_train.nsys2026.2.sqlite", marks=pytest.mark.slow),
        "kineto/h100_vit.json.gz",
        pytest.param("kineto/v100_resnet50_2021.json.gz", marks=pytest.mark.slow),
        pytest.param("nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite", marks=pytest.mark.slow),
    ],
)
def test_real_captures_give_the_same_tables(
    name: str, captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = captures / name, tmp_path / Path(name).name
    assert scrub(source, out) == 0
    after, before = csv(out, capsys), csv(source, capsys)
    assert after == before.replace("/home/yangu/", "/home/user/")  # the one account that is in these files
    assert len(after) > 10_000 and b"yangu" not in out.read_bytes()


@pytest.mark.nsys
@pytest.mark.skipif(find_nsys() is None, reason="nsys is not on PATH")
def test_nothing_of_the_machine_is_left_of_a_fresh_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN_OF_THIS_TEST", "hunter2-" * 4)
    program = "import nvtx\nwith nvtx.annotate('work'): print('printed-by-the-program')"
    nsys = shutil.which("nsys") or find_nsys()
    flags = ("-t", "nvtx", "--sample=none", "--cpuctxsw=none", "-f", "true", "-o", "net", "--export", "sqlite")
    monkeypatch.chdir(tmp_path)
    code, text = profile(str(nsys), tmp_path / "net.nsys-rep", *flags, sys.executable, "-c", program, seconds=300)
    assert code == 0, text
    source, out = tmp_path / "net.sqlite", tmp_path / "out.sqlite"
    secrets = ("hunter2", "A_TOKEN_OF_THIS_TEST", "printed-by-the-program", "PATH=", str(tmp_path))
    assert "hunter2" in holds(source, secrets)
    assert scrub(source, out) == 0
    assert holds(out, secrets) == [] and b"work" in out.read_bytes()


def test_wrong_use_is_one_line_and_leaves_nothing(export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("no database at all, whatever its name is")
    before, out = export.read_bytes(), tmp_path / "out"
    assert scrub(export, export) == 2 and export.read_bytes() == before
    assert scrub(tmp_path / "text", out) == 1
    assert scrub(export, out, "--project", "x") == 2
    assert scrub(export, out, "--remove", " ") == 2
    assert scrub(export, Path("/dev/stdout")) == 2
    assert not out.exists()
    assert len(capsys.readouterr().err.splitlines()) == 10  # an error and a hint each


@given(st.text(max_size=60), st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{3,12}", fullmatch=True))
def test_a_name_found_in_a_home_folder_is_nowhere_a_word_afterwards(text: str, name: str) -> None:
    identities = Identities(Rules())
    whole = f"{text} /home/{name}/x.py {text} {name}: {text}"
    identities.find(whole)
    if name in identities.users:
        scrubbed = identities.scrubbed(whole)
        assert f"/home/{name}/" not in scrubbed and f" {name}: " not in scrubbed
        again = Identities(Rules())
        again.find(scrubbed)
        assert again.scrubbed(scrubbed) == scrubbed


def test_what_a_log_beside_an_export_holds_is_scrubbed_too(
    export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(export, isolation_level=None) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 1")
        (tmp_path / "left").mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{export}{suffix}", tmp_path / "left" / f"net.sqlite{suffix}")
    db.close()
    assert main(["scrub", str(tmp_path / "left" / "net.sqlite"), "-o", str(tmp_path / "shared.sqlite")]) == 0
    tables = []
    for path in (tmp_path / "left" / "net.sqlite", tmp_path / "shared.sqlite"):
        capsys.readouterr()
        assert main(["prof", str(path), "--csv"]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
