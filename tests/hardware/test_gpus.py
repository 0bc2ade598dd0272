"""The table of devices checked against itself, and looked up by the names that tools print."""

from __future__ import annotations

import csv
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from pyprof.errors import InputError
from pyprof.hardware.gpus import PRECISIONS, Gpu, find, from_file, load, named, ops_per_clock

GPUS = [gpu for gpu, _ in load()]
HALF = {
    row["name"]: row["half_rate"].split()
    for row in csv.DictReader(files("pyprof.hardware").joinpath("gpus.csv").read_text().splitlines())
}
# Cells that no formula gives: capped export parts, and Blackwell Ultra, whose fp64 and int8 were cut to a remnant.
CAPPED = {("H800-SXM", "fp64"), ("H800-SXM", "fp64_tensor"), *(("H20", p) for p in PRECISIONS)}
CAPPED |= {(name, p) for name in ("B300-SXM", "GB300") for p in ("fp64", "fp64_tensor", "int8")}


def _computed(gpu: Gpu, precision: str) -> list[float]:
    """SMs x operations a clock x clock, by each of the clocks that the row has."""
    ops = ops_per_clock(gpu.arch).get(precision, 0) * (0.5 if precision in HALF[gpu.name] else 1)
    clocks = [gpu.boost_hz] if precision in ("fp64", "fp32") else [gpu.tensor_hz]
    if precision == "fp64_tensor":  # rated at the boost clock on Hopper and Blackwell
        clocks.append(gpu.boost_hz)
    return [ops * gpu.sms * clock for clock in clocks if clock and gpu.sms]


def test_every_computable_peak_is_sms_times_operations_times_clock() -> None:
    checked = 0
    for gpu in GPUS:
        for precision, peak in gpu.peaks.items():
            computed = _computed(gpu, precision)
            if not computed or (gpu.name, precision) in CAPPED:
                continue
            checked += 1
            assert min(abs(peak / c - 1) for c in computed) <= 0.03, (gpu.name, precision, peak, computed)
    assert checked > 280


def test_no_half_precision_peak_is_a_sparse_one() -> None:
    for gpu in GPUS:
        for precision in ("fp16", "bf16"):
            if gpu.tensor_hz and gpu.sms and precision in gpu.peaks:
                assert gpu.peaks[precision] <= 1.03 * ops_per_clock(gpu.arch)[precision] * gpu.sms * gpu.tensor_hz, gpu.name


def test_rows_are_complete() -> None:
    names = [gpu.name for gpu in GPUS]
    assert len(set(names)) == len(names) >= 48
    for gpu in GPUS:
        assert ops_per_clock(gpu.arch) and gpu.dram_bytes_per_s and gpu.l2_bytes and gpu.peaks["fp32"] and gpu.source, gpu.name
        assert gpu.cc is None or gpu.limits is not None
        assert gpu.confidence in ("high", "medium", "low")


@pytest.mark.parametrize(
    ("name", "row_sms", "bandwidth_gbs", "bf16_tflops"),
    [
        ("Tesla V100-SXM2-16GB", 80, 900, None),
        ("Tesla V100-DGXS-32GB", 80, 900, None),
        ("NVIDIA A100-PG509-200", 108, 1555, 312),
        ("NVIDIA A100-SXM4-80GB", 108, 2039, 312),
        ("NVIDIA A100 80GB PCIe", 108, 1935, 312),
        ("NVIDIA A10", 72, 600, 125),
        ("NVIDIA A10G", 80, 600, 70),
        ("NVIDIA H100 80GB HBM3", 132, 3350, 989.4),
        ("NVIDIA H100 PCIe", 114, 2039, 756),
        ("NVIDIA H100 NVL", 132, 3938, 835.5),
        ("NVIDIA H200", 132, 4800, 989.4),
        ("NVIDIA H200 NVL", 132, 4800, 835.5),
        ("NVIDIA H20", 78, 4000, 148),
        ("NVIDIA GH200 480GB", 132, 4000, 989.4),
        ("NVIDIA B200", 148, 7672, 2250),
        ("NVIDIA GB200", 152, 7672, 2500),
        ("NVIDIA B300 SXM6 AC", 148, 8000, 2250),
        ("NVIDIA GB300", 152, 8000, 2500),
        ("NVIDIA L4", 58, 300, 121),
        ("NVIDIA L40", 142, 864, 181),
        ("NVIDIA L40S", 142, 864, 366),
        ("NVIDIA GeForce RTX 3070 Ti", 48, 608, 43.5),
        ("NVIDIA GeForce RTX 4090", 128, 1008, 165.2),
        ("AMD Instinct MI300X", 304, 5300, 1307.4),
    ],
)
def test_found_by_the_name_that_tools_print(name: str, row_sms: int, bandwidth_gbs: float, bf16_tflops: float | None) -> None:
    gpu, notes = find(name)
    assert gpu.name == name and gpu.sms == row_sms
    assert gpu.dram_bytes_per_s == pytest.approx(bandwidth_gbs * 1e9)
    peak = gpu.peak("bf16", "wgmma")
    assert peak is None if bf16_tflops is None else peak == pytest.approx(bf16_tflops * 1e12)
    assert notes == [] or gpu.confidence == "low"


def test_every_pattern_finds_its_own_row() -> None:
    for gpu, patterns in load():
        for pattern in patterns:
            name = re.sub(r"\\b|\$|\\", "", pattern.pattern)
            assert find(name)[0].source == gpu.source and find(name)[0].peaks == gpu.peaks, name


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3080 Ti"]
)
def test_a_sibling_is_not_taken_for_the_card(name: str) -> None:
    gpu, notes = find(name)
    assert not gpu.peaks and len(notes) == 1 and "--gpu" in notes[0]


def test_unknown_device_is_described_by_its_compute_capability() -> None:
    gpu, notes = find("NVIDIA Mystery", (8, 0), 100, 1.5e9)
    assert gpu.peaks["bf16"] == 2048 * 100 * 1.5e9
    assert gpu.limits is not None and gpu.confidence == "low" and len(notes) == 1
    geforce, _ = find("NVIDIA GeForce RTX 4070", (8, 9), 46, 2.475e9)
    assert geforce.peaks["bf16"] == pytest.approx(58.3e12, rel=0.01)  # with fp32 accumulation, as the whitepaper has it
    assert find("", None)[0].peaks == {}


def test_a_slice_or_variant_is_scaled_by_its_multiprocessors() -> None:
    whole, _ = find("NVIDIA A100-SXM4-40GB", (8, 0), 108)
    part, notes = find("NVIDIA A100-SXM4-40GB MIG 1g.5gb", (8, 0), 14)
    assert part.peaks["bf16"] == pytest.approx(whole.peaks["bf16"] * 14 / 108)
    assert part.dram_bytes_per_s is None and len(notes) == 2


def test_name_and_compute_capability_that_disagree_are_said() -> None:
    gpu, notes = find("NVIDIA A100-SXM4-40GB", (9, 0), 108, 1.4e9)
    assert gpu.arch == "9.0" and "compute capability" in notes[0]


def test_what_the_capture_says_wins() -> None:
    gpu, _ = find("NVIDIA A100-SXM4-80GB")
    measured = gpu.with_measured(dram_bytes_per_s=2e12, l2_bytes=41943040, clock_hz=1e9)
    assert (measured.dram_bytes_per_s, measured.l2_bytes, measured.boost_hz) == (2e12, 41943040, gpu.boost_hz)
    assert measured.peaks == gpu.peaks


def test_peak_by_precision_and_unit() -> None:
    a100, _ = find("NVIDIA A100-SXM4-80GB")
    assert a100.peak("tf32", "hmma") == pytest.approx(156e12)
    assert a100.peak("tf32x3", "hmma") == pytest.approx(52e12)
    assert a100.peak("fp64", "dmma") == pytest.approx(19.5e12)
    assert a100.peak("fp64", "dfma") == pytest.approx(9.7e12)
    assert a100.peak("fp32", "fma") == a100.peak("bf16", "fma") == a100.peak("", "memory") == pytest.approx(19.5e12)
    assert a100.peak("fp16", "hfma2") == pytest.approx(78e12, rel=0.01)  # the A100 whitepaper's non-Tensor fp16
    assert a100.peak("fp8", "qmma") is None


def test_from_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": "mine", "like": "NVIDIA H200", "sms": 100, "peaks": {"bf16": 7e14}}))
    gpu = from_file(path)
    assert (gpu.name, gpu.sms, gpu.arch, gpu.peaks["bf16"]) == ("mine", 100, "9.0", 7e14)
    assert gpu.dram_bytes_per_s == 4.8e12
    path.write_text(json.dumps({"like": "h200-sxm"}))
    assert from_file(path).dram_bytes_per_s == 4.8e12
    for wrong in (
        '{"like": "no such"}',
        '{"sms": -1}',
        '{"peaks": {"fp3": 1}}',
        "[1]",
        "{",
        '{"colour": 1}',
        '{"name": 3}',
        '{"l2_bytes": true}',
    ):
        path.write_text(wrong)
        with pytest.raises(InputError, match=r"mine\.json"):
            from_file(path)
    with pytest.raises(InputError, match="cannot be read"):
        from_file(tmp_path / "absent.json")


@pytest.mark.parametrize("said", ["A100", "h100", "V100"])
def test_what_most_people_call_a_model_leads_to_its_forms(said: str) -> None:
    with pytest.raises(InputError) as caught:
        named(said)
    offered = caught.value.hint.removeprefix("did you mean ").split("? ")[0].split(", ")
    assert len(offered) > 1 and all(name.startswith(said.upper()) and named(name).name == name for name in offered)


@pytest.mark.parametrize(("name", "cc", "row"), [
    ("AMD Instinct MI300X VF", (9, 4), "MI300X"), ("AMD Instinct MI325X", (9, 4), "MI325X"), ("AMD Instinct MI250X", (9, 0), "MI250X"),
    ("AMD Instinct MI355X", (9, 5), "MI355X"),
])  # fmt: skip
def test_devices_of_amd_by_the_capability_that_torch_records(name: str, cc: tuple[int, int], row: str) -> None:
    gpu, notes = find(name, cc)
    assert gpu.peaks == named(row).peaks and gpu.amd and gpu.capability == cc and gpu.cc is None and notes == []


def test_a_device_of_amd_without_a_name_has_what_all_of_its_kind_have() -> None:
    gpu, notes = find("", (9, 4), 304)
    assert gpu.peaks["bf16"] == named("MI300X").peaks["bf16"] and gpu.dram_bytes_per_s is None and "MI325X" in notes[0]
    assert find("", (9, 4), 17)[0].peaks == {} and find("", (9, 0), 132)[0].peaks == {}
