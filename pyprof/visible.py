"""A name that a stranger chose -> what a person may be shown of it: nothing that steers a terminal, is unseen or is endless.

Names of kernels, layers, ranges and files come from whoever wrote the program and sent the capture. What is no printable
character (control characters, escape sequences, marks that turn the direction of writing, halves of characters) is shown as
JSON writes it: `\\u001b[31m`, `\\u202e`. Every table, screen, page and message goes through here. Knows no format.
"""

from __future__ import annotations

import re
import sys

MOST = 4_000  # characters of a name: those of templates reach thousands, a hostile one has megabytes
_SUSPECT = re.compile(r"[^ -~]")  # `re` has no class of what is not printable


def visible(text: str) -> str:
    """A text in which every character that is not printable is shown as its escape in JSON, which stays right inside JSON."""
    return text if text.isprintable() else _SUSPECT.sub(_escaped, text)


def one_line(text: str, most: int = MOST) -> str:
    """A text as one visible line, with single blanks; without its middle where it has more than `most` characters."""
    return cut(visible(cut(" ".join(text.split()), most)), most)


def cut(text: str, most: int) -> str:
    """A text of at most `most` characters: its beginning and its end, an ellipsis between."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[len(text) - (most - 1 - most // 2) :]}"


def tell(text: str) -> None:
    """Print a line on standard error. Raises OSError where that is full."""
    print(cut(visible(cut(text, MOST)), MOST), file=sys.stderr, flush=True)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
