"""A command -> recorded by nsys, which is started again where it fails by itself.

nsys 2023.4 loses its own agent now and then ("Connection to Agent lost", "Agent launcher failed"), most often before it has run
the program, and leaves processes behind, one in a session of its own: those are found by /proc, as nsys and its programs run on
Linux only. A `Stopper` ends the recording while the program runs on; what nsys has recorded until then is written as if the
program had ended. Knows nothing of what is recorded.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyprof.recording.launch import MARK
from pyprof.recording.limits import STEPS, WARM, Bounds
from pyprof.recording.tools import ask

STARTS = 3
_POLL_S = 0.01
_WATCH_S = 0.1


def profile(nsys: str, report: Path, *words: str, seconds: float, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run `nsys profile WORDS`, and start it anew where it leaves no report, whatever it says (its importer can fail after it):
    the program may run several times.

    Exit code and text of the last start, as of `ask`.
    """
    code, text = -1, ""
    for start in range(STARTS):
        mark = f"{os.getpid()}-{start}"
        code, text = ask(nsys, "profile", *words, seconds=seconds, env={**(os.environ if env is None else env), MARK: mark})
        if imported(nsys, report, seconds):
            break
        end_marked(MARK, mark)
    return code, text


def raw_of(report: Path) -> Path:
    """The file that nsys records, from which its importer makes the report; removed once that has succeeded."""
    return report.with_suffix(".qdstrm")


def imported(nsys: str, report: Path, seconds: float) -> bool:
    """Whether the report is there; where nsys's importer has failed, which it does under load, it is run once more."""
    raw = raw_of(report)
    if not report.exists() and raw.exists():
        for importer in Path(nsys).resolve().parent.parent.glob("host-*/QdstrmImporter"):
            if ask(str(importer), "-i", str(raw), "-o", str(report), seconds=seconds)[0] == 0 and report.exists():
                raw.unlink()
    return report.exists()


def is_running(pid: int) -> bool:
    """Whether a process has not ended. One that has ended and that nobody has waited for is not running."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def end_marked(name: str, value: str) -> None:
    """Kill the processes that were started with this variable in their environment, and wait until none of them runs."""
    mark, marked = os.fsencode(f"{name}={value}"), [0]
    while marked:
        marked = []
        for variables in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended, or is another user's
                if mark in variables.read_bytes().split(b"\0") and is_running(int(variables.parent.name)):
                    marked.append(int(variables.parent.name))
        for pid in marked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(map(is_running, marked)):
            time.sleep(_POLL_S)


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
        complete, reason = False, ""  # why to stop, for the user; empty where the chosen steps are complete
        while not complete and not reason:
            if self._ended.wait(_WATCH_S):
                return
            complete = (self._folder / "complete").exists()
            reason = "" if complete else self._bounds.passed(_collected(self._folder))
        code, _text = ask(self._nsys, "stop", f"--session={self.session}", seconds=3600)
        if code == 0 and not reason:
            self.window = (WARM, WARM + STEPS)
            last = WARM + STEPS - 1
            self.notes.append(
                f"recorded from the start until nsys stopped after step {last}; the table shows steps {WARM} to {last}, "
                "after warm-up (others: --steps A:B; the whole run: --steps all)"
            )
        elif code == 0:
            self.notes.append(f"the recording was stopped, {reason}")
        elif not self._ended.is_set():
            self.notes.append("nsys could not be stopped before the program ended: everything is recorded")


def _collected(folder: Path) -> int:
    """Bytes that nsys has collected from the processes that report to `folder`; 0 where its release keeps them elsewhere."""
    collected = 0
    for report in folder.glob("process-*.json"):
        pid = report.stem.rpartition("-")[2].partition(".")[0]
        found = Path(tempfile.gettempdir()).glob(f"nvidia/nsight_systems/quadd_session_*/injection_files/injection_{pid}_*")
        with suppress(OSError):  # nsys removes them at the end
            collected += sum(path.stat().st_size for path in found)
    return collected
