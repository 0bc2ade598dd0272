"""The summary of captures whose truth fits on a screen, and of real ones: sums, JSON, tables, the screen."""

import json
import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyprof
from pyprof.cli import main
from pyprof.commands import summary as command
from pyprof.commands.summary import summary_of
from pyprof.model.records import PHASES
from pyprof.prof.roofline import OVER
from pyprof.report.advice.base import Advice, Place
from pyprof.report.summary.job import job_of
from pyprof.report.summary.make import summarise
from pyprof.report.summary.screen import LINES, Summary, lines
from pyprof.report.summary.styled import Units, plain
from pyprof.report.summary.words import markdown
from tests.given import slow
from tests.terminals import bare, on_terminal
from tests.timeline import Timeline, overview_of
from tests.tiny import Nsys

A100 = (0, "NVIDIA A100-SXM4-80GB", 0, 108, 8, 0)
KEYS = (
    "schema wall_ns busy_ns idle_ns busy kernel_ns devices steps mfu hfu mfu_min hfu_min flops phases ops layers families lost "
    "known advice notes file window"
).split()
GIVEN = (
    "kineto/h100_bert_small.json.gz", "kineto/h100_vit.json.gz", "kineto/mi300_resnet_checkpoint.json.gz", "kineto/a100_alexnet_cupti_counters.json.gz",
    "kineto/multi_stream_sync.json.gz", "kineto/normalization_layers.json.gz", "kineto/a100_triton_add.json.gz",
    "kineto/mi300_triton_compiled.json.gz", "kineto/serving/sglang_prefilldecode.json.gz",
    "kineto/v100_dlrm_8ranks/worker7.pt.trace.json.gz", "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite",
    "nsys/h100_2gpu_train.nsys2026.2.sqlite", "nsys/a100_gpt2.7b.nsys2024.6.sqlite",
    "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite", "nvprof/v100_lm/net.sql", "nvprof/v100_lm/net.dict",
)  # fmt: skip
LARGE = (
    "kineto/v100_resnet50_2021.json.gz", "kineto/serving/vllm_decode_full.run.json.gz", "kineto/serving/vllm_decode_full.capture.json.gz",
)  # fmt: skip
# Of nearly all of their kernel time it is known whether Tensor Cores ran.
JUDGED = (
    "kineto/h100_bert_small.json.gz", "kineto/h100_vit.json.gz", "kineto/v100_resnet50_2021.json.gz", "kineto/mi300_resnet_checkpoint.json.gz",
    "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite", "nsys/h100_2gpu_train.nsys2026.2.sqlite", "nsys/a100_gpt2.7b.nsys2024.6.sqlite",
)  # fmt: skip


def two_steps(mm_ns: int = 20_000) -> Nsys:
    """Two steps of 100 us on an A100, each an mm of 20 us and an add of 10 us."""
    n = Nsys()
    n.rows["TARGET_INFO_GPU"].append(A100)
    for number, begin in ((0, 100_000), (1, 200_000)):
        n.range(f"ProfilerStep#{number}", begin, begin + 100_000)
        n.range('model.fc #pyprof{"layer":1}', begin + 1_000, begin + 30_000)
        n.range('mm(fp32[512,512], fp32[512,512]) #pyprof{"mod":"torch"}', begin + 2_000, begin + 12_000)
        n.kernel("ampere_sgemm_128x64_nn", begin + 3_000, begin + 10_000, begin + 10_000 + mm_ns)
        n.range('add(fp32[512,512], fp32[512,512]) #pyprof{"mod":"torch"}', begin + 12_000, begin + 60_000)
        n.kernel("void at::native::vectorized_elementwise_kernel<4>()", begin + 40_000, begin + 50_000, begin + 60_000)
    return n


def held(of: Summary) -> None:
    """What must be true of every summary."""
    found: dict[str, Any] = json.loads(of.json())
    assert set(KEYS) <= found.keys() and found["schema"] == 1
    if of.wall_ns is not None:
        assert found["wall_ns"] == found["busy_ns"] + sum(found["idle_ns"].values())
        assert found["busy_ns"] == sum(found["busy"].values())
        for device in found["devices"]:
            assert device["busy_ns"] + sum(device["idle_ns"].values()) == found["wall_ns"]
    for by in ("ops", "layers", "families"):
        assert not found[by] or sum(one["time_ns"] for one in found[by]) == found["kernel_ns"]
        assert all(one["time_ns"] >= sum(each["time_ns"] for each in one.get("layers", ())) for one in found[by])
    assert sum(found["phases"].values()) == found["kernel_ns"] and set(found["phases"]) <= {*PHASES, "unknown"}
    assert all(0 <= share <= 1 for share in (found["known"] or {}).values())
    assert all(0 < one["lost_ns"] <= one["time_ns"] for one in found["lost"]) and len(found["lost"]) <= 10
    assert [one["lost_ns"] for one in found["lost"]] == sorted((one["lost_ns"] for one in found["lost"]), reverse=True)
    if found["steps"] is not None:
        times = found["steps"]["times_ns"]
        assert found["steps"]["spread_ns"] == max(times) - min(times) and found["steps"]["count"] == len(times)
        assert found["steps"]["median_ns"] == pytest.approx(np.median(times), abs=1)
    assert found["mfu"] is None or (found["mfu_min"] is None and 0 <= found["mfu"] <= found["hfu"])


@pytest.mark.parametrize("name", [*GIVEN, *slow(*LARGE)])
def test_every_capture_adds_up_and_fits_the_screen(captures: Path, name: str) -> None:
    overview = overview_of(captures / name)
    of, frame = summarise(overview, name), overview.frame
    held(of)
    found = of.to_dict()
    reached = found["hfu_min"] if found["hfu"] is None else found["hfu"]
    assert reached is None or reached <= found["busy_ns"] / found["wall_ns"] or (frame.roofline.bound == OVER).any()
    if name in JUDGED:
        codes, verdicts = frame.verdicts
        time = np.where(frame.records["kind"] == 0, frame.records["dur_ns"], 0)
        assert 0 < 0.99 * time.sum() <= time[np.array([v.tc is not None for v in verdicts])[codes]].sum()
    for units in (Units(), Units(bars=True), Units(human=False), Units(width=80, bars=True), Units(width=40)):
        text = plain(lines(of, units, f"pyprof prof {name}")).splitlines()
        assert max(map(len, text)) <= units.width, text
        assert len(text) <= LINES or units.width < 100


def test_a_terminal_of_100_by_45_holds_it(captures: Path) -> None:
    written = on_terminal(["summary", str(captures / "kineto/mi300_resnet_checkpoint.json.gz")], 100, 45)
    text = bare(written).splitlines()
    assert len(text) <= LINES and max(map(len, text)) <= 100 and "\x1b[" in written and "█" in written
    colourless = on_terminal(["summary", str(captures / "kineto/h100_vit.json.gz")], 100, 45, NO_COLOR="1")
    assert "█" in colourless and "\x1b[3" not in colourless


def test_a_terminal_shows_all_advice_in_full(captures: Path) -> None:
    name = "kineto/h100_vit.json.gz"
    short, full = (
        bare(on_terminal(["summary", str(captures / name), *words], 90, 45)) for words in ([], ["--table", "advice"])
    )
    assert "4  Profiler overhead: " in full and "…" not in full and full.startswith("What to do first")
    assert "   also: profiler overhead (" in short and "--table advice)" in short


def test_the_whole_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    two_steps().write(tmp_path / "net.sqlite")
    assert main(["summary", "net.sqlite"]) == 0
    assert capsys.readouterr().out.splitlines() == SCREEN.splitlines()[1:]


SCREEN = """
net.sqlite              NVIDIA A100-SXM4-80GB  fp32 19.5, tf32 156, bf16 312 TFLOP/s, DRAM 2.04 TB/s

2 steps, median 100 us (100 us to 100 us)   wall 200 us   GPU busy 30 %
MFU 14 % of fp32 19.5 TFLOP/s, HFU 14 %
537 MFLOP: 8.96 TFLOP/s while busy, 2.69 TFLOP/s over wall

busy   60.0 us  30 %   compute 60.0 us
idle    140 us  70 %   launch 90.0 us, host 50.0 us

What to do first                                                                       saves at most
1  Host code (21.5 us a step): the device idles 50.0 us while the host does something        43.0 us
   else: 8.00 us in 1 x mm, 42.0 us in code that no range or frame names
   name what the host does there: torch.profiler.record_function or NVTX ranges in the program, or
   frames of Python (pyprof run, torch.profiler.profile(with_stack=True)); then move it beside the …

By phase                          By op                             By layer in model
forward           60.0 us 100 %   mm                 40.0 us 67 %   fc                 40.0 us 67 %
By kernel family                  add                20.0 us 33 %   (outside…f layers) 20.0 us 33 %
sass_simt_gemm    40.0 us  67 %
elementwise       20.0 us  33 %
more: pyprof prof net.sqlite --group-by op,params, or --tree layer

Most time lost against the roofline                                   time     lost  peak  bound
add  [512,512]fp32;[512,512]fp32                                     20.0 us  16.9 us  15 %  memory
mm   M=512,N=512,K=512,fp32                                model.fc  40.0 us  12.5 us  69 %  compute
more: pyprof prof net.sqlite --group-by op,params,layer --sort lost

Known of kernel time: op 100 %, shapes 100 %, FLOPs 100 %, bytes 100 %   words: pyprof help terms
"""


def test_the_object_has_the_figures(tmp_path: Path) -> None:
    path = two_steps().write(tmp_path / "net.sqlite")
    of = pyprof.summary(path)
    held(of)
    assert (of.wall_ns, of.busy_ns, of.kernel_ns, of.kernels) == (200_000, 60_000, 60_000, 4)
    assert of.steps is not None and (of.steps.kind, of.steps.count, of.steps.median_ns) == ("ProfilerStep", 2, 100_000)
    assert [(one.name, one.time_ns, one.calls, one.flops) for one in of.ops] == [
        ("mm", 40_000, 2, 2 * 2 * 512**3),
        ("add", 20_000, 2, 2 * 512**2),
    ]
    assert of.mfu == pytest.approx(2 * 2 * 512**3 / 200e-6 / 19.5e12) == of.hfu
    assert of.flops == 2 * (2 * 512**3 + 512**2) and of.phases["forward"] == 60_000
    assert str(of) == plain(lines(of, Units())) and "net.sqlite" in of._repr_html_()


def test_python_gives_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(two_steps().write(tmp_path / "net.sqlite"))
    assert main(["summary", path, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == pyprof.load(path).summary().to_dict() == pyprof.summary(path).to_dict()
    assert main(["summary", path, "-o", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text()) == printed


def test_parts_of_a_capture(tmp_path: Path) -> None:
    import argparse

    path = str(two_steps().write(tmp_path / "net.sqlite"))
    options = argparse.Namespace(step="1", range=None, time=None)
    of = summary_of(path, None, options)
    held(of)
    assert (of.kernels, of.kernel_ns, of.wall_ns, of.busy_ns) == (2, 30_000, 100_000, 30_000)
    assert main(["summary", path, "--range", "no"]) == 1


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(two_steps().write(tmp_path / "net.sqlite"))
    assert main(["summary", path, "--table", "ops", "-c", "op,time,calls", "--csv"]) == 0
    assert capsys.readouterr().out == "Op,Time(ns),Calls\r\nmm,40000,2\r\nadd,20000,2\r\n"
    assert main(["summary", path, "--table", "time", "--where", "by=busy", "-c", "name,time", "--csv"]) == 0
    assert capsys.readouterr().out == "Name,Time(ns)\r\ncompute,60000\r\n"
    assert main(["summary", path, "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("### net.sqlite on ") and "Step **100 us**, Wall time **200 us**, GPU busy **30 %**" in text
    assert "| compute | 60.0 us | 30 % |\n" in text and "| together | 200 us | 100 % |\n" in text
    folded = re.findall(r"<details><summary>(.*?) \((.*)\)</summary>\n\n\| .*\n\| -", text)
    assert {"By op": "2", "By kernel family": "2"}.items() <= dict(folded).items() and text.count("</details>") == len(folded)
    assert "\n| mm | 2 | 2 | 40.0 us | 66.7 %" in text
    assert main(["summary", path, "-o", str(tmp_path / "c.md"), "--top", "1", "--units", "raw"]) == 0
    text = (tmp_path / "c.md").read_text()
    assert "<summary>By op (the first 1 of 2)</summary>" in text and "\n| mm | 2 | 2 | 40000 | 66.7" in text
    assert main(["summary", path, "--csv"]) == 2 and "--table figures|steps|time" in capsys.readouterr().err
    assert main(["summary", path, "--table", "ops", "-c", "no"]) == 2


def test_several_files_have_a_column_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (str(two_steps().write(tmp_path / f"{name}.sqlite")) for name in ("before", "after"))
    assert main(["summary", first, second]) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0].split() == ["before.sqlite", "after.sqlite"]
    assert ["wall", "200", "us", "200", "us"] in [line.split() for line in text] and max(map(len, text)) <= 100
    assert main(["summary", first, second, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1 and [one["file"] for one in found["files"]] == [first, second]
    assert found["files"][0] == pyprof.summary(first).to_dict()
    assert main(["summary", first, second, "--table", "ops", "-c", "file,op,time", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{file},{op}" for file in (first, second) for op in ("mm,40000", "add,20000")
    ]


def test_a_folder_of_ranks_is_a_job(
    captures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks: list[Summary] = []
    monkeypatch.setattr(command, "summary_of", lambda *asked: ranks.append(summary_of(*asked)) or ranks[-1])
    made = command._summary(str(captures / "kineto/v100_dlrm_8ranks"), None, Namespace(step=None, range=None, time=None))
    job = json.loads(command.document([made]))
    assert job["ranks"] == len(ranks) == 8 and job["wall_ns"] == sum(one.wall_ns or 0 for one in ranks) // 8
    assert job["wall_ns"] == job["busy_ns"] + sum(job["idle_ns"].values()) and job["busy_ns"] == sum(job["busy"].values())
    assert job["kernel_ns"] == sum(one.kernel_ns for one in ranks) == sum(one["time_ns"] for one in job["ops"])
    assert job["idle_ns"]["launch"] == pytest.approx(sum(one.idle_ns["launch"] for one in ranks) / 8, abs=2)
    kinds = [one["kind"] for one in job["advice"]]
    assert "straggler" in kinds and kinds[0] != "exposed_communication"
    assert "exposed_communication" not in kinds[: kinds.index("straggler")]
    (late,) = (one for one in job["advice"] if one["kind"] == "straggler")
    assert "rank 7" in late["evidence"] and 400_000 < late["saves_ns"] < 650_000
    assert sum(one["saves_ns"] or 0 for one in job["advice"]) <= job["wall_ns"] + late["saves_ns"]
    command.show([made], human=True)
    text = capsys.readouterr().out.splitlines()
    assert "8 ranks" in text[0] and len(text) <= LINES and max(map(len, text)) <= 100


def test_advice_is_numbered_wrapped_and_counted(tmp_path: Path) -> None:
    of = summary_of(str(two_steps().write(tmp_path / "net.sqlite")))
    place = Place("model.fc", "mm", "M=512", "net.py:3", 2, 40_000)
    some = [
        Advice(f"kind_{n}", None, 5_000, f"evidence {n} " * 12, "line\nto write", (place,), 1_000 * (9 - n)) for n in range(4)
    ]
    text = plain(lines(replace(of, advice=tuple(some)), Units())).splitlines()
    at = next(number for number, line in enumerate(text) if line.startswith("What to do first"))
    assert text[at].endswith("saves at most") and text[at + 1].startswith("1  Kind 0") and text[at + 1].endswith("9.00 us")
    assert text[at + 3].strip() == "line to write" and [line for line in text if line.startswith("   also: kind 3")]
    assert json.loads(replace(of, advice=tuple(some)).json())["advice"][0]["places"][0]["op"] == "mm"


@pytest.mark.parametrize(
    ("alone_ns", "said"), [(1_000, ""), (1_100, ""), (4_000, "4.00 us if done alone"), (500, "500 ns if done alone")]
)
def test_what_advice_saves_alone_is_said_where_it_is_much_else(tmp_path: Path, alone_ns: int, said: str) -> None:
    of = summary_of(str(two_steps().write(tmp_path / "net.sqlite")))
    one = Advice("small_work", None, 5_000, "evidence", "line to write", (), 1_000, alone_ns)
    of = replace(of, advice=(one,))
    for text in (str(of), markdown(of)):
        assert (" alone" in text) == bool(said) and said in text


def test_records_without_times_say_so(captures: Path) -> None:
    of = summary_of(str(captures / "nvprof/v100_lm/net.dict"))
    assert of.wall_ns is None and of.busy_ns is None and of.idle_ns == {} and of.kernel_ns > 0
    assert "wall na" in str(of) and "do not say when they ran" in of.notes[0]


def test_ops_on_the_cpu_are_not_called_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    n = Nsys()
    n.range("aten::mm, op_id = 1, sizes = [[4, 8], [8, 2]]", 0, 300_000)
    n.range("aten::add, op_id = 2, sizes = [[4, 2], [4, 2]]", 400_000, 500_000)
    of = summary_of(str(n.write(tmp_path / "net.sqlite")))
    held(of)
    assert (of.on_gpu, of.wall_ns, of.busy_ns, of.idle_ns["host"]) == (False, 500_000, 400_000, 100_000)
    text = str(of)
    assert "CPU busy 80 %" in text and "kernel" not in text and "GPU" not in text and not of.families and not of.lost


def test_the_slowest_step_and_why(tmp_path: Path) -> None:
    n = Nsys()
    begin = 100_000
    for number, (gap, work) in enumerate([(1_000, 5_000), (1_000, 5_000), (1_000, 45_000), (1_000, 5_000)]):
        n.range(f"ProfilerStep#{number}", begin, begin + gap + work + 10_000)
        n.range('add(fp32[8], fp32[8]) #pyprof{"mod":"torch"}', begin, begin + 900)
        n.kernel("void add_kernel()", begin + 10, begin + gap, begin + gap + work)
        begin += gap + work + 10_000
    of = summary_of(str(n.write(tmp_path / "net.sqlite")))
    assert of.steps is not None and of.steps.slowest is not None
    slow = of.steps.slowest
    assert (slow.index, slow.part, slow.more_ns, slow.op) == (2, ("busy", "forward"), 40_000, "add")
    assert "slowest: step 3 of 4, 56.0 us: forward 40.0 us longer than in the median step (add)" in str(of)


def test_a_job_says_once_why_nothing_is_advised_and_only_then() -> None:
    from pyprof.report.summary.notes import notes_of_job

    ranks = [("Nothing to advise: busy 90 %", "set-up of 2 s"), ("Nothing to advise: busy 91 %", "set-up of 2 s")]
    assert notes_of_job([], ["ends differ"], ranks) == ("Nothing to advise: busy 90 %", "ends differ", "set-up of 2 s")
    late = Advice("straggler", None, 9, "rank 1 is late", "look", (), 5)
    assert notes_of_job([late], ["ends differ"], ranks) == ("ends differ", "set-up of 2 s")


def test_a_training_step_without_its_backward_pass(tmp_path: Path) -> None:
    n = Nsys()
    n.range('step 0 #pyprof{"step":0}', 0, 900)
    n.range('mm(fp32[64,64], fp32[64,64]) #pyprof{"mod":"torch"}', 10, 200)
    n.range('AdamW.step #pyprof{"optimizer":"AdamW"}', 600, 800)
    n.range('Tensor.mul_(fp32[64,64], 2) #pyprof{"mod":"Tensor"}', 610, 700)
    notes = pyprof.summary(n.write(tmp_path / "net.sqlite")).notes
    assert notes[0].startswith("Nothing to advise: no backward pass is recorded")


@pytest.mark.parametrize(
    ("op", "us", "kernels", "said"),
    [
        ("torch.mm(fp32[512,512], fp32[512,512])", 5, ("ampere_sgemm_128x64_nn",), "in mm, up to 275 %: reason unknown"),
        ("F.conv2d(fp32[8,64,32,32], fp32[64,64,3,3], padding=1)", 10, ("ampere_sgemm_128x64_nn", "winograd_nonfused::x"), ""),
        ("torch.add(fp32[8388608], fp32[8388608])", 20, ("void at::native::vectorized_elementwise_kernel<4>()",), "L2 cache"),
        ("torch.add(fp32[1024], fp32[1024])", 1, ("void at::native::vectorized_elementwise_kernel<4>()",), ""),
    ],
)
def test_rates_above_the_peak_have_one_note(tmp_path: Path, op: str, us: int, kernels: tuple[str, ...], said: str) -> None:
    """On an A100; a convolution by Winograd's algorithm needs fewer operations than its definition counts, products and all."""
    timeline = Timeline()
    for _ in range(4):
        timeline.op(op.removeprefix("torch."), *((name, us) for name in kernels))
    notes = [note for note in summarise(timeline.overview(tmp_path), "net").notes if "110 %" in note]
    assert len(notes) == bool(said) and said in "".join(notes)


def test_a_job_of_cold_ranks_says_first_to_record_again(captures: Path) -> None:
    """Each rank has `warmup` before what saves; of one of three ranks alone it is no word on the job."""
    warm = summary_of(str(captures / "kineto/h100_vit.json.gz"))
    cold = replace(warm, advice=(Advice("warmup", None, None, "cold", "record later"), *warm.advice))
    assert job_of("job", [cold, cold, warm], None).advice[0].kind == "warmup"
    assert job_of("job", [cold, warm, warm], None).advice[0].kind == warm.advice[0].kind


def test_a_kernel_is_named_where_no_op_is(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.nsys.kernel("seed_lines", 0, 1_000, 3_000)
    timeline.nsys.kernel("fit_lines", 500, 3_000, 9_000)
    found = pyprof.summary(timeline.nsys.write(tmp_path / "net.sqlite"))
    assert any("Most time is in the kernel fit_lines (6.00 us, 75 %)" in note for note in found.notes)
    assert "--group-by kernel" in str(found)


def test_where_nothing_but_copies_ran(tmp_path: Path) -> None:
    n = Nsys()
    n.copy(1, 0, 1_000, 3_000, 64)
    notes = pyprof.summary(n.write(tmp_path / "net.sqlite")).notes
    assert "Nothing to advise: only copies and sets ran in the window (2.00 us)" in notes


def test_where_copies_take_most_the_note_says_so(captures: Path) -> None:
    found = summary_of(str(captures / "cases/nsys/copies_outside_kernels.sqlite"))
    assert any("Most is spent copying, 4.04 ms: 3 copies and sets of 24.0 MB" in note for note in found.notes)


@pytest.mark.parametrize(
    ("kernels", "step", "calls", "cold"),
    [
        ("abcd", "", ("cudaMalloc_v3020",), True),
        ("abcd", "ProfilerStep#0", ("cudaMalloc_v3020",), True),
        ("abcd", "ProfilerStep#5", ("cudaMalloc_v3020",), False),  # five ran before it
        ("abcdabcd", "", ("cudaMalloc_v3020",), False),  # two iterations
        ("abcd", "", ("cudaMalloc_v3020", "cudaFree_v3020"), False),  # each may do that again
        ("abcd", "", ("cudaEventQuery_v3020",), False),
    ],
)
def test_one_iteration_that_is_the_first(tmp_path: Path, kernels: str, step: str, calls: tuple[str, ...], cold: bool) -> None:
    """Kernels of 100 us, and a call of 2 ms while the first of them runs and the device idles then."""
    timeline = Timeline()
    for number, name in enumerate(kernels):
        timeline.op(None, (f"void at::native::{name}_kernel()", 100))
        if number == 0:
            for call in calls:
                timeline.nsys.api(timeline.launched, 900 + timeline.launched, name=call, took=2_000_000)
                timeline.launched += 2_000_000
            timeline.ends = timeline.launched + 20
    if step:
        timeline.nsys.range(step, 0, timeline.ends)
    notes = [note for note in summarise(timeline.overview(tmp_path), "net").notes if "cold" in note]
    assert len(notes) == cold and ("idles 1.90 ms while its memory is allocated" in "".join(notes)) == cold


def test_a_cold_iteration_is_called_one(captures: Path) -> None:
    for name, cold in (("nvprof/v100_lm/net.sql", True), ("kineto/v100_resnet50_2021.json.gz", False)):
        notes = summary_of(str(captures / name)).notes
        assert any("single cold iteration" in note for note in notes) == cold
