"""What would make the program faster, each piece with its evidence and the most that it can save, computed and never guessed.

One file for each kind of advice: a function from a Frame to pieces. No text is laid out here.
"""

from __future__ import annotations

from pyprof.prof.frame import Frame
from pyprof.report.advice.advice import Advice
from pyprof.report.advice.host import late_launches
from pyprof.report.advice.layout import conversions
from pyprof.report.advice.optimizer import unfused
from pyprof.report.advice.products import products
from pyprof.report.advice.small import short_kernels

__all__ = ["Advice", "advise"]


def advise(frame: Frame) -> list[Advice]:
    """All advice on a frame, that which can save most first."""
    found = [piece for kind in (products, conversions, unfused, short_kernels, late_launches) for piece in kind(frame)]
    return sorted(found, key=lambda piece: (-piece.saves_ns, piece.evidence))
