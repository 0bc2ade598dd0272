"""torch.compile in the running program -> a line in the ledger for each recompile, graph break and skipped CUDA graph.

Reasons are torch's own: its figures of each compilation, and records of its loggers, taken before any handler sees them. What
is printed stays what it was.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

from pyprof.model.ledger import CUDA_GRAPH_SKIPPED, GRAPH_BREAK, RECOMPILE
from pyprof.recording.ledger import LedgerWriter

_LOGGERS = {
    "torch._dynamo.symbolic_convert.__graph_breaks": GRAPH_BREAK,
    "torch._dynamo.convert_frame.__graph_breaks": GRAPH_BREAK,
    "torch._inductor.cudagraph_utils.__cudagraphs": CUDA_GRAPH_SKIPPED,
    "torch._inductor.cudagraph_trees.__cudagraphs": CUDA_GRAPH_SKIPPED,
    "torch._inductor.compile_fx.__cudagraphs": CUDA_GRAPH_SKIPPED,
}
_PLACE = re.compile(
    r"Graph break.*? in user code at (?P<file>.+):(?P<line>\d+)\n(?:Graph Break )?Reason: (?P<reason>.*)", re.DOTALL
)
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<frame>\S+)')
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")  # the rest of a function after a graph break
_MOST = 1_000  # characters of a reason
_EVENTS = 10_000  # of a run; a program that compiles without end must not fill the disk


class Compilations:
    """Notes in the ledger what torch.compile does. `start` when it begins to compile, `collect` when it has compiled."""

    def __init__(self, ledger: LedgerWriter) -> None:
        self._ledger = ledger
        self._left = _EVENTS
        self._last: Any = None  # torch's figures that were collected last
        self._frames: dict[tuple[str, str], str] = {}  # of graph breaks by place: torch names it the first time only
        self._filters: list[tuple[logging.Logger, _Taken]] = []

    def start(self, *_: object) -> None:
        """Called when torch.compile begins to compile."""
        if not self._filters:
            for name, kind in _LOGGERS.items():
                logger = logging.getLogger(name)
                self._filters.append((logger, _Taken(self, kind, name.rpartition("__")[2])))
                logger.addFilter(self._filters[-1][1])
        for logger, taken in self._filters:
            if taken.kind == GRAPH_BREAK:  # again each time, since torch resets levels
                logger.setLevel(logging.DEBUG)
        self.collect()

    def stop(self) -> None:
        """Collect the last events and give the loggers back, as the program ends."""
        self.collect()
        for logger, taken in self._filters:
            logger.removeFilter(taken)
        self._filters.clear()

    def collect(self, *_: object) -> None:
        """Note the recompiles among the compilations since the last call."""
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None or not hasattr(utils, "get_compilation_metrics"):
            return
        new: list[Any] = []
        for figures in reversed(utils.get_compilation_metrics()):
            if figures is self._last:
                break
            new.append(figures)
        for figures in reversed(new):
            self._last = figures
            if reason := getattr(figures, "recompile_reason", None):
                self.note(RECOMPILE, figures.co_name, reason, figures.co_filename, figures.co_firstlineno)

    def graph_break(self, file: str, line: str, frame: str | None, reason: str) -> None:
        """A graph break. frame: None if it was told before."""
        known = self._frames.setdefault((file, line), frame or "")
        self.note(GRAPH_BREAK, frame or known, reason, file, int(line))

    def note(self, kind: str, frame: str | None, reason: str, file: str | None, line: int | None) -> None:
        """One event."""
        self._left -= 1
        if self._left >= 0:
            frame = _RESUMED.sub(r"\1", frame or "")
            event = {"compile": kind, "frame": frame, "reason": reason[:_MOST].strip(), "file": file, "line": line}
            self._ledger.note(event)


class _Taken(logging.Filter):
    """Takes the records of a logger, and lets pass those that the program would have had without us."""

    def __init__(self, to: Compilations, kind: str, artifact: str) -> None:
        super().__init__()
        self.kind = kind
        self._to, self._artifact = to, artifact

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            self._take(record.getMessage())
        except Exception:  # not a text of the form that we know: nothing is known of it
            return self._passes(record)
        return self._passes(record)

    def _passes(self, record: logging.LogRecord) -> bool:
        if self.kind != GRAPH_BREAK:
            return True
        from torch._logging._internal import log_state

        return bool(log_state.is_artifact_enabled(self._artifact)) or record.levelno >= logging.WARNING

    def _take(self, text: str) -> None:
        frames = [*_FRAME.finditer(text)]
        frame, file, line = (frames[-1]["frame"], frames[-1]["file"], int(frames[-1]["line"])) if frames else (None, None, None)
        if self.kind == GRAPH_BREAK:
            place = _PLACE.match(text)
            if place is None:
                return
            reason = place["reason"].partition("\n\nUser code traceback:")[0].partition("\nUser code traceback:")[0]
            self._to.graph_break(place["file"], place["line"], frame, reason)
        elif "skipping cudagraphs" in text:
            self._to.note(CUDA_GRAPH_SKIPPED, frame, text, file, line)
