"""The memory of a recording: the list of the model's tensors beside a trace, and on a GPU the allocator's history."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

KEY = "pyprof_memory"
_MOST_EVENTS = 2_000_000  # of the allocator's history, about 400 MB


def model_tensors() -> list[list[object]]:
    """Parameters, gradients and optimizer state of this process: kind, name, address, bytes and device (-1: the CPU) of each
    storage."""
    import torch

    found: dict[tuple[int, int], list[object]] = {}
    for kind, name, tensor in _tensors(torch):
        with suppress(Exception):  # a tensor without memory: meta, fake, a subclass
            storage = tensor.untyped_storage()
            device = -1 if tensor.device.type == "cpu" else tensor.device.index
            if address := storage.data_ptr():
                found.setdefault((device, address), [kind, name, address, storage.nbytes(), device])
    return [*found.values()]


def _tensors(torch: Any) -> Iterator[tuple[str, str, Any]]:
    states = []
    for one in gc.get_objects():
        with suppress(Exception):  # anything can be in there
            if torch.nn.Parameter in type(one).__mro__:
                yield "parameters", "", one
                if one.grad is not None:
                    yield "gradients", "", one.grad
            elif torch.optim.Optimizer in type(one).__mro__:
                states += [*one.state.values()]
    for state in states:
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                yield "optimizer state", str(name), value


def record_history() -> None:
    """Let the allocator of GPUs remember its events from now on."""
    import torch

    if torch.cuda.is_available():
        with suppress(Exception):  # another allocator has none
            torch.cuda.memory._record_memory_history(max_entries=_MOST_EVENTS)


def dump_history(trace: Path) -> Path | None:
    """Write the allocator's history beside a trace and end it; its file, None without a GPU."""
    import torch

    path = trace.with_name(trace.name.removesuffix(".gz").removesuffix(".json") + ".memory.pickle")
    if not torch.cuda.is_available():
        return None
    with suppress(Exception):
        torch.cuda.memory._dump_snapshot(str(path))
        torch.cuda.memory._record_memory_history(enabled=None)
        return path
    return None
