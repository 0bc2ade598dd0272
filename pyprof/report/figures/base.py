"""Parts of every figure: plotly if it is installed, escaped texts, a frame with a sentence and notes.

plotly interprets some HTML, entities and TeX in texts, so every text of a capture is escaped. Knows no capture.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from pyprof.errors import install_extra, unusable

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_COLUMNS = 110  # characters of a line above and below the drawing
_LINE = 17  # pixels of one such line
_SOFT = "#7a838c"  # of lines and texts on a light and on a dark ground


def plotly() -> Any:
    """plotly.graph_objects. Raises ToolError if it is not installed."""
    try:
        import plotly.graph_objects
    except ImportError as error:
        raise unusable("a figure", "plotly", error, install_extra("notebook")) from error
    return plotly.graph_objects


def shown(text: str) -> str:
    """A text escaped for plotly, which then shows it literally."""
    return escape(text, quote=False).replace("$", "&#36;")


def hover(title: str, rows: Iterable[tuple[str, str | None]]) -> str:
    """The text beside the pointer: a title and the rows that have a value."""
    lines = [f"{shown(name)}: {_broken(value)}" for name, value in rows if value]
    return "<br>".join([f"<b>{_broken(title)}</b>", *lines])


def _broken(text: str) -> str:
    """A long text in lines of 80 characters."""
    return "<br>".join(map(shown, textwrap.wrap(text, 80) or [""]))


def framed(drawing: Sequence[Any], title: str, sentence: str, notes: Sequence[str], height: int) -> Figure:
    """A figure of these traces. sentence: the message below the title; notes: omissions, below the drawing; height: of the
    drawing, in pixels."""
    above, below = textwrap.wrap(sentence, _COLUMNS), [line for note in notes for line in textwrap.wrap(f"- {note}", _COLUMNS)]
    lines = [f"<b>{shown(title)}</b>", *(f'<span style="font-size: 13px">{shown(line)}</span>' for line in above)]
    top, bottom = 60 + _LINE * len(above), 60 + _LINE * len(below)
    figure = plotly().Figure(drawing)
    figure.update_layout(
        title={
            "text": "<br>".join(lines), "x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "container",
            "yanchor": "top", "pad": {"t": 12}, "font": {"size": 16},
        },
        height=height + top + bottom, margin={"l": 70, "r": 20, "t": top, "b": bottom},
        hoverlabel={"align": "left", "namelength": -1}, legend={"groupclick": "togglegroup"},
    )  # fmt: skip
    if below:
        figure.add_annotation(
            text="<br>".join(map(shown, below)), xref="paper", yref="paper", x=0, y=0, xanchor="left", yanchor="top",
            yshift=-45, align="left", showarrow=False, font={"size": 12, "color": _SOFT},
        )  # fmt: skip
    return figure


def empty(title: str, why: str, sentence: str = "", notes: Sequence[str] = ()) -> Figure:
    """A figure with the reason why nothing is drawn."""
    figure = framed([], title, sentence, notes, 160)
    figure.update_layout(xaxis={"visible": False}, yaxis={"visible": False})
    text = "<br>".join(map(shown, textwrap.wrap(why, 90)))
    figure.add_annotation(text=text, xref="paper", yref="paper", x=0.5, y=0.5, showarrow=False)
    return figure


def percent(share: float | None) -> str:
    """`44 %`, `4.4 %`, `na` if unknown."""
    if share is None:
        return "na"
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or not value else f"{value:.1f} %" if value >= 0.095 else "<0.1 %"


def used(names: Sequence[str], codes: Iterable[int]) -> Mapping[int, str]:
    """Code -> name of the codes that occur, in the order of the names."""
    there = set(codes)
    return {code: name for code, name in enumerate(names) if code in there}
