"""A process of the program that `pyprof run` records -> recording begins as soon as it has imported torch.

Not earlier: a program may set variables that torch reads when it is imported (OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES), and it is
the program that initialises CUDA. Each process writes a report for `pyprof run`. Nothing here may raise into the program.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from pyprof.recording.images import Replaced, end_forks, getpid
from pyprof.recording.launch import ENDING

if TYPE_CHECKING:
    from pyprof.recording.steps import StepClock, Steps


# Called when a step begins, with the reason when it becomes too much, at the end; is it recorded now, and what of it is kept
# ("recorded", "traced" or "", as in the ledger)?
_Recorder = tuple[Callable[[int], None], Callable[[str], None], Callable[[], None], Callable[[], bool], Callable[[], str]]


def start(folder: str, inject: str) -> None:
    """Record once torch is imported. folder: holds config.json, and takes the report of each process; inject: the folder that
    Python must find first to start recording."""
    config = json.loads((Path(folder) / "config.json").read_text())
    replaced = Replaced(folder, inject)
    replaced.watch()
    sys.meta_path.insert(0, _Watch(lambda: ProcessRecording(Path(folder), config, replaced).begin()))


class _Watch:
    """A finder of modules that leaves finding to the others, and calls `ready` once `torch` has been imported."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec that another finder gives for torch, with a loader that calls `ready` at its end."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._ready()

        loader.exec_module = exec_module


class ProcessRecording:
    """The recording of one process."""

    def __init__(self, folder: Path, config: dict[str, Any], replaced: Replaced) -> None:
        self._folder, self._config = folder, config
        steps = config["steps"]
        self._steps: Steps | None = None if steps is None else tuple((first, last) for first, last in steps)
        self._pid, self._report_name = getpid(), f"process-{getpid()}"
        earlier = len(list(folder.glob(f"{self._report_name}[.]*json")))  # of programs that this one has replaced
        self._report_name += f".{earlier}" * bool(earlier)
        replaced.before = self._replaced
        self._clock: StepClock | None = None
        self._end_ledger: Callable[[], None] = lambda: None
        self._end: Callable[[], None] = lambda: None
        self._abandon: Callable[[], object] = lambda: None
        self._longer: Callable[[], float] = lambda: 0.0  # seconds that recorded steps took more than others
        self._what: Callable[[], str] = lambda: ""  # a note on what was recorded
        self._torch: dict[str, ModuleType] = {}  # held for the end: a program may delete them
        self._traces: list[str] = []
        self._ended = False
        self.notes: list[str] = []

    def begin(self) -> None:
        """torch is imported: record."""
        try:
            self._report()
            self._torch = {name: one for name, one in sys.modules.items() if name.partition(".")[0] == "torch"}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                {"torch": self._begin_torch, "nsys": self._begin_nsys}[self._config["tool"]]()
        except Exception as error:  # the program must run even if recording fails
            self._note(f"nothing was recorded: {error}")
        atexit.register(self._finish)
        leave = os._exit

        @functools.wraps(leave)
        def _exit(status: int) -> NoReturn:
            self._finish()
            leave(status)

        os._exit = _exit

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._report()

    def _report(self) -> None:
        """Write the report; again whenever it changes, since a process may be killed."""
        steps = 0 if self._clock is None else self._clock.number
        notes = [*filter(None, [self._what()]), *self.notes]
        found = {"traces": self._traces, "steps": steps, "notes": notes, "ended": self._ended}
        path, part = (self._folder / f"{self._report_name}.{ending}" for ending in ("json", "part"))
        try:
            part.write_text(json.dumps(found))
            part.replace(path)
        except OSError:  # `pyprof run` was killed, and its folder with it
            return

    def _finish(self) -> None:
        if getpid() != self._pid or self._ended:  # forked, or by os._exit in a function for the end
            return
        self._ended = True
        for name, module in self._torch.items():
            sys.modules.setdefault(name, module)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._end()
        except Exception as error:
            self._note(f"the recording could not be ended: {error}")
            with suppress(Exception):  # else the process crashes
                self._abandon()
        self._report()

    def _replaced(self) -> None:
        """Called before the program replaces itself by another one."""
        if getpid() == self._pid:
            self._finish()
            self.notes.append("the program replaced itself by another one (os.exec): each is recorded on its own")
            self._report()

    def _safe(self, function: Callable[..., None]) -> Callable[..., None]:
        """Wrap a function so that it notes an error of its own instead of raising it into the program."""
        from pyprof.nvtx.traceback import interrupted

        def call(*args: object) -> None:
            try:
                function(*args)
            except Exception as error:
                if interrupted(error):
                    self._note("a part of the recording was interrupted by the program")
                    raise
                self._note(f"a part of the recording failed: {error}")

        return call

    # ------------------------------------------------------------------ torch.profiler

    @functools.cached_property
    def _name(self) -> str:
        """A name for files that no other process of this run takes."""
        from pyprof.recording.tools import job_rank

        name, rank = str(self._config["name"]), job_rank()
        if rank and not self._config["ranked"]:
            name = f"{name}.rank{rank}"
        try:
            os.close(os.open(self._folder / f"{os.path.basename(name)}.claim", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            name = f"{name}.{self._report_name.removeprefix('process-')}"
        return name

    def _trace(self) -> str:
        """The file of this process's trace; for several windows a folder."""
        several = self._steps is not None and len(self._steps) > 1
        return self._name if several else f"{self._name}.json.gz"

    def _step_clock(self, begins: Callable[[int], None], state: Callable[[], str], *, mark: bool = False) -> StepClock:
        """A clock that calls `begins` at each step, with a ledger of the steps. state: of the step that begins."""
        from pyprof.model.ledger import SUFFIX
        from pyprof.recording import frames
        from pyprof.recording.compilation import Compilations
        from pyprof.recording.ledger import LedgerWriter
        from pyprof.recording.marks import OtherMarks
        from pyprof.recording.steps import StepClock

        def begun(number: int) -> None:
            compilations.collect()
            ledger.mark(clock.by, number, clock.tokens, begins)

        ledger = LedgerWriter(lambda: f"{self._name}{SUFFIX}", state, self._note)
        clock, marks, compilations = StepClock(begun, mark=mark), OtherMarks(ledger), Compilations(ledger)
        marks.start()
        frames.around_compiles(self._safe(compilations.start), self._safe(compilations.collect))

        def stop() -> None:
            marks.stop()
            compilations.stop()
            ledger.end()

        self._end_ledger = stop
        return clock

    def _written(self, trace: Path) -> None:
        if str(trace) not in self._traces:
            self._traces.append(str(trace))
        self._report()

    def _begin_torch(self) -> None:
        import torch

        from pyprof.recording.growth import Growth
        from pyprof.recording.limits import Bounds

        # Counters change how a program runs, so nothing is chosen by its time; of memory all that came before matters.
        automatic = self._steps is None and not self._config["metrics"] and not self._config["memory"]
        begins, stop, end, recording, state = self._automatic() if automatic else self._chosen(self._steps or ())
        growth = Growth(Bounds(*self._config["bounds"]), recording, self._safe(stop), self._longer, self._config["stacks"])

        def end_all() -> None:
            growth.stop()
            clock.stop()
            self._end_ledger()
            with suppress(OSError):
                (self._folder / ENDING).touch()
            end()

        end_forks()
        self._abandon = lambda: torch.autograd._profiler_enabled() and torch._C._autograd._disable_profiler()
        self._clock = clock = self._step_clock(self._safe(begins), state)
        self._end = end_all
        clock.start()
        growth.start()

    def _chosen(self, steps: Steps) -> _Recorder:
        """Record these steps, or everything without steps."""
        from pyprof.recording import frames
        from pyprof.recording.limits import GAVE_WAY, Pace
        from pyprof.recording.torchprof import Capture, ChosenSteps

        plan, metrics, memory = ChosenSteps(steps) if steps else None, self._config["metrics"], self._config["memory"]
        capture = Capture(
            self._trace(), schedule=plan, stacks=self._config["stacks"], table=0, on_trace=self._written, metrics=metrics,
            memory=memory,
        )  # fmt: skip
        capture.on_failure, capture.begins_in_step = self._note, self._steps is not None
        capture.__enter__()
        Capture.program = capture
        frames.around_compiles(lambda: None, lambda: None)
        thread = threading.get_ident()
        pace = Pace(capture.tracing())
        self._longer = pace.longer

        def begins(number: int) -> None:
            if number and threading.get_ident() == thread and getpid() == self._pid:
                pace.ends()
                while capture.steps < number:
                    capture.step()
                pace.begins(capture.tracing())

        def stop(reason: str) -> None:
            if capture.stop():
                self._note(f"the recording was stopped, {reason}")

        def end() -> None:
            capture.__exit__(None, None, None)
            if capture.gave_way:
                self.notes.append(f"recorded only what ran {GAVE_WAY}")

        def state() -> str:
            return "recorded" if capture.recording() else "traced" * capture.tracing()

        return begins, stop, end, capture.recording, state

    def _automatic(self) -> _Recorder:
        """Record the first steps after warm-up, or everything where the program makes no steps."""
        import torch

        from pyprof.recording import frames
        from pyprof.recording.limits import Automatic

        automatic = Automatic(self._trace(), self._written, self._note, stacks=self._config["stacks"])
        self._what = lambda: automatic.note
        automatic.begin()
        compilations: list[object] = []

        def compiling() -> None:
            compilations.append(None)
            automatic.compiling()

        frames.around_compiles(self._safe(compiling), self._safe(automatic.compiled))

        def end() -> None:
            automatic.end()
            if compilations and not self._config["inductor"] and not torch.cuda.is_initialized():
                self.notes.append("kernels that torch.compile makes for the CPU are not recorded: --inductor shows them")

        return automatic.begins, automatic.stop, end, automatic.recording, automatic.state

    # ------------------------------------------------------------------ nsys

    def _begin_nsys(self) -> None:
        import torch

        from pyprof.nvtx import api
        from pyprof.recording.limits import STEPS, WARM
        from pyprof.recording.profile import Recorder
        from pyprof.recording.steps import StepWindow

        recorder = Recorder(defer=True)
        api.init(mode="on")
        api.pause()
        api.held_back = True
        last = WARM + STEPS
        whole = (0, last if self._steps is None else sys.maxsize)
        window = StepWindow(self._steps or (whole,), recorder.enter, recorder.leave)

        def begins(number: int) -> None:
            window.begins(number)
            if number == last and self._steps is None:
                (self._folder / "complete").touch()  # `pyprof run` has nsys stop

        def state() -> str:
            kept = self._steps is not None or WARM <= clock.number < last
            return ("recorded" if kept else "traced") * window.open

        def end() -> None:
            clock.stop()
            self._end_ledger()
            window.close()  # torch warns of an emit_nvtx that is left open
            if recorder.problem:
                self.notes.append(f"the backward pass is not recorded: {recorder.problem}")
            if clock.strayed:
                self.notes.append("an optimizer steps on a thread that did not start the program: its steps are not marked")

        self._clock = clock = self._step_clock(begins, state, mark=True)
        self._end = end
        clock.start(in_step=self._steps is not None)
        if not torch.backends.cuda.is_built():
            self._note("this torch has no CUDA: ops of the backward pass are not recorded, only pyprof's own ranges are")
            if self._config["capture_range"]:
                self._note("without CUDA nothing starts recording at the requested steps: record without --steps")
