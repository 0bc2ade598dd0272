"""Advice on real captures against what an expert found in their raw records: kinds, their order, savings; and causes of idle time."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pyprof.report.advice.base import Advice, is_worth
from pyprof.report.advice.kinds import KINDS
from tests.given import trace_of
from tests.timeline import advice_of, overview_of

Limits = dict[str, tuple[float, float] | None]


class Expected(NamedTuple):
    """saves: kind -> least and most ms alone (None: present, whatever it saves); first: kinds of which one must come first;
    never.

    idle: cause -> least and most ms of idle time; products: as saves, each kind of PRODUCTS alone and no others (None: not known).
    """

    saves: Limits
    never: str
    first: str = ""
    idle: dict[str, tuple[float, float]] | None = None
    products: Limits | None = None


def near(ms: float, most: float | None = None) -> tuple[float, float]:
    return ms * 0.7, (most or ms) * 1.3


PRODUCTS = ("fused_attention", "channels_last", "gemm_alignment", "reduced_precision", "recomputation")
TWO_H100 = "nsys/h100_2gpu_train.nsys2026.2.sqlite"
DLRM, CHECKPOINT = "kineto/a100_train_stacks.json.gz", "kineto/mi300_resnet_checkpoint.json.gz"
RESNET = "kineto/v100_resnet50_2021.json.gz"
TRUTH = {
    "nsys/a100_gpt2.7b.nsys2024.6.sqlite": Expected(
        {"reduced_precision": None, "fused_attention": None},
        "launch_bound synchronization data_loading small_work host_copy exposed_communication",
        "reduced_precision",
        {"launch": (0, 1)},
        # fp32 products of 2298 ms at 8 to 16 times the rate; scale, mask and softmax of 96 layers, 1065 us each, and more
        {"reduced_precision": (1900, 2155), "fused_attention": (102, 170)},
    ),
    "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite": Expected(
        {"reduced_precision": None, "fuse_pointwise": None},
        "launch_bound data_loading synchronization",
        "reduced_precision",
        {"queued": (10, inf)},
        # 393 ms at twice the rate; as above, 12 layers and ten steps
        {"reduced_precision": (140, 200), "fused_attention": (120, 177)},
    ),
    TWO_H100: Expected(
        {"fuse_pointwise": near(48), "synchronization": (22.4, 25), "record_shapes": None},
        "launch_bound reduced_precision data_loading warmup lost_records graph_nodes",
        "fuse_pointwise",
        {"synchronization": (20, 25)},
        {},
    ),
    RESNET: Expected(
        {"data_loading": near(285, 380), "reduced_precision": (8, 25), "launch_bound": near(96), "fused_optimizer": None},
        "synchronization exposed_communication",
        "data_loading",
        idle={"data_loading": (285, 370)},
        products={"reduced_precision": (8, 25)},
    ),
    DLRM: Expected(
        {"exposed_communication": (30, 40), "synchronization": (35, 75), "record_stacks": None},
        "data_loading fused_optimizer warmup lost_records host_copy small_work",
        "exposed_communication synchronization",
        {"data_loading": (0, 3)},
    ),
    "kineto/h100_vit.json.gz": Expected(
        {"launch_bound": (6.3 * 0.7, 6.35), "profiler_overhead": None},
        "fused_attention reduced_precision data_loading synchronization warmup record_shapes record_stacks "
        "lost_records small_work",
        "launch_bound",
        {"launch": (5, inf)},
        {},
    ),
    "kineto/h100_bert_small.json.gz": Expected(
        {"launch_bound": None, "profiler_overhead": None},
        "fused_attention reduced_precision warmup fuse_pointwise small_work",
        "launch_bound",
        products={},
    ),
    CHECKPOINT: Expected(
        {"exposed_communication": (36, 39), "channels_last": None, "recomputation": None},
        "launch_bound synchronization warmup profiler_overhead lost_records",
        "exposed_communication",
        {"launch": (0, 0)},
        # transposes of 5.32 ms, of which 2.07 while no collective runs; forward again of 4.12 ms, of which 1.06
        {"channels_last": (2.05, 2.08), "recomputation": (1.06, 1.07)},
    ),
    "nvprof/v100_lm/net.sql": Expected(
        {"launch_bound": None, "synchronization": (1.4, 5.9)},  # the waits themselves, and all that idles after them
        "fused_attention warmup backward_markers",
        idle={"allocation": (21, inf), "synchronization": (4.5, 7)},
    ),
    # The trace of its graph's capture lies beside it.
    "kineto/serving/vllm_decode_full.run.json.gz": Expected(
        {"slow_kernel": (3, 5.2)},  # two products of experts in each layer at 26 % of what memory allows
        "launch_bound small_work graph_nodes warmup profiler_overhead fuse_pointwise host_copy",
        "slow_kernel",
        {"launch": (0, 1)},
        {},
    ),
    "kineto/serving/sglang_prefilldecode.json.gz": Expected(
        {"slow_kernel": (60, 100)},  # the fastest product reaches 48 %, the others 34 to 42 %
        "launch_bound synchronization fp8 warmup profiler_overhead lost_records graph_nodes record_shapes record_stacks "
        "fuse_pointwise small_work host_copy",
        "slow_kernel",
        {"launch": (0, 2)},
        {},
    ),
    "kineto/mi300_triton_compiled.json.gz": Expected({"slow_kernel": (2.5, 4)}, "fuse_pointwise", "slow_kernel"),
}


class Found(NamedTuple):
    advice: dict[str, Advice]
    products: dict[str, Advice]
    idle_ns: dict[str, int]
    wall_ns: int


@lru_cache(maxsize=16)
def found_in(path: Path) -> Found:
    overview = overview_of(path)
    gaps = overview.division.gaps
    divided = overview.idle.causes.of(np.arange(len(gaps)))
    assert (divided >= 0).all() and np.array_equal(divided.sum(axis=1), gaps.time_ns)
    finders = {find.__module__.rpartition(".")[2]: find for find in KINDS}
    products = {}
    for kind in PRODUCTS:
        if (one := finders[kind](overview)) is not None and one.change is not None:
            alone = overview.replay.saves_ns(one.change)
            products |= {kind: one._replace(alone_ns=alone)} if is_worth(overview, alone) else {}
    return Found(advice_of(overview), products, dict(overview.parts), overview.division.wall_ns)


def check(found: dict[str, Advice], limits: Limits) -> None:
    for kind, between in limits.items():
        assert kind in found
        saves_ms = (found[kind].alone_ns or 0) / 1e6
        assert between is None or between[0] <= saves_ms <= between[1], (kind, saves_ms)


@pytest.mark.parametrize("name", TRUTH)
def test_what_an_expert_would_say(captures: Path, name: str) -> None:
    expected, (found, products, idle_ns, wall_ns) = TRUTH[name], found_in(captures / name)
    assert not set(expected.never.split()) & set(found)
    check(found, expected.saves)
    saving = [one for one in found.values() if one.saves_ns is not None]
    if expected.first:
        assert saving[0].kind in expected.first.split()
    assert sum(one.saves_ns or 0 for one in saving) <= wall_ns
    assert all(one.evidence and one.do for one in found.values())
    for cause, (least, most) in (expected.idle or {}).items():
        assert least <= idle_ns[cause] / 1e6 <= most, cause
    if expected.products is not None:
        assert products.keys() == expected.products.keys()
        check(products, expected.products)


def test_what_goes_without_waits_is_the_time_in_them(captures: Path) -> None:
    """The host is the limit (every activity at 0 ns saves 0.8 ms of 53.5): the 5.9 ms idle after waits are launches that come no
    sooner without them. What goes are the 42 calls, 1.40 ms, and what 21 .item() and equal take of the host beside them."""
    overview = overview_of(captures / "nvprof/v100_lm/net.sql")
    waits = overview.waits
    assert waits is not None
    inside = waits.launching & (waits.start_ns >= overview.division.begin_ns) & (waits.start_ns < overview.division.end_ns)
    called = int((waits.end_ns - waits.start_ns)[inside].sum())
    alone = advice_of(overview)["synchronization"].alone_ns
    assert inside.sum() == 42 and called == pytest.approx(1.404e6, rel=1e-3)
    assert overview.replay.what_if()["device infinitely fast"] < 1e6
    assert alone is not None and called < alone < called + 21 * 40_000  # us of an op: its launch takes 18 of them


@pytest.mark.parametrize("names", ["old", "new"])
def test_communication_that_the_host_does_not_wait_for(captures: Path, names: str) -> None:
    """Eight steps of a product of 100 us and an all_reduce of 200: the host, which never waits, launches each 310 us after the
    one before. Were all of it hidden, the launches would come as they do: only the last all_reduce is the end of the run."""
    overview = overview_of(captures / f"cases/nsys/{names}_nccl_names.sqlite")
    found = advice_of(overview)["exposed_communication"]
    assert found.time_ns == 1_600_000 and found.saves_ns == 200_000 and overview.waits is not None and not len(overview.waits)


def test_gradients_filled_with_zeros_cost_the_host(captures: Path) -> None:
    """The device waits for the host all along: what goes is the host's time, at least that of the ops (zero_ in zero_grad, add_
    where gradients are accumulated), at most that of all in these ranges."""
    name = "more/rtx2080ti_linear_39steps.json.gz"
    events = [e for e in trace_of(captures / name)["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation")]

    def ranges(text: str) -> Spans:
        """Those of the 39 steps from the first optimizer's end to the last one's."""
        found = [(e["ts"], e["ts"] + e["dur"], e["tid"]) for e in events if e["name"].startswith(text)]
        return [one for one in found if ends[0] <= one[0] < ends[-1]]

    ends = sorted(e["ts"] + e["dur"] for e in events if e["name"].startswith("Optimizer.step"))
    filling, summing = ranges("Optimizer.zero_grad"), ranges("torch::autograd::AccumulateGrad")
    zeroed, added = _inside(ranges("aten::zero_"), filling), _inside(ranges("aten::add_"), summing)
    assert (len(filling), len(zeroed), len(summing), len(added)) == (39, 1_638, 1_638, 1_638)
    ops, whole = (sum(end - begin for begin, end, _ in some) / 1e3 for some in (zeroed + added, filling + summing))
    found = found_in(captures / name).advice["zero_grad"]
    assert found.alone_ns is not None and ops == pytest.approx(129, abs=0.5) and whole == pytest.approx(173, abs=0.5)
    assert ops <= found.alone_ns / 1e6 <= whole


Spans = list[tuple[float, float, int]]


def _inside(spans: Spans, others: Spans) -> Spans:
    """Those that begin in one of the others on its thread."""
    return [one for one in spans if any(begin <= one[0] < end and tid == one[2] for begin, end, tid in others)]


def test_fp32_is_not_the_first_of_a_program_that_waits_for_launches(captures: Path) -> None:
    saving = [one.kind for one in found_in(captures / "nvprof/v100_lm/net.sql").advice.values() if one.saves_ns is not None]
    assert saving[0] != "reduced_precision"


def _exposed_ms(path: Path) -> float:
    """Of the raw events: the time in which a collective runs and nothing else but copies."""
    events = trace_of(path)["traceEvents"]
    steps = [e for e in events if e.get("name", "").startswith("ProfilerStep#") and e.get("cat") == "user_annotation"]
    begin = min(float(e["ts"]) for e in steps)
    edges = []
    for event in events:
        if event.get("cat") == "kernel" and float(event["ts"]) >= begin:
            kind = "nccl" in event["name"]
            edges += [(float(event["ts"]), kind, 1), (float(event["ts"]) + float(event["dur"]), kind, -1)]
    running, last, exposed = {True: 0, False: 0}, 0.0, 0.0
    for at, kind, step in sorted(edges):
        if running[True] and not running[False]:
            exposed += at - last
        running[kind] += step
        last = at
    return exposed / 1e3


@pytest.mark.parametrize(("name", "of_ms"), [pytest.param(DLRM, 87.9, marks=pytest.mark.slow), (CHECKPOINT, 55.6)])
def test_exposed_communication_is_what_the_raw_events_say(captures: Path, name: str, of_ms: float) -> None:
    found = found_in(captures / name).advice
    advice = found["exposed_communication"]
    assert (advice.time_ns or 0) / 1e6 == pytest.approx(of_ms, rel=0.01)
    assert (advice.time_ns or 0) / 1e6 == pytest.approx(_exposed_ms(captures / name), rel=0.01)


def test_two_ranks_of_one_file(captures: Path) -> None:
    """RMSNorm, rotary embeddings and gates by hand: 48 of 300 ms; what the ranks wait for each other is no overlap's."""
    found = found_in(captures / TWO_H100).advice
    assert (found["fuse_pointwise"].alone_ns or 0) / 1e6 == pytest.approx(48, rel=0.1)
    assert "rms_norm" in found["fuse_pointwise"].do
    both = (found["straggler"].saves_ns or 0) + (found["exposed_communication"].saves_ns or 0)
    assert 0 < both <= (found["exposed_communication"].time_ns or 0)


def test_inputs_from_pageable_memory(captures: Path) -> None:
    assert "pin_memory=True" in found_in(captures / RESNET).advice["host_copy"].do
