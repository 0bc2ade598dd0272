"""Run pyprof's networks on this machine through every way of capture and say of each check: pass, fail or skip, and why.

A line is a check: its outcome, the network, the way of capture, what was compared. FOLDER gets summary.txt, to paste into an
issue, and captures/ without names and environment (pyprof scrub), small enough to become test data. Exit codes: 0 nothing
failed, 1 a check failed or the machine cannot run it, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

import pyprof
from pyprof.commands import scrub as scrub
from pyprof.counters import counted
from pyprof.errors import PyprofError, ToolError, UsageError
from pyprof.recording.tools import ask
from scripts.gpu_check import judge, machine, ways
from scripts.gpu_check.judge import Outcome
from scripts.gpu_check.networks import NETWORKS, Network
from scripts.gpu_check.rows import rows_of

_SECONDS = 600
_ON_GPU = {
    "rates": "that no op is above the peaks",
    "overhead": "a recorded step against one that is not",
    "tensor cores": "verdicts against the type of the products",
    "counters": "verdicts against the counters of ncu",
}


class Line(NamedTuple):
    """One check and its outcome."""

    network: str
    way: str
    check: str
    outcome: Outcome

    def __str__(self) -> str:
        return f"{self.outcome.status}  {self.network:20} {self.way:10} {self.check}: {self.outcome.why}"


class Taken(NamedTuple):
    """One recording: the way, its rows, the time of each step by clocks of the program's own, the capture."""

    way: str
    rows: pd.DataFrame
    steps_ns: list[int]
    capture: Path

    def window_ns(self) -> int:
        """Of the steps that were recorded."""
        return sum(self.steps_ns[slice(*ways.WINDOW)])


class Checks:
    """All checks of one network. folder: for what is recorded; keep: for scrubbed captures."""

    def __init__(self, name: str, on: machine.Machine, folder: Path, keep: Path) -> None:
        self.name, self.on, self.folder, self.keep = name, on, folder, keep
        self.network: Network = NETWORKS[name]
        self.alone: dict[str, Any] = {}

    def run(self, chosen: list[str]) -> Iterator[Line]:
        """Line by line, as they are known."""
        if reason := self._cannot():
            yield Line(self.name, "all", "recording", Outcome("skip", reason))
            return
        job = self._job("measure")
        if problem := self._call(ways.measure(job)):
            yield Line(self.name, "none", "running without a recording", Outcome("fail", problem))
            return
        self.alone = json.loads(job.facts.read_text())
        first: Taken | None = None
        for way in chosen:
            taken = self._record(way)
            if isinstance(taken, Outcome):
                yield Line(self.name, way, "recording", taken)
                continue
            yield from (Line(self.name, way, check, outcome) for check, outcome in self._judge(taken))
            if first is not None:
                yield Line(self.name, way, f"same as {first.way}", self._same(taken, first))
            first = first or taken
        if first is not None:
            yield Line(self.name, "ncu", "counters", self._counters(first))

    def _cannot(self) -> str:
        if self.network.gpu and not self.on.gpu:
            return "needs a GPU"
        if self.network.compiled and not self.on.gpu and not (shutil.which("c++") or shutil.which("g++")):
            return "torch.compile on the CPU needs a C++ compiler"
        return ""

    def _job(self, what: str) -> ways.Job:
        return ways.Job(self.name, self.network.runs_before > 0, bool(self.on.gpu), self.folder / f"{self.name}.{what}")

    def _call(self, command: list[str]) -> str:
        """Run a command; what went wrong, empty if nothing."""
        tools = {"nsys": self.on.nsys, "ncu": self.on.ncu}
        code, text = ask(tools.get(command[0]) or command[0], *command[1:], seconds=_SECONDS)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f"exit code {code}: {(lines or ['no output'])[-1]}" if code else ""

    def _record(self, name: str) -> Taken | Outcome:
        """One recording read back, or why there is none."""
        way, job = ways.WAYS[name], self._job(name)
        if way.tool == "nsys" and (self.on.amd or self.on.nsys is None):
            return Outcome("skip", "nsys is not here" if self.on.nsys is None else "nsys records GPUs of NVIDIA")
        if name == "emit_nvtx" and not self.on.gpu:
            return Outcome("skip", "torch's emit_nvtx needs a GPU")
        for command in way.commands(job):
            if problem := self._call(command):
                return Outcome("fail", problem)
        capture = job.base.with_name(job.base.name + way.ending)
        try:
            rows = rows_of(capture)
            self._scrub(capture)
        except PyprofError as error:
            return Outcome("fail", str(error))
        return Taken(name, rows, json.loads(job.facts.read_text())["steps_ns"], capture)

    def _scrub(self, capture: Path) -> None:
        """Keep a copy that can be given away."""
        parser = argparse.ArgumentParser()
        scrub.add_arguments(parser)
        options = parser.parse_args([str(capture), "-o", str(self.keep / capture.name), "--cut-paths"])
        with redirect_stderr(io.StringIO()):  # what it found is no part of this check
            scrub.run(options)

    def _judge(self, taken: Taken) -> Iterator[tuple[str, Outcome]]:
        recorded = ways.WINDOW[1] - ways.WINDOW[0]
        whole, on_gpu = self.network.runs_before > 0, bool(self.on.gpu)
        yield "attributed", judge.attributed(taken.rows)
        if self._forward_only(taken.way):
            yield "flops", Outcome("skip", "without a GPU nsys records neither a backward pass nor what is compiled")
        else:
            steps = self.network.runs_before + ways.STEPS if whole else recorded
            yield "flops", judge.flops(taken.rows, self.alone["flops"], steps)
        yield "times", self._times(taken, recorded)
        if on_gpu:
            cc = self.alone["cc"]
            yield "rates", judge.rates(taken.rows)
            yield "overhead", judge.overhead(min(taken.steps_ns[slice(*ways.WINDOW)]), int(median(self.alone["steps_ns"])))
            yield "tensor cores", judge.tensor_cores(taken.rows, self.network.math, cc and tuple(cc))
        else:
            yield from ((check, _on_gpu(check)) for check in _ON_GPU if check != "counters")

    def _times(self, taken: Taken, recorded: int) -> Outcome:
        if self.network.runs_before:
            return Outcome("skip", "the whole program is recorded, not its steps alone")
        if not self.on.gpu:
            return judge.times(int(taken.rows["sil"].sum()), taken.window_ns(), None)
        return judge.times(judge.busy_ns(taken.rows), taken.window_ns(), self.alone["queued_ns"] * recorded)

    def _forward_only(self, way: str) -> bool:
        without_emit = ways.WAYS[way].tool == "nsys" and not self.on.gpu
        return without_emit and (self.network.training or self.network.compiled)

    def _same(self, taken: Taken, first: Taken) -> Outcome:
        """All rows; where one way cannot record what is inside ops, the products of the forward pass."""
        tools = {ways.WAYS[one.way].tool for one in (taken, first)}
        if self.on.gpu or len(tools) == 1:
            return judge.same(taken.rows, first.rows)
        if self.network.compiled:
            return Outcome("skip", "without a GPU nsys does not record what is compiled")
        if self.network.own_backward:
            return Outcome("skip", "without a GPU nsys does not record that the user's backward is one")
        outcome = judge.same(*(one.rows[one.rows["product"] & (one.rows["phase"] == "forward")] for one in (taken, first)))
        return outcome._replace(why=f"of the products of the forward pass {outcome.why}")

    def _counters(self, first: Taken) -> Outcome:
        """Tensor Core verdicts against what ncu counts of the same steps."""
        if not self.on.gpu:
            return _on_gpu("counters")
        if self.on.amd or self.on.ncu is None:
            return Outcome("skip", "ncu is not here" if self.on.ncu is None else "ncu counts on GPUs of NVIDIA")
        major, minor = self.alone["cc"]
        job = self._job("ncu")
        if problem := self._call(ways.count(job, ",".join(counted.metrics(f"{major}.{minor}")))):
            return Outcome("skip", f"ncu did not count: {problem}")
        try:
            return judge.counters(pyprof.load(f"{job.base}.csv").counters(str(first.capture)))
        except PyprofError as error:
            return Outcome("fail", str(error))


def _on_gpu(check: str) -> Outcome:
    return Outcome("skip", f"on a GPU: {_ON_GPU[check]}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `scripts/gpu_check/run`."""
    parser.add_argument("--dry", action="store_true", help="without a GPU: all that needs none, and a list of what does")
    parser.add_argument("-o", "--output", default="gpu_check", metavar="FOLDER", help="for results (default: gpu_check)")
    parser.add_argument("--networks", default=",".join(NETWORKS), metavar="NAME,...", help="only these (default: %(default)s)")
    parser.add_argument("--ways", default=",".join(ways.WAYS), metavar="WAY,...", help="only these (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Check, print, and write the summary. Returns the exit code. Raises ToolError without a GPU, UsageError for a name that
    there is not."""
    networks = _chosen(options.networks, NETWORKS, "network")
    chosen = _chosen(options.ways, ways.WAYS, "way of capture")
    if options.dry:
        machine.hide_gpus()
    on = machine.look()
    if not on.gpu and not options.dry:
        raise ToolError("torch finds no GPU here", "--dry checks what needs none; pyprof doctor says what is missing")
    folder = _fresh(Path(options.output))
    (folder / "captures").mkdir(parents=True)
    lines = [str(on)]
    print(on, flush=True)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="pyprof-check-") as raw:
        for name in networks:
            for line in Checks(name, on, Path(raw), folder / "captures").run(chosen):
                outcomes[line.outcome.status] += 1
                lines.append(str(line))
                print(line, flush=True)
    last = f"{outcomes['pass']} passed, {outcomes['fail']} failed, {outcomes['skip']} skipped"
    (folder / "summary.txt").write_text("\n".join([*lines, last, ""]), encoding="utf-8")
    print(f"{last}; for an issue: {folder / 'summary.txt'}, captures: {folder / 'captures'}")
    return 1 if outcomes["fail"] else 0


def _chosen(text: str, known: dict[str, Any], what: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no {what} {name!r}", f"there are {', '.join(known)}")
    return names


def _fresh(folder: Path) -> Path:
    """The folder, or where there is one FOLDER.2, FOLDER.3, ...: results of an earlier check stay."""
    number, found = 1, folder
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}.{number}")
    return found
