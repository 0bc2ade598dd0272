"""The facts of torch's record of a collective (bytes, process group, ranks), given to NCCL's annotation within it.

A kernel is launched inside `nccl:all_reduce`, which names only its input; the `record_param_comms` around it has the rest.
The call of the inner range takes these facts as named arguments, so that it has them all.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_values
from pyprof.arrays.types import Array, Ints
from pyprof.parse.sources.trace import Labels, Table


def give_facts(ranges: Table, labels: Labels) -> None:
    """Change the labels of annotations in `ranges`; without such records nothing changes."""
    records = [i for i, m in enumerate(labels.markers) if m.call is not None and "collective" in dict(m.call.kwargs)]
    bare = [i for i, m in enumerate(labels.markers) if m.call is not None and m.call.module == "nccl" and not m.call.kwargs]
    if not records or not bare:
        return
    label = ranges["label"]
    around, inner = (np.flatnonzero(np.isin(label, some)) for some in (records, bare))
    owner = _innermost(ranges, around, inner)
    inner, owner = inner[owner >= 0], owner[owner >= 0]
    new: dict[tuple[int, int], int] = {}
    for row, own, outer in zip(inner.tolist(), ranges["label"][inner].tolist(), ranges["label"][owner].tolist(), strict=True):
        code = new.get((own, outer))
        if code is None:
            marker, record = labels.markers[own], labels.markers[outer]
            if marker.call is None or record.call is None:
                continue
            whole = marker._replace(call=marker.call._replace(kwargs=record.call.kwargs))
            code = new[own, outer] = labels.add((marker.kind, marker.name, repr(whole.call)), whole)
        ranges["label"][row] = code


def _innermost(ranges: Table, around: Array, inner: Array) -> Ints:
    """For each row of `inner` the last one of `around` that began before it on its thread and had not ended; -1 none.

    Records of collectives do not nest, so that only the last one can contain it.
    """
    found = np.full(len(inner), -1, np.int64)
    start, end, thread = ranges["start_ns"], ranges["end_ns"], ranges["thread"]
    for one in distinct_values(thread[inner]).tolist():
        here, own = around[thread[around] == one], np.flatnonzero(thread[inner] == one)
        here = here[np.argsort(start[here], kind="stable")]
        at = np.searchsorted(start[here], start[inner[own]], "right") - 1
        inside = at >= 0
        inside[inside] = end[here[at[inside]]] >= end[inner[own[inside]]]
        found[own[inside]] = here[at[inside]]
    return found
