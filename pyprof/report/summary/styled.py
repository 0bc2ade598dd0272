"""Figures -> text as every part of the screen writes it, in lines of styled text. Knows no summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from pyprof.tables.units import human

Line: TypeAlias = list[tuple[str, str]]


class Units(NamedTuple):
    """How figures are written. human: 1.24 ms, else ns; width: characters of a line; bars: whether shares are drawn."""

    human: bool = True
    width: int = 100
    bars: bool = False

    def ns(self, time: float | None) -> str:
        return self.of(time, "ns")

    def number(self, number: float | None) -> str:
        """A number without a unit; three digits of a small fraction."""
        if number is None:
            return "na"
        return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"

    def of(self, number: float | None, unit: str) -> str:
        """A number with a unit."""
        if self.human or number is None:
            return human(number, unit)
        return f"{number:.0f} {unit}"


def percent(part: float | None, whole: float | None = 1.0) -> str:
    """A share in whole percent, `na` where it is unknown."""
    return "na" if part is None or not whole else f"{100 * part / whole:.0f} %"


def at_least(number: float | None, least: float | None, text: Callable[[float | None], str]) -> str:
    """A number as a text; where it is unknown its lower bound."""
    return text(number) if least is None else f"at least {text(least)}"


def utilised(share: float | None, least: float | None) -> str:
    """MFU or HFU; where it is unknown its lower bound."""
    return at_least(share, least, _two_digits)


def _two_digits(share: float | None) -> str:
    if share is None:
        return "na"
    return f"{100 * share:.0f} %" if share >= 0.095 or not share else f"{100 * share:.2g} %"


def known_share(share: float) -> str:
    """A share in percent that never rounds up to 100 %."""
    return f"{int(1000 * share) / 10:.1f} %" if 0.99 <= share < 1 else f"{100 * share:.0f} %"


def plain(lines: Sequence[Line]) -> str:
    """Lines as text."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
