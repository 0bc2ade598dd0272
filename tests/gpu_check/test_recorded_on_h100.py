"""Captures of the check's networks from an H100, judged again: what nsys, torch.profiler, ncu and FlopCounterMode say agrees."""

import gzip
import io
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

import pyprof
from pyprof.cli import main
from scripts.gpu_check import judge
from scripts.gpu_check.rows import rows_of
from tests.conftest import ROOT

H100 = ROOT / "tests/data/h100"
# Of each network: FLOPs of a step by torch's FlopCounterMode, less what a causal mask leaves out; steps; type of the products.
COUNTED = {
    "infer_graph": (138_412_032, 9, "bf16"),
    "train_conv": (415_432_704, 2, "fp32"),
    "train_attention": (1_040_187_392, 2, "bf16"),
    "infer_causal": (302_252_032, 2, "bf16"),
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the databases and tables as the tools wrote them."""
    folder = tmp_path_factory.mktemp("h100")
    for packed in H100.glob("*.gz"):
        plain = packed.name.removesuffix(".gz") if ".json" not in packed.name else packed.name
        (folder / plain).write_bytes(packed.read_bytes() if plain == packed.name else gzip.decompress(packed.read_bytes()))
    return folder


@cache
def rows(capture: Path) -> pd.DataFrame:
    return rows_of(capture)


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".gz") for path in H100.glob("*.nsys.sqlite.gz")) + sorted(
    path.name for path in H100.glob("*.torch.json.gz")
))  # fmt: skip
def test_every_kernel_has_its_op_and_flops_are_those_that_torch_counts(unpacked: Path, name: str) -> None:
    found, (of_step, steps, math) = rows(unpacked / name), COUNTED[name.partition(".")[0]]
    assert judge.attributed(found).why.startswith("100.0% ")
    assert judge.flops(found, of_step, steps).status == "pass"
    assert judge.rates(found).status == "pass"
    assert judge.tensor_cores(found, math, (9, 0)).why.startswith(f"tc is {int(math != 'fp32')} for 100% ")


@pytest.mark.parametrize("network", ["train_conv", "train_attention"])
def test_nsys_and_torch_say_the_same_of_every_kernel(unpacked: Path, network: str) -> None:
    """Also FLOPs of backward ops whose gradients nsys does not record: a bias's, and none of an input that wants none."""
    recorded = [rows(unpacked / f"{network}.{tool}") for tool in ("nsys.sqlite", "torch.json.gz")]
    outcome = judge.same(*recorded)
    assert outcome.status == "pass" and "unknown" not in outcome.why, outcome.why


def test_kernels_of_a_replayed_graph_have_the_ops_of_its_capture(unpacked: Path) -> None:
    """nsys 2024 writes each cloned node twice, first without the node that it was cloned from."""
    found = rows(unpacked / "infer_graph.nsys.sqlite")
    replayed = found.iloc[-30:]
    assert replayed["op"].tolist() == ["linear", "gelu", "linear", "layer_norm", "linear"] * 6
    assert replayed["shapes"].iloc[0] == "128x256;1024x256;1024"


def test_what_ncu_counted_is_read_beside_names_with_quotes(unpacked: Path) -> None:
    """pyprof's ranges hold quotes, which ncu writes into its CSV as they are."""
    launches = pyprof.load(unpacked / "infer_causal.ncu.csv").counters(str(unpacked / "infer_causal.torch.json.gz"))
    assert judge.counters(launches) == ("pass", "6 verdicts are what was counted")
    assert launches["match"].tolist() == ["exact"] * 10
    linear = launches[launches["kernel"].str.startswith("nvjet")]
    assert linear["flops_model"].tolist() == [201_326_592, 67_108_864] * 2
    # The tiles of the second product are larger than it is.
    assert (linear["flops_tensor"] / linear["flops_model"]).tolist() == [1.0, 1.125] * 2


def test_blocks_timed_on_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """One block on each of the 132 multiprocessors; the kernel did a loop once and then twice."""
    assert main(["timers", str(H100 / "timers.npz"), "--csv"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out)).set_index("Block")
    assert table["Count"].tolist() == [132] * 3
    once, twice = table["Median(ns)"]["ONCE"], table["Median(ns)"]["TWICE"]
    assert twice / once == pytest.approx(2, abs=0.05)
    hz = table["Median(ticks)"] / table["Median(ns)"] * 1e9
    assert hz.tolist() == pytest.approx([1.98e9] * 3, rel=0.01)  # the highest clock of an H100
