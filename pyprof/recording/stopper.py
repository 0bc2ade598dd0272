"""A program under nsys -> nsys stops recording it while it runs on: after the chosen steps, or when the report is too large.

What nsys has recorded until then is written as if the program had ended. Knows nothing of what is recorded.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from pyprof.recording.automatic import STEPS, WARM
from pyprof.recording.bounds import Bounds
from pyprof.recording.tools import ask

_SECONDS = 0.1


class Stopper:
    """While the `with` lasts: stop the session once the file `complete` is in `folder`, or nsys has collected too much.

    start: which of our starts of nsys this is; session: its name, for `nsys profile --session-new`; window: the steps that are
    complete, if those were the reason.
    """

    def __init__(self, nsys: str, folder: Path, bounds: Bounds, start: int) -> None:
        self.session = f"pyprof-{os.getpid()}-{start}"
        self.notes: list[str] = []
        self.window: tuple[int, int] | None = None
        self._nsys, self._folder, self._bounds = nsys, folder, bounds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Stopper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SECONDS):
            complete = (self._folder / "complete").exists()
            reason = "" if complete else self._bounds.passed(_collected(self._folder))
            if complete or reason:
                self._stop(reason)
                return

    def _stop(self, reason: str) -> None:
        """reason: for the user; empty where the chosen steps are complete."""
        code, _text = ask(self._nsys, "stop", f"--session={self.session}", seconds=3600)
        if code == 0 and not reason:
            self.window = (WARM, WARM + STEPS)
            last = WARM + STEPS - 1
            self.notes.append(
                f"recorded from the start until nsys stopped after step {last}; the table is of steps {WARM} and {last}, "
                "after warm-up (--steps A:B records others, --steps all everything)"
            )
        elif code == 0:
            self.notes.append(f"the recording was stopped, {reason}")
        elif not self._ended.is_set():
            self.notes.append("nsys could not be stopped before the program ended: everything is recorded")


def _collected(folder: Path) -> int:
    """Bytes that nsys has collected from the processes that report to `folder`; 0 where its release keeps them elsewhere."""
    collected = 0
    for report in folder.glob("process-*.json"):
        pid = report.stem.rpartition("-")[2]
        found = Path(tempfile.gettempdir()).glob(f"nvidia/nsight_systems/quadd_session_*/injection_files/injection_{pid}_*")
        with suppress(OSError):  # nsys removes them at the end
            collected += sum(path.stat().st_size for path in found)
    return collected
