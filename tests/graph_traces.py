"""Small traces as torch.profiler writes them of a program that captures graphs and replays them: of ROCm and of CUDA.

What each writes: on ROCm the call of a launch says the kernel, on CUDA it does not; CUDA's newer releases write `graph node id`
on kernels. All kernels of a replay carry the correlation id of the call that replays the graph. The model is LAYERS times a
linear layer, a relu and a product, and its kernels take 5, 1 and 3 us.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PID, LAYERS = 100, 8
Event = dict[str, Any]
KERNELS = (("gemm_a", 5), ("relu_k", 1), ("gemm_b", 3))
SEQUENCE = [name for name, _ in KERNELS] * LAYERS


def _x(cat: str, name: str, ts: float, dur: float, tid: int = PID, pid: int = PID, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _ops(batch: int) -> list[tuple[str, list[list[int]], list[str], list[str]]]:
    number = "float"
    return [
        ("aten::addmm", [[64], [batch, 32], [32, 64], [], []], [number] * 3 + ["Scalar"] * 2, ["", "", "", "1", "1"]),
        ("aten::relu", [[batch, 64]], [number], [""]),
        ("aten::mm", [[batch, 64], [64, 32]], [number] * 2, ["", ""]),
    ]


def captured(
    batch: int = 32, *, rocm: bool = True, bounded: bool = True, pieces: Sequence[int] = (LAYERS,), mode: str = "FULL",
    begin: float = 1000, names: Sequence[str] = SEQUENCE,
) -> list[Event]:  # fmt: skip
    """The events of a capture: pieces, how many layers each graph has; names: of the kernels in order."""
    prefix, now, corr, done = "hip" if rocm else "cuda", begin + 10, 1, 0
    events = []
    # Before the capture something runs at once, as engines do to warm up.
    events += [_x("cuda_runtime", f"{prefix}LaunchKernel", now, 2, correlation=9000, **({"kernel": "warm"} if rocm else {}))]
    events += [_x("kernel", "warm", now + 5, 1, 7, 0, device=0, stream=7, correlation=9000)]
    now += 10
    for layers in pieces:
        if bounded:
            events.append(_x("cuda_runtime", f"{prefix}StreamBeginCapture", now, 1, correlation=8000 + corr))
        for _ in range(layers):
            for name, dims, types, concrete in _ops(batch):
                recorded = {"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete}
                events.append(_x("cpu_op", name, now + 2, 6, **recorded))
                call = {"kernel": names[done], "grid": [1, 1, 1], "block": [64, 1, 1]} if rocm else {}
                events.append(_x("cuda_runtime", f"{prefix}LaunchKernel", now + 4, 2, correlation=corr, **call))
                now, corr, done = now + 10, corr + 1, done + 1
        if bounded:
            events.append(_x("cuda_runtime", f"{prefix}StreamEndCapture", now, 1, correlation=8500 + corr))
        now += 10
    events.append(_x("user_annotation", f"capture_{batch}_{mode}", begin, now - begin + 10))
    return events


def replayed(
    requests: int | None = 32, *, steps: int = 2, rocm: bool = True, nodes: bool = False, pieces: Sequence[int] = (LAYERS,),
    names: Sequence[str] = SEQUENCE, begin: float = 5000,
) -> list[Event]:  # fmt: skip
    """The events of a run: each step replays each piece once, in an annotation of vLLM's where requests are given."""
    events, now, corr = list[Event](), begin, 10_000
    prefix, times = "hip" if rocm else "cuda", dict(KERNELS)
    for step in range(steps):
        if requests is not None:
            sums = f"sq{requests}sk{100 * requests + step}sqsq{requests}sqsk{100 * requests + step}"
            text = f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)_generation_{requests}({sums})"
            events.append(_x("user_annotation", text, now, 900))
        at, done = now + 100, 0
        for layers in pieces:
            events.append(_x("cuda_runtime", f"{prefix}GraphLaunch", at - 50, 4, correlation=corr))
            for name in names[done : done + 3 * layers]:
                node = {"graph id": 3, "graph node id": (3 << 32) + done} if nodes else {}
                args = {"device": 0, "stream": 7, "correlation": corr, **node}
                events.append(_x("kernel", name, at, times.get(name, 2), 7, 0, **args))
                at, done = at + 7, done + 1
            at, corr = at + 60, corr + 1
        now += 1000
    return events


Call = tuple[str, str, list[list[int]]]  # a kernel, the op that launches it, the shapes of that


def linear(layer: int, batch: int = 32) -> list[Call]:
    """The calls of a layer, of which the weight's columns, 100 and its number, say which one it is."""
    return [("gemm_a", "aten::mm", [[batch, 16], [16, 100 + layer]]), ("relu_k", "aten::relu", [[batch, 100 + layer]])]


def captured_calls(
    pieces: Sequence[Sequence[Call]], label: str = "capture_32_FULL", *, begin: float = 1000, rocm: bool = True,
    bounded: bool = True, corr: int = 1, tid: int = PID, pid: int = PID,
) -> list[Event]:  # fmt: skip
    """The events of a capture of graphs of any calls."""
    events, now, prefix = list[Event](), begin + 10, "hip" if rocm else "cuda"
    for piece in pieces:
        if bounded:
            events.append(_x("cuda_runtime", f"{prefix}StreamBeginCapture", now, 1, tid, pid, correlation=80_000 + corr))
        for kernel, op, dims in piece:
            recorded = {"Input Dims": dims, "Input type": ["float"] * len(dims), "Concrete Inputs": [""] * len(dims)}
            events.append(_x("cpu_op", op, now + 2, 6, tid, pid, **recorded))
            call = {"kernel": kernel} if rocm else {}
            events.append(_x("cuda_runtime", f"{prefix}LaunchKernel", now + 4, 2, tid, pid, correlation=corr, **call))
            now, corr = now + 10, corr + 1
        if bounded:
            events.append(_x("cuda_runtime", f"{prefix}StreamEndCapture", now, 1, tid, pid, correlation=85_000 + corr))
        now += 10
    return [*events, _x("user_annotation", label, begin, now - begin + 10, tid, pid)] if label else events


def replayed_kernels(
    steps: Sequence[tuple[str, Sequence[Sequence[str | tuple[str, int, int]]]]], *, begin: float = 100_000, corr: int = 10_000,
    rocm: bool = True, tid: int = PID, pid: int = PID, device: int = 0,
) -> list[Event]:  # fmt: skip
    """The events of steps (annotation, graphs replayed, each the names of its kernels or (name, stream, microseconds after the
    begin of the replay))."""
    events, now = list[Event](), begin
    for text, pieces in steps:
        since, now = now, now + 100
        for piece in pieces:
            launch = f"{'hip' if rocm else 'cuda'}GraphLaunch"
            events.append(_x("cuda_runtime", launch, now - 50, 4, tid, pid, correlation=corr))
            after = 0
            for kernel in piece:
                name, stream, after = kernel if isinstance(kernel, tuple) else (kernel, tid - PID + 7, after)
                args = {"device": device, "stream": stream, "correlation": corr}
                events.append(_x("kernel", name, now + after, 2, stream, device, **args))
                after += 7
            now, corr = now + after + 60, corr + 1
        if text:
            events.append(_x("user_annotation", text, since, now - since - 20, tid, pid))
        now += 100
    return events


def write(path: Path, events: Sequence[Event]) -> Path:
    """A trace of these events."""
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    facts = {"schemaVersion": 1, "deviceProperties": [device], "record_shapes": 1, "baseTimeNanoseconds": 0}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**facts, "traceEvents": list(events)}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
