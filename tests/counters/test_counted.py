"""Metrics -> FLOPs and bytes: each number below follows from the rules by hand."""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from pyprof.counters.counted import Counted, counted
from pyprof.parse.sources.measured.launches import Launch, Measured

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def one(metrics: Mapping[str, float], cc: str = "9.0") -> Counted:
    return counted(Measured("ncu", [Launch("k", cc=cc)], {key: np.array([value]) for key, value in metrics.items()}, {}))


def of(**ops: float) -> dict[str, float]:
    return {SASS.format(op): value for op, value in ops.items()}


def flops(metrics: Mapping[str, float]) -> float | None:
    found = float(one(metrics).flops[0])
    return None if math.isnan(found) else found


@pytest.mark.parametrize("letter", ["h", "f", "d"])
def test_an_fma_is_two(letter: str) -> None:
    assert flops({SASS.format(f"{letter}{op}"): n for op, n in (("add", 3), ("mul", 5), ("fma", 7))}) == 22


def test_a_kind_that_was_not_counted_is_unknown() -> None:
    assert flops(of(ffma=7, fadd=3)) is None
    assert flops({}) is None
    found = one(of(ffma=7, fadd=3, fmul=0, dfma=1))
    assert found.flops[0] == 17 and found.what == ["fp32"] and np.isnan(found.vector["fp64"][0])


def test_rates_a_cycle_stand_in_for_counts() -> None:
    rates = {f"{SASS.format(op)}.per_cycle_elapsed": rate for op, rate in (("fadd", 2.0), ("fmul", 0.0), ("ffma", 0.5))}
    clock = {"smsp__cycles_elapsed.avg.per_second": 1e9, "gpu__time_duration.sum": 1000.0}
    assert flops({**rates, **clock}) == 3000  # 1000 cycles
    assert flops(rates) is None


def test_nvprofs_names() -> None:
    assert flops({"flop_count_sp.sum": 5.0, "flop_count_dp.sum": 6.0}) == 11


def test_one_level_of_the_tensor_paths_is_summed() -> None:
    path = "sm__ops_path_tensor_"
    by_result = {f"{path}src_bf16_dst_fp32.sum": 80.0, f"{path}src_fp16_dst_fp16.sum": 5.0}
    opcodes = {f"{path}op_hmma_src_bf16_dst_fp32.sum": 80.0, f"{path}op_hgmma_src_fp16.sum": 5.0}
    halves = {f"{path}src_bf16_dst_fp32_sparsity_on.sum": 30.0, f"{path}src_bf16_dst_fp32_sparsity_off.sum": 50.0}
    assert one(by_result | opcodes | halves).tensor[0] == 85
    assert one(opcodes | halves).tensor[0] == 85
    assert one(opcodes | {f"{path}src_bf16_dst_fp32.sum": 0.0}).tensor[0] == 85  # a level that misses newer opcodes
    assert one(by_result | {f"{path}src_fp16.sum": 5.0}).tensor[0] == 85  # fp16 contains fp16 to fp16
    assert one({f"{path}src_fp16_bf16_tf32_dst_fp32.sum": 7.0}).tensor[0] == 7  # Turing's joint count


def test_a_known_product_on_blackwell() -> None:
    """Four thousand and ninety-six cubed in fp8, as a B300 counted it (NVIDIA/DCGM#251): 2MNK."""
    found = one({"sm__ops_path_tensor_op_utcqmma_src_fp8_dst_fp32.sum": 137_438_953_472.0}, cc="10.3")
    assert found.flops[0] == 2 * 4096**3 and found.is_tensor_exact[0]
    assert not one({"sm__ops_path_tensor_src_bf16_dst_fp32.sum": 1.0}, cc="9.0").is_tensor_exact[0]


def test_tensor_cores_that_did_nothing_say_nothing_of_the_rest() -> None:
    assert flops({"sm__ops_path_tensor_src_bf16_dst_fp32.sum": 0.0}) is None
    assert flops({"sm__ops_path_tensor_src_bf16_dst_fp32.sum": 0.0, **of(fadd=0, fmul=0, ffma=4)}) == 8
    assert flops({"sm__ops_path_tensor_src_bf16_dst_fp32.sum": 9.0}) == 9


def test_half_precision_moves_are_recognised() -> None:
    assert one(of(hadd=0, hmul=0, hfma=50, fadd=0, fmul=0, ffma=4)).hfma_only[0] == 100
    assert one(of(hadd=1, hmul=0, hfma=50)).hfma_only[0] == 0
    assert one(of(fadd=0, fmul=0, ffma=4)).hfma_only[0] == 0


def test_bytes_by_level() -> None:
    assert one({"dram__bytes_read.sum": 3.0, "dram__bytes_write.sum": 4.0}).dram_bytes[0] == 7
    assert np.isnan(one({"dram__bytes_read.sum": 3.0}).dram_bytes[0])
    assert one({"dram__bytes.sum": 9.0}).dram_bytes[0] == 9
    assert one({"dram__bytes.sum.per_second": 1e12, "gpu__time_duration.sum": 2.0}).dram_bytes[0] == 2000
    assert one({"dram__sectors_read.sum": 3.0, "dram__sectors_write.sum": 4.0}).dram_bytes[0] == 224
    levels = one({"lts__t_sectors.sum": 2.0, "l1tex__t_bytes.sum": 5.0})
    assert (levels.l2_bytes[0], levels.l1_bytes[0]) == (64, 5)
