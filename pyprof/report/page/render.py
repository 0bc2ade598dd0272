"""Sections and comparisons -> one self-contained HTML file, with a policy that lets nothing else run or load.

The template makes the text, the script draws the charts from JSON in the browser. No figure is computed here.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pyprof import __version__
from pyprof.help import page as help_page
from pyprof.report.page.data import Compared, JobsCompared, Section
from pyprof.report.page.job import Job
from pyprof.report.page.memory import MemorySection
from pyprof.report.page.sentences import of_all
from pyprof.report.summary.model import Figures
from pyprof.report.summary.words import described, figures
from pyprof.tables.names import text_of
from pyprof.tables.readable import readable
from pyprof.tables.table import Table, Texts, printed
from pyprof.tables.units import human

_ASSETS = Path(__file__).with_name("assets")
_OPEN = 2  # captures whose sections are open at first
_BOXED = 12  # characters of a call that has a box of its own
_SCRIPTS = ("d3.js", "base.js", "cells.js", "icicle.js", "roofline.js", "timeline.js", "tables.js", "memory.js", "main.js")


def render(
    entries: Sequence[Section | Job],
    comparisons: Sequence[Compared | JobsCompared] = (),
    snapshots: Sequence[MemorySection] = (),
) -> str:
    """The page of some captures and jobs, and of snapshots of memory."""
    sections = [*_sections(entries)]
    names = _names([entry.summary.file for entry in entries])
    snapshot_names = _names([one.file for one in snapshots])
    items = []
    for item in re.split(r"\n(?=- )", help_page("conventions").partition("\n- ")[2].strip()):
        parts = " ".join(item.removeprefix("- ").split()).split("`")  # one paragraph of Markdown with code in it
        marked = (Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))
        items.append(Markup("<li>{}</li>").format(Markup("").join(marked)))
    terms = help_page("terms").partition("\n")[2].strip()
    words = Markup("<ul>{}</ul><details><summary>The words of this page</summary><pre>{}</pre></details>")
    return _rendered(
        "page.html", "report",
        [{**section.charts, "name": shown["name"], "memory": _charts(section.memory)} for section, shown in sections]
        + [{"memory": _charts(one)} for one in snapshots],
        title=", ".join([*names, *snapshot_names][:3]) + ("" if len(names) + len(snapshot_names) < 4 else ", ..."),
        snapshots=[*zip(snapshot_names, snapshots, strict=True)],
        sections=[shown for _, shown in sections], several=len(sections) + len(snapshot_names) > 1, names=names,
        jobs=[_job(entry, name) for entry, name in zip(entries, names, strict=True) if isinstance(entry, Job)],
        compared=[_compared(one) for one in comparisons], beside=_beside([entry.summary for entry in entries]),
        bars_of_all=_bars([entry.summary for entry in entries], names),
        conventions=words.format(Markup("").join(items), terms),
    )  # fmt: skip


def render_measured(charts: Mapping[str, Any], title: str) -> str:
    """The page of a measured roofline, with the same chart. charts: measured, cells, roofs, total_ns."""
    return _rendered("measured.html", "counters", [charts], title=title)


def _rendered(template: str, command: str, data: object, **shown: Any) -> str:
    script, style = "".join(map(_asset, _SCRIPTS)), _asset("page.css")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["pieces"] = pieces
    return environment.get_template(template).render(
        policy=policy(script, style), style=Markup(style), script=Markup(script), version=__version__,
        data=Markup(embedded(data)), command=command, **shown,
    )  # fmt: skip


def _sections(entries: Sequence[Section | Job]) -> Iterator[tuple[Section, dict[str, Any]]]:
    """Every section, and the values that the template shows of it."""
    found: list[tuple[Section, str, str]] = []
    for entry in entries:
        if isinstance(entry, Section):
            found.append((entry, "", ""))
            continue
        for at, section in entry.sections:
            rank = entry.ranks[at]
            found.append((section, f"rank {rank.number}" if rank.number >= 0 else "", rank.why))
    names = _names([section.summary.file for section, _, _ in found])
    few = len(found) <= _OPEN
    for at, ((section, number, why), name) in enumerate(zip(found, names, strict=True)):
        unknown = [(reason, f"{count:,}", human(ns, "ns")) for reason, count, ns in section.unknown]
        yield section, {
            "name": f"{number}: {name}" if number else name, "summary": section.summary, "sentences": section.sentences,
            "sentence": section.sentences["all"], "memory": section.memory, "unknown": unknown,
            **described(section.summary), "why": why, "number": at,
            "open": (few and len(entries) == len(found)) or not at,
        }  # fmt: skip


def _charts(memory: MemorySection | None) -> Sequence[dict[str, Any]]:
    return () if memory is None else memory.charts


def policy(script: str, style: str) -> str:
    """The Content-Security-Policy: only this script and this style."""
    return f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: object) -> str:
    """JSON that is safe in a script element: no text in it ends the element or begins a comment."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------- code and prose of advice

_NAME = re.compile(r"(?:import \w+; |\w+ \+= |\.)?[A-Za-z_]\w*(?:[./]\w+)*")
_COMMAND = re.compile(
    r"(?:pyprof|nsys)(?: (?:--?[\w-]+(?:=[^\s,;)]+)?|run|[a-z]+,[a-z]+|[A-Z]{3,}))+|--[a-z][\w-]*(?:=[^\s,;)]+)?"
)
_STATEMENT = re.compile(r"[A-Z_]+=|import |with |\w+ \+=|pyprof |nsys ")
_JOINS = {"and", ",", ";", "/"}  # between lines of one box


def pieces(text: str) -> list[tuple[bool, Any]]:
    """Cut what to do into (True, code for a box of its own) and (False, prose as (whether it is code, text))."""
    found: list[tuple[bool, Any]] = []
    prose: list[tuple[bool, str]] = []

    def flush() -> None:
        said = [(prose[0][0], prose[0][1].lstrip(" ,;:.")), *prose[1:]] if prose and not prose[0][0] else prose
        if "".join(each for _, each in said).strip():
            found.append((False, [one for one in said if one[1]]))
        prose.clear()

    at = begin = 0
    while at < len(text):
        if at and (text[at - 1].isalnum() or text[at - 1] in "_."):
            at += 1
            continue
        code = _code_at(text, at)
        if not code:
            at += 1
            continue
        between = text[begin:at]
        before = between if not prose else "".join(each for _, each in prose) + between
        boxed = ("(" in code and len(code) >= _BOXED) or _STATEMENT.match(code) is not None
        boxed &= before.count("(") == before.count(")")  # what is in parentheses stays in its sentence
        if boxed and found and found[-1][0] and not prose and between.strip() in _JOINS:
            found[-1] = (True, f"{found[-1][1]}\n{code}")
        else:
            prose.append((False, between))
            if boxed:
                flush()
                found.append((True, code))
            else:
                prose.append((True, code))
        at = begin = at + len(code)
    prose.append((False, text[begin:]))
    flush()
    return found


def _code_at(text: str, at: int) -> str:
    """The code that begins there: a call, a setting, a name with dots or underscores, a command; "" if it is prose."""
    if command := _COMMAND.match(text, at):
        return command[0]
    if text.startswith("with ", at) and not at and text.endswith(":"):
        return text
    name = _NAME.match(text, at)
    if name is None:
        return ""
    end, sure = name.end(), " += " in name[0] or name[0].startswith("import ") or re.search(r"\w\w\.\w|\w_\w", name[0])
    while end < len(text):
        if text[end] == "(" and (close := _closing(text, end)):
            end, sure = close, True
        elif text[end] == "=" and (value := re.compile(r"=[^\s,;)]+").match(text, end)):
            return text[at : value.end()]
        elif text[end] == "." and (more := re.compile(r"\.\w+").match(text, end)):
            end = more.end()
        else:
            break
    return text[at:end] if sure else ""


def _closing(text: str, at: int) -> int:
    """The place behind the parenthesis that closes this one, 0 if none does."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    return 0


# ---------------------------------------------------------------------------------------------- texts of a section


def _names(files: Sequence[str]) -> list[str]:
    """File names as titles, with as many folders as it takes to tell them apart."""
    parts = [re.split(r"[/\\]", file.rstrip("/")) for file in files]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return [text_of(name) for name in names]


def _job(job: Job, name: str) -> dict[str, Any]:
    """The values of a job for the template; each rank's bar is as long as its wall time."""
    files = _names([rank.summary.file for rank in job.ranks])
    titles = [f"rank {rank.number}" if rank.number >= 0 else file for rank, file in zip(job.ranks, files, strict=True)]
    bars = _bars([rank.summary for rank in job.ranks], titles)["rows"]
    ranks = [{**bar, "file": file, "why": rank.why} for bar, rank, file in zip(bars, job.ranks, files, strict=True)]
    shown = f"{len(job.sections)} of {len(ranks)} ranks have a section below" if len(job.sections) < len(ranks) else ""
    return {
        "name": name, "summary": job.summary, "sentence": of_all(job.summary), "ranks": ranks, "shown": shown,
        "lines": [(text_of(line), line.startswith(" ")) for line in job.lines],
        "tables": [*map(_table, job.tables)], **described(job.summary),
    }  # fmt: skip


def _bars(summaries: Sequence[Figures], names: Sequence[str]) -> dict[str, Any]:
    """The time of each summary as a bar of its parts. rows: name, share of the longest in %, wall, parts; a_step: of a step
    each, where all have steps."""
    steps = [1 if one.steps is None else one.steps.count for one in summaries]
    a_step = all(one.steps is not None for one in summaries)
    walls = [(one.wall_ns or 0) // (count if a_step else 1) for one, count in zip(summaries, steps, strict=True)]
    longest = max(walls, default=0) or 1
    rows = [
        {"name": name, "share": f"{100 * wall / longest:.2f}", "wall": human(wall, "ns") if one.wall_ns else "na",
         "parts": described(one)["wall"], "file": name, "why": ""}
        for one, name, wall in zip(summaries, names, walls, strict=True)
    ]  # fmt: skip
    legend = {part["kind"]: part["kind"].replace("busy-", "").replace("cause-", "idle: ").replace("_", " ")
              for row in rows for part in row["parts"] if part["listed"]}  # fmt: skip
    return {"rows": rows, "legend": [*legend.items()], "a_step": a_step and max(steps, default=1) > 1}


def _table(table: Table) -> dict[str, Any]:
    """A table as texts. columns: name, meaning, and whether it holds numbers."""
    shown = readable(table)
    columns = [
        {"name": header.text, "help": header.help, "number": not isinstance(values, Texts)}
        for header, values in zip(shown.headers, table.values, strict=True)
        if not header.detail
    ]
    texts = [printed(values) for header, values in zip(shown.headers, shown.values, strict=True) if not header.detail]
    rows = zip(*([text_of(one) for one in column] for column in texts), strict=True)
    return {"title": table.title[:1].upper() + table.title[1:], "columns": columns, "rows": [*rows]}


def _beside(summaries: Sequence[Figures]) -> list[tuple[str, list[str]]]:
    """(name, value of each summary) of every figure; empty for one summary."""
    rows: dict[str, dict[int, str]] = {}
    for at, of in enumerate(summaries):
        for name, value, _ in figures(of):
            rows.setdefault(name, {})[at] = value
        for before, parts in (("busy: ", of.busy), ("idle: ", of.idle_ns), ("kernels: ", of.phases)):
            for name, ns in parts.items():
                if ns:
                    rows.setdefault(f"{before}{name.replace('_', ' ')}", {})[at] = human(ns, "ns")
    every = range(len(summaries))
    return [(name, [cells.get(at, "-") for at in every]) for name, cells in rows.items() if len(every) > 1]


def _compared(one: Compared | JobsCompared) -> Mapping[str, object]:
    names = _names(one.names)
    if isinstance(one, JobsCompared):
        return {
            "names": names,
            "sentence": "Kernel time, rank by rank.",
            "lines": [],
            "rows": [],
            "left": "",
            "table": _table(one.table),
        }
    rows = [
        {"op": op, "shape": shape, "layer": layer, "before": human(before, "ns"), "after": human(after, "ns"),
         "change": _signed(after - before), "what": what}
        for op, shape, layer, before, after, what in one.rows
    ]  # fmt: skip
    left = f"{one.left[0]} smaller changes, together {_signed(one.left[1])}: pyprof diff shows all" if one.left[0] else ""
    return {"names": names, "sentence": one.sentence, "lines": one.lines, "rows": rows, "left": left, "table": None}


def _signed(ns: int) -> str:
    return f"{'-' if ns < 0 else '+'}{human(abs(ns), 'ns')}"
