"""Steps of serving engines: which annotations make one step, and which kernels a step launched. All truths by hand."""

import json
from pathlib import Path

import pytest

from pyprof.loading.load import load
from pyprof.model.records import Records
from tests.tiny import Nsys

GEMM = "ampere_sgemm_128x64_tn"
PREFILL = "execute_300_context_2(sq300sk300sqsq45000sqsk45000)_generation_0(sq0sk0sqsq0sqsk0)"
DECODE = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk302sqsq2sqsk302)"


def found(n: Nsys, path: Path) -> Records:
    return load(str(n.write(path / "net.sqlite")))


def launches(n: Nsys, *times: int, **where: int) -> None:
    """Kernels that run long after their launch, in order of the launches."""
    for time in times:
        n.kernel(GEMM, time, 100_000 + 10 * time, 100_000 + 10 * time + 5, **where)


def steps_of(records: Records) -> list[tuple[int, ...]]:
    """Of each kernel in order: its step's number, or nothing."""
    return [(records.engine_steps[code].number,) if code >= 0 else () for code in records["engine_step"].tolist()]


def test_a_steps_kernels_are_those_launched_in_its_annotation_however_late_they_run(tmp_path: Path) -> None:
    n = Nsys()
    n.range(PREFILL, 1_000, 2_000)
    n.range(DECODE, 2_100, 2_500)
    launches(n, 500, 1_500, 2_050, 2_200, 2_600)
    records = found(n, tmp_path)
    assert steps_of(records) == [(), (0,), (), (1,), ()]
    assert records["step"].tolist() == [-1, 0, -1, 1, -1]
    shown = [(step.number, step.begin_ns, step.end_ns) for step in records.engine_steps]
    assert shown == [(0, 1_000, 2_000), (1, 2_100, 2_500)]
    assert [step.says.phase for step in records.engine_steps] == ["prefill", "decode"]
    assert not any(stack.layer for stack in records.stacks)  # a step is no layer


def test_nested_annotations_are_one_step(tmp_path: Path) -> None:
    n = Nsys()
    for at in (1_000, 2_000):
        n.range(PREFILL, at, at + 900)
        n.range("step[EXTEND bs=2 toks=300]", at + 500, at + 800)
        launches(n, at + 100, at + 600)
    records = found(n, tmp_path)
    assert steps_of(records) == [(0,), (0,), (1,), (1,)]
    assert records.engine_steps[0].texts == (PREFILL, "step[EXTEND bs=2 toks=300]")


def test_annotations_of_two_forms_beside_each_other_are_one_step_where_they_agree(tmp_path: Path) -> None:
    n = Nsys()
    for at, text in ((1_000, PREFILL), (2_000, DECODE), (3_000, DECODE)):
        n.range(text, at, at + 300)
        n.range("step[EXTEND bs=2 toks=300]" if text == PREFILL else "step[DECODE bs=2]", at + 400, at + 800)
        launches(n, at + 100, at + 350, at + 500, at + 900)
    records = found(n, tmp_path)
    assert steps_of(records) == [s for number in range(3) for s in ((number,), (number,), (number,), ())]
    assert [step.says.pairs for step in records.engine_steps] == [45_000 - (45_000 - 300) // 2, 302, 302]


def test_annotations_that_contradict_each_other_are_of_different_steps(tmp_path: Path) -> None:
    n = Nsys()
    n.range(PREFILL, 1_000, 1_300)
    n.range("step[DECODE bs=2]", 1_400, 1_800)
    launches(n, 1_100, 1_500)
    assert steps_of(found(n, tmp_path)) == [(0,), (1,)]


def test_of_nested_ones_that_contradict_each_other_the_outer_says_what_the_step_is(tmp_path: Path) -> None:
    n = Nsys()
    n.range(DECODE, 1_000, 1_900)
    for at in (1_100, 1_400):
        n.range("step[DECODE bs=8]", at, at + 200)  # a smaller model drafts
    launches(n, 1_150, 1_450, 1_800)
    records = found(n, tmp_path)
    assert steps_of(records) == [(0,)] * 3
    assert records.engine_steps[0].says.requests == 2


def test_threads_that_make_steps_at_the_same_time_have_each_their_own(tmp_path: Path) -> None:
    n = Nsys()
    n.range("step[DECODE bs=2]", 1_000, 2_000, thread=11)
    n.range("step[DECODE bs=2]", 1_100, 2_100, thread=12)
    launches(n, 1_200, thread=11)
    launches(n, 1_300, thread=12)
    launches(n, 1_400, thread=13)  # of which one cannot be told
    assert steps_of(found(n, tmp_path)) == [(0,), (1,), ()]


def test_replays_of_a_graph_belong_to_the_step_that_launched_it(tmp_path: Path) -> None:
    n = Nsys()
    n.range(DECODE, 1_000, 1_100)
    n.range("step[DECODE bs=4]", 1_200, 1_300)
    n.rows["CUDA_GRAPH_NODE_EVENTS"].append((200, 210, (1 << 48) | (7 << 24) | 7, 5, None))
    for corr, launch in ((901, 1_050), (902, 1_250)):
        n.api(launch, corr, name="cudaGraphLaunch_v10000")
        n.kernel(GEMM, None, 10_000 + launch, 10_020 + launch, corr=corr, node=5)
    assert steps_of(found(n, tmp_path)) == [(0,), (1,)]


def test_numbers_that_the_program_gives_its_steps_stay(tmp_path: Path) -> None:
    n = Nsys()
    n.range("ProfilerStep#41", 900, 3_000)
    n.range(PREFILL, 1_000, 2_000)
    n.range(DECODE, 2_100, 2_500)
    launches(n, 1_500, 2_200)
    records = found(n, tmp_path)
    assert records["step"].tolist() == [41, 41] and steps_of(records) == [(0,), (1,)]


def test_a_copy_of_the_annotation_on_the_device_is_not_another_step(tmp_path: Path) -> None:
    def event(cat: str, name: str, ts: float, dur: float, tid: int, **args: object) -> dict[str, object]:
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "ts": ts,
            "dur": dur,
            "pid": 1 if tid < 10 else 0,
            "tid": tid,
            "args": args,
        }

    events = []
    for at in (0, 100):
        events += [
            event("user_annotation", "step[DECODE bs=4]", at, 10, 1),
            event("gpu_user_annotation", "step[DECODE bs=4]", at + 50, 20, 17),
            event("cuda_runtime", "cudaLaunchKernel", at + 2, 1, 1, correlation=at + 1),
            event("kernel", GEMM, at + 55, 5, 17, correlation=at + 1, device=0, stream=17),
        ]
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"traceEvents": events, "schemaVersion": 1}))
    records = load(str(path))
    assert len(records.engine_steps) == 2 and steps_of(records) == [(0,), (1,)]


@pytest.mark.parametrize("suffix", ["dict", "parquet"])
def test_records_that_were_written_have_the_same_steps(tmp_path: Path, suffix: str) -> None:
    from pyprof.cli import main

    n = Nsys()
    n.range(PREFILL, 1_000, 2_000)
    n.range("step[EXTEND bs=2 toks=300]", 1_100, 1_800)
    n.range(DECODE, 2_100, 2_500)
    launches(n, 500, 1_500, 2_200)
    records = found(n, tmp_path)
    assert main(["parse", str(tmp_path / "net.sqlite"), "-o", str(tmp_path / f"net.{suffix}")]) == 0
    again = load(str(tmp_path / f"net.{suffix}"))
    assert list(again.engine_steps) == records.engine_steps
    assert again["engine_step"].tolist() == records["engine_step"].tolist() == [-1, 0, 1]


def test_real_captures(captures: Path) -> None:
    serving = captures / "kineto" / "serving"
    for name, phase, requests, tokens, kernels in (
        ("sglang_prefilldecode.json.gz", "prefill", 15, 15360, 534),
        ("vllm_decode_full.run.json.gz", "decode", 32, 32, 434),
    ):
        records = load(str(serving / name))
        (step,) = records.engine_steps
        assert (step.says.phase, step.says.requests, step.says.tokens) == (phase, requests, tokens)
        assert (records["engine_step"] == 0).sum() == kernels == len(records)
