"""Digits in a text of a capture -> a number that a column holds. Whose number it is is not known here."""

from __future__ import annotations

_MOST_DIGITS = 18  # fit 62 bits; Python itself refuses to read some thousands


def integer(text: str) -> int:
    """The number that a text is; -1, unknown, where it is none or has more digits than a column holds."""
    digits = text[1:] if text[:1] == "-" else text
    return int(text) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else -1
