"""A command line -> the program run under a recording tool, and the captures that it left.

The program has our standard streams, the terminal and the signals; its exit code is kept. Only the environment tells it that it
is recorded (see `inject`), and that no longer when its first line runs. Knows nothing of records and tables.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyprof.errors import ToolError, UsageError
from pyprof.recording import inject, launch
from pyprof.recording.results import keep, staging_folder
from pyprof.recording.steps import Steps
from pyprof.recording.tools import ask, cuda_devices, find_nsys

__all__ = ["INDUCTOR", "Plan", "Recording", "choose_tool", "record"]

_FORWARDED = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_KEYBOARD = ("SIGINT", "SIGQUIT")
INDUCTOR = {
    "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "1",  # the name of a fused kernel tells its ops
    "TORCHINDUCTOR_BENCHMARK_KERNEL": "1",  # its bytes and FLOPs are recorded, and the path of the compiled module is told
    "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",  # without it a fused kernel on the CPU is not in the trace at all
}


@dataclass(frozen=True)
class Plan:
    """What to do: the program's command line, the tool (nsys or torch), the name of the files to write without its ending, the
    steps to record (None: all), what follows the name where the rank is known already (`.rank0`), whether nsys follows forked
    processes, and whether torch.compile names its kernels."""

    command: list[str]
    tool: str
    name: str
    steps: Steps | None = None
    ranked: str = ""
    forks: bool = False
    inductor: bool = False


@dataclass
class Recording:
    """What came of it: the program's exit code as a shell gives it, its captures, reports that nsys could not export, notes for
    the user, how many processes were recorded, and the most training steps that one of them made."""

    code: int
    captures: list[Path] = field(default_factory=list)
    unexported: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    processes: int = 0
    steps: int = 0


def choose_tool(wanted: str, windows: int = 1) -> str:
    """`auto` is nsys where that and a GPU are there: without a GPU torch.profiler tells more, the backward pass too.

    windows: of steps; nsys ends with the first. Raises ToolError for an nsys that is not there, UsageError for one that cannot.
    """
    if wanted == "auto":
        return "nsys" if windows == 1 and find_nsys() and cuda_devices() else "torch"
    if wanted == "nsys" and windows > 1:
        raise UsageError("nsys records one window of steps", "--tool torch records several, each in a file of its own")
    if wanted == "nsys" and find_nsys() is None:
        raise ToolError("nsys is not on PATH", "install Nsight Systems (scripts/install_nsys on Debian), or use --tool torch")
    return wanted


def record(plan: Plan) -> Recording:
    """Run the program and wait for it. Raises ToolError where the tool fails, InputError where the files cannot be written.

    The files of earlier runs stay: where there are some, the new ones are called NAME.2, NAME.3, ...
    """
    name = Path(plan.name).absolute()
    with staging_folder(name) as made, tempfile.TemporaryDirectory(prefix="pyprof-run-") as control:
        folder, written = Path(control), made / (name.name + plan.ranked)
        capture_range = plan.tool == "nsys" and plan.steps is not None and cuda_devices() > 0
        config = {"tool": plan.tool, "name": str(written), "steps": plan.steps, "ranked": bool(plan.ranked)}
        (folder / "config.json").write_text(json.dumps({**config, "capture_range": capture_range}))
        if plan.tool == "nsys":
            recording = _under_nsys(plan, folder, written, capture_range)
        else:
            recording = Recording(
                _call(plan.command, {**os.environ, **_inductor(plan), **_environment(folder)}, lambda process: process.pid)
            )
        _collect(recording, folder)
        moved = keep(made, name, plan.ranked)
        for files in (recording.captures, recording.unexported):
            files[:] = [_shown(_moved(file, moved)) for file in files]
    return recording


def _moved(capture: Path, moves: dict[Path, Path]) -> Path:
    """Where a capture is now: one of what was moved, or a file in a folder that was."""
    for source, target in moves.items():
        if capture.is_relative_to(source):
            return target / capture.relative_to(source)
    return capture


def _shown(path: Path) -> Path:
    """A path as a person would write it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _environment(folder: Path) -> dict[str, str]:
    """What makes Python run `inject` before the program, which puts back what was there."""
    before = os.environ.get("PYTHONPATH")
    added = {"PYPROF_RUN": str(folder)}
    if before is not None:
        added["PYPROF_RUN_PYTHONPATH"] = before
    return {**added, "PYTHONPATH": os.pathsep.join(filter(None, [os.path.dirname(os.path.abspath(inject.__file__)), before]))}


def _inductor(plan: Plan) -> dict[str, str]:
    """What the user has not set himself of the variables that make compiled kernels known."""
    return {name: value for name, value in INDUCTOR.items() if plan.inductor and name not in os.environ}


def _collect(recording: Recording, folder: Path) -> None:
    """What the processes reported."""
    for path in sorted(folder.glob("process-*.json")):
        found: dict[str, Any] = json.loads(path.read_text())
        recording.processes += 1
        recording.steps = max(recording.steps, found["steps"])
        recording.notes += [note for note in found["notes"] if note not in recording.notes]
        recording.captures += filter(Path.is_file, map(Path, found["traces"]))


def _under_nsys(plan: Plan, folder: Path, written: Path, capture_range: bool) -> Recording:
    nsys = find_nsys() or "nsys"
    command = [nsys, "profile", "-t", "cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none"]
    if capture_range:
        command += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    if plan.forks:
        command += ["--trace-fork-before-exec=true"]
    log, pid_file, streams = folder / "nsys.log", folder / "pid", (os.dup(1), os.dup(2))
    launcher = [sys.executable, "-I", "-S", os.path.abspath(launch.__file__), *map(str, streams), str(folder)]
    command += ["-f", "true", "-o", str(written).replace("%", "%%"), *launcher, *plan.command]
    (folder / "environment.json").write_text(json.dumps({**_inductor(plan), **_environment(folder)}))

    def program(process: subprocess.Popen[bytes]) -> int:
        text = pid_file.read_text() if pid_file.exists() else ""
        return int(text) if text else process.pid

    try:
        with log.open("wb") as stream:
            code = _call(command, None, program, output=stream, pass_fds=streams)
    finally:
        for number in streams:
            os.close(number)
    code_file = folder / "code"
    notes = []
    if code_file.exists():
        code = int(code_file.read_text())
        if code < 0:  # so nothing that is to run at exit has run, and of nsys a last buffer is lost
            notes.append(f"the program was ended by signal {-code}: the last of its ranges may be missing in the capture")
            code = 128 - code
    said = [line.strip() for line in log.read_text(errors="replace").replace("\r", "\n").splitlines() if line.strip()]
    report = written.with_name(f"{written.name}.nsys-rep")
    if not report.exists():
        if not pid_file.exists():
            raise ToolError(f"nsys did not start the program: {' '.join(said[:3])}", "pyprof doctor")
        return Recording(code, notes=[*notes, f"nsys left no {plan.name}{plan.ranked}.nsys-rep", *said[:3]])
    target = written.with_name(f"{written.name}.sqlite")
    failed, _ = ask(nsys, "export", "--type", "sqlite", "-q", "true", "-o", str(target), str(report), seconds=24 * 3600)
    if failed:
        target.unlink(missing_ok=True)
        return Recording(code, unexported=[report], notes=notes)
    return Recording(code, [target], notes=notes)


def _call(
    command: list[str],
    env: dict[str, str] | None,
    program: Callable[[subprocess.Popen[bytes]], int],
    *,
    output: Any = None,
    pass_fds: tuple[int, ...] = (),
) -> int:
    """Run a command with our standard streams and pass on signals; its exit code, or 128 and the signal that ended it.

    program: the process to pass signals to; output: of a tool, which then runs in a process group of its own where the keyboard
    does not end the recording, and its program in a session of its own.
    """
    sys.stdout.flush()
    group: dict[str, Any] = {}
    if output is not None:
        group = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
    try:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output, pass_fds=pass_fds, **group)
    except OSError as error:
        raise ToolError(f"{command[0]} cannot be run: {error.strerror}", "check the name of the program") from error
    with _signals_passed_on(lambda: program(process), reached=output is None):
        code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def _signals_passed_on(target: Callable[[], int], reached: bool) -> Iterator[None]:
    """What is sent to us is meant for the program. reached: what the keyboard sends comes to it and its children without us."""
    at_terminal = _at_terminal()

    def forward(number: int, _frame: object) -> None:
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
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _at_terminal() -> bool:
    """Whether we are what the keyboard's signals go to."""
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
