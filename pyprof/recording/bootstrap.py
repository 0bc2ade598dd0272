"""A process of the program that `pyprof run` records -> recording begins as soon as it has imported torch.

Not earlier: a program may set variables that torch reads when it is imported (OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES), and it is
the program that initialises CUDA. Each process writes a report for `pyprof run`. Nothing here may raise into the program.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyprof.recording.steps import StepClock, Steps


def start(folder: str) -> None:
    """Record once torch is imported. folder: holds config.json, and takes the report of each process."""
    config = json.loads((Path(folder) / "config.json").read_text())
    sys.meta_path.insert(0, _Watch(lambda: Session(Path(folder), config).begin()))


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


class Session:
    """The recording of one process."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self._folder, self._config = folder, config
        steps = config["steps"]
        self._steps: Steps | None = None if steps is None else tuple((first, last) for first, last in steps)
        self._pid = os.getpid()
        self._clock: StepClock | None = None
        self._end: Callable[[], None] = lambda: None
        self._traces: list[str] = []
        self.notes: list[str] = []

    def begin(self) -> None:
        """torch is imported: record."""
        try:
            self._report()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                {"torch": self._begin_torch, "nsys": self._begin_nsys}[self._config["tool"]]()
        except Exception as error:  # the program must run even if recording fails
            self._note(f"nothing was recorded: {error}")
        atexit.register(self._finish)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._report()

    def _report(self) -> None:
        """Write the report; again whenever it changes, since a process may be killed."""
        steps = 0 if self._clock is None else self._clock.number
        found = {"traces": self._traces, "steps": steps, "notes": self.notes}
        path = self._folder / f"process-{self._pid}.json"
        part = path.with_suffix(".part")
        try:
            part.write_text(json.dumps(found))
            part.replace(path)
        except OSError:  # `pyprof run` was killed, and its folder with it
            return

    def _finish(self) -> None:
        if os.getpid() != self._pid:  # forked
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._end()
        except Exception as error:
            self._note(f"the recording could not be ended: {error}")
        self._report()

    # ------------------------------------------------------------------ torch.profiler

    def _claim(self) -> str:
        """A file that no other process of this run writes; for several windows a folder."""
        name, rank = self._config["name"], os.environ.get("RANK", "")
        if rank.isdecimal() and not self._config["ranked"]:
            name = f"{name}.rank{rank}"
        try:
            os.close(os.open(self._folder / f"{os.path.basename(name)}.claim", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            name = f"{name}.{self._pid}"
        return name if self._steps is not None and len(self._steps) > 1 else f"{name}.json.gz"

    def _written(self, trace: Path) -> None:
        self._traces.append(str(trace))
        self._report()

    def _begin_torch(self) -> None:
        from pyprof.recording.steps import StepClock
        from pyprof.recording.torchprof import Capture, Chosen

        plan = None if self._steps is None else Chosen(self._steps)
        recording = Capture(self._claim(), schedule=plan, table=0, on_trace=self._written)
        recording.on_failure = self._note
        recording.__enter__()
        Capture.program = recording
        thread = threading.get_ident()

        def begins(number: int) -> None:
            while recording.steps < number and threading.get_ident() == thread:
                recording.step()

        def end() -> None:
            clock.stop()
            recording.__exit__(None, None, None)
            if recording.gave_way:
                self.notes.append("the program used torch.profiler itself: not recorded from then on; use --tool nsys")

        self._clock = clock = StepClock(begins)
        self._end = end
        clock.start()

    # ------------------------------------------------------------------ nsys

    def _begin_nsys(self) -> None:
        import torch

        from pyprof.nvtx import api
        from pyprof.recording.profile import Recorder
        from pyprof.recording.steps import StepClock, Window

        recorder = Recorder(defer=True)
        api.init(mode="on")
        api.pause()
        api.held_back = True
        window = Window(self._steps or ((0, sys.maxsize),), recorder.enter, recorder.leave)

        def end() -> None:
            clock.stop()
            if recorder.problem:
                self.notes.append(f"the backward pass is not recorded: {recorder.problem}")
            if clock.strayed:
                self.notes.append("an optimizer steps on a thread that did not start the program: its steps are not marked")

        self._clock = clock = StepClock(window.begins, mark=True)
        self._end = end
        clock.start()
        if not torch.backends.cuda.is_built():
            self._note("this torch has no CUDA: ops of the backward pass are not recorded, only pyprof's own ranges are")
            if self._config["capture_range"]:
                self._note("without CUDA nothing starts recording at the requested steps: record without --steps")
