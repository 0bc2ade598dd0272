"""Occupancy against hand-made cases and against what Kineto computed on real devices."""

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.hardware.occupancy import active_blocks, limits, theoretical_occupancy, waves
from tests.given import slow


@pytest.mark.parametrize(
    ("cc", "threads", "registers", "shared", "blocks", "fraction"),
    [
        ((7, 0), 128, 128, 16384, 4, 0.25),  # registers: 4096 a warp, 4 warps a partition
        ((7, 0), 256, 32, 0, 8, 1.0),
        ((7, 0), 64, 16, 0, 32, 1.0),
        ((7, 0), 32, 16, 0, 32, 0.5),  # block slots
        ((8, 0), 128, 90, 49152, 3, 0.1875),  # shared memory: 3 x (48 + 1) KB in 164 KB
        ((9, 0), 384, 168, 231424, 1, 0.1875),
        ((8, 6), 1024, 32, 0, 1, 32 / 48),
        ((7, 5), 1024, 32, 0, 1, 1.0),
        ((12, 1), 256, 40, 0, 6, 1.0),
        ((6, 0), 128, 255, 0, 2, 0.125),
        ((9, 0), 33, 255, 0, 4, 0.125),  # two warps a block, two warps of 255 registers a partition
    ],
)
def test_known_launches(cc: tuple[int, int], threads: int, registers: int, shared: int, blocks: int, fraction: float) -> None:
    active = active_blocks(limits(cc), threads, registers, shared)
    assert (active, theoretical_occupancy(limits(cc), threads, active)) == (blocks, fraction)


def test_unknown_input_gives_nothing() -> None:
    for launch in ((-1, 32, 0), (128, -1, 0), (128, 32, -1), (0, 32, 0)):
        assert np.isnan(active_blocks(limits((8, 0)), *launch))
    assert limits(None) is None and limits((99, 0)) is None
    assert limits((8, 2**31)) == limits((8, 9)) and limits((8, 8)) == limits((8, 7)) and limits((5, -1)) is None
    assert np.isnan(active_blocks(None, 128, 32, 0)) and np.isnan(theoretical_occupancy(None, 128, 4))
    # More than a block may have: the device is not the recorded one, since the kernel did run.
    assert np.isnan(active_blocks(limits((7, 5)), 128, 32, 100 << 10))
    column = active_blocks(limits((8, 0)), [128, -1, 128], [32, 32, -1], [0, 0, 0])
    assert column[0] == 16 and np.isnan(column[1:]).all()
    assert np.isnan(waves([-1, 5], [4.0, 4.0], [80, -1])).all()


def test_waves() -> None:
    assert waves(1280, active_blocks(limits((7, 0)), 256, 32, 0), 80) == 2.0


@given(
    st.sampled_from([(5, 2), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]),
    st.integers(1, 1024),
    st.integers(0, 255),
    st.integers(0, 48 << 10),
)
def test_what_is_resident_fits(cc: tuple[int, int], threads: int, registers: int, shared: int) -> None:
    sm = limits(cc)
    assert sm is not None
    active = float(active_blocks(sm, threads, registers, shared))
    if math.isnan(active):
        return
    warps = -(-threads // 32)
    assert 1 <= active <= sm.max_blocks
    assert active * warps * 32 * registers <= 65536
    assert active * (shared + sm.shared_reserved_bytes) <= sm.shared_bytes
    assert 0 < float(theoretical_occupancy(sm, threads, active)) <= 1
    # Asking for less never lets fewer blocks in.
    assert float(active_blocks(sm, threads, max(registers - 8, 0), shared // 2)) >= active


@pytest.mark.parametrize(
    "name",
    [
        *slow("a100_train_stacks.json.gz"),
        "h100_vit.json.gz",
        "h100_bert_small.json.gz",
        "v100_resnet50_2021.json.gz",
        "v100_dlrm_8ranks/worker0.pt.trace.json.gz",
    ],
)
def test_agrees_with_kineto(captures: Path, name: str) -> None:
    """Kineto's estimate is the resident warps, or those of the grid spread over the device where they are fewer.

    It takes the default limit of 48 KB of shared memory a block and prints 0 % above; those launches are left out.
    """
    with gzip.open(captures / "kineto" / name, "rt") as stream:
        trace = json.loads(stream.read(), strict=False)
    device = trace["deviceProperties"][0]
    rows = [e["args"] for e in trace["traceEvents"] if "est. achieved occupancy %" in e.get("args", {})]
    sm = limits((device["computeMajor"], device["computeMinor"]))
    assert sm is not None
    assert sm.max_warps * 32 == device["maxThreadsPerMultiprocessor"]
    assert sm.max_registers_per_block == device["regsPerMultiprocessor"]
    assert sm.shared_bytes == device["sharedMemPerMultiprocessor"]

    threads, grid = (np.array([math.prod(map(int, r[key])) for r in rows]) for key in ("block", "grid"))
    shared = np.array([r["shared memory"] for r in rows])
    active = active_blocks(sm, threads, [r["registers per thread"] for r in rows], shared)
    assert not np.isnan(active).any()
    per_sm = np.array([r["blocks per SM"] for r in rows])
    np.testing.assert_allclose(waves(grid, active, device["numSms"]) * active, per_sm, atol=2e-3)
    percent = 100 * theoretical_occupancy(sm, threads, np.minimum(active, per_sm))
    plain = shared <= 48 << 10
    reported = np.array([r["est. achieved occupancy %"] for r in rows])
    assert plain.mean() > 0.5
    np.testing.assert_allclose(percent[plain], reported[plain], atol=0.5 + 1e-4)
