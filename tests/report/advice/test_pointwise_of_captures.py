"""Advice on pointwise kernels, communication, copies and optimizers of real captures, held to what their raw records say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pyprof.loading.load import load
from pyprof.prof.frame import Frame
from pyprof.report.advice.base import Advice
from pyprof.report.advice.kinds import advise
from pyprof.report.time.overview import Overview

H100_TWO = "nsys/h100_2gpu_train.nsys2026.2.sqlite"
DLRM, RESNET = "kineto/a100_train_stacks.json.gz", "kineto/mi300_resnet_checkpoint.json.gz"


def _advice(path: Path) -> dict[str, Advice]:
    records = load(str(path), with_host=True)
    return {one.kind: one for one in advise(Overview(Frame(records)))}


def _exposed_ms(path: Path) -> float:
    """Of the raw events: the time in which a collective runs and nothing else but copies."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
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


@pytest.mark.parametrize(("name", "of_ms"), [(DLRM, 87.9), (RESNET, 55.6)])
def test_exposed_communication_is_what_the_raw_events_say(captures: Path, name: str, of_ms: float) -> None:
    found = _advice(captures / name)
    advice = found["exposed_communication"]
    assert next(iter(found)) == "exposed_communication" and (advice.saves_ns or 0) / 1e6 == pytest.approx(of_ms, rel=0.01)
    assert (advice.saves_ns or 0) / 1e6 == pytest.approx(_exposed_ms(captures / name), rel=0.01)


def test_two_ranks_of_one_file(captures: Path) -> None:
    """RMSNorm, rotary embeddings and gates by hand: 48 of 300 ms; what the ranks wait for each other is no overlap's."""
    found = _advice(captures / H100_TWO)
    assert (found["fuse_pointwise"].saves_ns or 0) / 1e6 == pytest.approx(48, rel=0.3)
    assert "rms_norm" in found["fuse_pointwise"].do
    both = (found["straggler"].saves_ns or 0) + (found["exposed_communication"].saves_ns or 0)
    assert both == pytest.approx(found["exposed_communication"].time_ns, rel=0.01)


def test_inputs_from_pageable_memory(captures: Path) -> None:
    found = _advice(captures / "kineto/v100_resnet50_2021.json.gz")
    assert "pin_memory=True" in found["host_copy"].do and found["host_copy"].saves_ns == pytest.approx(11.49e6, rel=0.01)
    assert "exposed_communication" not in found and "fused_optimizer" not in found


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        (DLRM, {"fused_optimizer", "host_copy", "small_work"}),
        ("kineto/h100_vit.json.gz", {"fuse_pointwise", "small_work"}),
        ("kineto/h100_bert_small.json.gz", {"fuse_pointwise", "small_work"}),
        ("kineto/mi300_triton_compiled.json.gz", {"fuse_pointwise"}),
        ("kineto/serving/vllm_decode_full.run.json.gz", {"fuse_pointwise", "small_work", "host_copy"}),
        ("kineto/serving/sglang_prefilldecode.json.gz", {"fuse_pointwise", "small_work", "host_copy"}),
        ("nsys/a100_gpt2.7b.nsys2024.6.sqlite", {"small_work", "host_copy", "exposed_communication"}),
    ],
)
def test_silent_on(captures: Path, name: str, absent: set[str]) -> None:
    assert not absent & set(_advice(captures / name))
