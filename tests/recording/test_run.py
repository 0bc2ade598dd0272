"""`pyprof run`: the program is what it is without it, and what it did comes out as a table."""

import gzip
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, NamedTuple

import pytest

pytest.importorskip("torch", reason="needs torch")

import pyprof
import pyprof.recording.run as run_module
from pyprof.cli import main
from pyprof.commands.run import _show
from pyprof.errors import ToolError, UsageError
from pyprof.model.ledger import read
from pyprof.recording.nsys import is_running
from pyprof.recording.run import Recording, choose_tool
from pyprof.recording.steps import parse_steps
from tests.children import LIGHT, Done, pyprof_here
from tests.conftest import ROOT
from tests.test_nsys_real import find_nsys

# Prints all that could differ between `python net.py` and `pyprof run net.py`, then ends in one way or another.
PROGRAM = """
import os, sys
before = sorted(name for name in ("numpy", "nvtx", "runpy", "torch") if name in sys.modules)
os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is imported
import atexit, pickle, signal, threading, time
import torch
import beside
class Mine: pass
print("path", sys.path[1:], [type(finder).__name__ for finder in sys.meta_path[:1]])
print("argv", sys.argv, __name__, __file__, __spec__ and __spec__.name, sys.path[0], sys.flags.optimize, before)
print("environment", os.environ.get("PYTHONPATH"), sorted(k for k in os.environ if k.startswith("PYPROF_RUN")))
print("stdin", sys.stdin.read().strip() if sys.argv[1] != "wait" else "", torch.get_num_threads(), flush=True)
atexit.register(lambda: print("at exit", Mine.__name__, sys.modules["__main__"].Mine is Mine, flush=True))
threading.Thread(target=lambda: (time.sleep(0.2), print("from a thread", len(pickle.dumps(Mine())), flush=True))).start()
net = torch.nn.Linear(8, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for size in (2, 3, 5, 7):
    net(torch.ones(size, 8)).sum().backward()
    opt.step()
beside.end(sys.argv[1])
"""
BESIDE = """
import os, signal, sys, time
def leave(*_):
    print("cleaned up", flush=True)
    sys.exit(5)
def end(how):
    if how == "exit": sys.exit(7)
    if how == "text": sys.exit("said at the end")
    if how == "raise":
        try: {}["key"]
        except KeyError as error: raise ValueError("boom") from error
    if how == "hook":
        sys.excepthook = lambda kind, error, trace: print("own hook:", error, file=sys.stderr)
        raise ValueError("boom")
    if how == "kill":
        time.sleep(0.6)  # the thread speaks first
        os.kill(os.getpid(), signal.SIGUSR1)
    if how == "wait":
        signal.signal(signal.SIGTERM, leave)
        try:
            print("waiting", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            time.sleep(1)  # long enough for a tool to lose patience
            leave()
"""
SPAWN = """
import multiprocessing
class Square:
    def __init__(self, side): self.side = side
def area(square): return Square(square.side ** 2)
if __name__ == "__main__":
    import torch
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(area, [Square(1), Square(2)])
    torch.ones(2, 3) @ torch.ones(3, 4)
    print([square.side for square in found], __name__, __file__)
"""
RANKS = """
import os, torch
net = torch.nn.Linear(8, 4)
net(torch.ones(2 + int(os.environ["RANK"]), 8)).sum().backward()
"""
TORCHRUN = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, "RANK": str(rank)}) for rank in (0, 1)]
sys.exit(sum(rank.wait() for rank in ranks))
"""
NSYS = f"""#!{sys.executable}
import os, subprocess, sys
with open(os.environ["LOG"], "a") as log: print(*sys.argv[1:], file=log)
words = sys.argv[2:]
if sys.argv[1] == "export":
    os.link(os.environ["CAPTURE"], words[words.index("-o") + 1])
else:
    at = words.index("-o") + 1
    open(words[at] + ".nsys-rep", "w").close()
    sys.exit(subprocess.run(words[at + 1 :], close_fds=False).returncode)
"""


def _write_program(parent: Path) -> Path:
    folder = parent / "a folder"
    folder.mkdir()
    (folder / "net.py").write_text(LIGHT + PROGRAM)
    (folder / "beside.py").write_text(BESIDE)
    return folder / "net.py"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return _write_program(tmp_path)


def _stand_in(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a program of this text for nsys, and work in the folder."""
    nsys = folder / "nsys"
    nsys.write_text(text)
    nsys.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LOG", str(folder / "log"))
    monkeypatch.setenv("CAPTURE", str(ROOT / "tests/data/nsys_ops.sqlite"))
    monkeypatch.setattr(run_module, "find_nsys", lambda: str(nsys))


# Under nsys the quick run has only the program that is `recorded`, and stand-ins.
@pytest.fixture(params=["torch", pytest.param("nsys", marks=[pytest.mark.nsys, pytest.mark.slow])])
def tool(request: pytest.FixtureRequest) -> str:
    if request.param == "nsys":
        find_nsys()
    return str(request.param)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _start(folder: Path, *words: str | Path, **variables: str) -> Done:
    env = _environment() | variables
    text = [str(word) for word in words]
    return subprocess.run(text, capture_output=True, text=True, input="hello", cwd=folder, env=env, timeout=300, check=False)


def _run(folder: Path, *words: str | Path) -> Done:
    return pyprof_here(folder, "run", "--top", "100", *words, said="hello")


def _told(done: Done) -> str:
    """Standard error without what torch.profiler itself and we say."""
    ours = ("USDT:", "STAGE:", "pyprof: ", "note: ", "hint: ")
    lines = done.stderr.partition("   Time(ms)")[0].splitlines()
    return "\n".join(line for line in lines if not line.startswith(ours))


def _table(done: Done) -> list[str]:
    """The lines of the table of the ops that took most time."""
    _, header, rest = done.stderr.partition("\npyprof: all kernels:")[0].partition("   Time(ms)")
    return [line for line in (header + rest).splitlines() if header and not line.startswith("pyprof: ")]


def _shapes(done: Done) -> set[int]:
    return {size for size in (2, 3, 5, 7, 11) if f"M={size},N=4,K=8" in done.stderr}


def _unchanged(plain: Done, done: Done) -> None:
    """The program said what it says without us, to the letter; and ended in the same way."""
    assert plain.stdout and done.stdout == plain.stdout, f"{plain.stdout}\n{done.stdout}\n{done.stderr}"
    assert _told(done) == _told(plain)
    assert done.returncode == (128 - plain.returncode if plain.returncode < 0 else plain.returncode)


class Recorded(NamedTuple):
    """A whole program recorded by a tool: what it said, and its folder with out.dict."""

    tool: str
    program: Path
    words: tuple[str | Path, ...]
    done: Done

    def rows(self, columns: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
        assert main(["prof", "-c", columns, str(self.program.parents[1] / "out.dict")]) == 0
        return capsys.readouterr().out.splitlines()


@pytest.fixture(scope="module", params=["torch", pytest.param("nsys", marks=pytest.mark.nsys)])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Of a program that ends in an exception."""
    tool = str(request.param)
    if tool == "nsys":
        find_nsys()
    folder = tmp_path_factory.mktemp(tool)
    words = (
        program := _write_program(folder),
        "raise" if tool == "torch" else "hook",
        "--flag",
        "-c",
        "3",
    )
    done = _run(folder, "--tool", tool, "--steps", "all", "--top", "10", "-o", "out", *words)
    return Recorded(tool, program, words, done)


def test_the_program_is_itself(recorded: Recorded, tmp_path: Path) -> None:
    plain = _start(tmp_path, sys.executable, *recorded.words)
    _unchanged(plain, recorded.done)
    table = _table(recorded.done)
    assert "linear" in "".join(table) and len(table) <= 11
    assert "pyprof prof out" in recorded.done.stderr and "warm-up" not in recorded.done.stderr


def test_every_row_has_its_step(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    linear = [row for row in recorded.rows("step,op,params", capsys) if " linear " in row and "M=" in row]
    assert {(row.split()[0], row.split("M=")[1][0]) for row in linear} == {("0", "2"), ("1", "3"), ("2", "5"), ("3", "7")}


def test_the_optimizers_ops_have_the_programs_line(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    line = 1 + next(number for number, text in enumerate((LIGHT + PROGRAM).splitlines()) if "opt.step()" in text)
    rows = recorded.rows("phase,src", capsys)
    found = {row.rpartition("/")[2].removeprefix("optimizer ") for row in rows if row.startswith("optimizer ")}
    name = recorded.program.name
    assert found == {f"{name}:{line}"} or (recorded.tool == "torch" and {text.partition(":")[0] for text in found} == {name})


@pytest.mark.slow
def test_files_that_are_there_already_are_never_replaced(program: Path, tmp_path: Path, tool: str) -> None:
    """Whoever wrote them, and when: results of earlier runs, the program's own, those that it writes while it runs."""
    for name in ("out.sqlite", "out.json.gz", "out.2.dict"):
        (tmp_path / name).write_text(f"mine: {name}")
    (tmp_path / "own.py").write_text(
        "import torch; torch.ones(2) @ torch.ones(2)\nopen('out.3.dict', 'w').write('mine: out.3.dict')"
    )
    for number in (4, 5):
        done = _run(tmp_path, "--tool", tool, "-o", "out", "own.py")
        assert done.returncode == 0 and f"out.{number}.dict" in done.stderr, done.stderr
        names = {path.name for path in tmp_path.glob(f"out.{number}.*")}
        kind = {"json.gz"} if tool == "torch" else {"nsys-rep", "sqlite"}
        assert names == {f"out.{number}.{ending}" for ending in kind | {"dict"}}
    for name in ("out.sqlite", "out.json.gz", "out.2.dict", "out.3.dict"):
        assert (tmp_path / name).read_text() == f"mine: {name}"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    (tmp_path / "own.py").write_text("import torch; raise SystemExit(9)")
    failed = _run(tmp_path, "--tool", tool, "-o", "out", tmp_path / "no.py")
    assert failed.returncode == 2
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.name != "own.py"} == {
        path: when for path, when in before.items() if path.name != "own.py"
    }


@pytest.mark.slow
def test_a_disk_that_is_full_is_named_as_the_cause(tmp_path: Path) -> None:
    """A limit on the size of files fails in the same way, within torch, which only logs it. The program ends as always."""
    (tmp_path / "own.py").write_text(LIGHT + "import torch\nfor _ in range(300): torch.ones(2) @ torch.ones(2)\nprint('done')")
    limited = ("bash", "-c", 'ulimit -f 1; exec "$@"', "bash", sys.executable, "-m", "pyprof", "run", "--tool", "torch")
    # Python would cut what it compiles as well, and find half a file in every later start.
    done = _start(tmp_path, *limited, "-o", "out", "own.py", PYTHONDONTWRITEBYTECODE="1")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "out.json.gz: the trace could not be written: torch.profiler could not write to" in done.stderr
    assert "left no capture (the reason is above)" in done.stderr and "os._exit" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"own.py"}


@pytest.mark.parametrize("name", ["my [net]*", ".net", "%p %%q{HOME}", "née"])
@pytest.mark.slow
def test_names_with_special_characters(tmp_path: Path, tool: str, name: str) -> None:
    (tmp_path / "own.py").write_text("import torch; torch.ones(2) @ torch.ones(2)")
    done = _run(tmp_path, "--tool", tool, "-o", name, "own.py")
    assert done.returncode == 0 and "matmul" in done.stderr, done.stderr
    kinds = {"json.gz"} if tool == "torch" else {"nsys-rep", "sqlite"}
    assert {path.name for path in tmp_path.iterdir()} == {"own.py", *(f"{name}.{end}" for end in kinds | {"dict"})}


def test_a_program_that_is_killed(program: Path, tmp_path: Path, tool: str) -> None:
    """What torch.profiler still held in memory is lost: its exit code is still the news, and the cause is one line."""
    done = _run(tmp_path, "--tool", tool, "--steps", "all", "-o", "out", program, "kill")
    assert done.returncode == 128 + signal.SIGUSR1 and "from a thread" in done.stdout
    assert "Traceback" not in done.stderr
    lost = "pyprof: the program left no capture (it was ended by SIGUSR1 before the recording was written:"
    assert ("linear" in done.stderr) if tool == "nsys" else (lost in done.stderr)
    assert (f"ended by signal {int(signal.SIGUSR1)}: the last of its ranges may be missing" in done.stderr) == (tool == "nsys")


def test_steps_that_were_complete_before_the_program_is_killed_are_kept(program: Path, tmp_path: Path) -> None:
    program.write_text(program.read_text().replace("(2, 3, 5, 7)", "(2, 3, 5, 7, 7, 7, 7, 11)"))
    done = _run(tmp_path, "--tool", "torch", "-o", "out", program, "kill")
    assert done.returncode == 128 + signal.SIGUSR1
    assert _shapes(done) == {5, 7} and "pyprof: recorded steps 2 to 6, after warm-up" in done.stderr
    ledger = read(tmp_path / "out.steps.jsonl")
    assert ledger is not None and ledger.step.tolist() == [*range(8)] and ledger.recorded.sum() == 5


def test_workers_that_the_program_spawns_find_its_classes(tmp_path: Path, tool: str) -> None:
    (tmp_path / "pool.py").write_text(LIGHT + SPAWN)
    done = _run(tmp_path, "--tool", tool, "-o", "out", "pool.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"[1, 4] __main__ {tmp_path / 'pool.py'}\n" and "matmul" in done.stderr
    capture = tmp_path / ("out.sqlite" if tool == "nsys" else "out.json.gz")
    assert pyprof.load(capture).summary().steps is None  # it trains nothing


def test_a_module_and_a_rank(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    done = _run(program.parent, "--tool", "torch", "-o", "out", "-m", "net", "text", "--steps", "x")
    assert (program.parent / "out.rank3.dict").exists()
    assert f"argv {[str(program), 'text', '--steps', 'x']} __main__ {program} net {program.parent} 0 ['runpy']" in done.stdout
    assert done.returncode == 1 and "said at the end" in done.stderr
    assert "Time(ms)" not in done.stderr  # rank 0 prints


@pytest.mark.slow
def test_python_with_options(program: Path) -> None:
    done = _run(program.parent, "--tool", "torch", "-o", "out", "--", sys.executable, "-O", "-u", "net.py", "exit")
    assert f"argv {['net.py', 'exit']} __main__ {program} None {program.parent} 1 []" in done.stdout
    assert done.returncode == 7 and "linear" in done.stderr


def test_only_the_chosen_steps_are_recorded(
    program: Path, tmp_path: Path, tool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text(LIGHT + PROGRAM.replace("import torch\n", "import torch, pyprof\npyprof.init()\n", 1))
    done = _run(tmp_path, "--tool", tool, "--steps", "1:3", "-o", "out", "--top", "100", program, "exit")
    assert done.returncode == 7, done.stderr
    assert _shapes(done) == {3, 5}
    assert main(["prof", "-c", "op,phase", str(tmp_path / "out.dict")]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert {"add_ optimizer", "linear forward"} <= set(rows)
    assert sum(row == "linear forward" for row in rows) == 2


def test_steps_that_do_not_come_are_said() -> None:
    with pytest.raises(ToolError, match="the program made 4 steps, and step 9 was to be the first"):
        _show(Recording(0, [Path("out.json.gz")], [], [], processes=1, steps=4), ((9, 10),), 0)


@pytest.mark.slow
def test_steps_of_which_some_do_not_come_are_said(program: Path, tmp_path: Path) -> None:
    for asked, short in (("2:4", False), ("2:9", True), ("0:1,8:9", True)):
        done = _run(tmp_path, "--tool", "torch", "--steps", asked, "-o", f"out{asked[-1]}{short}", program, "ok")
        assert done.returncode == 0, done.stderr
        said = f"pyprof: the program ended after 4 steps: not all of {asked} are in the capture"
        assert (said in done.stderr.splitlines()) is short, asked


def test_a_program_without_torch(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import sys; print('torch' in sys.modules); sys.exit(int(sys.argv[1]))")
    done = _run(tmp_path, "--tool", "torch", "plain.py", "0")
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert "no process of the program imported torch" in done.stderr
    assert _run(tmp_path, "--tool", "torch", "plain.py", "4").returncode == 4


OWN = """
import torch
opt = torch.optim.SGD((net := torch.nn.Linear(8, 4)).parameters(), lr=0.1)
def steps(*sizes):
    for size in sizes:
        net(torch.ones(size, 8)).sum().backward()
        opt.step()
steps(2, 3, 5)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
    torch.ones(3, 3) @ torch.ones(3, 3)
steps(7, 7)
print([event.count for event in p.key_averages() if event.key == "aten::mm"])
"""


@pytest.mark.slow
def test_a_program_that_profiles_itself(tmp_path: Path) -> None:
    """It has its own way, and we what came before; one line says so."""
    (tmp_path / "own.py").write_text(LIGHT + OWN)
    done = _run(tmp_path, "--tool", "torch", "--steps", "1:5", "--top", "99", "-o", "out", "own.py")
    assert done.returncode == 0 and done.stdout == "[1]\n" and "matmul" not in done.stderr and _shapes(done) == {3, 5}
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("pyprof: recorded"))
    assert said == "pyprof: recorded only what ran until the program used torch.profiler itself: --tool nsys records everything"


@pytest.mark.slow
def test_ranks_of_torchrun(tmp_path: Path) -> None:
    """Of a stand-in; the real one has a test of the examples."""
    (tmp_path / "ranks.py").write_text(LIGHT + RANKS)
    (tmp_path / "torchrun").write_text(TORCHRUN)
    done = _run(tmp_path, "--tool", "torch", "-o", "job", "--top", "100", "--", sys.executable, "torchrun", "ranks.py")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.glob("job.*")} == {f"job.rank{r}.{e}" for r in "01" for e in ("dict", "json.gz")}
    assert _shapes(done) == {2, 3}
    assert "pyprof summary job.rank0.json.gz job.rank1.json.gz" in done.stderr
    assert "pyprof ranks job.rank0.dict job.rank1.dict" in done.stderr
    assert "what to do first" in done.stderr  # columns: without collectives there is nothing that ranks have in common


@pytest.mark.slow
def test_torchrun_that_starts_us(tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = _start(tmp_path, *torchrun, "-m", "pyprof", "run", "--tool", "torch", "-o", "job", "--top", "100", "ranks.py")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.glob("job.*")} == {f"job.rank{r}.{e}" for r in "01" for e in ("dict", "json.gz")}
    assert _shapes(done) == {2} and done.stderr.count("Time(ms)") == 1  # rank 0 prints


COMPILED = """
import os, torch
print(os.environ["TORCHINDUCTOR_BENCHMARK_KERNEL"], os.environ["TORCHINDUCTOR_UNIQUE_KERNEL_NAMES"])
compiled = torch.compile(lambda x: torch.relu(x) * 2 + 1)
import pyprof
for _ in range(3):
    pyprof.step()
    compiled(torch.ones(64, 64))
"""


@pytest.mark.slow
def test_compiled_programs_tell_their_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compiled.py").write_text(COMPILED)
    monkeypatch.setenv("TORCHINDUCTOR_UNIQUE_KERNEL_NAMES", "0")  # what the user set stands
    done = _run(tmp_path, "--tool", "torch", "--inductor", "--steps", "1:3", "-o", "out", "compiled.py")
    assert done.returncode == 0 and done.stdout.startswith("1 0\n"), done.stderr
    with gzip.open(tmp_path / "out.json.gz", "rt") as stream:
        assert "cpp_fused_" in stream.read()


def _until(stream: IO[str], word: str) -> None:
    """Read on until a line has the word: not always at its begin, for the program's thread prints too."""
    said = []
    for line in stream:
        said.append(line)
        if word in line:
            return
    pytest.fail(f"never said {word}: {said}")


@pytest.mark.parametrize("begun", [False, True])
def test_nsys_is_started_again_where_it_failed_before_the_program_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], begun: bool
) -> None:
    """And what it leaves behind is ended. A program that has begun is waited for: it would run twice."""
    lost = tmp_path / "lost"
    lost_agent = f"""
if sys.argv[1] == "profile" and not os.path.exists({str(lost)!r}):
    words = sys.argv[sys.argv.index("-o") + 2 :]
    left = subprocess.Popen(words if {begun} else ["sleep", "600"], close_fds=False, start_new_session=True)
    while {begun} and not glob.glob(words[6] + "/*.taken-by.*"): pass
    open({str(lost)!r}, "w").write(str(left.pid))
    sys.exit("Agent launcher failed.")
"""
    text = NSYS.replace("words = sys.argv[2:]", f"{lost_agent}\nwords = sys.argv[2:]", 1).replace(
        "import os", "import glob, os", 1
    )
    _stand_in(text, tmp_path, monkeypatch)
    (tmp_path / "a.py").write_text("import time; time.sleep(0.5); print('from the program'); exit(3)")
    assert main(["run", "--tool", "nsys", "-o", "net", "a.py"]) == 3
    out, err = capfd.readouterr()
    assert out == "from the program\n" and ("Agent launcher failed" in err) is begun
    assert (tmp_path / "net.sqlite").exists() is not begun
    assert not is_running(int(lost.read_text()))


@pytest.mark.nsys
@pytest.mark.slow
def test_nsys_that_really_lost_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The agent is killed once as soon as it runs, later and later, as far as the point where the program begins."""
    nsys, real = find_nsys(), run_module.find_nsys()
    assert nsys == real
    begin = f"""#!{sys.executable}
import os, signal, subprocess, sys, time
if sys.argv[1] != "profile" or os.path.exists("lost"): os.execv({nsys!r}, [{nsys!r}, *sys.argv[1:]])
open("lost", "w").close()
process = subprocess.Popen([{nsys!r}, *sys.argv[1:]], close_fds=False)
while process.poll() is None:
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{{pid}}/environ", "rb") as mark, open(f"/proc/{{pid}}/cmdline", "rb") as words:
                agent = os.environb[b"PYPROF_NSYS_START"] in mark.read() and b"--start-agent" in words.read()
            if agent: time.sleep(float(os.environ["DELAY"])); os.kill(int(pid), signal.SIGKILL); sys.exit(process.wait())
        except OSError: pass
"""
    (tmp_path / "a.py").write_text("import torch; torch.ones(2); print('from the program')")
    started = []
    for delay in ("0", "0.05"):
        folder = tmp_path / delay
        folder.mkdir()
        _stand_in(begin, folder, monkeypatch)
        monkeypatch.setenv("DELAY", delay)
        code = main(["run", "--tool", "nsys", "-o", "net", str(tmp_path / "a.py")])
        out, err = capfd.readouterr()
        assert (code, out) == (0, "from the program\n"), err
        started.append("nsys left no" not in err)
    assert started[0]


@pytest.mark.nsys
@pytest.mark.slow
def test_a_signal_reaches_the_program(program: Path, tmp_path: Path) -> None:
    find_nsys()
    command = [sys.executable, "-m", "pyprof", "run", "--tool", "nsys", "-o", "out", str(program), "wait"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, cwd=tmp_path,
        env=_environment(),
    )  # fmt: skip
    assert process.stdout is not None
    _until(process.stdout, "waiting")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 5 and "cleaned up" in out and (tmp_path / "out.dict").exists()


def test_control_c_at_a_terminal(program: Path, tmp_path: Path, tool: str) -> None:
    """Once, to the program; the tool stays until it has ended."""
    command = [sys.executable, "-m", "pyprof", "run", "--tool", tool, "-o", "out", str(program), "wait"]
    leader = [sys.executable, "-c", "import os, sys, pty; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"]
    assert pty.STDIN_FILENO == 0
    with subprocess.Popen(
        [*leader, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=_environment(), text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        _until(process.stdout, "waiting")
        time.sleep(0.5)  # in its sleep: Python drops an interrupt that falls into a destructor
        process.stdin.write("\x03")
        process.stdin.flush()
        out = process.stdout.read()
    assert process.returncode == 5, out
    assert out.count("cleaned up") == 1 and "linear" in out


def test_nsys_is_told_to_record_the_steps_only_where_there_is_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _stand_in(NSYS, tmp_path, monkeypatch)
    (tmp_path / "a.py").write_text(f"{LIGHT}\nimport torch; torch.ones(2); print('from the program')")
    for gpus, ranged in ((1, True), (0, False)):
        monkeypatch.setattr(run_module, "cuda_devices", lambda gpus=gpus: gpus)
        assert main(["run", "--tool", "nsys", "--steps", "0:2", "--forks", "-o", "net", "a.py"]) == 0
        out, err = capfd.readouterr()
        assert out == "from the program\n" and ("linear" in err) == ranged
        assert ("record without --steps" in err) == ranged  # this torch has no CUDA
        (tmp_path / "a.py").write_text("print('from the program')")
        profile, export = (tmp_path / "log").read_text().splitlines()[-2:]
        assert profile.startswith("profile -t cuda,nvtx ") and "--trace-fork-before-exec=true" in profile
        assert ("--capture-range=cudaProfilerApi --capture-range-end=stop" in profile) == ranged
        written = export.split()[-2:]
        assert [Path(word).name for word in written] == ["net.sqlite", "net.nsys-rep"]
    assert {path.name for path in tmp_path.glob("net.*")} == {
        f"net.{end}" for end in ("nsys-rep", "sqlite", "dict", "2.nsys-rep", "2.sqlite")
    }


def test_a_report_that_cannot_be_exported_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And the program's own exit code is what counts, if it has one."""
    failing = NSYS.replace('os.link(os.environ["CAPTURE"]', 'sys.exit(3); os.link(os.environ["CAPTURE"]')
    _stand_in(failing, tmp_path, monkeypatch)
    for text, code, report in (
        ("", 0, "my net.nsys-rep"),
        ("raise SystemExit(5)", 5, "my net.2.nsys-rep"),
    ):
        (tmp_path / "a.py").write_text(text)
        assert main(["run", "--tool", "nsys", "-o", "my net", "a.py"]) == code
        assert f"{report}: nsys could not export it" in capfd.readouterr().err
        assert (tmp_path / report).is_file()

    assert main(["run", "--tool", "nsys", "--limit-time", "1e-9", "-o", "slow", "a.py"]) == 5
    assert "nsys export was stopped after 1e-09 minutes: --limit-time 0 waits for its end" in capfd.readouterr().err
    assert {path.name for path in tmp_path.glob("slow*")} == {"slow.nsys-rep"}

    def ask(*command: str, seconds: float) -> tuple[int, str]:
        Path(command[-2]).write_text("half a database")
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "ask", ask)
    assert main(["run", "--tool", "nsys", "-o", "stopped", "a.py"]) == 5
    assert {path.name for path in tmp_path.glob("stopped*")} == {"stopped.nsys-rep"}


def test_the_tool_that_auto_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    for nsys, gpus, expected in (("/nsys", 1, "nsys"), ("/nsys", 0, "torch"), (None, 1, "torch")):
        monkeypatch.setattr(run_module, "find_nsys", lambda nsys=nsys: nsys)
        monkeypatch.setattr(run_module, "cuda_devices", lambda gpus=gpus: gpus)
        assert choose_tool("auto") == expected
    with pytest.raises(ToolError, match="nsys is not on PATH"):
        choose_tool("nsys")
    monkeypatch.setattr(run_module, "find_nsys", lambda: "/nsys")
    monkeypatch.setattr(run_module, "cuda_devices", lambda: 1)
    assert choose_tool("auto", windows=2) == "torch"
    with pytest.raises(UsageError, match="nsys records one window"):
        choose_tool("nsys", windows=2)


@pytest.mark.parametrize("text", ["10", "5:5", "7:3", "a:b", "-1:2", "1:3,2:4", "5:6,1:2", "1:2,", "0:99999999999"])
def test_steps_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--steps takes A:B"):
        parse_steps(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.py"], "missing.py: no such program"),
        (["--tool", "torch", "no-such-command"], "no-such-command: no such program"),
        (["--steps", "3:1", __file__], "for example --steps 10:12"),
        (["--limit", "-1", __file__], "--limit takes a number of GB"),
        (["--limit-time", "nan", __file__], "--limit-time takes minutes"),
        (["-m"], "-m takes the name of a module"),
        ([], "no program was given"),
    ],
)
def test_wrong_usage(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--tool", "torch", "-o", str(tmp_path / "none" / "net"), __file__]) == 1
    assert "choose another place with -o" in capsys.readouterr().err


@pytest.mark.parametrize("imports", [True, False])
def test_a_raw_recording_without_a_report_is_imported_once_more_or_kept(
    imports: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """nsys's importer fails under load, and nsys says nothing of it."""
    (tmp_path / "host-linux-x64").mkdir()
    importer = tmp_path / "host-linux-x64/QdstrmImporter"
    copies = "import shutil; shutil.copy(sys.argv[2], sys.argv[4])" if imports else "sys.exit(1)"
    importer.write_text(f"#!{sys.executable}\nimport sys; assert sys.argv[1::2] == ['-i', '-o']; {copies}")
    importer.chmod(0o755)
    folder = tmp_path / "bin"
    folder.mkdir()
    _stand_in(NSYS.replace(".nsys-rep", ".qdstrm"), folder, monkeypatch)
    (folder / "a.py").write_text("")
    assert main(["run", "--tool", "nsys", "-o", "net", "a.py"]) == 0
    left = {path.name for path in folder.glob("net*")}
    assert left == ({"net.nsys-rep", "net.sqlite"} if imports else {"net.qdstrm"})
    said = "net.qdstrm: nsys made no report of it (try by hand: QdstrmImporter -i net.qdstrm)"
    assert (said in capfd.readouterr().err) == (not imports)
