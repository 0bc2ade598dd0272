"""A command -> recorded by nsys, which is started again where it fails by itself.

nsys 2023.4 loses its own agent now and then ("Connection to Agent lost", "Agent launcher failed"), most often before it has run
the program, and leaves processes behind, one in a session of its own. Knows nothing of what is recorded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyprof.recording.launch import MARK
from pyprof.recording.processes import end_marked
from pyprof.recording.tools import ask

STARTS = 3


def profile(nsys: str, report: Path, *words: str, seconds: float, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """`nsys profile WORDS`, of a program that may run twice: done again where it leaves no report, even if it says that all
    went well (its importer can fail after that).

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
    """What nsys records before its importer makes the report of it, and removes where that went well."""
    return report.with_suffix(".qdstrm")


def imported(nsys: str, report: Path, seconds: float) -> bool:
    """Whether the report is there; where nsys's importer has failed, which it does under load, it is run once more."""
    raw = raw_of(report)
    if not report.exists() and raw.exists():
        for importer in Path(nsys).resolve().parent.parent.glob("host-*/QdstrmImporter"):
            if ask(str(importer), "-i", str(raw), "-o", str(report), seconds=seconds)[0] == 0 and report.exists():
                raw.unlink()
    return report.exists()
