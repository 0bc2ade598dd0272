"""What the check of a GPU says of hand-made rows, one that passes and one that fails for each judgement."""

from typing import Any

import pandas as pd
import pytest

from scripts.gpu_check import judge


def rows(*given: dict[str, Any]) -> pd.DataFrame:
    """Kernels of one product, changed as given."""
    usual = {"op": "linear", "kernel": "gemm", "shapes": "4x8;2x8", "sil": 100, "start": 0, "flops": 128, "matmul_flops": 128}
    more = {"product": True, "bound": "compute", "tc": "1", "phase": "forward", "kind": "kernel"}
    frame = pd.DataFrame([{**usual, **more, **one} for one in given])
    return frame.astype({"flops": "Int64", "matmul_flops": "Int64", "sil": "Int64", "start": "Int64", "bound": "category"})


def test_time_without_an_op_fails_beyond_two_percent() -> None:
    few = judge.attributed(rows({"sil": 990}, {"sil": 10, "op": None}))
    assert few == ("pass", "99.0% of the time of 2 rows has an op, the longest without: gemm")
    many = judge.attributed(rows({"sil": 60}, {"sil": 15, "op": None}, {"sil": 25, "op": None, "kernel": "unheard_of"}))
    assert many == ("fail", "60.0% of the time of 3 rows has an op, the longest without: unheard_of")
    assert judge.attributed(rows({"sil": 0})).status == "fail"


def test_flops_are_those_of_the_counter_to_the_last() -> None:
    both = rows({}, {"matmul_flops": None, "flops": 7, "op": "gelu", "product": False}, {})
    assert judge.flops(both, 128, 2) == ("pass", "256 FLOPs in 2 steps, as FlopCounterMode")
    assert judge.flops(both, 127, 2) == ("fail", "256 FLOPs, FlopCounterMode 254 in 2 steps")
    unknown = judge.flops(rows({}, {"matmul_flops": None}), 128, 1)
    assert unknown == ("fail", "128 FLOPs, FlopCounterMode 128 in 1 steps, 1 rows of products have none")


def test_a_rate_above_the_peak_fails() -> None:
    assert judge.rates(rows({}, {"bound": "memory"}, {"bound": None})) == ("pass", "none of 2 rows with a limit is above it")
    assert judge.rates(rows({}, {"bound": "compute!"})).why == "1 rows are above the peak: linear 4x8;2x8 by gemm"
    assert judge.rates(rows({}, {"bound": "compute!"})).status == "fail"
    assert judge.rates(rows({"bound": None})).status == "skip"


def test_time_in_which_two_streams_run_counts_once() -> None:
    assert judge.busy_ns(rows({"start": 0}, {"start": 50}, {"start": 500, "sil": 7})) == 157
    assert judge.busy_ns(rows({}).iloc[:0]) == 0


@pytest.mark.parametrize(
    ("busy", "recorded", "queued", "status"),
    [
        (900, 1000, 950, "pass"),
        (900, 9000, 950, "pass"),  # the host launched slowly
        (1100, 1000, 1100, "fail"),  # kernels longer than the steps around them
        (200, 1000, 900, "fail"),  # kernels are missing
        (900, 1000, None, "pass"),
        (1100, 1000, None, "fail"),
        (0, 1000, None, "fail"),
    ],
)
def test_kernels_fill_the_time_that_events_measure(busy: int, recorded: int, queued: int | None, status: str) -> None:
    assert judge.times(busy, recorded, queued).status == status


def test_two_ways_see_the_same_kernels_in_any_order() -> None:
    one, other = rows({}, {"op": "relu", "flops": 8}), rows({"op": "relu", "flops": 8}, {})
    assert judge.same(one, other) == ("pass", "2 rows alike in 2 kinds")
    unknown = judge.same(one, rows({"op": "relu", "flops": None}, {}))
    assert unknown == ("pass", "2 rows alike in 2 kinds; FLOPs of 1 kinds of calls are unknown in one of the two")
    of_cpu = judge.same(rows({"kind": "cpu"}), rows({"kind": "cpu", "kernel": "aten::linear"}))
    assert of_cpu.status == "pass"


def test_which_of_two_kernels_of_an_op_carries_its_flops_is_no_difference() -> None:
    first = rows({}, {"kernel": "reduce", "flops": 0})
    assert judge.same(first, rows({"flops": 0}, {"kernel": "reduce"})).status == "pass"
    assert judge.same(first, rows({}, {"kernel": "reduce"})).status == "fail"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shapes": "4x9;2x9"}, "of 2 kinds of rows and 0 of calls 2 differ, as linear 4x8;2x8 gemm: 0 rows and 1"),
        ({"kernel": "gemv"}, "of 2 kinds of rows and 1 of calls 2 differ, as linear 4x8;2x8 gemm: 0 rows and 1"),
        ({"flops": 256}, "of 1 kinds of rows and 1 of calls 1 differ, as linear 4x8;2x8: 256 FLOPs and 128"),
    ],
)
def test_another_shape_kernel_or_cost_is_a_difference(change: dict[str, Any], why: str) -> None:
    assert judge.same(rows(change), rows({})) == ("fail", why)


def test_nothing_is_not_the_same_as_nothing() -> None:
    assert judge.same(rows({}).iloc[:0], rows({}).iloc[:0]).status == "fail"


def test_a_recording_may_slow_a_step_but_not_stop_it() -> None:
    assert judge.overhead(2_000_000, 1_000_000) == ("pass", "a recorded step takes 2.00 times 1.000 ms")
    assert judge.overhead(21_000_000, 1_000_000).status == "fail"


def test_verdicts_are_what_the_type_of_the_products_asks_for() -> None:
    used, fma = rows({"sil": 95}, {"sil": 5, "tc": "0"}), rows({"tc": "0"}, {"tc": "-", "product": False, "matmul_flops": 0})
    assert judge.tensor_cores(used, "bf16", (9, 0)) == ("pass", "tc is 1 for 95% of the time of products in bf16")
    assert judge.tensor_cores(used, "fp32", (9, 0)).status == "fail"
    assert judge.tensor_cores(fma, "fp32", (8, 0)).status == "pass"
    assert judge.tensor_cores(fma, "tf32", (8, 0)).status == "fail"
    assert judge.tensor_cores(fma.iloc[1:], "fp32", (8, 0)) == ("fail", "no product was found")
    assert judge.tensor_cores(used, "bf16", (7, 0)).status == judge.tensor_cores(used, "bf16", None).status == "skip"


def test_verdicts_are_held_against_what_ncu_counted() -> None:
    launches = pd.DataFrame(
        {"kernel": ["hmma", "sgemm", "copy"], "tc": ["1", "0", "-"], "flops_tensor": pd.array([512, 0, 0], "Int64")}
    )
    assert judge.counters(launches) == ("pass", "2 verdicts are what was counted")
    wrong = launches.assign(tc=["1", "1", "-"])
    assert judge.counters(wrong) == ("fail", "1 of 2 verdicts are wrong, as tc 1 for sgemm, which did 0 FLOPs on them")
    uncounted = launches.assign(flops_tensor=pd.array([None, None, 0], "Int64"))
    assert judge.counters(uncounted).status == "skip"
