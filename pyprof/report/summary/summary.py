"""The object that people hold: figures with attributes and JSON, which print as the screen and show in a notebook."""

from __future__ import annotations

from pyprof.report.summary.model import Figures
from pyprof.report.summary.screen import lines
from pyprof.report.summary.styled import Units, plain

_LEAST_WIDTH = 60


class Summary(Figures):
    """What `pyprof summary` shows of one capture or job."""

    def __repr__(self) -> str:
        """The screen, as wide as the terminal at whose prompt it stands."""
        import shutil  # of several libraries, for terminals alone

        most = Units().width
        return plain(lines(self, Units(width=min(max(shutil.get_terminal_size().columns, _LEAST_WIDTH), most))))

    def __str__(self) -> str:
        return plain(lines(self, Units()))

    def _repr_html_(self) -> str:
        from pyprof.report.summary.notebook import notebook_html

        return notebook_html(self)
