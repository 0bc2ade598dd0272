"""Advice in the words of the program: PyTorch's only where PyTorch is seen; sums over devices told apart from means."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import A100, advice_of, overview_of
from tests.tiny import Nsys

OF_TORCH = ("torch", "DataLoader", ".item()", "PYTORCH", "pyprof.init", "autocast", "batch")


def drained(kernel: str, *, around: str = "", free: bool = False) -> Nsys:
    """Ten kernels, each followed by a call that waits for it and 200 us of the host's own, then a launch that is late."""
    n = Nsys()
    n.rows["TARGET_INFO_GPU"].append(A100)
    for at in range(10_000, 3_010_000, 300_000):
        n.range(around, at, at + 90_000) if around else None
        n.kernel(kernel, at, at + 10_000, at + 100_000)
        n.api(at + 20_000, at, took=90_000, name="cudaFree_v3020" if free else "cudaDeviceSynchronize_v3020")
    return n


@pytest.mark.parametrize(
    ("kernel", "around", "torch"),
    [
        ("saxpy(int, float *)", "", False),  # the user's own kernel alone
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n", "phase 1", False),  # ranges of which none is torch's
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n", "", True),  # a library's: whose is not said
        ("void at::native::vectorized_elementwise_kernel<4>()", "phase 1", True),
        ("saxpy(int, float *)", "ProfilerStep#1", True),
    ],
)
@pytest.mark.parametrize("free", [False, True])
def test_torch_is_told_where_it_is_seen(tmp_path: Path, kernel: str, around: str, torch: bool, free: bool) -> None:
    overview = overview_of(drained(kernel, around=around, free=free), tmp_path)
    found = advice_of(overview)
    assert "synchronization" in found and overview.uses_torch == torch
    assert torch == any(word in one.do for one in found.values() for word in OF_TORCH)


def test_bytes_of_two_devices_are_called_a_sum(tmp_path: Path) -> None:
    n = Nsys()
    for at in range(0, 40_000_000, 10_000_000):
        n.range(f"ProfilerStep#{at}", at, at + 10_000_000)
        for device in (0, 1):
            n.copy(1, at + 10 + device, at + 1_000, at + 5_000_000, bytes=64 << 20, device=device)
            n.kernel("at::native::add", at + 100 + device, at + 5_000_000, at + 5_500_000, device=device)
    evidence = advice_of(overview_of(n, tmp_path))["host_copy"].evidence
    assert "134 MB on 2 devices together a step" in evidence and evidence.endswith("for 20.0 ms on each (mean)")
