"""A name from a capture -> the text that pages, figures and notebooks show. Escaping is left to the writer of the page."""

from __future__ import annotations

from pyprof.messages import one_line

_LONGEST = 400  # characters of a name


def text_of(name: str) -> str:
    """A name on one line, invisible characters made visible, cut if very long."""
    return one_line(name, _LONGEST)
