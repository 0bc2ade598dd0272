"""What the blocks of the screen are made of: a line of styled text, and how figures are written in it. Knows no summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from pyprof.tables.units import human

Line: TypeAlias = list[tuple[str, str]]


class Units(NamedTuple):
    """How figures are written. human: 1.24 ms, else ns; width: characters of a line; bars: whether shares are drawn."""

    human: bool = True
    width: int = 100
    bars: bool = False

    def ns(self, time: float | None) -> str:
        """A time."""
        return self.of(time, "ns")

    def number(self, number: float | None) -> str:
        """A number without a unit, of a fraction as many digits as say something."""
        if number is None:
            return "na"
        return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"

    def of(self, number: float | None, unit: str) -> str:
        """A number with a unit."""
        if self.human or number is None:
            return human(number, unit)
        return f"{number:.0f} {unit}"


def plain(lines: Sequence[Line]) -> str:
    """Lines as text."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
