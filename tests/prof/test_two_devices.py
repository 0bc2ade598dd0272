"""One model on two makers' GPUs: the same work, and each held against its own roofline."""

from pathlib import Path

import pytest

import pyprof


@pytest.mark.parametrize(("name", "device", "bf16", "dram"), [
    ("mi300_vit", "AMD Instinct MI300X VF", 1307.4e12, 5.3e12), ("h100_vit", "NVIDIA H100 80GB HBM3", 989.4e12, 3.35e12),
])  # fmt: skip
def test_a_model_has_its_roofline_on_either_device(captures: Path, name: str, device: str, bf16: float, dram: float) -> None:
    capture = pyprof.load(captures / f"kineto/{name}.json.gz")
    kernels = capture.to_pandas(columns="params,flops,sil,peak,tc,unit", kinds="kernel")
    assert capture.records.gpus[0].name == device and kernels["peak"].notna().all()
    products = kernels[kernels["tc"] == "1"]
    assert set(products["unit"]) == ({"mfma"} if "mi300" in name else {"hmma", "wgmma"})
    linear = products[products["params"] == "M=788,N=768,K=3072,bf16"]
    assert len(linear) == 12 and set(linear["flops"]) == {2 * 788 * 768 * 3072}
    read_and_written = 2 * (788 * 3072 + 768 * 3072 + 788 * 768 + 768)
    least_ns = 1e9 * max(2 * 788 * 768 * 3072 / bf16, read_and_written / dram)
    for row in linear.itertuples():
        assert float(row.peak) == pytest.approx(100 * least_ns / row.sil, rel=0.01)


def test_what_of_a_captures_time_has_no_roofline(captures: Path) -> None:
    """Collectives go over links whose rates are not known; kernels whose launch was not recorded have no op."""
    capture = pyprof.load(captures / "kineto/mi300_resnet_checkpoint.json.gz")
    kernels = capture.to_pandas(columns="op,family,launch,sil,peak", kinds="kernel")
    total, none = kernels["sil"].sum(), kernels[kernels["peak"].isna()]
    links, rest = none[none["family"] == "nccl"], none[none["family"] != "nccl"]
    assert 100 * links["sil"].sum() / total == pytest.approx(73.53, abs=0.01)
    unlaunched = rest[rest["launch"].isna()]
    assert unlaunched["op"].isna().all() and 100 * unlaunched["sil"].sum() / total == pytest.approx(6.7, abs=0.1)
    assert set(rest[rest["launch"].notna()]["op"]) == {"_foreach_add_"}  # its tensors are not in the trace
