"""Small snapshots of torch's allocator, written by hand."""

import pickle
from pathlib import Path
from typing import Any

MIB = 1 << 20
Dict = dict[str, Any]

ENGINE = {"name": "torch::autograd::Engine::thread_main(ReadyQueue*)", "filename": "??", "line": 0}


def op(name: str) -> Dict:
    """A C++ frame of an op."""
    return {"name": f"at::_ops::{name}::call(at::Tensor const&)", "filename": "??", "line": 0}


def py(line: int, function: str = "main", file: str = "/home/u/train.py") -> Dict:
    """A Python frame."""
    return {"name": function, "filename": file, "line": line}


FORWARD = [op("mm"), py(7, "forward", "/home/u/net.py"), py(90)]
BACKWARD = [op("mm"), ENGINE]
STEP = [op("sqrt"), py(33, "step", "/home/u/optim.py"), py(92)]


def event(action: str, addr: int, size: int, time: int | None = None, frames: list[Dict] | None = None, **more: Any) -> Dict:
    """An event of a trace; addresses and sizes in MiB, times in us."""
    found = {"action": action, "addr": addr * MIB, "size": round(size * MIB), "stream": 0, "frames": frames or [], **more}
    return found if time is None else {**found, "time_us": time}


def freed(addr: int, size: int, time: int | None = None, frames: list[Dict] | None = None) -> list[Dict]:
    """A free that is requested and complete."""
    return [event(f"free_{what}", addr, size, time, frames) for what in ("requested", "completed")]


def block(addr: int, size: int, state: str = "active_allocated", requested: float | None = None) -> Dict:
    """A block, in MiB."""
    asked = size if requested is None else requested
    asked = asked if state != "inactive" else 0
    return {"address": addr * MIB, "size": size * MIB, "requested_size": round(asked * MIB), "state": state, "frames": []}


def segment(*blocks: Dict, device: int = 0, **more: Any) -> Dict:
    """A segment that the blocks fill."""
    total = sum(one["size"] for one in blocks)
    return {
        "address": blocks[0]["address"], "total_size": total, "stream": 0, "segment_type": "large", "device": device,
        "segment_pool_id": (0, 0), "is_expandable": False, "blocks": [*blocks], **more,
    }  # fmt: skip


def write(path: Path, segments: list[Dict], *traces: list[Dict], protocol: int = 4, **more: Any) -> Path:
    """A snapshot's file."""
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [*traces], **more}, protocol))
    return path


def out_of_memory(path: Path) -> Path:
    """Two steps, then 8 MiB that do not fit: 10 are free in pieces of 6 and 4."""
    steps = [{"stage": what, "name": "Optimizer.step#SGD.step", "device": 0, "time_us": time}
             for what, time in (("START", 3), ("END", 5), ("START", 13), ("END", 15))]  # fmt: skip
    events = [
        event("alloc", 6, 2, 1, FORWARD), *freed(6, 2, 2, BACKWARD), event("alloc", 6, 2, 11, STEP), event("alloc", 12, 1, 12, BACKWARD),
        {**event("oom", 0, 8, 16, FORWARD), "device_free": 0},
    ]  # fmt: skip
    held = segment(block(0, 6, "inactive"), block(6, 2), block(8, 4, "inactive"), block(12, 1))
    return write(path, [held], events, external_annotations=steps)
