"""A process of the program that `pyprof run` records -> recording begins as soon as it has imported torch.

Not before: a program may set what torch reads when it is imported (OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES), and CUDA is never
initialised in its stead. What went on is written to a file for `pyprof run`. Nothing here may raise into the program.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyprof.recording.steps import Steps

__all__ = ["start"]


def start(folder: str) -> None:
    """Wait for torch. folder: holds config.json, and takes the report of each process."""
    config = json.loads((Path(folder) / "config.json").read_text())
    sys.meta_path.insert(0, _Watch(lambda: Session(Path(folder), config).begin()))


class _Watch:
    """A finder of modules that finds none itself, and calls `ready` once `torch` has been imported."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """What the other finders say; for torch with the loader made to tell when it is done."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
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
        self._clock: Any = None
        self._end: Callable[[], None] = lambda: None
        self._traces: list[str] = []
        self.notes: list[str] = []

    def begin(self) -> None:
        """torch is there: record."""
        try:
            self._report()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                {"torch": self._begin_torch, "nsys": self._begin_nsys}[self._config["tool"]]()
        except Exception as error:  # the program runs whatever becomes of us
            self._note(f"nothing was recorded: {error}")
        atexit.register(self._finish)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._report()

    def _report(self) -> None:
        """Write down what there is to tell; again whenever there is more, since a process may be killed."""
        found = {"traces": self._traces, "steps": getattr(self._clock, "number", 0), "notes": self.notes}
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
        """A file that no other process of this run has; of several windows a folder."""
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
                self.notes.append(
                    "the program used torch.profiler itself: not recorded from then on; --tool nsys does not mind"
                )

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
            self._note("this torch has no CUDA: it tells no ops of the backward pass, only pyprof's own ranges are recorded")
            if self._config["capture_range"]:
                self._note("without CUDA nothing starts the recording at the chosen steps: record without --steps")
