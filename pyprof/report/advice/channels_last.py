"""Kernels that turn images from channels first to channels last and back around convolutions: a model kept in channels last has
none of them. Silent where the recorded strides say that the input already is so.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import Advice, is_worth, mean_ns, named, places
from pyprof.report.time.change import Change
from pyprof.report.time.overview import Overview
from pyprof.tables.units import human

# cuDNN's and MIOpen's own; other libraries' kernels, which any program may use, count only inside a convolution.
_OWN = r"(?s)cudnn.*(?:nchwTo(?:Folded)?Nhwc|nhwcTo(?:Folded)?Nchw)|^batched_transpose_\d+x\d+_"
_ANY = r"(?i)nchw_?(?:to|2)_?nhwc|nhwc_?(?:to|2)_?nchw"


def find(overview: Overview) -> Advice | None:
    """All conversions of layout that belong to convolutions."""
    classes, calls = overview.frame.classes, overview.records.calls
    alike, name = classes.records, overview.frame.of_classes.of_name(str)
    own, likely = (
        np.array([re.search(test, text) is not None for text in name.pool] + [False])[name.codes] for test in (_OWN, _ANY)
    )
    convolves = np.array(["conv" in call.op for call in calls] + [False])[alike["call"]]
    # Silent where the first image already has its channels side by side.
    images = [next((tensor for tensor in call.tensors if len(tensor.shape) in (4, 5)), None) for call in calls]
    already = np.array(
        [image is not None and image.strides is not None and image.strides[1] == 1 and image.shape[1] > 1 for image in images]
        + [False]
    )[alike["call"]]
    chosen = np.where(alike["call"] >= 0, convolves & (own | likely) & ~already, own)
    rows = classes.rows(chosen & (alike["kind"] == ActivityKind.KERNEL))
    rows = rows[overview.inside[rows]]
    time = mean_ns(overview, overview.division.exclusive_ns[rows])
    if not is_worth(overview, time):
        return None
    found = places(overview, rows, overview.division.exclusive_ns[rows])
    evidence = f"{len(rows)} kernels that convert between channels first and last take {human(time, 'ns')}: {named(found)}"
    do = "model.to(memory_format=torch.channels_last) and images.to(memory_format=torch.channels_last)"
    if any(gpu.amd for gpu, _ in overview.frame.gpus):
        do += ", with PYTORCH_MIOPEN_SUGGEST_NHWC=1 in the environment"
    return Advice("channels_last", Change(removed=rows), time, evidence, do, found)
