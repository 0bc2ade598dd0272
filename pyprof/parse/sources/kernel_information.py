"""`kernel_information.json`, which Inductor writes of what it fused (`trace.provenance_tracking_level`) -> lines of kernels.

    {"triton_poi_fused_add_0:3": {"stack_traces": ["File \\"net.py\\", line 12, in forward ..."], "pre_grad_nodes": [..], ..}}

A key is the kernel's name and a number that tells several of one name apart; a trace has names alone, so that lines are known
only where all of a name have the same.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

NAME = "kernel_information.json"
_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_MOST_BYTES = 1 << 28


class _Kernel(msgspec.Struct):
    stack_traces: list[str] = []


def beside(run: Path) -> dict[str, tuple[str, ...]]:
    """Lines `file:line` that each kernel was made from, by its name, if that file lies beside a run's and can be read."""
    path = run.parent / NAME
    try:
        if not run.is_file() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return {}
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, _Kernel])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    known: dict[str, set[tuple[str, ...]]] = {}
    for key, kernel in found.items():
        innermost = [lines[-1] for text in kernel.stack_traces if (lines := _LINE.findall(text))]
        made = tuple(dict.fromkeys(f"{file}:{line}" for file, line in innermost))
        known.setdefault(key.rpartition(":")[0] or key, set()).add(made)
    return {name: made for name, several in known.items() if len(several) == 1 and (made := next(iter(several)))}
