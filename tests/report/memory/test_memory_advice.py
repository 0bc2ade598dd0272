"""Advice on memory: every kind from a recording made for it, and the same things not advised without their cause."""

from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.cli import main
from pyprof.report.advice.kinds import advise
from pyprof.report.memory.advice import MemoryAdvice, advice_of
from pyprof.report.memory.make import memory_of
from tests.counters.test_counters import event, op, trace
from tests.report.memory.snapshots import BACKWARD, FORWARD, MIB, STEP, block, freed, py, segment, write
from tests.report.memory.snapshots import event as of
from tests.report.memory.snapshots import op as called
from tests.report.memory.test_memory_of_traces import moment


def frames(name: str) -> list[dict[str, Any]]:
    """An op in a forward at line 9."""
    return [called(name), py(9, "forward", "/home/u/net.py"), py(90)]


ACTIVATION = [of("alloc", 0, 6, 1, FORWARD), of("alloc", 6, 1, 2, BACKWARD), *freed(0, 6, 3, BACKWARD), *freed(6, 1, 4, STEP)]
SCORES = [of("alloc", 0, 4, 1, frames("bmm")), of("alloc", 4, 4, 2, frames("_softmax")), of("alloc", 8, 1, 3, frames("gelu"))]
LOSS = [of("alloc", 0, 5, 1, frames("mm")), of("alloc", 5, 5, 2, frames("_log_softmax")), of("alloc", 10, 1, 3, BACKWARD),
        *freed(0, 5, 4, BACKWARD), *freed(5, 5, 5, BACKWARD), *freed(10, 1, 6, STEP)]  # fmt: skip
KEPT = [of("alloc", 0, 3, 1, BACKWARD), of("alloc", 3, 1, 2, STEP), *freed(3, 1, 3, STEP), of("alloc", 3, 5, 4, FORWARD)]
STATE = [of("alloc", 0, 1, 1, FORWARD), of("alloc", 1, 8, 2, STEP)]
TEMPORARIES = [of("alloc", 0, 2, 1, BACKWARD), of("alloc", 2, 5, 2, STEP), *freed(2, 5, 3, STEP)]
NONE: list[dict[str, Any]] = []


@pytest.mark.parametrize(
    ("events", "left", "kind", "size"),
    [
        (ACTIVATION, [], "checkpoint", 6),
        (SCORES, [(0, 4), (4, 4), (8, 1)], "fused_attention", 8),
        (LOSS, [], "chunked_loss", 10),
        (KEPT, [(0, 3), (3, 5)], "set_to_none", 3),
        (STATE, [(0, 1), (1, 8)], "optimizer_state", 4),
        (TEMPORARIES, [(0, 2)], "fused_optimizer", 5),
    ],
)  # fmt: skip
def test_what_need_not_be_there_at_the_peak(
    tmp_path: Path, events: list[dict[str, Any]], left: list[tuple[int, int]], kind: str, size: int
) -> None:
    used = [block(address, length) for address, length in left]
    end = left[-1][0] + left[-1][1] if left else 0
    path = write(tmp_path / "a.pickle", [segment(*used, block(end, 12 - end, "inactive"))], events)
    found = {one.kind: one for one in advice(path)}
    assert found[kind].bytes == size * MIB
    if kind not in ("checkpoint", "chunked_loss"):  # of which each takes the other's blocks for its own as well
        assert {*found} - {"empty_cache", "expandable_segments"} == {kind}


def advice(path: Path) -> list[MemoryAdvice]:
    return advice_of(memory_of(str(path)).devices[0])


@pytest.mark.parametrize(
    ("held", "settings", "expected"),
    [
        ([segment(block(0, 8)), segment(block(8, 4, "inactive"))], {}, [("empty_cache", 4)]),
        ([segment(block(0, 8), block(8, 4, "inactive"))], {}, [("expandable_segments", 4)]),
        ([segment(block(0, 8), block(8, 4, "inactive"))], {"expandable_segments": True}, []),
        ([segment(block(0, 12))], {}, []),
    ],
)  # fmt: skip
def test_what_the_allocator_keeps(
    tmp_path: Path, held: list[dict[str, Any]], settings: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    path = write(tmp_path / "a.pickle", held, NONE, allocator_settings=settings)
    assert [(one.kind, one.bytes // MIB) for one in advice(path)] == expected


def test_what_every_step_leaves_behind_is_a_leak(tmp_path: Path) -> None:
    """Four steps, of which each keeps 2 MiB of the same line."""
    steps = [{"stage": what, "name": "Optimizer.step#SGD.step", "device": 0, "time_us": 10 * at + time}
             for at in range(4) for what, time in (("START", 8), ("END", 9))]  # fmt: skip
    events = [one for at in range(4) for one in
              (of("alloc", 2 * at, 2, 10 * at + 1, FORWARD), of("alloc", 9, 1, 10 * at + 2, FORWARD), *freed(9, 1, 10 * at + 8, STEP))]  # fmt: skip
    path = write(
        tmp_path / "a.pickle", [segment(block(0, 2), block(2, 2), block(4, 2), block(6, 2))], events, external_annotations=steps
    )
    (leak,) = (one for one in advice(path) if one.kind == "leak")
    assert leak.bytes == 6 * MIB and "every step leaves 2.0 MiB behind, most from u/net.py:7" in leak.evidence


HALF = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
LENGTH = 1024
SIZE = 96 * LENGTH * LENGTH * 2


def attention(folder: Path) -> Path:
    """Unfused attention: the peak is in the softmax, with the product's scores and its own; 1 MiB is of other ops."""
    scores, values, keys = [96, LENGTH, LENGTH], [96, LENGTH, 64], [96, 64, LENGTH]
    ops = [("aten::bmm", [values, keys], HALF, SIZE), ("aten::mul", [scores, []], "mul_kernel", SIZE),
           ("aten::_softmax", [scores, [], []], "cunn_SoftMaxForward", SIZE), ("aten::bmm", [scores, values], HALF, MIB)]  # fmt: skip
    events, total = [], 0
    for at, (name, shapes, kernel, size) in enumerate(ops):
        begin = 10 + 100 * at
        dims = {"Input Dims": shapes, "Input type": ["c10::BFloat16" if one else "Scalar" for one in shapes]}
        one = op(name, begin, 50)
        events += [{**one, "args": {**one["args"], **dims}}]
        events += [{**event("cuda_runtime", "cudaLaunchKernel", begin + 10, 5, correlation=at + 1)}]
        events += [event("kernel", kernel, 1_000 + 1_000 * at, 950, pid=0, device=0, stream=7, correlation=at + 1, grid=[96, 1, 1], block=[128, 1, 1])]  # fmt: skip
        if at == 2:  # the first scores are gone
            total -= SIZE
            events.append(moment(begin + 1, -SIZE, 1, total))
        total += size
        events.append(moment(begin + 2, size, at + 1, total))
    events.append(event("cuda_runtime", "cudaDeviceSynchronize", 500, 4_400, correlation=99))
    return trace(folder, *events)


def test_advice_on_time_says_what_it_does_to_the_peak(tmp_path: Path) -> None:
    loaded = pyprof.load(attention(tmp_path))
    found = {one.kind: one for one in advise(loaded.overview)}
    assert found["fused_attention"].peak_bytes == 2 * SIZE
    assert all(one.peak_bytes is None for kind, one in found.items() if kind != "fused_attention")
    assert f"and {2 * SIZE / MIB:,.1f} MiB of the peak" in str(loaded.summary())
    stored = tmp_path / "net.parquet"
    assert main(["parse", str(tmp_path / "trace.json"), "-o", str(stored)]) == 0
    assert {one.kind: one.peak_bytes for one in advise(pyprof.load(stored).overview)}["fused_attention"] == 2 * SIZE
    (device,) = memory_of(str(tmp_path / "trace.json")).devices
    assert {one.kind: one.bytes for one in advice_of(device)}["fused_attention"] == 2 * SIZE


def test_activations_to_checkpoint_cost_their_forward_again(tmp_path: Path) -> None:
    """512 B of fc, whose forward takes 30 us on the device; its backward frees them."""
    forward, backward = ({"Sequence number": 3, "Fwd thread id": thread} for thread in (0, 1))
    layer = {**event("python_function", "nn.Module: Linear_0", 9, 12), "args": {"Python id": 1, "Python module id": 0}}
    kernels = [event("kernel", "gemm", 200 + 100 * at, 30 + at, pid=0, device=0, stream=7, correlation=at + 1, grid=[1, 1, 1],
                     block=[1, 1, 1]) for at in range(2)]  # fmt: skip
    calls = [event("cuda_runtime", "cudaLaunchKernel", ts, 1, correlation=at + 1) for at, ts in enumerate((13, 35))]
    path = trace(
        tmp_path, layer, {**op("aten::mm", 10, 10), "args": forward}, calls[0], moment(12, 512, 1, 512),
        {**op("autograd::engine::evaluate_function: MmBackward0", 30, 20), "args": backward},
        {**op("MmBackward0", 31, 18), "args": backward}, {**op("aten::mm", 32, 5), "args": {}}, calls[1], moment(33, 256, 2, 768),
        moment(48, -512, 1, 256), *kernels,
    )  # fmt: skip
    (checkpoint,) = (one for one in advice(path) if one.kind == "checkpoint")
    assert checkpoint.bytes == 512 and "to compute them again takes 30.0 us a step" in checkpoint.evidence
