"""What would make the program faster: each advice with its evidence and the most that it can save, computed and never guessed.

One module for each kind of advice: a function from a Frame to a list. Text is not laid out here.
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

_KINDS = (products, conversions, unfused, short_kernels, late_launches)


def advise(frame: Frame) -> list[Advice]:
    """All advice on a frame, what can save most first."""
    return sorted((one for kind in _KINDS for one in kind(frame)), key=lambda one: (-one.saves_ns, one.evidence))
