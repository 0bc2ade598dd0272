"""What `pyprof run` records of a program of which it knows nothing: each way to end leaves a capture and a line that says of what."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

import pyprof
from pyprof.loading.load import open_trace
from pyprof.model.ledger import beside, read
from pyprof.recording.growth import Growth
from pyprof.recording.limits import Automatic, Bounds
from pyprof.recording.programs import is_launcher, program_name
from pyprof.recording.steps import StepClock
from pyprof.recording.tools import job_rank
from tests.children import LIGHT
from tests.recording.test_run import _environment, _run, _shapes
from tests.test_nsys_real import find_nsys

STEPS = """
import os, sys, torch
from torch.profiler import record_function
net = torch.nn.Linear(8, 4)
opt, other = (torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2))
scaler = torch.amp.GradScaler("cpu")
how = sys.argv[1]
ranges = [record_function(f"epoch {n}") for n in range(2000 * (how == "ranges"))]
for opened in ranges: opened.__enter__()
for size in (2, 3, 5, 7, 11):
    loss = net(torch.ones(size, 8)).sum()
    if "scaler" in how:
        scaler.scale(loss * float("inf") if size == 2 else loss).backward(); scaler.step(opt); scaler.update()
    else:
        loss.backward(); opt.step()
    opt.zero_grad()
    if "two" in how: other.step()
for opened in reversed(ranges): opened.__exit__(None, None, None)
print("done", flush=True)
if "fork" in how:
    if not (child := os.fork()):
        for _ in range(3): net(torch.ones(13, 8)).sum().backward(); opt.step()
        os._exit(0)
    os.waitpid(child, 0)
if "exit" in how: os._exit(3)
"""
WARM = "recorded steps 2 to 4, after warm-up (others: --steps A:B; the whole run: --steps all)"


@pytest.mark.parametrize(
    ("how", "code", "shapes", "line"),
    [
        ("two optimizers, then os._exit", 3, {5, 7, 11}, WARM),
        # A step that the scaler skips is part of the next.
        pytest.param("scaler, then a fork", 0, {7, 11}, WARM.replace("to 4", "to 3"), marks=pytest.mark.slow),
    ],
)
def test_the_first_steps_after_warm_up(tmp_path: Path, how: str, code: int, shapes: set[int], line: str) -> None:
    (tmp_path / "net.py").write_text(LIGHT + STEPS)
    done = _run(tmp_path, "--tool", "torch", "net.py", how)
    assert (done.returncode, done.stdout) == (code, "done\n"), done.stderr
    assert _shapes(done) == shapes and f"pyprof: {line}" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"net.py", "net.json.gz", "net.dict", "net.steps.jsonl"}


@pytest.mark.parametrize(
    ("steps", "profiles", "shapes", "note"),
    [
        (1, False, {2}, "the program made 1 step, none of them warm: recorded what ran from the start"),
        (3, False, {5}, "recorded step 2, after warm-up"),
        (1, True, {2}, "recorded only what ran from the start, until"),
        (3, True, {5}, "recorded only what ran from step 2 on, until"),
        (4, True, {5, 7}, "recorded only what ran from step 2 on, until"),
    ],
)
def test_the_part_that_is_kept(tmp_path: Path, steps: int, profiles: bool, shapes: set[int], note: str) -> None:
    """Of a program that ends after some steps, or uses torch.profiler itself."""
    net = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def train(*sizes: int) -> None:
        for size in sizes:
            net(torch.ones(size, 8)).sum().backward()
            optimizer.step()

    automatic = Automatic(str(path := tmp_path / "net.json.gz"), lambda trace: None, pytest.fail)
    clock = StepClock(automatic.begins)
    automatic.begin()
    clock.start()
    train(*(2, 3, 5, 7)[:steps])
    if profiles:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            torch.ones(3, 3) @ torch.ones(3, 3)
        train(11, 11)
        assert [event.count for event in own.key_averages() if event.key == "aten::mm"] == [1]
    clock.stop()
    automatic.end()
    assert automatic.note.startswith(note)
    calls = {str(marker.call) for marker in open_trace(path).markers if marker.name in ("aten::linear", "aten::matmul")}
    assert calls == {f"linear(fp32[{size},8], fp32[4,8], fp32[4])" for size in shapes}


@pytest.mark.slow
def test_windows_of_steps_while_a_range_of_the_program_is_open(tmp_path: Path) -> None:
    """It ends in another recording than it began in, which torch does not bear if both are of one kind."""
    (tmp_path / "net.py").write_text(LIGHT + STEPS)
    done = _run(tmp_path, "--tool", "torch", "--steps", "0:1,2:3,3:4", "--top", "99", "net.py", "ranges")
    assert done.returncode == 0 and _shapes(done) == {2, 5, 7}, done.stderr
    files = {f"rank0_step{step}.{ending}" for step in (1, 3, 4) for ending in ("dict", "json.gz")}
    assert {path.name for path in (tmp_path / "net").iterdir()} == files
    ledger = beside(tmp_path / "net" / "rank0_step3.json.gz")
    assert ledger is not None and (found := read(ledger)) is not None
    assert found.recorded.tolist() == [True, False, True, True, False] and found.traced.sum() == 1  # torch.profiler warms up


COMPILED = """
import sys, torch
net = torch.nn.Linear(8, 4)
compiled = torch.compile(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    loss = compiled(torch.ones(2, 8)).sum()
    if sys.argv[2] == "train":
        loss.backward()
        opt.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("6", "train"), WARM.replace("to 4", "to 5")),
        (("2", "train"), "the program made 2 steps, none of them warm: recorded what ran after torch.compile compiled"),
        (("9", "infer"), "recorded what ran after torch.compile compiled"),
    ],
)
def test_what_torch_compile_does_to_compile_is_not_recorded(
    tmp_path: Path, words: tuple[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a cache the backward pass is compiled when it first runs, inside of it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "net.py").write_text(COMPILED)
    done = _run(tmp_path, "--tool", "torch", "net.py", *words)
    assert done.returncode == 0 and line in done.stderr, done.stderr
    assert "are not recorded: --inductor shows them" in done.stderr
    assert (tmp_path / "net.json.gz").stat().st_size < 3_000_000


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["torch", pytest.param("nsys", marks=pytest.mark.nsys)])
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("--limit", "since its trace becomes too large: --steps A:B records a few steps, --limit 0 all"),
        (
            "--limit-time",
            "since it would cost more than 0.01 minutes (writing and reading its trace does): --steps A:B records",
        ),
    ],
)
def test_a_recording_that_grows_too_large_is_stopped_and_written(tmp_path: Path, tool: str, limit: str, reason: str) -> None:
    if tool == "nsys":
        find_nsys()
    (tmp_path / "net.py").write_text(
        "import time, torch\na = torch.ones(2, 3)\nend = time.time() + 6\nwhile time.time() < end: torch.add(a, a)\nprint('done')"
    )
    done = _run(tmp_path, "--tool", tool, limit, "0.01", "net.py")
    assert (done.returncode, done.stdout) == (0, "done\n") and " add " in done.stderr, done.stderr
    assert reason in done.stderr


@pytest.mark.slow
def test_steps_that_take_too_long_because_they_are_recorded(tmp_path: Path) -> None:
    """As they would with counters. What they do is little, and so is the trace; the steps before them are the measure."""
    (tmp_path / "net.py").write_text(
        "import time, torch\nnet = torch.nn.Linear(8, 4)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\ntime.sleep(2)\n"
        "for step in range(30):\n    net(torch.ones(2, 8)).sum().backward()\n    time.sleep(0.2 * (step > 5))\n    opt.step()\n"
        "print('done')"
    )
    done = _run(tmp_path, "--tool", "torch", "--steps", "6:28", "--limit-time", "0.02", "net.py")
    assert (done.returncode, done.stdout) == (0, "done\n") and " linear " in done.stderr, done.stderr
    assert "since it would cost more than 0.02 minutes (recorded steps take that much longer)" in done.stderr


@pytest.mark.parametrize(
    ("grows", "over"),
    [
        ([0, 10, 20, 30, 40, 50, 60], True),
        ([0, 90] * 10, False),
        ([0, 9, 1, *range(30, 45)], False),
        ([0, 9, 1, *range(30, 46)], True),
    ],
)
def test_what_is_allocated_for_good_counts(grows: list[int], over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of 100 bytes of trace is one of 25 allocated bytes, by the least of four samples, of sixteen where any was freed."""
    called, left = threading.Event(), iter(grows)
    growth = Growth(Bounds(100), lambda: True, lambda reason: called.set())
    monkeypatch.setattr("pyprof.recording.growth._SAMPLE_S", 0.001)
    monkeypatch.setattr("pyprof.recording.growth._tensor_bytes", lambda: 0)
    with pytest.raises(StopIteration) if not over else monkeypatch.context():
        growth._watch(lambda: (next(left), 0))
    assert called.is_set() is over


@pytest.mark.parametrize("grows", [True, False])
def test_what_a_program_had_before_is_not_the_recordings(grows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 90 bytes of activations, seen once before; each sample of the recorded ones may lie in the middle of a step."""
    monkeypatch.setattr("pyprof.recording.growth._SAMPLE_S", 0.001)
    monkeypatch.setattr("pyprof.recording.growth._tensor_bytes", lambda: 0)
    sizes, recorded, called = (
        iter([0, 90, 10, 80, *(85 + 20 * grows * n for n in range(8))]),
        iter([False] * 3 + [True] * 9),
        [],
    )
    growth = Growth(Bounds(100), lambda: next(recorded), called.append)
    with monkeypatch.context() if grows else pytest.raises(StopIteration):
        growth._watch(lambda: (next(sizes), 0))
    assert len(called) == grows


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("torchrun --nproc-per-node 2 ddp.py --lr 1", "ddp"),
        ("python -m torch.distributed.run --standalone ddp.py", "ddp"),
        ("torchrun --standalone -m pkg.train x.py", "train"),
        ("python -m pkg.mod ddp.py", "mod"),
        ("python -m pkg.__main__", "pkg"),
        ("accelerate launch --num_processes 2 ddp.py", "ddp"),
        ("mpirun -np 2 python -u ddp.py", "ddp"),
        ("/usr/bin/my-trainer --fast", "my-trainer"),
    ],
)
def test_files_are_called_after_the_program(words: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ddp.py").touch()
    (tmp_path / "x.py").touch()
    monkeypatch.chdir(tmp_path)
    assert program_name(words.split()) == name


def test_launchers_are_not_recorded() -> None:
    for words in (
        "python -m torch.distributed.run x.py",
        "python /bin/torchrun x.py",
        "python /bin/accelerate launch x.py",
        "python /bin/torchrun -m pkg.train",
    ):
        assert is_launcher(words.split())
    assert not is_launcher("python train.py".split()) and not is_launcher("python -m torchrunner".split())


def test_the_rank_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert job_rank() == ""
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert job_rank() == "0"
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    assert job_rank() == "3"
    monkeypatch.setenv("RANK", "x")
    assert job_rank() == "3"


def test_a_program_without_steps_is_none_and_its_output_alone_is_piped(tmp_path: Path) -> None:
    """Also without the end of Python."""
    (tmp_path / "net.py").write_text(
        LIGHT + "import os, torch\nfor _ in range(3): torch.ones(4, 4) @ torch.ones(4, 4)\n"
        "print('line\\n' * 9, end='', flush=True)\nos._exit(3)"
    )
    command = f"{sys.executable} -m pyprof run --tool torch --top 9 net.py | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=_environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "line\n3\n" and "matmul" in done.stderr, done.stderr
    assert pyprof.load(tmp_path / "net.json.gz").summary().steps is None
