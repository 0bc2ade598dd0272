"""Kernels that turn images from channels first to channels last and back around convolutions: a model kept in channels last has
none of them. Silent where the recorded strides say that the input already is so.

On a CPU oneDNN does it inside its convolutions: each reads and writes its images, and what it makes of them, once more than it
would. What that takes is told by the rate that the fastest op on large tensors reaches in the same capture.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.columns.intervals import summed
from pyprof.columns.types import Bools
from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import Advice, cut_ns, is_worth, mean_ns, named, places
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

# cuDNN's and MIOpen's own; other libraries' kernels, which any program may use, count only inside a convolution.
_OWN = r"(?s)cudnn.*(?:nchwTo(?:Folded)?Nhwc|nhwcTo(?:Folded)?Nchw)|^batched_transpose_\d+x\d+_"
_ANY = r"(?i)nchw_?(?:to|2)_?nhwc|nhwc_?(?:to|2)_?nchw"
_ONEDNN = "mkldnn_convolution"
_LARGE = 1 << 20  # bytes that an op moves: fewer stay in caches
_DO = "model.to(memory_format=torch.channels_last) and images.to(memory_format=torch.channels_last)"


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
    if not overview.division.on_gpu:
        return _on_a_cpu(overview, convolves & ~already)
    chosen = np.where(alike["call"] >= 0, convolves & (own | likely) & ~already, own)
    rows = classes.rows(chosen & (alike["kind"] == ActivityKind.KERNEL))
    rows = rows[overview.inside[rows]]
    time = mean_ns(overview, overview.division.exclusive_ns[rows])
    if not is_worth(overview, time):
        return None
    found = places(overview, rows, overview.division.exclusive_ns[rows])
    evidence = f"{len(rows)} kernels that convert between channels first and last take {human(time, 'ns')}: {named(found)}"
    do = _DO + ", with PYTORCH_MIOPEN_SUGGEST_NHWC=1 in the environment" * any(gpu.amd for gpu, _ in overview.frame.gpus)
    return Advice("channels_last", Change(removed=rows), time, evidence, do, found)


def _on_a_cpu(overview: Overview, convolves: Bools) -> Advice | None:
    """Convolutions of oneDNN with channels first. convolves: of classes."""
    classes, calls, nbytes = overview.frame.classes, overview.records.calls, overview.frame.costs.bytes
    ran = classes.records["kind"] == ActivityKind.CPU
    rows = classes.rows(ran & convolves)
    rows = rows[overview.inside[rows] & (nbytes[rows] > 0)]
    if not any(calls[code].op == _ONEDNN for code in set(overview.records["inner"][rows].tolist()) if code >= 0):
        return None
    plain = np.array([*("conv" not in call.op for call in calls), False], np.bool_)[classes.records["call"]]
    others = classes.rows(ran & plain)
    others = others[overview.inside[others] & (nbytes[others] >= _LARGE)]
    call, time = overview.records["call"], overview.division.exclusive_ns
    moved, took = (summed(call[others], column[others], len(calls)) for column in (nbytes, time))
    if not took.any():
        return None
    rates = moved / np.where(took > 0, took, np.inf)  # bytes/ns
    best = int(np.argmax(rates))
    images = [[tensor for tensor in one.tensors if len(tensor.shape) in (4, 5)] for one in calls]
    weights = np.array([tensors[1].nbytes or 0 if len(tensors) > 1 else 0 for tensors in images], np.int64)
    granted = cut_ns(overview, rows, 2 * np.maximum(nbytes[rows] - weights[call[rows]], 0) / rates[best])
    saves, held = mean_ns(overview, granted), mean_ns(overview, time[rows])
    if not is_worth(overview, saves):
        return None
    found = places(overview, rows, granted)
    evidence = (
        f"{len(rows)} convolutions of images with channels first take {human(held, 'ns')}; oneDNN turns their images round and "
        f"back, {human(saves, 'ns')} of it at the {human(rates[best] * 1e9, 'B/s')} that {calls[best].op} reaches here"
    )
    return Advice("channels_last", Change(rows=rows, cut_ns=granted), held, f"{evidence}: {named(found)}", _DO, found)
