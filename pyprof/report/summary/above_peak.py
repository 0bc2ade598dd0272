"""Kernels of a window that run faster than their device can -> one note that names the op, how fast, and what is known of why.

Left out are ops that the L2 cache explains, and convolutions by Winograd's algorithm or by FFT, which need fewer operations
than their definition: every kernel of such a convolution, for its products have the names of plain ones.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.columns.distinct import among, one_of
from pyprof.columns.intervals import summed
from pyprof.columns.types import Ints
from pyprof.model.trace import ActivityKind
from pyprof.prof.roofline import BOUNDS, COMPUTE, L2, OVER
from pyprof.report.summary.breakdown import Kernels
from pyprof.report.summary.styled import percent
from pyprof.tables.units import human

_LEAST, _MOST = 0.03, 110.0  # share of the kernel time worth a note; percent of the peak above which a rate is none
_FEWER = re.compile(r"winograd|conv_fft|fft_conv")  # families of kernels
_DISTRIBUTED = re.compile(r"c10d_functional|_c10d|dtensor", re.IGNORECASE)  # ops of programs with DTensor
_IN_CACHE = 4  # bytes over those that fit the L2 cache: with less, much of them may lie in it


def above_peak(kernels: Kernels) -> str:
    """The note, '' without one."""
    frame, rows = kernels.frame, kernels.rows
    records, roof = frame.records, frame.roofline
    fast = (roof.peak[rows] > _MOST) & (roof.bound[rows] != L2) & among(records["kind"][rows], (ActivityKind.KERNEL,))
    at = np.flatnonzero(fast)
    if not len(at) or int(kernels.time_ns[at].sum()) < _LEAST * kernels.total_ns:
        return ""
    fewer = np.array([_FEWER.search(one.family) is not None for one in frame.costs.kernels], np.bool_)
    of_fewer = records["instance"][rows[fewer[frame.costs.kernel[rows]]]]
    at = at[~one_of(np.unique(of_fewer[of_fewer >= 0]), len(at))(records["instance"][rows[at]])]
    at = at[~fewer[frame.costs.kernel[rows[at]]]]
    time = int(kernels.time_ns[at].sum())
    if not len(at) or time <= _LEAST * kernels.total_ns:
        return ""
    names: dict[str, int] = {}
    code = np.array([*(names.setdefault(call.op, len(names)) for call in records.calls), len(names)], np.int64)
    of = code[records["call"][rows[at]]]
    most = int(summed(of, kernels.time_ns[at], len(names) + 1).argmax())
    name, own = ([*names, "kernels without an op"][most], rows[at[of == most]])
    fastest = float(roof.peak[own].max())
    share = percent(time, kernels.total_ns)
    return (
        f"{len(at):,} kernels ({share} of the kernel time) run above {_MOST:.0f} % of the peak, most of that in {name}, up to "
        f"{fastest:.0f} %: {_reason(kernels, own, fastest)}"
    )


def _reason(kernels: Kernels, rows: Ints, fastest: float) -> str:
    """Why the rows of one op are as fast, as far as that is known."""
    frame = kernels.frame
    records, code = frame.records, int(frame.records["gpu"][rows[0]])
    gpu = frame.gpus[code][0] if 0 <= code < len(frame.gpus) else None
    clock = records.gpus[code].clock_hz if 0 <= code < len(records.gpus) else -1
    by_compute = BOUNDS[frame.roofline.bound[rows[0]]] == BOUNDS[COMPUTE + OVER]
    if gpu is not None and gpu.boost_hz and by_compute and fastest <= _MOST * clock / gpu.boost_hz:
        return f"the device may clock at {clock / 1e6:.0f} MHz, its peak is that of {gpu.boost_hz / 1e6:.0f} MHz"
    calls = [records.calls[at] if at >= 0 else None for at in (records[name][rows[0]] for name in ("call", "inner"))]
    outer, inner = (sum(one.numel for one in call.tensors) if call is not None else 0 for call in calls)
    if 0 < inner < outer or any(_DISTRIBUTED.search(call.name) for call in records.calls):
        return "sizes may be those of a whole DTensor, of which this rank computed a part"
    moved = int(frame.costs.of("bytes", rows).max())
    if gpu is not None and gpu.l2_bytes and not by_compute and moved <= _IN_CACHE * gpu.l2_bytes:
        held = human(gpu.l2_bytes, "B")
        return f"of its {human(moved, 'B')} as much as {held} may lie in the L2 cache"
    if not by_compute:
        return "the kernel may touch only a part of a buffer that is counted whole"
    return "reason unknown"
