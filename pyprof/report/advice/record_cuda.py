"""Captures of programs on a GPU that do not show its work -> record it; of such a capture nothing else can be said."""

from __future__ import annotations

from pyprof.report.advice.base import Advice
from pyprof.report.time.overview import Overview


def find(overview: Overview) -> Advice | None:
    """Where launches have no kernel, or CUDA was not traced."""
    unseen = overview.records.unseen
    return None if unseen is None else Advice("record_cuda", None, None, unseen.what, unseen.do)
