"""A report of Nsight Compute (`.ncu-rep`) -> Measured, by NVIDIA's package ncu-report, which needs neither ncu nor a GPU.

Knows nothing of what metrics mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyprof.errors import InputError, install_extra, unusable
from pyprof.parse.sources.measured.launches import Builder, Dim, Launch, Measured, scale


def read(path: Path, name: str) -> Measured:
    """All launches of a report. Raises ToolError if the package is missing, InputError if it cannot read the file."""
    try:
        import ncu_report
    except ImportError as error:
        raise unusable(f"{name}: a report of Nsight Compute", "ncu-report", error, install_extra("ncu")) from error
    try:
        context = ncu_report.load_report(str(path))
    except Exception as error:  # the package documents no types
        raise InputError(f"{name}: ncu-report cannot read it: {error}", "write it again, or as CSV: ncu --csv") from error
    builder, gpus = Builder(), dict[int, str]()
    for range_ in map(context.range_by_idx, range(context.num_ranges())):
        for action in map(range_.action_by_idx, range(range_.num_actions())):
            _add(builder, gpus, action)
    found = builder.built("ncu", gpus)
    if not len(found):
        raise InputError(f"{name}: no launch was measured in it", "see what ncu printed, and its --kernel-name filter")
    return found


def _add(builder: Builder, gpus: dict[int, str], action: Any) -> None:
    metrics = {metric: action.metric_by_name(metric) for metric in action.metric_names()}

    def whole(metric: str) -> int:
        found = metrics.get(metric)
        return int(found.as_uint64()) if found is not None and found.has_value() else -1

    def dim(of: str) -> Dim | None:
        x, y, z = (whole(f"launch__{of}_dim_{axis}") for axis in "xyz")
        return (x, y, z) if min(x, y, z) >= 0 else None

    capability = [whole(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")]
    cc = ".".join(map(str, capability)) if min(capability) >= 0 else ""
    device = whole("launch__device_id")
    launch = Launch(
        action.name(action.NameBase_DEMANGLED),
        dim("grid"),
        dim("block"),
        -1,
        device,
        whole("launch__stream_id"),
        cc,
        _scopes(action),
    )
    row = builder.launch(launch)
    for metric, found in metrics.items():
        if found.kind() == found.ValueKind_STRING:
            if metric == "device__attribute_display_name":
                gpus[device] = found.as_string()
            continue
        power, _ = scale(found.unit() or "")
        builder.put(row, metric, float(found.as_double()) * 10.0**power if found.has_value() else None)


def _scopes(action: Any) -> tuple[str, ...]:
    """The push/pop ranges open on the launching thread, outermost first; a range of another domain begins with it."""
    state = action.nvtx_state()
    found: list[str] = []
    for domain in state.domains() if state is not None else ():
        info = state.domain_by_id(domain)
        name = info.name()
        of_domain = "" if name in ("", "<default domain>") else f"{name}:"
        found += [of_domain + text for text in info.push_pop_ranges()]
    return tuple(found)
