"""Places in words: layers that differ in their numbers alone are one, long texts are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyprof.report.advice.base import Place, named, places
from tests.timeline import Timeline


def test_layers_of_one_kind_are_one_place(tmp_path: Path) -> None:
    timeline = Timeline()
    for number in range(12):
        begin = timeline.launched
        timeline.op("relu(fp32[1000])", ("relu_kernel", 10 + number))
        timeline.nsys.range(f'blocks.{number}.conv2d #pyprof{{"layer":"blocks.{number}.conv2d"}}', begin, timeline.launched)
    begin = timeline.launched
    timeline.op("exp(fp32[1000])", ("exp_kernel", 5))
    timeline.nsys.range('head.0 #pyprof{"layer":"head.0"}', begin, timeline.launched)
    overview = timeline.overview(tmp_path)
    found = places(overview, np.arange(13), overview.division.exclusive_ns)
    assert [(one.layer, one.op, one.number, one.time_ns) for one in found] == [
        ("blocks.*.conv2d", "relu", 12, 186_000),
        ("head.0", "exp", 1, 5_000),
    ]


def test_long_texts_are_cut() -> None:
    layer = "Net_0.Encoder_0.Layer_*.Attention_*.Linear_1"
    text = named([Place(layer, "cat", "[1]fp32;" * 100, None, 3, 5), Place(None, None, None, None, 1, 1)])
    assert text.startswith("3 x cat ([1]fp32;") and text.endswith(
        "…) in Layer_*.Attention_*.Linear_1, 1 x kernels without an op"
    )
    assert len(text) < 170
