"""Prefill and decode of a serving engine apart in the summary: times, tokens a second, work, share of the roofline, by hand."""

from pathlib import Path

import pytest

import pyprof
from pyprof.cli import main
from pyprof.report.summary.job import job_of
from pyprof.report.summary.model import StepPhase
from tests.tiny import Nsys

GEMM = "ampere_sgemm_128x64_tn"
MM = "aten::mm, seq = -1, sizes = [[100, 200], [200, 300]]"
FLOPS, BYTES = 2 * 100 * 200 * 300, 4 * (100 * 200 + 200 * 300 + 100 * 300)
# At 100 us each: begin, text, what is launched (with a known op or none)
RUN = (
    (100_000, "execute_context_2(300)_generation_0(0)", (True, True)),
    (200_000, "execute_context_0(0)_generation_2(2)", (True, False)),
    (250_000, "execute_context_0(0)_generation_2(2)", (True,)),
    (300_000, "execute_context_1(60)_generation_2(2)", ()),
)


def run(path: Path, steps: tuple[tuple[int, str, tuple[bool, ...]], ...] = RUN) -> str:
    """A capture in which the device is a little behind the host; each kernel takes 10 us."""
    n = Nsys()
    n.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100-SXM4-40GB", 0, 108, 8, 0))
    for begin, text, kernels in steps:
        n.range(text, begin, begin + 30_000)
        for number, known in enumerate(kernels):
            at = begin + 1_000 + 5_000 * number
            if known:
                n.range(MM, at, at + 2_000)
            n.kernel(GEMM, at + 1_000, at + 25_000 + 5_000 * number, at + 35_000 + 5_000 * number)
    n.kernel("sampling", 240_000, 243_000, 244_000)
    return str(n.write(path))


def phases_of(file: str) -> dict[str | None, StepPhase]:
    return {one.phase: one for one in pyprof.load(file).summary().step_phases}


def test_each_step_phase_has_its_own_figures(tmp_path: Path) -> None:
    of = phases_of(run(tmp_path / "net.sqlite"))
    assert list(of) == ["prefill", "decode", "mixed", "outside"]
    prefill, decode, mixed, outside = of.values()
    assert (prefill.steps, prefill.requests, prefill.tokens, prefill.generated, prefill.time_ns) == (1, 2, 300, 0, 100_000)
    assert prefill.tokens_per_s == pytest.approx(300 / 100e-6)
    assert (decode.steps, decode.requests, decode.tokens, decode.generated, decode.time_ns) == (2, 4, 4, 4, 100_000)
    assert decode.tokens_per_s == pytest.approx(4 / 100e-6)
    assert (mixed.tokens, mixed.generated, mixed.time_ns) == (62, 2, 30_000)  # the last: to its own end
    told = (outside.steps, outside.time_ns, outside.tokens_per_s, outside.kernels, outside.kernel_ns)
    assert told == (0, None, None, 1, 1_000)
    assert (prefill.kernels, prefill.kernel_ns, prefill.flops, prefill.known_flops) == (2, 20_000, 2 * FLOPS, 1.0)
    assert (decode.kernels, decode.kernel_ns, decode.known_flops) == (3, 30_000, pytest.approx(2 / 3))
    assert (decode.flops, decode.flops_min, decode.bytes, decode.bytes_min) == (None, 2 * FLOPS, None, None)
    assert (mixed.kernels, mixed.flops, mixed.known_flops, mixed.peak) == (0, None, None, None)


def test_steps_are_counted_once_where_two_annotations_are_of_one(tmp_path: Path) -> None:
    beside = tuple(
        step
        for begin, text, kernels in RUN[:2]
        for step in (
            (begin, text, kernels),
            (begin + 40_000, "step[EXTEND bs=2 toks=300]" if "context_2" in text else "step[DECODE bs=2]", (True,)),
        )
    )
    file = run(tmp_path / "net.sqlite", beside)
    of = phases_of(file)
    assert [(of[phase].steps, of[phase].tokens, of[phase].kernels) for phase in ("prefill", "decode")] == [
        (1, 300, 3),
        (1, 2, 4),
    ]
    steps = pyprof.load(file).summary().steps
    assert steps is not None and (steps.kind, steps.times_ns[0]) == ("engine", 100_000)


@pytest.mark.parametrize("suffix", ["dict", "parquet"])
def test_written_records_tell_the_same(tmp_path: Path, suffix: str) -> None:
    file, written = run(tmp_path / "net.sqlite", RUN[:3]), str(tmp_path / f"net.{suffix}")
    assert main(["parse", file, "-o", written]) == 0
    assert phases_of(file) == phases_of(written)


def test_a_part_of_the_steps_keeps_their_whole_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main(["summary", run(tmp_path / "net.sqlite"), "--step", "1:3", "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["step_phases"]
    assert (found["phase"], found["steps"], found["time_ns"], found["kernels"]) == ("decode", 2, 100_000, 3)


def test_speculation_leaves_the_rate_of_decode_unknown(tmp_path: Path) -> None:
    of = phases_of(run(tmp_path / "net.sqlite", ((100_000, "step[TARGET_VERIFY bs=8]", (True,)), *RUN[1:2])))
    assert (of["decode"].steps, of["decode"].requests, of["decode"].tokens_per_s) == (2, 10, None)


def test_the_screen_and_the_tables_show_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run(tmp_path / "net.sqlite")
    assert main(["summary", file]) == 0
    shown = capsys.readouterr().out
    _, prefill, decode, mixed, outside = shown[shown.index("Engine steps") :].splitlines()[:5]
    assert prefill.split()[:7] == ["prefill", "1", "2", "300", "100", "us", "3,000,000"]
    assert decode.split()[:7] == ["decode", "2", "2", "4", "100", "us", "40,000"] and "≥ 24.0 MFLOP" in decode
    assert mixed.split()[:2] == ["mixed", "1"] and outside.split()[:3] == ["outside", "1.00", "us"]
    assert main(["summary", file, "--table", "step_phases", "--format", "csv"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert [row[:5] for row in rows[1:3]] == [["prefill", "1", "2", "300", "0"], ["decode", "2", "4", "4", "4"]]
    assert main(["summary", file, file]) == 0
    assert "tokens/s, decode" in capsys.readouterr().out


def test_ranks_that_make_the_same_steps_are_one_engine(tmp_path: Path) -> None:
    ranks = [pyprof.load(run(tmp_path / f"{name}.sqlite")).summary() for name in "ab"]
    found = {one.phase: one for one in job_of("job", ranks, None).step_phases}
    assert (found["decode"].tokens, found["decode"].time_ns, found["decode"].tokens_per_s) == (
        4,
        100_000,
        pytest.approx(40_000),
    )
    assert (found["decode"].kernels, found["decode"].flops, found["decode"].flops_min) == (6, None, 4 * FLOPS)
    assert found["decode"].known_flops == pytest.approx(2 / 3)
    other = pyprof.load(run(tmp_path / "c.sqlite", RUN[:2])).summary()
    assert job_of("job", [ranks[0], other], None).step_phases == ()


def test_captures_without_an_engine_have_none(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 100, 200, 300)
    assert pyprof.load(str(n.write(tmp_path / "net.sqlite"))).summary().step_phases == ()


def test_real_captures(captures: Path) -> None:
    serving = captures / "kineto" / "serving"
    (prefill,) = phases_of(str(serving / "sglang_prefilldecode.json.gz")).values()
    assert (prefill.phase, prefill.steps, prefill.requests, prefill.tokens) == ("prefill", 1, 15, 15_360)
    assert (
        prefill.tokens_per_s == pytest.approx(15_360 / 0.494, rel=1e-3)
        and prefill.peak is not None
        and 0.3 < prefill.peak < 0.5
    )
    (decode,) = phases_of(str(serving / "vllm_decode_full.run.json.gz")).values()
    assert (decode.phase, decode.steps, decode.requests, decode.generated) == ("decode", 1, 32, 32)
    assert decode.tokens_per_s == pytest.approx(32 / 0.010743, rel=1e-3)
