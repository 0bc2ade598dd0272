"""The table of devices checked against itself, and looked up by the names that tools print."""

import csv
import json
from importlib.resources import files
from pathlib import Path

import pytest

from pyprof.errors import InputError
from pyprof.hardware.devices import PRECISIONS, Gpu, is_named, load, ops_per_clock
from pyprof.hardware.gpus import RecordedGpu, find, from_file, named

GPUS = [gpu for gpu, _ in load()]
ROWS = [*csv.DictReader(files("pyprof.hardware").joinpath("gpus.csv").read_text().splitlines())]
# Cells that no formula gives: capped export parts, and Blackwell Ultra, whose fp64 and int8 were cut to a remnant.
CAPPED = {("H800-SXM", "fp64"), ("H800-SXM", "fp64_tensor"), *((name, p) for name in ("H20", "H20-3e") for p in PRECISIONS)}
CAPPED |= {(name, p) for name in ("B300-SXM", "GB300") for p in ("fp64", "fp64_tensor", "int8")}


def _computed(gpu: Gpu, precision: str) -> list[float]:
    """SMs x operations a clock x clock, by each of the clocks that the row has."""
    ops = ops_per_clock(gpu.arch).get(precision, 0) * (0.5 if precision in gpu.halved else 1)
    clocks = [gpu.boost_hz] if precision in ("fp64", "fp32") else [gpu.tensor_hz]
    if precision == "fp64_tensor":  # rated at the boost clock on Hopper and Blackwell
        clocks.append(gpu.boost_hz)
    return [ops * gpu.sms * clock for clock in clocks if clock and gpu.sms]


def test_every_computable_peak_is_sms_times_operations_times_clock() -> None:
    """Of the rows whose rates are published; the others' are computed so."""
    published = {row["name"] for row in ROWS if row["fp32"]}
    checked = 0
    for gpu in GPUS:
        for precision, peak in gpu.peaks.items():
            computed = _computed(gpu, precision)
            if not computed or gpu.name not in published or (gpu.name, precision) in CAPPED:
                continue
            checked += 1
            assert min(abs(peak / c - 1) for c in computed) <= 0.03, (gpu.name, precision, peak, computed)
    assert checked > 330


def test_no_half_precision_peak_is_a_sparse_one() -> None:
    for gpu in GPUS:
        for precision in ("fp16", "bf16"):
            if gpu.tensor_hz and gpu.sms and precision in gpu.peaks:
                assert gpu.peaks[precision] <= 1.03 * ops_per_clock(gpu.arch)[precision] * gpu.sms * gpu.tensor_hz, gpu.name


def test_rows_are_complete() -> None:
    names = [gpu.name for gpu in GPUS]
    assert len(set(names)) == len(names) >= 180
    for gpu in GPUS:
        assert ops_per_clock(gpu.arch) and gpu.memory_gb and gpu.source, gpu.name
        assert gpu.peaks.get("fp32") or not gpu.boost_hz, gpu.name  # a clock gives them
        assert gpu.cc is None or gpu.limits is not None
        assert gpu.confidence in ("high", "medium", "low")


def test_what_is_computed_says_so() -> None:
    for row in ROWS:
        if not any(row[precision] for precision in PRECISIONS) and row["boost_mhz"]:
            assert "computed" in row["source"], row["name"]


def test_bandwidth_is_bus_width_times_data_rate() -> None:
    given = [row for row in ROWS if row["pin_gbps"]]
    assert len(given) > 70
    for row in given:
        computed = int(row["bus_bits"]) / 8 * float(row["pin_gbps"])
        assert float(row["dram_gbs"]) == pytest.approx(computed, rel=0.01), row["name"]


# A compute unit of CDNA reads as many FLOP/s as AMD prints for the whole device, in every precision (data sheets).
@pytest.mark.parametrize(("name", "peaks"), [
    ("MI210", {"fp64": 22.6, "fp64_tensor": 45.3, "fp32": 22.6, "fp32_tensor": 45.3, "bf16": 181, "int8": 181}),
    ("MI250X", {"fp64": 95.7 / 4, "fp64_tensor": 95.7 / 2, "fp32": 95.7 / 4, "fp32_tensor": 95.7 / 2, "bf16": 383 / 2}),
    ("MI300A", {"fp64": 61.3, "fp64_tensor": 122.6, "fp32": 122.6, "tf32": 490.3, "bf16": 980.6, "fp8": 1961.2}),
    ("MI300X", {"fp64": 81.7, "fp64_tensor": 163.4, "fp32": 163.4, "tf32": 653.7, "bf16": 1307.4, "fp8": 2614.9}),
])  # fmt: skip
def test_peaks_of_amd_as_its_data_sheets_have_them(name: str, peaks: dict[str, float]) -> None:
    gpu = named(name)
    for precision, tflops in peaks.items():
        assert gpu.peaks[precision] / 1e12 == pytest.approx(tflops, rel=0.005), precision
    assert gpu.peak("fp64", "mfma") == gpu.peaks["fp64_tensor"] and gpu.peak("fp64", "dfma") == gpu.peaks["fp64"]
    assert gpu.peak("fp32", "mfma") == gpu.peaks["fp32_tensor"] and gpu.peak("fp32", "fma") == gpu.peaks["fp32"]


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


NAMES = (Path(__file__).parent / "device_names.txt").read_text().splitlines()


def test_names_that_drivers_print() -> None:
    """Every name is of the row beside it, or of none; several rows of one name differ in multiprocessors or in memory."""
    assert len(NAMES) > 250
    for line in NAMES:
        name, _, rows = line.partition(" = ")
        found = [gpu for gpu, names in load() if is_named(names, name)]
        assert [gpu.name for gpu in found] == [row for row in rows.split(" | ") if row], name
        kinds = [(gpu.sms, size) for gpu in found for size in gpu.memory_gb]
        assert len(set(kinds)) == len(kinds), name


def test_every_row_has_a_name_that_drivers_print() -> None:
    named = {row for line in NAMES for row in line.partition(" = ")[2].split(" | ")}
    assert {gpu.name for gpu in GPUS} <= named


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090 Ti", "NVIDIA GeForce RTX 3080 Max-Q", "NVIDIA A100-SXM4-96GB"])
def test_a_sibling_is_not_taken_for_the_card(name: str) -> None:
    gpu, notes = find(name)
    assert not gpu.peaks and len(notes) == 1 and "--gpu" in notes[0]


def test_of_several_with_one_name_multiprocessors_and_memory_decide() -> None:
    name = "NVIDIA GeForce RTX 3080"
    assert find(name, RecordedGpu((8, 6), 70))[0].dram_bytes_per_s == pytest.approx(912.4e9)
    assert find(name, RecordedGpu((8, 6), memory_bytes=10 << 30))[0].dram_bytes_per_s == pytest.approx(760e9)
    unsure, notes = find(name)
    assert unsure.dram_bytes_per_s is None and "RTX 3080 or RTX 3080 12GB" in notes[0]
    twelve, notes = find("NVIDIA GeForce RTX 3060", RecordedGpu((8, 6), 28, memory_bytes=12622168064))
    assert twelve.dram_bytes_per_s == 360e9 and notes == []


def test_unknown_device_is_described_by_its_compute_capability() -> None:
    gpu, notes = find("NVIDIA Mystery", RecordedGpu((8, 0), 100, 1.5e9))
    assert gpu.peaks["bf16"] == 2048 * 100 * 1.5e9 and gpu.dram_bytes_per_s is None
    assert gpu.limits is not None and gpu.confidence == "low" and "memory bandwidth unknown" in notes[0]
    gpu, notes = find("NVIDIA Mystery", RecordedGpu((8, 0), 100, 1.5e9, dram_bytes_per_s=1e12, l2_bytes=1 << 20))
    assert (gpu.dram_bytes_per_s, gpu.l2_bytes) == (1e12, 1 << 20) and "bandwidth as recorded" in notes[0]
    geforce, _ = find("NVIDIA GeForce RTX 4068", RecordedGpu((8, 9), 46, 2.475e9))
    assert geforce.peaks["bf16"] == pytest.approx(58.3e12, rel=0.01)  # with fp32 accumulation, as the whitepaper has the 4070
    assert find("")[0].peaks == {}
    assert set(find("NVIDIA T1000", RecordedGpu((7, 5), 14, 1.395e9))[0].peaks) == {"fp64", "fp32"}
    assert "fp16" in find("NVIDIA T40", RecordedGpu((7, 5), 40, 1.5e9))[0].peaks


def test_a_laptop_whose_clock_its_maker_chose_takes_the_recorded_one() -> None:
    gpu, _ = find("NVIDIA GeForce RTX 5090 Laptop GPU", RecordedGpu((12, 0), 82, 2.16e9))
    assert gpu.peaks["bf16"] == pytest.approx(82 * 1024 * 2.16e9 / 2) and gpu.dram_bytes_per_s == 896e9
    assert find("NVIDIA GeForce RTX 5090 Laptop GPU")[0].peaks == {}


def test_a_slice_or_variant_is_scaled_by_its_multiprocessors() -> None:
    whole, _ = find("NVIDIA A100-SXM4-40GB", RecordedGpu((8, 0), 108))
    part, notes = find("NVIDIA A100-SXM4-40GB MIG 1g.5gb", RecordedGpu((8, 0), 14, memory_bytes=5 << 30))
    assert part.peaks["bf16"] == pytest.approx(whole.peaks["bf16"] * 14 / 108)
    assert part.dram_bytes_per_s is None and len(notes) == 2
    die, notes = find("AMD Instinct MI300X", RecordedGpu((9, 4), 38))  # one of eight, in the mode CPX
    assert die.peaks["bf16"] == pytest.approx(1307.4e12 / 8) and die.dram_bytes_per_s is None and len(notes) == 2


def test_name_and_compute_capability_that_disagree_are_said() -> None:
    gpu, notes = find("NVIDIA A100-SXM4-40GB", RecordedGpu((9, 0), 108, 1.4e9))
    assert gpu.arch == "9.0" and "compute capability" in notes[0]


def test_what_the_capture_says_wins() -> None:
    gpu, _ = find("NVIDIA A100-SXM4-80GB")
    measured, _ = find("NVIDIA A100-SXM4-80GB", RecordedGpu(dram_bytes_per_s=2e12, l2_bytes=41943040, clock_hz=1e9))
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


@pytest.mark.parametrize("said", ["A100", "h100", "V100", "MI300", "GH200", "orin"])
def test_what_most_people_call_a_model_leads_to_its_forms(said: str) -> None:
    with pytest.raises(InputError) as caught:
        named(said)
    assert "\n" not in str(caught.value) and "GB/s)" in str(caught.value)
    offered = [one.split(" (")[0] for one in str(caught.value).split(": ")[1].split("), ")]
    assert len(offered) > 1 and all(said.lower() in name.lower() and named(name).name == name for name in offered)


@pytest.mark.parametrize(("said", "row"), [
    ("3090", "RTX 3090"), ("rtx 4090", "RTX 4090"), ("4090 laptop", "RTX 4090 Laptop"), ("a100 sxm 80gb", "A100-SXM4-80GB"), ("B200", "B200-SXM"),
    ("mi355x", "MI355X"), ("AMD Instinct MI250X", "MI250X"), ("NVIDIA H100 80GB HBM3", "H100-SXM5"), ("l40", "L40"), ("A10", "A10"), ("t4", "T4"),
    ("h20", "H20"), ("a4000", "RTX A4000"), ("5070 ti", "RTX 5070 Ti"), ("titan rtx", "TITAN RTX"), ("thor", "Jetson Thor"),
])  # fmt: skip
def test_short_names_that_mean_one_device(said: str, row: str) -> None:
    assert named(said).name == row


@pytest.mark.parametrize("said", ["", "nvidia", "A100-SXM4-81GB", "RTX 9999"])
def test_names_that_mean_none(said: str) -> None:
    with pytest.raises(InputError, match="no device"):
        named(said)


@pytest.mark.parametrize(("name", "cc", "row"), [
    ("AMD Instinct MI300X VF", (9, 4), "MI300X"), ("AMD Instinct MI325X", (9, 4), "MI325X"), ("AMD Instinct MI250X", (9, 0), "MI250X"),
    ("AMD Instinct MI355X", (9, 5), "MI355X"), ("AMD Instinct MI300A", (9, 4), "MI300A"),
])  # fmt: skip
def test_devices_of_amd_by_the_capability_that_torch_records(name: str, cc: tuple[int, int], row: str) -> None:
    gpu, notes = find(name, RecordedGpu(cc))
    assert gpu.peaks == named(row).peaks and gpu.amd and gpu.capability == cc and gpu.cc is None and notes == []


def test_a_device_of_amd_without_a_name_is_told_by_its_memory_or_has_what_all_of_its_kind_have() -> None:
    gpu, notes = find("", RecordedGpu((9, 4), 304))
    assert gpu.peaks["bf16"] == named("MI300X").peaks["bf16"] and gpu.dram_bytes_per_s is None and "MI325X" in notes[0]
    gpu, notes = find("", RecordedGpu((9, 4), 304, memory_bytes=206141652992))
    assert gpu.name == "MI300X" and gpu.dram_bytes_per_s == 5.3e12 and "by its memory" in notes[0]
    assert find("", RecordedGpu((9, 0), 132))[0].peaks == {} and not find("", RecordedGpu((9, 0), 132))[0].amd


def test_devices_of_amd_that_are_not_in_the_table_are_not_taken_for_nvidias() -> None:
    part, notes = find("", RecordedGpu((9, 4), 17))
    assert part.arch == "gfx942" and part.peaks == {} and len(notes) == 1
    radeon, _ = find("AMD Radeon PRO W7900", RecordedGpu((11, 0), 96))  # 11.0 is Jetson Thor
    assert radeon.amd and radeon.peaks == {} and radeon.cc is None
