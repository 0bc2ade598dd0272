"""Profiles of Triton's Proton."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from pyprof.errors import InputError
from pyprof.loading import load_counters
from pyprof.parse.sources.measured.proton import is_hatchet, read_hatchet


def node(name: str, *children: dict[str, Any], **metrics: object) -> dict[str, Any]:
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}


def kernel(name: str, time: object, **metrics: object) -> dict[str, Any]:
    return node(name, **{"time (ns)": time, "device_id": "0", "device_type": "CUDA", **metrics})


def test_kernels_below_their_scopes() -> None:
    tree = node(
        "ROOT", node("step", node("forward", kernel("mm", 50, count=2, flops16=4e9, bytes=300)), kernel("copy", 7, count=1))
    )
    facts = {"CUDA": {"0": {"arch": "90", "num_sms": 132}}}
    found = read_hatchet(io.BytesIO(json.dumps([tree, facts]).encode()), "p.hatchet")
    assert [(one.name, one.scopes, one.times, one.device, one.cc) for one in found.launches] == [
        ("mm", ("step", "forward"), 2, 0, "9.0"),
        ("copy", ("step",), 1, 0, "9.0"),
    ]
    assert found.of("gpu__time_duration.sum").tolist() == [50, 7]
    assert found.of("flops16")[0] == 4e9 and found.of("bytes")[0] == 300


@pytest.mark.parametrize("text", ["[]", "[{", "[1]", '[{"frame": {"name": 3}, "children": []}]', "[" * 100_000])
def test_damaged_files(text: str) -> None:
    with pytest.raises(InputError, match="not a profile of Proton"):
        read_hatchet(io.BytesIO(text.encode()), "p.hatchet")


def test_a_tree_without_kernels() -> None:
    with pytest.raises(InputError, match="no kernel ran"):
        read_hatchet(io.BytesIO(json.dumps([node("ROOT", node("scope"))]).encode()), "p.hatchet")


def test_a_published_profile(captures: Path) -> None:
    path = captures / "proton" / "proton.hatchet"
    assert is_hatchet(path.read_text()[:4096])
    found, trace = load_counters(str(path))
    assert trace is None and len(found) == 18 and {one.cc for one in found.launches} == {"9.0"}
    softmax = [row for row, one in enumerate(found.launches) if one.name == "softmax_kernel"]
    assert [found.of("gpu__time_duration.sum")[row] for row in softmax] == [4671, 4672, 4768]
    assert found.launches[softmax[0]].scopes == ("tritonbench_run_op_softmax", "x_val_[4096, 256]", "triton_softmax")
