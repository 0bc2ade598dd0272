"""Names of hardware metrics -> what torch.profiler must be asked for, where the installed torch and its CUDA can count them.

Builds for CUDA up to 12.6 count each launch (`cuda_profiler_range` in the trace, without real times); newer releases sample the
whole device beside the kernels. Where neither is there Nsight Compute counts: the error has its command line. Records nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyprof.errors import ToolError
from pyprof.recording.tools import ask

SAMPLED = "all"  # in place of names: what nsys samples
_LAST_CUDA = (12, 6)


class Measuring(NamedTuple):
    """How to measure by torch.profiler. activity: the one to use in place of CUDA; options: of its experimental
    configuration; how: a line that tells the user what is counted."""

    activity: Any
    options: dict[str, object]
    how: str


def measuring(metrics: Sequence[str], per_kernel: bool) -> Measuring:
    """How this torch counts metrics, by their names in Nsight Compute: each launch, or else the recording as a whole.

    Raises ToolError if it can neither count nor sample them.
    """
    import torch

    cuda, version = torch.profiler.ProfilerActivity.CUDA, torch.version.cuda
    count = f"{len(metrics)} metric{'s' * (len(metrics) != 1)}"
    if version is not None and tuple(map(int, version.split(".")[:2])) <= _LAST_CUDA:
        options = {"profiler_metrics": list(metrics), "profiler_measure_per_kernel": per_kernel}
        of = "each launch" if per_kernel else "the recording as a whole"
        return Measuring(cuda, options, f"counting {count} of {of}, in place of the times of kernels")
    sampling = getattr(torch.profiler, "PerformanceMetricsConfig", None)
    if version is not None and sampling is not None:
        config = torch.profiler.ProfilerActivityConfig(profiler_configs=[sampling(metric_names=list(metrics))])
        return Measuring(
            {cuda: config}, {}, f"sampling {count} of the whole device: shares through time, not counts of launches"
        )
    built = "without CUDA" if version is None else f"for CUDA {version}"
    command = f"ncu --csv --page raw --nvtx --log-file net.csv --metrics {','.join(metrics)} python net.py"
    raise ToolError(f"torch {torch.__version__}, built {built}, can neither count nor sample hardware metrics", command)


def sampling(nsys: str) -> str:
    """The option by which this nsys samples metrics of every GPU. Raises ToolError if it has none."""
    found = re.search("--gpu-metrics-devices?(?==)", ask(nsys, "profile", "--help")[1])
    if found is None:
        raise ToolError("this nsys does not sample metrics of GPUs", "nsys 2021.2 and newer do")
    return f"{found[0]}=all"
