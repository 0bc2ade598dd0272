"""Windows and experts of an inference engine, from kernels' names and grids and from a model's config.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyprof.errors import InputError
from pyprof.loading.load import load_capture
from pyprof.prof import served
from pyprof.prof.cost import FLOPS_BOUNDS
from pyprof.prof.frame import Frame
from pyprof.prof.served import Model, Tiles, experts_a_token, has_window, read_model, tiles_of, use_model

BMM = (
    "bmm_%s_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3_biasM_bN_tma_%sdynBatch_sm100f"
)
UP, DOWN = BMM % ("MxE4m3_MxE2m1MxE4m3_Fp32", "swiGlu_"), BMM % ("Bfloat16_MxE2m1MxE4m3_Fp32", "")
FMHA = "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKv%sP16VarSeqQ128Kv128PersistentContext"
GPT_OSS = {
    "hidden_size": 2880, "intermediate_size": 2880, "num_experts_per_tok": 4, "num_local_experts": 128, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
STEP = "execute_888_context_1(sq888sk888sqsq788544sqsk788544)_generation_0(sq0sk0sqsq0sqsk0)"


def capture(path: Path, *ops: tuple[str, list[list[int]], list[tuple[str, list[int]]]]) -> Path:
    """A step of an engine on a B200: ops of bf16 with their sizes, and the kernels of each with their grids."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": STEP, "pid": 1, "tid": 1, "ts": 0, "dur": 5000, "args": {}}
    ]
    number = 0
    for at, (name, dims, kernels) in enumerate(ops):
        args = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims), "External id": at + 1}
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 100 * at + 1, "dur": 90, "args": args}
        )
        for kernel, grid in kernels:
            number += 1
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 2}
            events.append(launch | {"ts": 100 * at + 2 + number, "args": {"correlation": number, "External id": at + 1}})
            ran = {"device": 0, "stream": 7, "correlation": number, "grid": grid, "block": [128, 1, 1], "External id": at + 1}
            events.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": kernel,
                    "pid": 0,
                    "tid": 7,
                    "ts": 1000 + 100 * number,
                    "dur": 50,
                    "args": ran,
                }
            )
    device = {"id": 0, "name": "NVIDIA B200", "computeMajor": 10, "computeMinor": 0}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    return path


EXPERTS = (
    "vllm::moe_forward",
    [[888, 3072], [888, 128]],
    [("routingKernel", [1, 1, 1]), (UP, [8, 342, 1]), (DOWN, [24, 342, 1])],
)


def costs(path: Path) -> tuple[list[int], list[str]]:
    found = Frame(load_capture(path)).costs
    bounds = [FLOPS_BOUNDS[at] for at in found.flops_bound.tolist()]
    sure = found.sure_flops_of(slice(None)).tolist()
    assert not [flops for flops, bound in zip(sure, bounds, strict=True) if bound and flops >= 0]  # a bound is not added up
    return found.matmul_flops.tolist(), bounds


def test_experts_from_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """342 tiles of 16 rows at most are those of four experts a token; the sizes are padded: an upper bound."""
    monkeypatch.setattr(served, "_used", Model())
    path = capture(tmp_path / "experts.json", EXPERTS)
    flops, bounds = costs(path)
    assert sum(flops) == 6 * 888 * 4 * 3072 * 512 and set(bounds) == {"upper"}
    monkeypatch.setattr(served, "_used", read_model(GPT_OSS))  # of eight parts each has 360 of 2880
    flops, bounds = costs(path)
    assert sum(flops) == 6 * 888 * 4 * 2880 * 360 and set(bounds) == {""}


def test_experts_from_the_model_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tiles nothing says among how many devices they are divided."""
    path = capture(
        tmp_path / "experts.json", ("vllm::moe_forward", [[888, 2880], [888, 128]], [("fused_moe_kernel", [9, 1, 1])])
    )
    monkeypatch.setattr(served, "_used", Model())
    assert costs(path)[0] == [-1]
    monkeypatch.setattr(served, "_used", read_model(GPT_OSS))
    assert costs(path) == ([6 * 888 * 4 * 2880 * 2880], ["upper"])


def test_windows_from_names_and_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dims = [[888, 64, 64], [888, 8, 64], [888, 8, 64]]
    names = [FMHA % "Causal", FMHA % "SlidingOrChunkedCausal", "kernel_unified_attention_2d"]
    ops = [("vllm::unified_attention_with_output", dims, [(name, [9, 1, 1])]) for name in names]
    path, full = capture(tmp_path / "windows.json", *ops), 4 * 64 * 64 * (888 * 889 // 2)
    monkeypatch.setattr(served, "_used", Model())
    assert costs(path) == ([full] * 3, ["", "upper", "upper"])
    monkeypatch.setattr(served, "_used", read_model(GPT_OSS))
    windowed = 4 * 64 * 64 * (128 * 129 // 2 + (888 - 128) * 128)
    assert costs(path) == ([full, windowed, full], ["", "", "upper"])
    monkeypatch.setattr(served, "_used", read_model({"hidden_size": 64}))
    assert costs(path) == ([full] * 3, ["", "upper", ""])


@pytest.mark.parametrize(
    ("times", "bounds"),
    [
        ([9, 30, 9, 31, 10, 30], ["upper", "", "upper", "", "upper", ""]),  # every second layer has a window
        ([9, 9, 30, 9, 10, 31, 9], ["upper", "upper", "", "upper", "upper", "", "upper"]),
        ([30, 30, 30, 9, 9, 9], ["upper"] * 6),  # one change, as of a clock
        ([9, 30, 14, 31, 10, 20], ["upper"] * 6),  # populations as wide as what lies between them
        ([30, 31, 30, 31, 30, 31], ["upper"] * 6),
        ([9, 30], ["upper"] * 2),
    ],
)
def test_windows_from_two_populations_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: list[int], bounds: list[str]
) -> None:
    """Equal calls of equal layers take one time; the long ones of two that alternate have no window."""
    dims, full = [[888, 64, 64], [888, 8, 64], [888, 8, 64]], 4 * 64 * 64 * (888 * 889 // 2)
    ops = [("vllm::unified_attention_with_output", dims, [("kernel_unified_attention_2d", [9, 1, 1])])] * len(times)
    path = capture(tmp_path / "windows.json", *ops)
    found = json.loads(path.read_text())
    for event, took in zip([e for e in found["traceEvents"] if e["cat"] == "kernel"], times, strict=True):
        event["dur"] = took
    path.write_text(json.dumps(found))
    monkeypatch.setattr(served, "_used", Model())
    assert costs(path) == ([full] * len(times), bounds)
    monkeypatch.setattr(served, "_used", read_model(GPT_OSS))
    short = 4 * 64 * 64 * (128 * 129 // 2 + (888 - 128) * 128)
    known = [short if bound else full for bound in bounds], [""] * len(times)
    assert costs(path) == (known if "" in bounds else ([full] * len(times), bounds))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (FMHA % "Causal", False),
        (FMHA % "SlidingOrChunkedCausal", True),
        (FMHA % "Dense", None),
        ("void flash::flash_fwd_splitkv_kernel<Traits<128, 64, cutlass::bfloat16_t>, true, false, false>(P)", False),
        ("void flash::flash_fwd_splitkv_kernel<Traits<128, 64, cutlass::bfloat16_t>, false, true, false>(P)", True),
        ("void flash::flash_fwd_kernel<Traits<128>, (bool)0, (bool)0, (bool)1, (bool)0>(P)", True),
        ("kernel_unified_attention_2d", None),
    ],
)
def test_names_that_tell_a_window(kernel: str, expected: bool | None) -> None:
    assert has_window(kernel) is expected


def test_tiles() -> None:
    assert tiles_of(UP, (8, 342)) == Tiles(1024, 342, 16, True) and tiles_of("fused_moe_kernel", (8, 342)) is None
    tiles = Tiles(1024, 342, 16, True)
    assert [experts_a_token(888, 128, tiles), experts_a_token(887, 128, tiles), experts_a_token(100, 128, tiles)] == [4, 0, 0]
    assert experts_a_token(1, 128, Tiles(1024, 4, 16, True)) == 4  # one tile each


def test_a_model() -> None:
    assert read_model(GPT_OSS) == Model(4, 2880, 2880, 128, None)
    mistral = {"hidden_size": 4096, "sliding_window": 4096, "intermediate_size": 14336}
    assert read_model(mistral) == Model(0, 4096, 14336, 4096, True)
    assert read_model({"hidden_size": 8, "sliding_window": 4, "use_sliding_window": False}) == Model(0, 8)
    assert read_model({"text_config": {"hidden_size": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 3}}) == Model(
        2, 8, 3
    )


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"])
def test_what_is_no_model_is_an_error(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError):
        use_model(str(path))
