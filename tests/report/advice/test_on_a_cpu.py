"""Advice on programs that run on a CPU: what `pyprof bench --advice` can try there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pyprof
from tests.timeline import advice_of, overview_of


class Cpu:
    """Ops one after another on one thread, each with the sizes of its arguments and its time in us."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.at = 0

    def op(self, name: str, dims: list[list[int]], us: int, inner: str = "", values: list[str] | None = None) -> Cpu:
        """inner: an op inside it, from 1 us after its begin to 1 us before its end; values: of its arguments."""
        args = {"Input Dims": dims, "Input type": ["float" if size else "Scalar" for size in dims]}
        args |= {"Concrete Inputs": values} if values else {}
        at: dict[str, object] = {"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 7, "args": args}
        self.events.append({**at, "name": name, "ts": self.at, "dur": us})
        if inner:
            self.events.append({**at, "name": inner, "ts": self.at + 1, "dur": us - 2})
        self.at += us
        return self

    def write(self, folder: Path) -> Path:
        path = folder / "net.json"
        path.write_text(json.dumps({"schemaVersion": 1, "record_shapes": 1, "traceEvents": self.events}))
        return path


@pytest.mark.parametrize("length", [128, 64])
def test_scores_that_are_written_out(tmp_path: Path, length: int) -> None:
    """Softmax and scale of long sequences would go; what the products take is not told without a peak."""
    heads, scores = [8, 4, length, 32], [8, 4, length, length]
    cpu = Cpu().op("aten::matmul", [heads, [8, 4, 32, length]], 100).op("aten::mul", [scores, []], 50)
    cpu.op("aten::softmax", [scores], 300).op("aten::matmul", [scores, heads], 100)
    found = advice_of(overview_of(cpu.write(tmp_path))).get("fused_attention")
    if length < 128:
        assert found is None
        return
    assert found is not None and found.saves_ns == found.time_ns == 350_000
    assert found.evidence.startswith("attention is not fused: 2 ops on its scores take 350 us: 1 x softmax")
    assert "scaled_dot_product_attention" in found.do


def test_an_optimizer_of_many_ops(tmp_path: Path) -> None:
    """20 ops of 20 us; one pass takes as long as addcdiv_, which moves 4 tensors, for 7."""
    cpu = Cpu().op("aten::mm", [[64, 64], [64, 64]], 600)
    begin = cpu.at
    for _ in range(10):
        cpu.op("aten::mul_", [[1000], []], 20).op("aten::addcdiv_", [[1000], [1000], [1000]], 20)
    step = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#AdamW.step", "pid": 7, "tid": 7, "ts": begin - 1}
    cpu.events.append({**step, "dur": cpu.at - begin + 2, "args": {}})
    found = advice_of(overview_of(cpu.write(tmp_path)))["fused_optimizer"]
    assert found.evidence.startswith("20 ops of AdamW take 400 us, one pass over the parameters 350 us: 10 x ")
    assert found.saves_ns == 50_000 and found.do == "AdamW(..., fused=True)"


def test_what_python_does_between_ops_stays(tmp_path: Path) -> None:
    """One op a parameter, as SGD has, is one pass already; the 100 us before each are the program's."""
    cpu = Cpu().op("aten::mm", [[64, 64], [64, 64]], 600)
    begin = cpu.at
    for _ in range(10):
        cpu.at += 100
        cpu.op("aten::add_", [[1000], [1000]], 20)
    step = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 7, "tid": 7, "ts": begin}
    cpu.events.append({**step, "dur": cpu.at - begin + 2, "args": {}})
    assert "fused_optimizer" not in advice_of(overview_of(cpu.write(tmp_path)))


def test_one_op_a_parameter_is_one_pass_whatever_its_pace(tmp_path: Path) -> None:
    """The first step takes ten times as long as the second: that is not for want of fusing."""
    cpu = Cpu().op("aten::mm", [[64, 64], [64, 64]], 600)
    for us in (200, 20):
        begin = cpu.at
        for _ in range(10):
            cpu.op("aten::add_", [[1000], [1000]], us)
        step = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 7, "tid": 7, "ts": begin}
        cpu.events.append({**step, "dur": cpu.at - begin + 2, "args": {}})
    assert "fused_optimizer" not in advice_of(overview_of(cpu.write(tmp_path)))


def test_an_op_that_holds_another_goes_with_it(tmp_path: Path) -> None:
    heads, scores = [8, 4, 128, 32], [8, 4, 128, 128]
    cpu = Cpu().op("aten::matmul", [heads, [8, 4, 32, 128]], 100)
    cpu.op("aten::div", [scores, []], 50, inner="aten::to").op("aten::softmax", [scores], 300, inner="aten::_softmax")
    found = advice_of(overview_of(cpu.op("aten::matmul", [scores, heads], 100).write(tmp_path)))["fused_attention"]
    assert found.saves_ns == pytest.approx(350_000, abs=4_000)


@pytest.mark.parametrize(("inner", "strides"), [("aten::mkldnn_convolution", ""), ("aten::slow_conv2d_forward", ""),
                                                ("aten::mkldnn_convolution", "last")])  # fmt: skip
def test_images_that_onednn_turns_round(tmp_path: Path, inner: str, strides: str) -> None:
    """relu moves 2 x 2 MiB in 400 us; a convolution of 2 MiB to 2 MiB would not read and write as much, twice."""
    image, values = [8, 64, 32, 32], ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    cpu = Cpu()
    for _ in range(2):
        cpu.op("aten::conv2d", [image, [64, 64, 3, 3], [64], [], [], [], []], 4_000, inner, values)
        cpu.op("aten::relu", [image], 400)
    for event in cpu.events:
        args = event["args"]
        assert isinstance(args, dict)
        if strides:
            args["Input Strides"] = [[65536, 1, 2048, 64], [576, 1, 192, 64], [1], [], [], [], []][: len(args["Input Dims"])]
    found = advice_of(overview_of(cpu.write(tmp_path))).get("channels_last")
    if strides or "mkldnn" not in inner:
        assert found is None
        return
    assert found is not None and found.saves_ns == pytest.approx(2 * 800_000, rel=0.001)
    assert "oneDNN turns their images round and back, 1.60 ms of it at the 10.5 GB/s that relu reaches" in found.evidence


@pytest.mark.parametrize(("rows", "tied"), [(100_000, False), (200, False), (100_000, True)])
def test_a_table_of_which_a_step_reads_few_rows(tmp_path: Path, rows: int, tied: bool) -> None:
    """16 of the rows of a table of 25.6 MB; nothing is told of one of 51 kB, or one that the model's head multiplies by."""
    cpu, table = Cpu(), [rows, 64]
    cpu.op("aten::embedding", [table, [16]], 50).op("aten::mm", [[16, 64], [64, rows if tied else 64]], 200)
    cpu.events[0]["args"]["Input type"] = ["float", "long int"]  # type: ignore[index]
    step = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#Adam.step", "pid": 7, "tid": 7, "args": {}}
    cpu.events.append({**step, "ts": cpu.at, "dur": 3_000})
    cpu.op("aten::addcdiv_", [table, table, table], 1_000).op("aten::mul_", [table, []], 2_000)
    found = advice_of(overview_of(cpu.write(tmp_path))).get("indexing_backward")
    assert (found is not None) == (rows == 100_000 and not tied)
    if found is not None:
        assert found.saves_ns == pytest.approx(3_000_000, rel=0.001) and "sparse=True" in found.do
        assert found.evidence.startswith("a step reads 0.02 % of the 100,000 rows of a table of embeddings at most")


@pytest.mark.parametrize(("us", "ops"), [(30, 40), (5, 40), (300, 40), (30, 20)])
def test_python_between_many_short_ops(tmp_path: Path, us: int, ops: int) -> None:
    """Silent of short pauses, of pauses that are more than Python between two ops, and of few."""
    cpu = Cpu()
    for _ in range(ops):
        cpu.op("aten::mm", [[8, 8], [8, 8]], 40).at += us
    around: dict[str, object] = {"ph": "X", "cat": "user_annotation", "name": "forward", "pid": 7, "tid": 7, "args": {}}
    cpu.events.append({**around, "ts": 0, "dur": cpu.at})  # what is in it alone is no function to name
    found = advice_of(overview_of(cpu.write(tmp_path))).get("launch_bound")
    assert (found is not None) == ((us, ops) == (30, 40))
    if found is not None:
        assert found.saves_ns == 39 * 30_000 and "torch.compile(model)" in found.do
        assert found.evidence.startswith("Python and torch's dispatch take 1.17 ms of 2.77 ms between 40 ops (median 40.0 us)")


def test_the_function_in_which_the_time_between_ops_is_spent(tmp_path: Path) -> None:
    """The pause begins with the end of the outer op, not of the copy inside it."""
    cpu = Cpu()
    for _ in range(4):
        cpu.op("aten::matmul", [[64, 64], [64, 64]], 500, inner="aten::copy_")
        for name, begin, us in (("net.py(9): train", 10, 980), ("net.py(3): decode", 20, 900)):
            frame: dict[str, object] = {"ph": "X", "cat": "python_function", "pid": 7, "tid": 7, "args": {}}
            cpu.events.append({**frame, "name": name, "ts": cpu.at + begin, "dur": us})
        cpu.at += 1_000
    cpu.op("aten::mm", [[64, 64], [64, 64]], 500)
    places = overview_of(cpu.write(tmp_path)).host_places("host")
    assert places is not None and places.total_ns == 4_000_000
    found = {one.name: (one.own_ns, one.whole_ns, one.number) for one in places.by_name() if one.kind == "function"}
    assert found == {"net.py(3): decode": (3_600_000, 3_600_000, 4), "net.py(9): train": (320_000, 3_920_000, 4)}
    advice = advice_of(overview_of(tmp_path / "net.json"))["host_code"]
    assert (advice.saves_ns, advice.time_ns) == (3_600_000, 3_600_000)
    assert advice.evidence == "between ops 3.60 ms of 6.50 ms are spent in decode (net.py:3), 4 times"


@pytest.mark.parametrize("pause_us", [1_000, 100])
def test_several_functions_share_the_time_between_ops(tmp_path: Path, pause_us: int) -> None:
    """Short pauses are Python's way from one op to the next."""
    cpu = Cpu()
    for _ in range(4):
        cpu.op("aten::mm", [[64, 64], [64, 64]], 500)
        begin = cpu.at
        for line, name in enumerate(["read", "decode", "resize"], 1):
            us = pause_us * (4 - line) // 8  # 3/8, 2/8 and 1/8 of it
            frame = {"ph": "X", "cat": "python_function", "pid": 7, "tid": 7, "args": {}, "name": f"net.py({line}): {name}"}
            cpu.events.append({**frame, "ts": begin, "dur": us})
            begin += us
        cpu.at += pause_us
    cpu.op("aten::mm", [[64, 64], [64, 64]], 500)
    found = advice_of(overview_of(cpu.write(tmp_path))).get("host_code")
    if pause_us < 1_000:
        assert found is None
        return
    assert found is not None and found.saves_ns == found.time_ns == 3_000_000
    where = "the program's own code, 1.50 ms of it in read (net.py:1), 4 times"
    assert found.evidence == f"between ops 3.00 ms of 6.50 ms are spent in {where}"


@pytest.mark.parametrize("library", ["pyarrow/compute.py(468): take", "torch/serialization.py(9): save"])
def test_a_library_is_told_by_the_programs_function_that_calls_it(tmp_path: Path, library: str) -> None:
    cpu = Cpu()
    for _ in range(4):
        cpu.op("aten::mm", [[64, 64], [64, 64]], 500)
        other = library.replace("(", "(1", 1)  # in two functions: neither has most of the time
        for name, begin, us in (("net.py(7): log", 10, 980), (library, 20, 460), (other, 500, 460)):
            frame: dict[str, object] = {"ph": "X", "cat": "python_function", "pid": 7, "tid": 7, "args": {}}
            cpu.events.append({**frame, "name": name, "ts": cpu.at + begin, "dur": us})
        cpu.at += 1_000
    cpu.op("aten::mm", [[64, 64], [64, 64]], 500)
    advice = advice_of(overview_of(cpu.write(tmp_path)))["host_code"]
    assert "the program's own code, 3.92 ms of it in log (net.py:7), most in" in advice.evidence


def test_ops_without_shapes(tmp_path: Path) -> None:
    cpu = Cpu().op("aten::mm", [], 100)
    del cpu.events[0]["args"]
    assert advice_of(overview_of(cpu.write(tmp_path)))["record_shapes"].evidence.startswith("the ops of 100% of the time are")


@pytest.mark.parametrize("file", ["net.py", "torch/optim/adam.py"])
def test_code_of_the_program_between_ops(tmp_path: Path, file: str) -> None:
    """Of 2 x 1,000 us without an op 2 x 900 us are a sleep; torch's own way from op to op is nothing to move."""
    cpu = Cpu()
    for _ in range(3):
        cpu.op("aten::mm", [[64, 64], [64, 64]], 600)
        cpu.at += 1_000
    frame: dict[str, object] = {"ph": "X", "cat": "python_function", "pid": 7, "tid": 7}
    for number, (name, begin, us) in enumerate(
        [(f"{file}(3): batches", 600, 1_000), ("<built-in function sleep>", 650, 900),
         (f"{file}(3): batches", 2_200, 1_000), ("<built-in function sleep>", 2_250, 900)]
    ):  # fmt: skip
        args = {"Python id": number, "Python parent id": number - 1 if number % 2 else None}
        cpu.events.append({**frame, "name": name, "ts": begin, "dur": us, "args": args})
    found = advice_of(overview_of(cpu.write(tmp_path))).get("host_code")
    if file != "net.py":
        assert found is None
        return
    assert found is not None and found.saves_ns == found.time_ns == 1_800_000
    assert found.evidence == ("between ops 1.80 ms of 3.80 ms are spent in 2 x sleep, called by batches (net.py:3)")


def test_kernels_of_torch_compile_are_not_recorded_on_a_cpu(tmp_path: Path) -> None:
    """Two calls of a graph of 500 us, in each an op of 100 us; 200 us between them are the program's."""
    cpu = Cpu()
    for _ in range(2):
        graph = {"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 7, "name": "## Call CompiledFxGraph fal4x ##", "args": {}}
        cpu.events.append({**graph, "ts": cpu.at, "dur": 500})
        cpu.at += 100
        cpu.op("aten::mm", [[64, 64], [64, 64]], 100).at += 300 + 200
    cpu.op("aten::mm", [[64, 64], [64, 64]], 100)
    path = cpu.write(tmp_path)
    found = pyprof.summary(path)
    assert {name: ns for name, ns in {**found.busy, **found.idle_ns}.items() if ns} == {
        "compute": 300_000,
        "unrecorded": 700_000,
        "host": 400_000,
    }
    assert not {"lost_records", "launch_bound", "host_code"} & {one.kind for one in found.advice}
    assert any("code of torch.compile ran, whose kernels on a CPU are not recorded" in note for note in found.notes)
