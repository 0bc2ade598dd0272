"""A command line -> the program run under a recording tool, and the captures that it left.

The program has our standard streams, the terminal and the signals; its exit code is kept. Recording is requested through the
environment (see `inject`), which is as it was when the program's first line runs. Knows nothing of records and tables.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from pyprof.errors import InputError, ToolError, UsageError
from pyprof.messages import told_late
from pyprof.parse.sources.nsys_report import find_nsys
from pyprof.recording import inject, launch
from pyprof.recording.limits import Bounds
from pyprof.recording.metrics import sampling
from pyprof.recording.nsys import STARTS, Stopper, end_marked, imported, is_running, raw_of
from pyprof.recording.results import Staging
from pyprof.recording.steps import Steps
from pyprof.recording.tools import ask, cuda_devices

_FORWARDED = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_KEYBOARD = ("SIGINT", "SIGQUIT")
_POLL_S = 0.05
_DAY_S = 24 * 3600
INDUCTOR = {
    "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "1",  # the name of a fused kernel holds its ops
    "TORCHINDUCTOR_BENCHMARK_KERNEL": "1",  # its bytes and FLOPs are recorded, and the path of the compiled module
    "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",  # without it fused kernels on the CPU are missing in the trace
}


@dataclass(frozen=True)
class RunPlan:
    """A program to run, and how.

    command: the program's command line; tool: nsys or torch; name: path of the files to write, without their ending; steps:
    those to record, () for everything, None for the first after warm-up; bounds: beyond which it is stopped; rank:
    what follows the name where this process is one of a distributed job (`.rank0`); forks:
    nsys records forked processes too; inductor: torch.compile names its kernels; metrics: hardware counters to record; stacks,
    memory: torch.profiler records Python frames, allocations.
    """

    command: list[str]
    tool: str
    name: str
    steps: Steps | None = ()
    bounds: Bounds = field(default_factory=Bounds)
    rank: str = ""
    forks: bool = False
    inductor: bool = False
    metrics: tuple[str, ...] = ()
    stacks: bool = True
    memory: bool = False


@dataclass
class Recording:
    """The results of a run.

    code: the program's exit code as a shell gives it; unexported: reports that nsys could not export, raw recordings of which
    it made no report; notes: lines for the user; processes: how many were recorded; steps: the most training steps that one of
    them made; cut: some process did not end as Python does; window: the steps that are of interest, None for all that is in the
    captures.
    """

    code: int
    captures: list[Path] = field(default_factory=list)
    unexported: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    processes: int = 0
    steps: int = 0
    cut: bool = False
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Launched:
    """Process ids that launch.py has written to its folder so far, None until then."""

    folder: Path

    def launcher(self) -> int | None:
        return next((int(path.suffix[1:]) for path in self.folder.glob("variables-*.taken-by.*")), None)

    def program(self) -> int | None:
        path = self.folder / "pid"
        return int(path.read_text()) if path.exists() else None


def choose_tool(wanted: str, windows: int = 1) -> str:
    """The tool for `--tool WANTED`. auto: nsys where both it and a GPU are present; without a GPU torch.profiler records more,
    the backward pass too.

    windows: how many windows of steps; nsys records one. Raises ToolError without nsys, UsageError if it is given several.
    """
    if wanted == "auto":
        return "nsys" if windows == 1 and find_nsys() and cuda_devices() else "torch"
    if wanted == "nsys" and windows > 1:
        raise UsageError("nsys records one window of steps", "--tool torch records several, each in a file of its own")
    if wanted == "nsys" and find_nsys() is None:
        raise ToolError("nsys is not on PATH", "install Nsight Systems (scripts/install_nsys on Debian), or use --tool torch")
    return wanted


def record(plan: RunPlan) -> Recording:
    """Run the program and wait for it. Raises ToolError if the tool fails, InputError if the files cannot be written.

    The files of earlier runs stay: where there are some, the new ones are called NAME.2, NAME.3, ...
    """
    name = Path(plan.name).absolute()
    with Staging(name, ranked=bool(plan.rank)) as staging, tempfile.TemporaryDirectory(prefix="pyprof-run-") as control:
        folder, written = Path(control), staging.folder / (name.name + plan.rank)
        capture_range = plan.tool == "nsys" and bool(plan.steps) and cuda_devices() > 0
        config = {
            "tool": plan.tool,
            "name": str(written),
            "steps": plan.steps,
            "ranked": bool(plan.rank),
            "bounds": plan.bounds,
            "memory": plan.memory,
        }
        _write(
            folder / "config.json",
            {
                **config,
                "capture_range": capture_range,
                "metrics": plan.metrics,
                "inductor": plan.inductor,
                "stacks": plan.stacks,
            },
        )
        if plan.tool == "nsys":
            recording = _under_nsys(plan, folder, written, capture_range)
        else:
            env = {**os.environ, **_inductor(plan), **_environment(folder)}
            with told_late("the program has ended; what was recorded is being written", (folder / launch.ENDING).exists):
                recording = Recording(_exit_code(_call(plan.command, env)[0]))
        _collect(recording, folder)
        try:
            kept = staging.keep()
        except InputError as error:  # the program has run: its exit code counts
            return replace(recording, captures=[], unexported=[], notes=[*recording.notes, f"{error} ({error.hint})"])
        recording.captures[:], recording.unexported[:] = map(kept, recording.captures), map(kept, recording.unexported)
    return recording


def _write(path: Path, value: Mapping[str, object]) -> None:
    try:
        path.write_text(json.dumps(value))
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be written to: {error.strerror}", "set TMPDIR to another folder") from error


def _environment(folder: Path) -> dict[str, str]:
    """Variables that make Python run `inject` before the program, which puts back what was there."""
    before = os.environ.get("PYTHONPATH")
    added = {"PYPROF_RUN": str(folder)}
    if before is not None:
        added["PYPROF_RUN_PYTHONPATH"] = before
    return {**added, "PYTHONPATH": os.pathsep.join(filter(None, [os.path.dirname(os.path.abspath(inject.__file__)), before]))}


def _inductor(plan: RunPlan) -> dict[str, str]:
    """Variables that make compiled kernels known, unless the user has set them."""
    return {name: value for name, value in INDUCTOR.items() if plan.inductor and name not in os.environ}


def _collect(recording: Recording, folder: Path) -> None:
    """Add what the processes reported."""
    for path in sorted(folder.glob("process-*.json")):
        found: dict[str, Any] = json.loads(path.read_text())
        recording.processes += 1
        recording.steps = max(recording.steps, found["steps"])
        recording.cut |= not found["ended"]
        recording.notes += [note for note in found["notes"] if note not in recording.notes]
        recording.captures += filter(Path.is_file, map(Path, found["traces"]))


def _under_nsys(plan: RunPlan, folder: Path, written: Path, capture_range: bool) -> Recording:
    nsys = find_nsys() or "nsys"
    command = [nsys, "profile", "-t", "cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none"]
    if capture_range:
        command += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    if plan.metrics:
        command.append(sampling(nsys))
    if plan.forks:
        command += ["--trace-fork-before-exec=true"]
    log, launched, streams = folder / "nsys.log", _Launched(folder), (os.dup(1), os.dup(2))
    launcher = [sys.executable, "-I", "-S", os.path.abspath(launch.__file__), *map(str, streams), str(folder)]
    output = ["-f", "true", "-o", str(written).replace("%", "%%")]

    try:
        for start in range(STARTS):
            variables = folder / f"variables-{start}.json"
            _write(variables, {**_inductor(plan), **_environment(folder)})
            stopper = Stopper(nsys, folder, plan.bounds, start)
            words = [*command, "--session-new", stopper.session, *output, *launcher, variables.name, *plan.command]
            env = {**os.environ, launch.MARK: str(variables)}
            with log.open("wb") as stream, stopper:
                process, stopped = _call(words, env, launched, output=stream, pass_fds=streams)
            if not _given_up(variables) or stopped:
                break
    finally:
        for number in streams:
            os.close(number)
    code, notes, code_file = _exit_code(process), stopper.notes, folder / "code"
    if code_file.exists():
        code = int(code_file.read_text())
        if code < 0:  # nothing that is to run at exit has run, and nsys loses its last buffer
            notes.append(f"the program was ended by signal {-code}: the last of its ranges may be missing in the capture")
            code = 128 - code
    lines = [line.strip() for line in log.read_text(errors="replace").replace("\r", "\n").splitlines() if line.strip()][:3]
    report = written.with_name(f"{written.name}.nsys-rep")
    if imported(nsys, report, plan.bounds.seconds or _DAY_S):
        return _export(nsys, report, Recording(code, notes=notes, window=stopper.window), plan.bounds.seconds)
    if launched.program() is None:
        raise ToolError(f"nsys did not start the program: {' '.join(lines) or f'exit code {code}'}", "pyprof doctor")
    raw = [path for path in [raw_of(report)] if path.exists()]
    return Recording(code, notes=[*notes, f"nsys left no {report.name}", *lines], unexported=raw)


def _given_up(variables: Path) -> bool:
    """Whether nsys ended before it had started the program, so that it is safe to start nsys again.

    Ends the processes that it left, which would keep our streams open.
    """
    try:
        variables.unlink()  # the launcher takes them before all else
    except FileNotFoundError:
        return False
    end_marked(launch.MARK, str(variables))
    return True


def _export(nsys: str, report: Path, recording: Recording, seconds: float) -> Recording:
    """Have nsys turn its report into a database. The report is kept where that fails, is interrupted or takes too long."""
    target = report.with_suffix(".sqlite")
    command = (nsys, "export", "--type", "sqlite", "-q", "true", "-o", str(target), str(report))
    begin = time.monotonic()
    try:
        failed = ask(*command, seconds=seconds or _DAY_S)[0] != 0
        if failed and 0 < seconds <= time.monotonic() - begin:
            recording.notes.append(f"nsys export was stopped after {seconds / 60:g} minutes: --limit-time 0 waits for its end")
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        failed = True
    if failed or not target.is_file():
        target.unlink(missing_ok=True)
        recording.unexported.append(report)
    else:
        recording.captures.append(target)
    return recording


def _call(
    command: list[str],
    env: dict[str, str],
    launched: _Launched | None = None,
    *,
    output: IO[bytes] | None = None,
    pass_fds: tuple[int, ...] = (),
) -> tuple[subprocess.Popen[bytes], bool]:
    """Run a command with our standard streams and pass on signals; the process, which has ended, and whether a signal came.

    launched: the program that a tool runs, which has the signals, and has ended too where the tool ended before it. output:
    takes what a tool prints, which then runs in a process group of its own, where the keyboard does not end the recording, and
    its program in a session of its own.
    """
    sys.stdout.flush()
    group: dict[str, Any] = {}
    if output is not None:
        group = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
    try:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output, pass_fds=pass_fds, **group)
    except OSError as error:
        raise ToolError(f"{command[0]} cannot be run: {error.strerror}", "check the name of the program") from error
    target = (lambda: launched.program() or process.pid) if launched else (lambda: process.pid)
    with _signals_passed_on(target, reached=output is None) as received:
        process.wait()
        while launched and is_running(launched.launcher() or 0):
            time.sleep(_POLL_S)
    return process, bool(received)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """The exit code as a shell shows it: 128 plus the signal that ended the process."""
    code = process.returncode
    return 128 - code if code < 0 else code


@contextmanager
def _signals_passed_on(target: Callable[[], int], reached: bool) -> Iterator[list[int]]:
    """Send the program every signal that we receive; the list of these.

    reached: what the keyboard sends reaches the program and its children by itself.
    """
    at_terminal, received = _at_terminal(), list[int]()

    def forward(number: int, _frame: object) -> None:
        received.append(number)
        keyboard = at_terminal and signal.Signals(number).name in _KEYBOARD
        if keyboard and reached:
            return
        with suppress(ProcessLookupError):
            if keyboard:
                os.killpg(os.getpgid(target()), number)
            else:
                os.kill(target(), number)

    before = {}
    for name in _FORWARDED:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            before[number] = signal.signal(number, forward)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _at_terminal() -> bool:
    """Whether the keyboard's signals go to this process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
