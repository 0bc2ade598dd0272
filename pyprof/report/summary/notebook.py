"""A summary -> HTML for a notebook: the words of the page and the first rows of its tables. No figure is computed here."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from pyprof.report.page.colours import colours
from pyprof.report.summary.model import Figures
from pyprof.report.summary.tables import TABLES
from pyprof.report.summary.words import described
from pyprof.tables.names import text_of
from pyprof.tables.rows import html

_TEMPLATE = Path(__file__).with_name("notebook.html")
_TABLES = ("ops", "layers", "lost")
_ROWS = 10


class _Shown(NamedTuple):
    """A table under its title."""

    title: str
    rows: Markup


def notebook_html(of: Figures) -> str:
    """One element without script and style sheet. Every name of the capture in it is escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    name = text_of(of.file.rstrip("/").rpartition("/")[2])
    return template.render(name=name, on_gpu=of.on_gpu, tables=_tables(of), colours=colours(), **described(of))


def _tables(of: Figures) -> list[_Shown]:
    """Those that have rows, with the first of them."""
    found = []
    for table in (TABLES[name](of) for name in _TABLES):
        count = len(table.rows)
        left = f" (the first {_ROWS} of {count})" if count > _ROWS else ""
        if count:
            found.append(_Shown(f"{table.title}{left}", Markup(html(table.first(_ROWS), ""))))
    return found
