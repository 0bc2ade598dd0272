"""A name out of a capture -> what pages, figures and notebooks show of it. Escaping is the work of whoever writes it there."""

from __future__ import annotations

from pyprof.messages import one_line

_LONGEST = 400  # characters of a name


def text_of(name: str) -> str:
    """A name of a capture as pages and figures show it: one line, nothing that cannot be seen, not endless."""
    return one_line(name, _LONGEST)
