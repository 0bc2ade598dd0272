"""The command line as a user meets it: results, formats, and one clear line for everything that can be wrong."""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.cli import COMMANDS, main
from pyprof.prof.columns import HEADERS
from tests.conftest import ROOT
from tests.tiny import Nsys

GEMM = "ampere_sgemm_128x64_tn"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    n = Nsys()
    n.range('linear(fp32[64,1024], fp32[1024,1024], fp32[1024]) #pyprof{"mod":"torch.nn.functional","src":"net.py:3"}', 10, 100)
    n.kernel(GEMM, 20, 1000, 1100, grid=(8, 16, 1))
    n.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100-SXM4-40GB", 0, 108, 8, 0))
    return n.write(tmp_path / "net.sqlite")


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_parse_then_prof(capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "parse", str(capture))
    assert code == 0 and json.loads(out)["kDuration"] == 100
    assert _run(capsys, "parse", str(capture), "-o", "-") == (0, out, "")
    every = _run(capsys, "prof", str(capture), "-c", "all", "--csv")[1].splitlines()[0].split(",")
    assert len(every) == len(HEADERS) and "Bound" in every
    records = tmp_path / "net.dict"
    records.write_text(out)
    columns = "idx,op,params,sil,tc,flops,bytes,src,math,occ,m,n,k"
    code, from_records, err = _run(capsys, "prof", str(records), "-c", columns)
    assert code == 0 and "FLOPs for 100.0 %" in err
    found = from_records.splitlines()[1]
    assert found == "1 linear M=64,N=1024,K=1024,fp32 100 0 134217728 4722688 net.py:3 fp32 100.0 64 1024 1024"
    assert _run(capsys, "prof", str(capture), "-c", columns)[1] == from_records


def test_several_files_one_after_another(capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = tmp_path / "net.dict"
    records.write_text(_run(capsys, "parse", str(capture))[1])
    code, out, _ = _run(capsys, "prof", str(records), str(capture), "-c", "idx,op,sil,flops,instance,src")
    rows = out.splitlines()[1:]
    assert (code, rows) == (0, ["1 linear 100 134217728 0 net.py:3", "2 linear 100 134217728 1 net.py:3"])


def test_parse_to_a_file_appears_whole_or_not_at_all(capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.dict"
    assert _run(capsys, "parse", str(capture), "-o", str(out))[:2] == (0, "") and out.read_text().startswith('{"kShortName"')
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.sqlite", "out.dict"]
    code, _, err = _run(capsys, "parse", str(capture), "-o", str(tmp_path / "no" / "out.dict"))
    assert code == 1 and "cannot be written" in err
    assert _run(capsys, "parse", str(capture), "-o", str(tmp_path / "x.txt"))[0] == 2


def test_where_sort_top(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(captures / "nvprof/v100_lm/net.sql")
    code, out, _ = _run(
        capsys, "prof", path, "-c", "idx,sil,dir", "--where", "op=linear,dir=bprop", "--sort", "sil", "--top", "2"
    )
    assert code == 0
    assert out == "Idx Sil(ns) Direction\n53 1319380 bprop\n52 878776 bprop\n"


def test_help_lists_every_command_and_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "--help")
    assert code == 0 and all(command.name in out for command in COMMANDS)
    with pytest.raises(SystemExit) as caught:
        main(["prof", "--help"])
    out = capsys.readouterr().out
    assert caught.value.code == 0 and all(f"  {header.key:15} {header.text:15}" in out for header in HEADERS)


WRONG = [
    "text.sqlite", "cut.sqlite", "other.sqlite", "user.sqlite", "none.sqlite", "void", "x.nsys-rep", "report", "foreign.json",
    "cut.json.gz", "broken.dict", "empty.dict",
]  # fmt: skip


def _broken(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    """Every kind of wrong input: (path, what the error must say)."""
    made = {name: tmp_path / name for name in WRONG}
    made["text.sqlite"].write_text("this is not a database, whatever its name says\n" * 40)
    n = Nsys()
    for start in range(0, 9000, 10):
        n.range(f"aten::mm, op_id = {start}", start, start + 9)
        n.kernel(GEMM, start + 1, start, start + 5)
    whole = n.write(tmp_path / "whole.sqlite").read_bytes()
    made["cut.sqlite"].write_bytes(whole[: len(whole) // 2])
    db = sqlite3.connect(made["other.sqlite"])
    db.execute("CREATE TABLE people (name TEXT)")
    db.close()
    only = Nsys()
    only.range("only my own range", 1, 5)
    only.write(made["user.sqlite"])
    Nsys().write(made["none.sqlite"])
    made["void"].write_bytes(b"")
    made["x.nsys-rep"].write_bytes(b"\x00report")
    made["report"].write_bytes(b"NVIDIA Tegra Profiler Report 2023@4")
    made["foreign.json"].write_text('{"a": [1, 2, 3]}')
    made["cut.json.gz"].write_bytes(gzip.compress(b'{"traceEvents": [' + b'{"ph":"X"},' * 5000)[:-20])
    made["broken.dict"].write_text('{"kShortName": "a", "kDuration": 1, "dir": "fprop", "kLongName": "a"}\n{oops\n')
    made["empty.dict"].write_text("\n")
    said = {
        "text.sqlite": "neither an SQLite capture", "cut.sqlite": "cut short", "other.sqlite": "of neither nsys nor nvprof",
        "user.sqlite": "neither GPU activity nor ranges of ops", "none.sqlite": "", "void": "empty", "x.nsys-rep": "nsys is not on PATH",
        "report": "nsys is not on PATH",
        "foreign.json": "", "cut.json.gz": "", "broken.dict": "line 2 is not a record", "empty.dict": "no records",
    }  # fmt: skip
    cases = {name: (made[name], said[name]) for name in made}
    return cases | {"missing": (tmp_path / "missing.sqlite", "no such file"), "directory": (tmp_path, "is a directory")}


@pytest.mark.parametrize("name", [*WRONG, "missing", "directory"])
def test_wrong_inputs_get_one_line_and_a_hint(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYPROF_NSYS_HOME", str(tmp_path))
    path, said = _broken(tmp_path)[name]
    for command in ("parse", "prof"):
        if command == "parse" and name.endswith(".dict"):
            continue
        code, out, err = _run(capsys, command, str(path))
        lines = err.splitlines()
        assert (code, out) == (1, "")
        assert len(lines) == 2 and lines[0].startswith("pyprof: error: ") and said in lines[0]
        assert lines[1].startswith("hint: ") and path.name in lines[0]


def test_a_report_is_exported_by_an_nsys_that_install_nsys_put_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys, report = tmp_path / "bin" / "nsys", tmp_path / "x.nsys-rep"
    report.write_bytes(b"\x00report")
    nsys.parent.mkdir()
    nsys.write_text("#!/bin/sh\necho it is damaged\nexit 1\n")
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYPROF_NSYS_HOME", str(tmp_path))
    code, _, err = _run(capsys, "prof", str(report))
    assert code == 1 and "nsys could not export it: it is damaged" in err
    said = (
        "Exportation error: Report was created in Nsight Systems version (2024.2.3.38-2423v0), newer than your current version"
    )
    nsys.write_text(f"#!/bin/sh\necho '{said} (2023.4.4.54-2344v0).' >&2\necho Please update >&2\nexit 1\n")
    code, _, err = _run(capsys, "prof", str(report))
    assert code == 1 and "of nsys 2024.2.3.38, newer than the nsys here, 2023.4.4.54" in err
    assert "hint: with nsys 2024.2.3.38 or newer: nsys export" in err
    (tmp_path / "x.sqlite").touch()
    assert f"hint: an export lies beside it: {tmp_path / 'x.sqlite'}" in _run(capsys, "prof", str(report))[2]


def test_an_unknown_column_offers_the_nearest(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "prof", str(capture), "-c", "idx,kernal")
    assert (code, out) == (2, "") and "did you mean kernel?" in err


def test_no_permission_as_anyone(capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def refuse(path: Path, *arguments: object, **options: object) -> object:
        if path == capture:
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "open", refuse)
    code, _, err = _run(capsys, "parse", str(capture))
    assert code == 1 and "no permission to read it" in err and "chmod u+r" in err


def test_nvprof_file_in_which_nothing_was_captured(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "parse", str(captures / "nvprof/empty/net.sql"))
    assert (
        (code, out) == (1, "") and "nothing was captured" in err and "hint: check that the program reached its CUDA work" in err
    )


@pytest.mark.parametrize("arguments", [["pars"], ["parse"]])
def test_wrong_usage_exits_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, *arguments)
    assert (code, out) == (2, "") and err.startswith("pyprof: error: ") and "hint: " in err


def _process(*arguments: str, pipe: str = "") -> subprocess.CompletedProcess[str]:
    command = " ".join([sys.executable, "-m", *arguments]) + pipe
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)


def test_as_modules_and_into_head(captures: Path) -> None:
    path = captures / "nsys/a100_gpt2.7b.nsys2024.6.sqlite"
    done = _process("pyprof.parse", str(path), pipe=" | head -1")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1) and "Traceback" not in done.stderr + done.stdout
    done = _process("pyprof.prof", str(path), "-c", "idx,kernel,sil", pipe=" | head -1")
    assert (done.returncode, done.stdout) == (0, "Idx Kernel Sil(ns)\n")
    # Whether the summary still comes depends on when head goes; an error never does.
    assert "Traceback" not in done.stderr and "rror" not in done.stderr and "roken" not in done.stderr
    assert _process("pyprof", "--version").stdout.startswith("pyprof ")


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


@FULL
@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (["--help"], "> /dev/full"), (["prof", "--help"], ">&-"), (["help", "terms"], "> /dev/full"),
        (["prof", "FILE"], "> /dev/full"), (["prof", "FILE"], ">&-"), (["parse", "FILE"], ">&-"),
    ],
)  # fmt: skip
def test_output_that_cannot_be_written_is_one_line(arguments: list[str], end: str, capture: Path) -> None:
    given = [str(capture) if argument == "FILE" else argument for argument in arguments]
    done = _process("pyprof", *given, pipe=f" {end}")
    errors = [line for line in done.stderr.splitlines() if line.startswith("pyprof: error: ")]
    assert done.returncode == 1 and "Traceback" not in done.stderr and "Exception" not in done.stderr
    assert len(errors) == 1 and "standard output cannot be written: " in errors[0]


def test_output_that_reaches_a_limit_of_size(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # which loses short writes
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # or what Python compiles is cut as well, for every later start
    with (tmp_path / "out.txt").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "pyprof", "prof", "--help"], stdout=out, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)), check=False,
        )  # fmt: skip
    assert done.returncode == 1 and done.stderr.startswith("pyprof: error: standard output cannot be written: File too large")


@FULL
def test_messages_that_cannot_be_written_are_dropped(capture: Path, tmp_path: Path) -> None:
    """A closed standard error must not make files that are opened later take its number."""
    for end in ("2>&-", "2> /dev/full"):
        done = _process("pyprof", "prof", str(tmp_path / "missing"), pipe=f" {end}")
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    out = tmp_path / "out.dict"
    done = _process("pyprof", "parse", str(capture), "-o", str(out), pipe=" >&- 2>&-")
    assert done.returncode == 0 and out.read_text().startswith("{")


def test_terminated_while_writing(capture: Path, tmp_path: Path) -> None:
    """SIGTERM ends a command as an exception: what it has begun to write is removed."""
    code = (
        "import os, signal, sys, tempfile\n"
        "import pyprof.commands.summary as summary\n"
        "from pyprof.cli import main\n"
        "def run(options):\n"
        "    with tempfile.TemporaryDirectory(dir=sys.argv[1]):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "summary.run = run\n"
        "sys.exit(main(['summary', 'x']))\n"
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr, list(folder.iterdir())) == (143, b"", [])


def test_parse_and_prof_need_no_torch(capture: Path) -> None:
    code = f"import sys; sys.modules['torch'] = None; from pyprof.cli import main; sys.exit(main(['prof', {str(capture)!r}, '-c', 'op']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (0, "Op\nlinear\n")


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        (["prof", "CAPTURE"], None, "1"),
        (["summary", "CAPTURE"], "3", "3"),  # what the user set stays
        (["help", "terms"], None, None),
        (["run", "--help"], None, None),  # a program that is run would inherit it
    ],
)
def test_reading_starts_no_threads_of_blas(
    arguments: list[str], given: str | None, expected: str | None, capture: Path
) -> None:
    code = (
        "import os, sys; from pyprof.cli import main\n"
        "try: main()\nexcept SystemExit: pass\nprint(os.environ.get('OPENBLAS_NUM_THREADS'), file=sys.stderr)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {} if given is None else {"OPENBLAS_NUM_THREADS": given}
    command = [sys.executable, "-c", code, *(str(capture) if one == "CAPTURE" else one for one in arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == str(expected)


def test_a_caller_of_main_keeps_its_environment(
    capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert main(["prof", str(capture)]) == 0 and capsys.readouterr().out
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_a_capture_is_never_changed(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (capture.read_bytes(), sorted(p.name for p in capture.parent.iterdir()))
    capture.chmod(0o444)
    _run(capsys, "prof", str(capture))
    assert before == (capture.read_bytes(), sorted(p.name for p in capture.parent.iterdir()))


def test_secrets_of_an_export_are_never_printed(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = sqlite3.connect(capture)
    db.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
    db.execute("INSERT INTO META_DATA_CAPTURE VALUES ('ENVIRONMENT', 'TOKEN=hunter2')")
    db.execute("CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)")
    db.execute("INSERT INTO PROCESSES VALUES (1, 1, 'hunter2 --password')")
    db.commit()
    db.close()
    for arguments in (
        ("parse", str(capture), "--kinds", "all"),
        ("prof", str(capture), "-c", ",".join(c.key for c in HEADERS)),
    ):
        code, out, err = _run(capsys, *arguments)
        assert code == 0 and "hunter2" not in out + err
