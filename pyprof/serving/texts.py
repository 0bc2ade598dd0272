"""Texts out of captures -> texts that a language model can be shown: one line, nothing invisible, short, between ⟦ and ⟧.

Whoever wrote the program that was recorded chose its names, and a name can look like an instruction. Marks around it say where
it begins and ends, and the text inside cannot hold a mark.
"""

from __future__ import annotations

import unicodedata

OPEN, CLOSE = "⟦", "⟧"
MOST, MOST_OF_SENTENCES = 160, 600  # characters
_INSIDE = str.maketrans({OPEN: "[", CLOSE: "]"})
# Marks that follow a letter unseen, of which any number can carry hidden text.
_SELECTORS = {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), 0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800}


def visible(text: str) -> str:
    """One line without control, bidirectional, zero-width and other invisible characters."""
    spaced = "".join(" " if character.isspace() else character for character in text)
    shown = (c for c in spaced if unicodedata.category(c)[0] != "C" and ord(c) not in _SELECTORS)
    return " ".join("".join(shown).split())


def marked(text: str, most: int = MOST) -> str:
    """The text as it is shown, at most so many characters of it, between the marks."""
    shown = visible(text[: 8 * most]).translate(_INSIDE)
    return f"{OPEN}{shown if len(shown) <= most else shown[: most - 1] + '…'}{CLOSE}"


def bare(text: str) -> str:
    """A text that came back as it was shown, without the marks."""
    return text.removeprefix(OPEN).removesuffix(CLOSE)


def is_plain(text: str) -> bool:
    """Whether it is shown as it is, and can be asked for so."""
    return bare(marked(text)) == text
