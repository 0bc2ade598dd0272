"""The captures of a job's ranks -> the part of the page about the job: its summary, ranks side by side, stragglers,
communication, and sections of the ranks that stand out.

At most two captures are in memory. Figures are those of `pyprof summary` and `pyprof ranks`. Knows no HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyprof.errors import InputError
from pyprof.parse.records.dataset import named_rank
from pyprof.parse.records.locations import File
from pyprof.report.page.data import Section, section_of, with_memory
from pyprof.report.ranks.advice import Straggler, lines, straggler
from pyprof.report.ranks.pipeline import Pipeline
from pyprof.report.ranks.results import TABLES
from pyprof.report.ranks.survey import survey
from pyprof.report.ranks.units import Choose
from pyprof.report.summary.job import job_of
from pyprof.report.summary.make import summarise
from pyprof.report.summary.screen import Summary
from pyprof.report.time.overview import Overview
from pyprof.tables.table import Table

_SHOWN = 4  # ranks with a section of their own
_TABLES = ("ranks", "pipeline", "stragglers", "bandwidth")  # of `pyprof ranks`


class Rank(NamedTuple):
    """One rank. number: -1 unknown; why: the reason for its section, "" without a section or if all have one."""

    number: int
    summary: Summary
    why: str


class Job(NamedTuple):
    """A job. lines: the straggler and its cost; tables: ranks, stragglers, communication; sections: (place in `ranks`, section)
    of some ranks."""

    summary: Summary
    ranks: tuple[Rank, ...]
    lines: tuple[str, ...]
    tables: tuple[Table, ...]
    sections: tuple[tuple[int, Section], ...]


def job_section(name: str, files: Sequence[File], read: Callable[[File], Overview], choose: Choose | None = None) -> Job:
    """The job whose ranks are in these files. name: of the job; choose: the part that the user asked for."""
    ranks = [summarise(read(file), str(file)) for file in files]
    numbers = [named_rank(file) for file in files]
    late: Straggler | None = None
    words: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: Sequence[str] = ()
    pipeline: Pipeline | None = None
    try:
        whole = survey(files, choose)
        late, notes, words, pipeline = straggler(whole), whole.notes, tuple(lines(whole)), whole.pipeline
        tables = tuple(table for key in _TABLES if len((table := TABLES[key](whole)).rows))
        if len(whole.units) == len(numbers) and not whole.failures:  # recorded ranks outrank file names
            numbers = whole.rank_numbers.tolist()
    except InputError:  # the ranks have nothing in common to compare
        pass
    shown = _notable(ranks, None if late is None or late.rank not in numbers else numbers.index(late.rank))
    sections = tuple((at, with_memory(section_of(read(files[at]), str(files[at]), len(shown)), str(files[at]))) for at in shown)
    beside = (Rank(numbers[at], one, ", ".join(shown.get(at, ()))) for at, one in enumerate(ranks))
    return Job(job_of(name, ranks, late, notes, pipeline), tuple(beside), words, tables, sections)


def _notable(ranks: Sequence[Summary], late: int | None) -> dict[int, list[str]]:
    """Ranks with a section, and why: the straggler first, then others that stand out; all ranks of a small job."""
    reasons: dict[int, list[str]] = {} if late is None else {late: ["the others wait for it"]}
    outstanding: tuple[tuple[str, Callable[[Summary], int]], ...] = (
        ("most exposed communication", lambda one: one.busy.get("communication", 0)),
        ("longest wall time", lambda one: one.wall_ns or 0),
        ("most idle", lambda one: sum(one.idle_ns.values())),
        ("most computation", lambda one: one.busy.get("compute", 0)),
    )
    for why, value in outstanding:
        values = [value(one) for one in ranks]
        if max(values) > min(values):
            reasons.setdefault(values.index(max(values)), []).append(why)
    if len(ranks) <= _SHOWN:
        return {at: reasons.get(at, []) for at in range(len(ranks))}
    return dict([*reasons.items()][:_SHOWN]) or {0: []}
