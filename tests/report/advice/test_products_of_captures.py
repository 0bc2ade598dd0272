"""Advice on products and attention of real captures: what was worked out by hand from their raw records, within 30 %."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof.loading.load import load
from pyprof.prof.frame import Frame
from pyprof.report.advice.base import Budget
from pyprof.report.advice.kinds import KINDS
from pyprof.report.time.overview import Overview

OURS = ("fused_attention", "channels_last", "gemm_alignment", "reduced_precision", "recomputation")
EXPECTED: dict[str, dict[str, tuple[float, float]]] = {
    # fp32 products of 2298 ms at 8 to 16 times the rate; scale, mask and softmax of 96 layers, 1065 us each, and more
    "nsys/a100_gpt2.7b.nsys2024.6.sqlite": {"reduced_precision": (1900, 2155), "fused_attention": (102, 170)},
    # 393 ms at twice the rate; as above, 12 layers and ten steps
    "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite": {"reduced_precision": (140, 200), "fused_attention": (120, 177)},
    "nsys/h100_2gpu_train.nsys2026.2.sqlite": {},
    "kineto/v100_resnet50_2021.json.gz": {"reduced_precision": (200, 350)},
    # transposes around convolutions of 5.3 ms; forward again of 4.1 ms, the transposes of it counted above
    "kineto/mi300_resnet_checkpoint.json.gz": {"channels_last": (3.7, 5.4), "recomputation": (2.5, 4.2)},
    "kineto/h100_vit.json.gz": {},
    "kineto/h100_bert_small.json.gz": {},
    "kineto/serving/sglang_prefilldecode.json.gz": {},
    "kineto/serving/vllm_decode_full.run.json.gz": {},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_they_save(captures: Path, name: str) -> None:
    records = load(str(captures / name), with_host=True)
    overview = Overview(Frame(records))
    budget = Budget(overview.division)
    finders = {find.__module__.rpartition(".")[2]: find for find in KINDS}
    found = {kind: one for kind in OURS if (one := finders[kind](overview, budget)) is not None}
    assert found.keys() == EXPECTED[name].keys()
    for kind, (least, most) in EXPECTED[name].items():
        assert least <= (found[kind].saves_ns or 0) / 1e6 <= most, kind
