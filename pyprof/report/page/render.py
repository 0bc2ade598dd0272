"""Sections and comparisons -> one HTML file that needs no other, under a policy that lets nothing else run or load.

The text is made here by the template, the charts in the browser by the one script, from JSON. Figures are given, none computed.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pyprof import __version__
from pyprof.help import page as help_page
from pyprof.report.names import text_of
from pyprof.report.page.data import Compared, Section
from pyprof.report.summary.words import described, figures
from pyprof.tables.units import human

_ASSETS = Path(__file__).with_name("assets")
_SCRIPTS = ("d3.js", "base.js", "cells.js", "icicle.js", "roofline.js", "timeline.js", "tables.js", "main.js")


def render(sections: Sequence[Section], comparisons: Sequence[Compared] = ()) -> str:
    """The page."""
    script, style = _asset_script(), _asset("page.css")
    names = _names([section.summary.file for section in sections])
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    data = [{**section.charts, "name": name} for section, name in zip(sections, names, strict=True)]
    return environment.get_template("page.html").render(
        policy=policy(script, style), title=", ".join(names[:3]) + ("" if len(names) < 4 else ", ..."),
        style=Markup(style), script=Markup(script), data=Markup(embedded(data)), version=__version__,
        sections=[_section(section, name) for section, name in zip(sections, names, strict=True)],
        compared=[_compared(one) for one in comparisons], beside=_beside(sections), conventions=_conventions(),
    )  # fmt: skip


def policy(script: str, style: str) -> str:
    """The Content-Security-Policy: this script, this style, nothing else from anywhere."""
    return f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: object) -> str:
    """JSON that can stand in a script element: no text in it ends that element or begins a comment."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _asset_script() -> str:
    return "".join(_asset(name) for name in _SCRIPTS)


# ---------------------------------------------------------------------------------------------- texts of a section


def _names(files: Sequence[str]) -> list[str]:
    """What sections are called: the names of the files, with as much of their folders as tells them apart."""
    parts = [re.split(r"[/\\]", file.rstrip("/")) for file in files]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return [text_of(name) for name in names]


def _section(section: Section, name: str) -> dict[str, Any]:
    unknown = [(reason, f"{count:,}", human(ns, "ns")) for reason, count, ns in section.unknown]
    of = section.summary
    return {"name": name, "summary": of, "sentences": section.sentences, "unknown": unknown, **described(of)}


def _beside(sections: Sequence[Section]) -> list[tuple[str, list[str]]]:
    """The same figures of all sections in the same rows."""
    rows: dict[str, dict[int, str]] = {}
    for at, of in enumerate(section.summary for section in sections):
        for name, value, _ in figures(of):
            rows.setdefault(name, {})[at] = value
        for before, parts in (("busy: ", of.busy), ("idle: ", of.idle_ns), ("kernels: ", of.phases)):
            for name, ns in parts.items():
                if ns:
                    rows.setdefault(f"{before}{name.replace('_', ' ')}", {})[at] = human(ns, "ns")
    return [(name, [cells.get(at, "-") for at in range(len(sections))]) for name, cells in rows.items() if len(sections) > 1]


def _compared(one: Compared) -> Mapping[str, object]:
    rows = [
        {"op": op, "shape": shape, "layer": layer, "before": human(before, "ns"), "after": human(after, "ns"),
         "change": _signed(after - before), "what": what}
        for op, shape, layer, before, after, what in one.rows
    ]  # fmt: skip
    left = f"{one.left[0]} more rows, together {_signed(one.left[1])}: pyprof diff shows all" if one.left[0] else ""
    return {"names": [*map(text_of, _names(one.names))], "lines": one.lines, "rows": rows, "left": left}


def _signed(ns: int) -> str:
    return f"{'-' if ns < 0 else '+'}{human(abs(ns), 'ns')}"


def _conventions() -> Markup:
    """The pages of `pyprof help` that say it."""
    items = re.split(r"\n(?=- )", help_page("conventions").partition("\n")[2].strip())
    texts = Markup("").join(Markup("<li>{}</li>").format(_marked(item.removeprefix("- "))) for item in items)
    terms = help_page("terms").partition("\n")[2].strip()
    return Markup("<ul>{}</ul><details><summary>The words of this page</summary><pre>{}</pre></details>").format(texts, terms)


def _marked(text: str) -> Markup:
    """One paragraph of Markdown with code in it."""
    parts = " ".join(text.split()).split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))
