"""The scripts: what they ask of nsys, nvprof and pip, which stand-ins write down."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
SHELL = [
    p
    for p in sorted([*SCRIPTS.iterdir(), SCRIPTS / "gpu_check/run", SCRIPTS / "checks/run"])
    if p.is_file() and p.suffix != ".py"
]

# Stand-ins for the tools. Each writes down how it was called; nsys and nvprof run the program and leave a capture.
NSYS = """#!/usr/bin/env bash
echo "nsys $*" >>"$LOG"
verb=$1; shift; out=
while [ "${1#-}" != "$1" ]; do
    case $1 in -o) out=$2; shift ;; -t | -f | --type | --quiet) shift ;; esac
    shift
done
if [ "$verb" = export ]; then cp "$CAPTURE" "$out"; exit; fi
[ -n "${NO_REPORT:-}" ] || : >"$out.nsys-rep"
"$@"
"""
NVPROF = """#!/usr/bin/env bash
echo "nvprof $*" >>"$LOG"
while [ "${1#-}" != "$1" ]; do
    case $1 in -o) out=$2; shift ;; --profile-from-start) shift ;; esac
    shift
done
case $out in *%p*) for pid in 41 42; do cp "$CAPTURE" "${out/\\%p/$pid}"; done ;; *) cp "$CAPTURE" "$out" ;; esac
"$@"
"""


def put(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins, first on PATH, with no other nsys to be found."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("awk", "bash", "cat", "cksum", "cp", "dirname", "env", "head", "ln", "mkdir", "mktemp", "rm", "rmdir", "sed"):
        (bare / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", f"{tmp_path}/tools:{bare}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("CAPTURE", str(ROOT / "tests/data/nsys_ops.sqlite"))
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYPROF_NSYS_HOME", "PYPROF_VENV", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "tools"


def run(script: Path | str, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPTS / script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=cwd, stdin=subprocess.DEVNULL)


def log(tmp_path: Path) -> list[str]:
    path = tmp_path / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_the_licence_is_apache_2_0_to_the_letter() -> None:
    """The digest of the text as apache.org gives it, which Debian ships as common-licenses/Apache-2.0."""
    digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


@pytest.mark.parametrize("script", SHELL, ids=lambda p: p.name)
def test_each_script_is_bash_that_parses_and_says_what_it_is(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    first, second = script.read_text().splitlines()[:2]
    assert second.startswith("# ")
    if script.name != "lib.sh":
        assert first == "#!/usr/bin/env bash"
        assert os.access(script, os.X_OK)


class TestProfNsys:
    def test_records_exports_parses_and_prints(self, tools: Path, tmp_path: Path) -> None:
        put(tools, "nsys", NSYS)
        done = run("prof_nsys.sh", "-o", "net", "-c", "idx,op,kind", "bash", "-c", "echo from the program", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        profile, export = log(tmp_path)
        assert profile.startswith(
            "nsys profile -t cuda,nvtx,cudnn,cublas --cuda-graph-trace=node --sample=none --cpuctxsw=none "
        )
        assert profile.endswith(" -o net bash -c echo from the program")
        assert export.startswith("nsys export --type sqlite ")
        assert export.endswith(" -o net.sqlite net.nsys-rep")
        assert "linear" in done.stdout
        assert "from the program" not in done.stdout  # the table alone is the output
        assert "from the program" in done.stderr
        assert len((tmp_path / "net.dict").read_text().splitlines()) == len(done.stdout.splitlines()) - 1
        assert r"+ nsys profile -t cuda,nvtx,cudnn,cublas" in done.stderr
        assert r"bash -c echo\ from\ the\ program" in done.stderr

    def test_options_reach_nsys_and_the_programs_exit_code_is_kept(self, tools: Path, tmp_path: Path) -> None:
        put(tools, "nsys", NSYS)
        done = run("prof_nsys.sh", "-r", "-f", "-t", "nvtx", "--", "bash", "-c", "exit 7", cwd=tmp_path)
        profile = log(tmp_path)[0].split()
        assert profile[2:4] == ["-t", "nvtx"]
        assert {"--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--trace-fork-before-exec=true"} <= set(profile)
        assert done.returncode == 7 and "exit code 7" in done.stderr and "linear" in done.stdout  # what it recorded is read

    def test_no_report_is_said(self, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put(tools, "nsys", NSYS)
        (tmp_path / "net.nsys-rep").write_text("of an earlier run")
        monkeypatch.setenv("NO_REPORT", "1")
        done = run("prof_nsys.sh", "bash", "-c", ":", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "nsys left no net.nsys-rep" in done.stderr

    def test_no_nsys_is_said_with_what_to_do(self, tools: Path, tmp_path: Path) -> None:
        done = run("prof_nsys.sh", "bash", "-c", ":", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            "prof_nsys.sh: nsys is not on PATH; install Nsight Systems, or on Debian: scripts/install_nsys"
        ]

    def test_no_program_is_a_usage_error(self, tools: Path, tmp_path: Path) -> None:
        done = run("prof_nsys.sh", "-o", "net", cwd=tmp_path)
        assert done.returncode == 2
        assert "scripts/prof_nsys.sh [-o NAME]" in done.stderr


class TestProfNvprof:
    @pytest.mark.slow
    def test_records_parses_and_prints(self, tools: Path, tmp_path: Path) -> None:
        put(tools, "nvprof", NVPROF)
        done = run("prof_nvprof.sh", "-r", "bash", "-c", "exit 3", cwd=tmp_path)
        assert done.returncode == 3
        assert log(tmp_path) == ["nvprof -f -o net.sql --profile-from-start off bash -c exit 3"]
        assert "linear" in done.stdout
        assert (tmp_path / "net.dict").exists()

    def test_each_process_has_its_own_files(self, tools: Path, tmp_path: Path) -> None:
        put(tools, "nvprof", NVPROF)
        done = run("prof_nvprof.sh", "-f", "-o", "job", "bash", "-c", ":", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert log(tmp_path) == ["nvprof -f -o job.%p.sql --profile-child-processes --profile-from-start on bash -c :"]
        assert {p.name for p in tmp_path.glob("job.*.dict")} == {"job.41.dict", "job.42.dict"}

    def test_no_nvprof_is_said_with_what_to_do(self, tools: Path, tmp_path: Path) -> None:
        done = run("prof_nvprof.sh", "bash", "-c", ":", cwd=tmp_path)
        assert done.returncode == 1
        assert "prof_nsys.sh" in done.stderr.splitlines()[0]


class TestInstallNsys:
    def test_what_is_there_is_not_fetched_again(self, tools: Path, tmp_path: Path) -> None:
        put(tmp_path / "nsys", "placeholder", "")
        put(tmp_path / "nsys" / "bin", "nsys", "#!/usr/bin/env bash\necho version 1\n")
        done = run("install_nsys", tmp_path / "nsys", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"{tmp_path}/nsys/bin\n")
        assert "already there: version 1" in done.stderr

    def test_the_reports_of_nsys_find_their_module(self, tools: Path, tmp_path: Path) -> None:
        put(tmp_path / "nsys", "placeholder", "")
        put(tmp_path / "nsys" / "bin", "nsys", "#!/usr/bin/env bash\necho version 1\n")
        here, there = (tmp_path / "nsys" / f"{side}-linux-x64" / "python" / "lib" for side in ("host", "target"))
        put(here, "kernel_helper.py", "")
        put(there, "nsysstats.py", "found = True\n")
        for _ in range(2):
            assert run("install_nsys", tmp_path / "nsys", cwd=tmp_path).returncode == 0
            assert (here / "nsysstats.py").read_text() == "found = True\n"

    def test_without_apt_one_line_says_so(self, tools: Path, tmp_path: Path) -> None:
        done = run("install_nsys", tmp_path / "nsys", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
        assert "no apt-get" in done.stderr
        assert not (tmp_path / "nsys").exists()


def test_the_environment_is_made_once_with_torch_first(tools: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPTS / "lib.sh", project / "scripts")
    (project / "pyproject.toml").write_text("one")
    put(tmp_path / ".venv", "placeholder", "")
    put(tmp_path / ".venv" / "bin", "python", '#!/usr/bin/env bash\necho "python $*" >>"$LOG"\n[ "$1" != -c ]\n')

    def ensure() -> list[str]:
        script = f". {project}/scripts/lib.sh; PYPROF_VENV={tmp_path}/.venv; ensure_env; command -v python"
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"{tmp_path}/.venv/bin/python"
        words = log(tmp_path)
        (tmp_path / "log").unlink(missing_ok=True)
        return words

    installed = [
        "python -c import torch",
        "python -m pip install -q torch==2.13.0",
        f"python -m pip install -q -e {project}[dev]",
    ]
    assert ensure() == installed
    assert ensure() == []
    (project / "pyproject.toml").write_text("another")
    assert ensure() == installed


def test_data_in_the_repository_is_scrubbed() -> None:
    """Against the words that nsys's own tables would bring back."""
    for path in sorted((ROOT / "tests" / "data").glob("nsys_*.sqlite")):
        content = path.read_bytes()
        assert len(content) < 100_000
        assert not [
            w
            for w in (b"META_DATA_CAPTURE", b"PROCESSES", b"SYSTEM_ENV", b"PATH=", b"EXPORT_HOST", b"/root", b"/tmp/")
            if w in content
        ]
