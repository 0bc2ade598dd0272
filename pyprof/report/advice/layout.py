"""Kernels that turn tensors to channels last and back around convolutions: time that the model need not spend."""

from __future__ import annotations

import re

import numpy as np

from pyprof.prof.frame import Frame
from pyprof.report.advice.advice import Advice, kernels_of, most

__all__ = ["conversions"]

_CONVERSION = re.compile(r"nchw_?(?:to|2)_?nhwc|nhwc_?(?:to|2)_?nchw", re.IGNORECASE)


def conversions(frame: Frame) -> list[Advice]:
    """One piece for all of them; what they took is what a model in channels last saves."""
    records, names = frame.records, frame.short_names
    converts = np.array([_CONVERSION.search(name) is not None for name in names.pool] + [False])[names.codes]
    around = np.array(["conv" in call.op for call in records.calls] + [False])[records["call"]]
    rows = kernels_of(frame, np.flatnonzero(converts & around))
    time = int(records["dur_ns"][rows].sum())
    if not time:
        return []
    evidence = most(names.codes[rows], records["dur_ns"][rows], names.pool)
    change = "keep model and input in channels last: .to(memory_format=torch.channels_last)"
    return [Advice("conversions of layout around convolutions", change, evidence, time, time)]
