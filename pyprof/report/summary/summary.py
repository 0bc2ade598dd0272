"""The object that people hold: figures with attributes and JSON, which print as the screen."""

from __future__ import annotations

from html import escape

from pyprof.report.summary.model import Figures
from pyprof.report.summary.screen import lines
from pyprof.report.summary.styled import Units, plain


class Summary(Figures):
    """What `pyprof summary` shows of one capture or job."""

    def __repr__(self) -> str:
        return f"<pyprof summary: {self.file}>"

    def __str__(self) -> str:
        return plain(lines(self, Units()))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
