"""A name out of a capture -> what pages, figures and notebooks show of it. Escaping is the work of whoever writes it there."""

from __future__ import annotations

_LONGEST = 400  # characters of a name


def text_of(name: str) -> str:
    """A name of a capture as pages and figures show it: one line, nothing that cannot be seen, not endless."""
    text = " ".join(name.split())
    if not text.isprintable():  # control characters, and those that turn the direction of writing
        text = "".join(one if one.isprintable() else "?" for one in text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
