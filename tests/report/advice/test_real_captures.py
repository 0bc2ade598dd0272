"""Advice on real captures against what an expert found in their raw records: kinds, their order, savings within 30 %."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from pyprof.loading.load import load
from pyprof.prof.frame import Frame
from pyprof.report.advice.kinds import advise
from pyprof.report.time.overview import Overview


class Expected(NamedTuple):
    """saves: kind -> least and most ms (None: present, whatever it saves); first: the kind that must come first; never."""

    saves: dict[str, tuple[float, float] | None]
    never: set[str]
    first: str = ""
    not_first: str = ""


SAVES_NOTHING = "nothing is to be saved"
TRUTH = {
    "nsys/a100_gpt2.7b.nsys2024.6.sqlite": Expected(
        {"reduced_precision": (1900 * 0.7, 2100 * 1.3), "fused_attention": (130 * 0.7, 170 * 1.3)},
        {"launch_bound", "synchronization"},
        "reduced_precision",
    ),
    "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite": Expected(
        {"reduced_precision": None, "fuse_pointwise": None}, {"launch_bound", "data_loading"}, "reduced_precision"
    ),
    "nsys/h100_2gpu_train.nsys2026.2.sqlite": Expected(
        {"fuse_pointwise": (48 * 0.7, 48 * 1.3), "synchronization": (22 * 0.7, 22 * 1.3)},
        {"launch_bound", "reduced_precision", "data_loading"},
        "fuse_pointwise",
        frozenset({"record_shapes"}),
    ),
    "kineto/v100_resnet50_2021.json.gz": Expected(
        {"data_loading": (285 * 0.7, 380 * 1.3), "reduced_precision": (200 * 0.7, 350 * 1.3)},
        {"synchronization", "exposed_communication"},
    ),
    "kineto/a100_train_stacks.json.gz": Expected(
        {"exposed_communication": (87.9 * 0.7, 87.9 * 1.3)}, {"data_loading", "fused_optimizer"}, "exposed_communication"
    ),
    "kineto/h100_vit.json.gz": Expected(
        {"launch_bound": (6.3 * 0.7, 6.35)},
        {"fused_attention", "reduced_precision", "fuse_pointwise"},
        "launch_bound",
        frozenset({"profiler_overhead"}),
    ),
    "kineto/h100_bert_small.json.gz": Expected(
        {"launch_bound": None}, {"fused_attention", "reduced_precision"}, "launch_bound", frozenset({"profiler_overhead"})
    ),
    "kineto/mi300_resnet_checkpoint.json.gz": Expected(
        {"exposed_communication": (55.6 * 0.7, 55.6 * 1.3), "channels_last": None, "recomputation": None},
        {"launch_bound", "synchronization"},
        "exposed_communication",
    ),
    "nvprof/v100_lm/net.sql": Expected(
        {"launch_bound": None, "synchronization": (5.6 * 0.7, 5.6 * 1.3)}, {"fused_attention"}, not_first="reduced_precision"
    ),
    # The trace of its graph's capture lies beside it.
    "kineto/serving/vllm_decode_full.run.json.gz": Expected({}, {"launch_bound", "small_work", "graph_nodes"}, SAVES_NOTHING),
    "kineto/serving/sglang_prefilldecode.json.gz": Expected({}, {"launch_bound", "synchronization", "fp8"}, SAVES_NOTHING),
}


@pytest.mark.parametrize("name", TRUTH)
def test_what_an_expert_would_say(captures: Path, name: str) -> None:
    records = load(str(captures / name), with_host=True)
    overview = Overview(Frame(records))
    found = {one.kind: one for one in advise(overview)}
    expected = TRUTH[name]
    assert not expected.never & set(found)
    saving = [one for one in found.values() if one.saves_ns is not None]
    for kind, between in expected.saves.items():
        assert kind in found
        saves_ms = (found[kind].saves_ns or 0) / 1e6
        assert between is None or between[0] <= saves_ms <= between[1], (kind, saves_ms)
    if expected.first == SAVES_NOTHING:
        assert not saving
    elif expected.first:
        assert saving[0].kind == expected.first
    assert not expected.not_first or saving[0].kind != expected.not_first
    assert sum(one.saves_ns or 0 for one in saving) <= overview.division.wall_ns
    assert all(one.evidence and one.do for one in found.values())
