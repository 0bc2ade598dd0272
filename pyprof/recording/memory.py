"""The memory of a recording: the list of the model's tensors beside a trace, and on a GPU the allocator's history."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyprof.messages import tell
from pyprof.recording.objects import instances, with_subclasses

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
    for one in instances(with_subclasses(torch.nn.Parameter)):
        with suppress(Exception):  # a subclass may raise
            yield "parameters", "", one
            if one.grad is not None:
                yield "gradients", "", one.grad
    for optimizer in instances(with_subclasses(torch.optim.Optimizer)):
        with suppress(Exception):
            for state in [*optimizer.state.values()]:
                for name, value in state.items():
                    if isinstance(value, torch.Tensor):
                        yield "optimizer state", str(name), value


class _History:
    """The history of the allocator of GPUs while it is recorded. snapshot: where it goes if memory runs out, None: nowhere."""

    def __init__(self) -> None:
        self.snapshot: Path | None = None
        self._observed = False

    def record(self, trace: Path) -> None:
        """Let the allocator remember its events from now on. trace: the file or folder beside which they are written."""
        import torch

        if not torch.cuda.is_available():
            return
        with suppress(Exception):  # another allocator has none
            torch.cuda.memory._record_memory_history(max_entries=_MOST_EVENTS)
            self.snapshot = _beside(trace, "oom")
            if not self._observed:  # an observer stays for good
                self._observed = True
                torch._C._cuda_attach_out_of_memory_observer(self._ran_out)

    def _ran_out(self, device: int, asked: int, total: int, free: int) -> None:
        """Called by the allocator before it raises OutOfMemoryError: the first time of a recording is kept."""
        import torch

        path, self.snapshot = self.snapshot, None
        if path is not None:
            with suppress(Exception):  # the program may go on with less
                torch.cuda.memory._dump_snapshot(str(path))
                tell(f"memory ran out: pyprof memory {path}")

    def dump(self, trace: Path) -> Path | None:
        """Write the history beside a trace and end it; its file, None without a GPU."""
        import torch

        self.snapshot, path = None, _beside(trace, "memory")
        if not torch.cuda.is_available():
            return None
        with suppress(Exception):
            torch.cuda.memory._dump_snapshot(str(path))
            torch.cuda.memory._record_memory_history(enabled=None)
            return path
        return None


def _beside(trace: Path, kind: str) -> Path:
    """net.memory.pickle beside net.json.gz; in a folder of traces without one of its own `pid.memory.pickle`."""
    if trace.is_dir():
        return trace / f"{os.getpid()}.{kind}.pickle"
    return trace.with_name(f"{trace.name.removesuffix('.gz').removesuffix('.json')}.{kind}.pickle")


HISTORY = _History()
