"""Every way to record a program -> its command line for one network, and where the capture then lies. Runs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STEPS, WINDOW = 6, (3, 5)
_PROGRAM = ("-m", "scripts.gpu_check.program")


class Job(NamedTuple):
    """One network to record. whole: all of the program, not the window alone; gpu: there is one; base: path of what is written,
    without its ending."""

    network: str
    whole: bool
    gpu: bool
    base: Path

    @property
    def facts(self) -> Path:
        """What the program itself measured."""
        return self.base.with_name(f"{self.base.name}.facts.json")

    def program(self, way: str, *more: str) -> list[str]:
        """The command line of the program."""
        return [*_PROGRAM, self.network, way, str(self.facts), *more]


class Way(NamedTuple):
    """How a program is recorded. tool: nsys or torch; commands: to run one after another; ending: of the capture."""

    tool: str
    about: str
    commands: Callable[[Job], list[list[str]]]
    ending: str


def _run(tool: str) -> Callable[[Job], list[list[str]]]:
    def commands(job: Job) -> list[list[str]]:
        steps = "all" if job.whole else f"{WINDOW[0]}:{WINDOW[1]}"
        words = [sys.executable, "-m", "pyprof", "run", "--tool", tool, "--steps", steps, "-o", str(job.base)]
        return [[*words, *job.program("plain")]]

    return commands


def _capture(job: Job) -> list[list[str]]:
    return [[sys.executable, *job.program("capture", f"{job.base}.json.gz")]]


def _nsys(way: str) -> Callable[[Job], list[list[str]]]:
    def commands(job: Job) -> list[list[str]]:
        """The recording begins where the program says so; without a GPU nobody says it."""
        record = ["nsys", "profile", "-t", "cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none"]
        record += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"] if job.gpu else []
        report, database = f"{job.base}.nsys-rep", f"{job.base}.sqlite"
        return [
            [*record, "-f", "true", "-o", str(job.base), sys.executable, *job.program(way)],
            ["nsys", "export", "--type", "sqlite", "-f", "true", "-o", database, report],
        ]

    return commands


WAYS = {
    "run-torch": Way("torch", "pyprof run --tool torch", _run("torch"), ".json.gz"),
    "capture": Way("torch", "with pyprof.capture(...)", _capture, ".json.gz"),
    "run-nsys": Way("nsys", "pyprof run --tool nsys", _run("nsys"), ".sqlite"),
    "profile": Way("nsys", "with pyprof.profile(...) under nsys", _nsys("profile"), ".sqlite"),
    "emit_nvtx": Way("nsys", "pyprof.init() and emit_nvtx by hand, under nsys", _nsys("emit_nvtx"), ".sqlite"),
}


def measure(job: Job) -> list[str]:
    """The program without a recording."""
    return [sys.executable, *job.program("measure")]


def count(job: Job, metrics: str) -> list[str]:
    """The program under ncu, the window alone, in which every kernel runs again and again."""
    ncu = ["ncu", "--csv", "--page", "raw", "--nvtx", "--target-processes", "all", "--profile-from-start", "off"]
    ncu += ["--clock-control", "none"]  # the clocks are those of the recordings, and of others on the GPU
    return [*ncu, "--log-file", f"{job.base}.csv", "--metrics", metrics, sys.executable, *job.program("profile")]
