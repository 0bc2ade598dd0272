"""Recording a part of the running program with torch.profiler: `with capture("net") as p: ... p.step()`.

Turns the work between two lines of a program into trace files that `pyprof parse` reads. torch.profiler records what the
analysis needs and nothing more: CPU and GPU activity, shapes, and Python frames unless they are switched off. It works for any
CUDA program in the process, whether or not torch computes in it. Nothing here reads a trace.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

from pyprof.errors import ToolError, UsageError, unusable
from pyprof.messages import tell, visible
from pyprof.recording import frames, memory
from pyprof.recording.exclusive import Exclusive, next_kind
from pyprof.recording.metrics import measuring
from pyprof.recording.modules import AliveModules, Names, add_names, names_of_modules
from pyprof.recording.steps import Steps
from pyprof.recording.tools import environment_with_pyprof, job_rank

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

_FILE_SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Which steps are recorded, as torch.profiler.schedule counts them, but one cycle by default.

    After `skip` steps, cycles of `wait` idle, `warmup` traced but not kept and `active` recorded steps; `repeat` cycles, 0 for
    as long as the program runs. Raises UsageError for a negative number or active=0.
    """

    wait: int = 0
    warmup: int = 1
    active: int = 1
    repeat: int = 1
    skip: int = 0

    def __post_init__(self) -> None:
        if self.active < 1 or min(self.wait, self.warmup, self.repeat, self.skip) < 0:
            raise UsageError(
                f"{self}: active must be at least 1 and the rest at least 0", "schedule(wait=1, warmup=1, active=2)"
            )

    def action(self, step: int) -> str:
        """Name of the torch.profiler.ProfilerAction in a step, counted from 0."""
        length = self.wait + self.warmup + self.active
        cycle, at = divmod(step - self.skip, length)
        if step < self.skip or at < self.wait or (self.repeat and cycle >= self.repeat):
            return "NONE"
        if at < self.wait + self.warmup:
            return "WARMUP"
        return "RECORD" if at < length - 1 else "RECORD_AND_SAVE"

    @property
    def first(self) -> int:
        """The first step that is recorded, counted from 0."""
        return self.skip + self.wait + self.warmup


@dataclass(frozen=True)
class ChosenSteps:
    """In each window (A, B) the steps from A to B - 1 are recorded; the one before A is traced and not kept."""

    windows: Steps

    def action(self, step: int) -> str:
        """As `Schedule.action`."""
        for first, last in self.windows:
            if first <= step < last:
                return "RECORD" if step < last - 1 else "RECORD_AND_SAVE"
        return "WARMUP" if any(step == first - 1 for first, _ in self.windows) else "NONE"

    @property
    def first(self) -> int:
        """The first step that is recorded, counted from 0."""
        return self.windows[0][0]

    @property
    def repeat(self) -> int:
        """How many cycles are recorded."""
        return len(self.windows)


class Counters(TypedDict, total=False):
    """Hardware metrics to record, by their names in Nsight Compute, and whether of each launch (else of all together); whether
    allocations are recorded."""

    metrics: Sequence[str]
    per_kernel: bool
    memory: bool


class Capture:
    """Record what runs inside a `with` into trace files; call `step()` at the end of each training step.

    path: a file where the name ends in .json or .json.gz, else a folder for `rank<r>_step<n>.json.gz`, n being the steps made
    until then. schedule: the steps to record; everything without one. shapes: record the inputs of ops, which FLOPs and bytes
    need. stacks: record Python frames, for source lines and modules, at the cost of slower Python. table: how many of the ops
    that took most time are listed; a process of its own writes the list beside each trace as .txt, and rank 0 prints it to
    standard error at the end; 0 for no list. on_trace: called with each file once it is whole. metrics, per_kernel: hardware
    counters for `pyprof counters`, as `metrics.measuring` says. memory: record allocations for `pyprof memory`; on a GPU also
    the allocator's history, beside each trace as .memory.pickle, and as .oom.pickle when memory runs out.

    traces: the files written so far, whole; profiler: the torch.profiler.profile underneath, while recording; gave_way: whether
    another recording by torch.profiler began meanwhile, which ended this one; on_failure: called with a line of text where a
    trace cannot be written, which costs the trace and never the user's run. By default it warns.

    Raises UsageError for one file and several cycles, and on entering ToolError if torch is missing, cannot count the
    metrics or is recording already. A schedule that never reached a recorded step warns at the end.
    """

    program: Capture | None = None  # the recording of `pyprof run`, unknown to the program

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        schedule: Schedule | ChosenSteps | None = None,
        shapes: bool = True,
        stacks: bool = True,
        table: int = 10,
        on_trace: Callable[[Path], None] | None = None,
        **counters: Unpack[Counters],
    ) -> None:
        self.path, self._counters = Path(path), counters
        self.schedule = schedule
        self.traces: list[Path] = []
        self.steps = 0
        self._shapes, self._stacks, self._on_trace = shapes, stacks, on_trace
        self._tables = Tables(table)
        self._one_file = self.path.name.endswith(_FILE_SUFFIXES)
        if self._one_file and schedule is not None and schedule.repeat != 1:
            raise UsageError(f"{self.path}: one file cannot hold several cycles", "name a folder, or use repeat=1")
        self.profiler: torch.profiler.profile | None = None
        self.gave_way = False
        self.on_failure: Callable[[str], None] = _warn
        self.begins_in_step = True  # else what runs before the first `step()` is marked as none: it may be a whole program
        self.exclusive = Exclusive(self.give_way)
        self._memory = bool(counters.get("memory"))
        self._alive: AliveModules | None = None  # as the recording began: at the end of a program they may be gone
        self._model: list[list[object]] = []  # tensors of the model after the first step: at the end it may be gone
        self.exclusive.all_threads = not self._memory  # of all threads torch records no allocations
        self._options: dict[str, object] = {}  # of torch's experimental configuration

    def __enter__(self) -> Capture:
        _check_torch()
        import torch

        activities: list[Any] = [torch.profiler.ProfilerActivity.CPU]
        if self._counters.get("metrics"):
            found = measuring(self._counters["metrics"], self._counters.get("per_kernel", True))
            activities.append(found.activity)
            self._options = found.options
            tell(f"pyprof: {found.how}")
        elif _cuda_is_there():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        actions, plan = torch.profiler.ProfilerAction, self.schedule
        self.profiler = torch.profiler.profile(
            activities=activities,
            schedule=lambda step: actions.RECORD if plan is None else actions[plan.action(step)],
            on_trace_ready=self._write,
            record_shapes=self._shapes,
            with_stack=self._stacks,
            profile_memory=self._memory,
            experimental_config=_configuration(self.exclusive.all_threads, self._options),
        )
        self.profiler.step_num, self.profiler.record_steps = self.steps, self.begins_in_step
        if self.recording():
            self._begins_recording()
        if self._stacks:
            frames.begin()
        with quiet(), self.exclusive.ours():
            self.profiler.__enter__()
        self.exclusive.watch()
        return self

    def _begins_recording(self) -> None:
        _finish_earlier_work()
        if self._memory:
            memory.HISTORY.record(self.path)
        if self._stacks and self.steps and self._alive is None:
            since = frames.hold_off()
            self._alive = AliveModules()
            frames.go_on(since)

    def give_way(self) -> None:
        """End before another recording begins; what was recorded until now is kept."""
        self.gave_way = True
        self._end(None, None, None)

    def recording(self) -> bool:
        """Whether what the program does now will be in a trace."""
        plan = self.schedule
        return self.profiler is not None and (plan is None or plan.action(self.steps).startswith("RECORD"))

    def tracing(self) -> bool:
        """Whether torch.profiler is at work now, if only to warm up."""
        return self.profiler is not None and (self.schedule is None or self.schedule.action(self.steps) != "NONE")

    def stop(self) -> bool:
        """End the recording from any thread, and write it; False where only the thread that began it can."""
        if self.exclusive.all_threads:
            self._end(None, None, None)
        return self.exclusive.all_threads

    def _end(self, *error: object) -> None:
        self.exclusive.release()
        profiler, self.profiler = self.profiler, None
        if profiler is not None:
            frames.end()
            with quiet(), self.exclusive.ours():
                profiler.__exit__(*error)

    def step(self) -> None:
        """End a step: advance the schedule; write the trace when a cycle is complete."""
        self.steps += 1
        if self.profiler is not None:
            if self._memory and not self._model:
                self._model = [one for one in memory.model_tensors() if one[0] != "gradients"]
            if self.schedule is not None and self.schedule.action(self.steps - 1) in ("NONE", "RECORD_AND_SAVE"):  # begins anew
                self.exclusive.all_threads = next_kind() is not False and not self._memory
                self.profiler.experimental_config = _configuration(self.exclusive.all_threads, self._options)
            self.profiler.record_steps = True
            if self.recording() and not (self.schedule and self.schedule.action(self.steps - 1) == "RECORD"):
                self._begins_recording()
            if self._stacks:
                frames.begin()
            with quiet(), self.exclusive.ours():
                self.profiler.step()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end(kind, error, traceback)
        if self.gave_way and kind is None:
            _warn("another recording by torch.profiler began, which ended this one: what came after is not in it")
        elif not self.traces and kind is None and self.schedule is not None:
            first = self.schedule.first + 1
            _warn(f"nothing was captured: step() was called {self.steps} times and the schedule records from step {first} on")
        if kind is None:
            self._tables.finish(show=_rank() == 0)

    def _write(self, profiler: torch.profiler.profile) -> None:
        """Write one cycle's trace."""
        path = self.path if self._one_file else self.path / f"rank{_rank()}_step{self.steps}.json.gz"
        try:
            self._write_whole(profiler, path)
        except OSError as error:
            self.on_failure(f"{path.name}: the trace could not be written: {error.strerror or error}")
            return
        if path not in self.traces:
            self.traces.append(path)
        self._tables.begin(path)
        if self._on_trace is not None:
            self._on_trace(path)

    def _write_whole(self, profiler: torch.profiler.profile, path: Path) -> None:
        """Write a trace under its name, or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = path.with_name(f".{path.name}.{os.getpid()}.part.json")  # torch does not compress where the suffix is this
        part = plain.with_name(f"{plain.name}.gz") if path.name.endswith(".gz") else plain
        try:
            profiler.export_chrome_trace(str(plain))
            if not plain.exists() or not plain.stat().st_size:  # on a full disk torch logs an error and goes on
                raise OSError(f"torch.profiler could not write to {plain.parent}; is the disk full?")
            names: Names = {}
            with suppress(Exception):  # torch may take its event tree away: then the trace has the names of classes
                names = names_of_modules(profiler, self._alive) if self._stacks else {}
            add_names(plain, names)
            if self._memory:
                add_names(plain, memory.model_tensors() or self._model, memory.KEY)
                memory.HISTORY.dump(path)
            if part != plain:
                with plain.open("rb") as source, gzip.open(part, "wb", compresslevel=6) as stream:
                    shutil.copyfileobj(source, stream, 1 << 20)
            part.replace(path)
        finally:
            for left in (part, plain, plain.with_name(f"{plain.name}.tmp")):  # the last is torch's own, on a full disk
                left.unlink(missing_ok=True)


class Tables:
    """The tables of the cycles, each made by a process of its own. count: lines of each; 0: none."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._made: list[tuple[Path, subprocess.Popen[bytes]]] = []

    def begin(self, trace: Path) -> None:
        """Begin to make the table of a trace."""
        if not self._count:
            return
        table = trace.with_name(trace.name.removesuffix(".gz").removesuffix(".json") + ".txt")
        command = [sys.executable, "-m", "pyprof.recording.limits", str(trace), str(table), str(self._count)]
        none = subprocess.DEVNULL
        try:
            process = subprocess.Popen(command, env=environment_with_pyprof(), stdin=none, stdout=none, stderr=none)
        except OSError as error:
            _warn(f"{table}: the table could not be made: {error}")
            return
        self._made.append((table, process))

    def finish(self, show: bool) -> None:
        """Wait until all are written, and show them on standard error."""
        for table, process in self._made:
            if process.wait() == 0 and show:
                print(f"{visible(str(table))}:\n{table.read_text(encoding='utf-8')}", end="", file=sys.stderr)
        self._made.clear()


schedule, capture = Schedule, Capture  # as users call them


_SILENT = "6"  # of Kineto's levels: not even its USDT lines


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)


@contextmanager
def quiet() -> Iterator[None]:
    """torch warns once that events of earlier cycles are dropped from memory; they are in their files by then. Where warnings
    are errors, that one would end the profiler half-way. Kineto reads how much it prints when it records for the first time."""
    level = "KINETO_LOG_LEVEL"
    ours = level not in os.environ
    if ours:
        os.environ[level] = _SILENT
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
            yield
    finally:
        if ours:
            os.environ.pop(level, None)


def _finish_earlier_work() -> None:
    """Wait for the GPU before a recording begins: what was launched before would be in the trace without its launches."""
    import torch

    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def _cuda_is_there() -> bool:
    """Whether there is a GPU, found without using CUDA: after a process has used it, its forks cannot."""
    import torch

    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        return bool(torch.cuda.is_available())
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _configuration(all_threads: bool, options: dict[str, object]) -> Any:
    """torch's experimental configuration: these options, and the ops of every thread where this torch can record them; else
    those of the starting thread and autograd's."""
    import torch

    config = getattr(torch._C._profiler, "_ExperimentalConfig", None)
    if config is None or not (all_threads or options):
        return None
    try:
        return config(profile_all_threads=all_threads, **options)
    except TypeError:  # an older torch
        return config(**options) if options else None


def _check_torch() -> None:
    """Raise ToolError if torch cannot begin to record; a recording of `pyprof run` gives way."""
    try:
        import torch
        import torch.profiler
    except ImportError as error:
        raise unusable("capture", "torch", error, "pip install torch") from error
    if torch.autograd._profiler_enabled() and Capture.program is not None:
        Capture.program.give_way()
    if torch.autograd._profiler_enabled():
        raise ToolError("torch.profiler is recording already", "end the other recording before this one begins")


def _rank() -> int:
    """The rank in a distributed job: torch.distributed's, else the launcher's, else 0."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return int(dist.get_rank())
    return int(job_rank() or 0)
