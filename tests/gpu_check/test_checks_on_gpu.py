"""What is checked of a recording on a GPU, from hand-made rows: no GPU is needed to judge."""

from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("torch", reason="needs torch")

from scripts.gpu_check import ways
from scripts.gpu_check.check import Checks, Taken
from scripts.gpu_check.machine import Machine
from tests.gpu_check.test_judge import rows

pytestmark = pytest.mark.torch
H100 = Machine("NVIDIA H100", "550.1", "2.9.0", amd=False, nsys="/bin/nsys", ncu=None)
MI300X = Machine("AMD Instinct MI300X", "6.2", "2.9.0+rocm6.4", amd=True, nsys="/bin/nsys", ncu=None)
ALONE = {"flops": 128, "steps_ns": [120] * ways.STEPS, "queued_ns": 110, "cc": [9, 0]}


def checks(network: str = "train_bf16", on: Machine = H100) -> Checks:
    made = Checks(network, on, Path("raw"), Path("captures"))
    made.alone = dict(ALONE)
    return made


def taken(table: pd.DataFrame, way: str = "run-nsys") -> Taken:
    return Taken(way, table, [300] * ways.STEPS, Path("net.sqlite"))


def status(made: Checks, one: Taken) -> dict[str, str]:
    return {check: outcome.status for check, outcome in made._judge(one)}


def test_everything_is_judged_where_there_is_a_gpu() -> None:
    good = status(checks(), taken(rows({"start": 0}, {"start": 200})))
    assert good == dict.fromkeys(["attributed", "flops", "times", "rates", "overhead", "tensor cores"], "pass")
    bad = rows({"op": None, "matmul_flops": 100, "bound": "compute!", "tc": "0", "sil": 900}, {})
    assert set(status(checks(), taken(bad)).values()) == {"fail", "pass"}
    assert [check for check, found in status(checks(), taken(bad)).items() if found == "pass"] == ["overhead"]


def test_of_a_replayed_graph_every_run_of_the_step_counts() -> None:
    replayed = rows(*[{"start": 200 * number} for number in range(3 + ways.STEPS)])
    found = status(checks("infer_graph"), taken(replayed))
    assert found["flops"] == "pass" and found["times"] == "skip"
    assert status(checks("infer_graph"), taken(replayed.iloc[1:]))["flops"] == "fail"


def test_ways_of_both_tools_are_compared_kernel_by_kernel() -> None:
    first = taken(rows({}, {"product": False, "op": "relu"}), "run-torch")
    assert checks()._same(taken(first.rows), first).status == "pass"
    assert checks()._same(taken(rows({}, {"product": False, "op": "gelu"})), first).status == "fail"


def test_what_a_gpu_of_amd_cannot_have_is_skipped() -> None:
    made = checks(on=MI300X)
    made.alone["cc"] = None
    assert status(made, taken(rows({"start": 0}, {"start": 200}), "run-torch"))["tensor cores"] == "skip"
    assert made._record("run-nsys") == ("skip", "nsys records GPUs of NVIDIA")
    assert made._counters(taken(rows({}))).status == "skip"
    assert str(MI300X).startswith("GPU AMD Instinct MI300X, driver 6.2, torch 2.9.0+rocm6.4, nsys ")
