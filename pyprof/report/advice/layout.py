"""Kernels that convert tensors to channels last and back around convolutions: time that the model need not spend."""

from __future__ import annotations

import re

import numpy as np

from pyprof.prof.frame import Frame
from pyprof.report.advice.advice import Advice, kernels_of, most, where

__all__ = ["conversions"]

_CONVERSION = re.compile(r"nchw_?(?:to|2)_?nhwc|nhwc_?(?:to|2)_?nchw", re.IGNORECASE)


def conversions(frame: Frame) -> list[Advice]:
    """One advice for all of them; a model in channels last saves their whole time."""
    records, names = frame.records, frame.short_names
    converts = where(lambda name: _CONVERSION.search(name) is not None, names.pool, names.codes)
    around = where(lambda call: "conv" in call.op, records.calls, records["call"])
    rows = kernels_of(frame, np.flatnonzero(converts & around))
    time = int(records["dur_ns"][rows].sum())
    if not time:
        return []
    evidence = most(names.codes[rows], records["dur_ns"][rows], names.pool)
    change = "keep model and input in channels last: .to(memory_format=torch.channels_last)"
    return [Advice("conversions of layout around convolutions", change, evidence, time, time)]
