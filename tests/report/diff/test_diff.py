"""`pyprof diff` on pairs of captures whose difference was written down first, on random splits of one program, on real pairs."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.report.diff.noise import differences
from tests.timeline import overview_of
from tests.tiny import Nsys

GEMM, TENSOR = "ampere_sgemm_128x64_tn", "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_stage3"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


class Program:
    """A training program of a few layers, as captures of it show it: each layer a linear and a relu.

    times_ns: of the linear of each layer in each step; every relu takes 10 us.
    """

    def __init__(self, times_ns: Sequence[Sequence[int]]) -> None:
        self.times_ns = times_ns
        self.layers = [f"blocks.{number}" for number in range(len(times_ns[0]))]
        self.shapes = "fp32[64,512], fp32[512,512], None"
        self.kernel, self.fused, self.marked = GEMM, False, True
        self.step_ns = 10_000_000

    def write(self, path: Path) -> str:
        n = Nsys()
        for step, times in enumerate(self.times_ns):
            at = device = 1_000_000 + step * self.step_ns
            if self.marked:
                n.range(f'step {step} #pyprof{{"step":{step}}}', at - 1000, at + self.step_ns - 2000)
            for layer, time in zip(self.layers, times, strict=True):
                n.range(f'{layer} #pyprof{{"layer":"Block"}}', at, at + 900)
                n.range(f'linear({self.shapes}) #pyprof{{"mod":"torch.nn.functional"}}', at + 10, at + 400)
                n.kernel(self.kernel, at + 20, device, device + time)
                device += time
                if not self.fused:
                    n.range('relu(fp32[64,512]) #pyprof{"mod":"torch.nn.functional"}', at + 410, at + 800)
                    n.kernel(ADD, at + 420, device, device + 10_000)
                    device += 10_000
                at += 1000
        n.rows["ANALYSIS_DETAILS"] = [(1_000_000_000,)]  # the session ends after all of it
        n.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100-SXM4-80GB", 0, 108, 8, 0))
        return str(n.write(path))


def steady(steps: int = 5, layers: int = 3, base_ns: int = 100_000, seed: int = 0) -> list[list[int]]:
    """Times with 1 % of noise."""
    rng = np.random.default_rng(seed)
    return (base_ns * rng.normal(1, 0.01, (steps, layers))).astype(int).tolist()  # type: ignore[no-any-return]


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    code = main(["diff", *arguments, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    total = sum(one["after_ns"] - one["before_ns"] for one in found["changes"])
    total += sum(one["after_ns"] for one in found["added"]) - sum(one["before_ns"] for one in found["removed"])
    assert total == found["after_ns"] - found["before_ns"]
    return code, found


def named(found: dict[str, object], key: str) -> list[tuple[str, str]]:
    """(op, layer) of each row of a list."""
    rows = found[key]
    assert isinstance(rows, list)
    return [(row["op"], row["layer"]) for row in rows]


def change_of(found: dict[str, object], op: str, layer: str) -> dict[str, object]:
    changes = found["changes"]
    assert isinstance(changes, list)
    return next(one for one in changes if (one["op"], one["layer"]) == (op, layer))  # type: ignore[no-any-return]


def test_a_product_that_takes_longer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = Program(steady()), Program(steady())
    for times in after.times_ns:
        times[1] = times[1] * 11 // 10  # type: ignore[index]
    code, found = compared(capsys, before.write(tmp_path / "a.sqlite"), after.write(tmp_path / "b.sqlite"), "--fail-over", "5%")
    slower = sum(times[1] for times in after.times_ns) - sum(times[1] for times in before.times_ns)
    assert found["after_ns"] - found["before_ns"] == slower  # type: ignore[operator]
    assert found["comparable"] and found["matched"] == 30 and not found["added"] and not found["removed"]
    verdicts = {(one["op"], one["layer"]): one["verdict"] for one in found["changes"]}  # type: ignore[attr-defined]
    assert verdicts.pop(("linear", "blocks.1")) == "slower"
    assert set(verdicts.values()) == {"same"} and code == 0  # the step's time did not grow: the device was not its limit


def test_the_gate_is_the_steps_median(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, slower = Program(steady()).write(tmp_path / "a.sqlite"), Program(steady())
    slower.step_ns = 11_000_000
    after = slower.write(tmp_path / "b.sqlite")
    assert main(["diff", before, after, "--fail-over", "5%"]) == 3
    assert "failed: the step's median changed by +10" in capsys.readouterr().err
    assert main(["diff", before, after, "--fail-over", "15%"]) == 0
    assert main(["diff", after, before, "--fail-over", "1%"]) == 0
    assert main(["diff", before, "--fail-over", "15%", after]) == 0  # files may stand between options


def test_texts_are_cut_for_people_and_whole_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ";".join(["[16,16]fp32"] * 40)
    names = []
    for name, ns in (("before", 1_000), ("after", 2_000)):
        n = Nsys()
        n.range(f'cat([{", ".join(["fp32[16,16]"] * 40)}]) #pyprof{{"mod":"torch"}}', 0, 5_000)
        n.kernel("CatArrayBatchedCopy", 1_000, 10_000, 10_000 + ns)
        names.append(str(n.write(tmp_path / f"{name}.sqlite")))
    assert main(["diff", *names]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("cat "))
    assert shape not in row and len(row) < 200 and row.split()[1].endswith("[16,16]fp32")
    for words in (["--table", "where"], ["--format", "json"], ["--format", "markdown"]):
        assert main(["diff", *names, *words]) == 0 and shape in capsys.readouterr().out


def test_a_renamed_layer_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = Program(steady()), Program(steady())
    after.layers = ["blocks.0", "stem", "blocks.2"]
    _, found = compared(capsys, before.write(tmp_path / "a.sqlite"), after.write(tmp_path / "b.sqlite"))
    assert found["comparable"] and found["matched"] == 30 and not found["added"] and not found["removed"]
    one = change_of(found, "linear", "blocks.1")
    assert (one["after_layer"], one["verdict"], one["what"]) == ("stem", "same", ["layer -> stem"])


def test_another_batch_size_is_matched_and_is_not_comparable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = Program(steady()), Program(steady(base_ns=200_000))
    after.shapes = "fp32[128,512], fp32[512,512], None"
    _, found = compared(capsys, before.write(tmp_path / "a.sqlite"), after.write(tmp_path / "b.sqlite"))
    assert found["matched"] == 30 and found["comparable"] is False
    assert str(found["why"]).startswith("other shapes")
    assert {one["what"][0] for one in found["changes"] if one["op"] == "linear"} == {"shape -> M=128,N=512,K=512,fp32"}  # type: ignore[attr-defined]


def test_another_precision_is_the_same_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = Program(steady()), Program(steady(base_ns=50_000))
    after.shapes = "bf16[64,512], bf16[512,512], None"
    _, found = compared(capsys, before.write(tmp_path / "a.sqlite"), after.write(tmp_path / "b.sqlite"))
    ops = len(found["changes"])  # type: ignore[arg-type]
    retyped = sum(one["op"] == "linear" for one in found["changes"])  # type: ignore[attr-defined]
    assert found["comparable"] is True and found["matched"] == 30
    assert found["why"] == f"the same {ops} ops, {retyped} of them in other types (fp32 -> bf16)"


def test_a_fused_op_is_removed_and_tensor_cores_are_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = Program(steady()), Program(steady(base_ns=20_000))
    before.shapes = after.shapes = "bf16[64,512], bf16[512,512], None"
    after.fused, after.kernel = True, TENSOR
    _, found = compared(capsys, before.write(tmp_path / "a.sqlite"), after.write(tmp_path / "b.sqlite"))
    assert named(found, "removed") == [("relu", f"blocks.{n}") for n in range(3)] and not found["added"]
    one = change_of(found, "linear", "blocks.0")
    assert one["verdict"] == "faster" and one["what"][0] == "uses Tensor Cores"  # type: ignore[index]
    assert main(["diff", str(tmp_path / "a.sqlite"), str(tmp_path / "b.sqlite")]) == 0
    text = capsys.readouterr().out
    assert "blocks.*" in text and "removed: vectorized_elementwise_kernel" in text


def _attention(path: Path, ops: Sequence[tuple[str, str, int]]) -> str:
    """Four steps of these ops of torch.nn.functional: (name, shapes, ns of its kernel)."""
    n = Nsys()
    for step in range(4):
        at = device = 1_000_000 + step * 10_000_000
        n.range(f'step {step} #pyprof{{"step":{step}}}', at - 1000, at + 9_998_000)
        for op, shapes, time in ops:
            n.range(f'{op}({shapes}) #pyprof{{"mod":"torch.nn.functional"}}', at, at + 400)
            n.kernel(f"{op}_kernel", at + 20, device, device + time)
            at, device = at + 1000, device + time
    n.rows["ANALYSIS_DETAILS"] = [(1_000_000_000,)]
    n.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100-SXM4-80GB", 0, 108, 8, 0))
    return str(n.write(path))


def test_attention_in_place_of_products_and_softmax_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    q, linear = "fp32[2,4,128,64]", ("linear", "fp32[64,512], fp32[512,512], None", 100_000)
    products = [
        ("matmul", f"{q}, fp32[2,4,64,128]", 300_000),
        ("softmax", "fp32[2,4,128,128], -1", 200_000),
        ("matmul", f"fp32[2,4,128,128], {q}", 250_000),
    ]
    written_out = _attention(tmp_path / "a.sqlite", [*products, linear])
    fused = _attention(tmp_path / "b.sqlite", [("scaled_dot_product_attention", f"{q}, {q}, {q}", 150_000), linear])
    _, found = compared(capsys, written_out, fused)
    assert sorted(op for op, _ in named(found, "removed")) == ["matmul", "matmul", "softmax"]
    assert [op for op, _ in named(found, "added")] == ["scaled_dot_product_attention"]
    why = "1 ops are in both, 1 added and 3 removed; a part was rewritten, what runs before and after it is equal"
    assert found["comparable"] is True and found["why"] == why
    assert main(["diff", written_out, fused]) == 0
    text = capsys.readouterr().out
    assert "1 ops in both: 1 same; 1 added, 3 removed" in text and "3.40 ms -> 1.00 ms" in text
    where = [line.split()[0] for line in text.partition("Where the difference is\n")[2].splitlines()]
    assert where == ["Op", "matmul", "matmul", "softmax", "scaled_dot_product_attention", "linear", "sum"]


def test_idle_time_is_told_by_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps of 10 ms with 0.33 ms of kernels, and of 5 ms: the rest is idle, all of it of the host."""
    before, after = Program([[100_000] * 3] * 4), Program([[100_000] * 3] * 4)
    after.step_ns = 5_000_000
    files = before.write(tmp_path / "a.sqlite"), after.write(tmp_path / "b.sqlite")
    _, found = compared(capsys, *files)
    overviews = [overview_of(Path(file)) for file in files]
    for at, name in enumerate(("before_ns", "after_ns")):
        times = {cause: one[name] for cause, one in found["idle"].items()}  # type: ignore[attr-defined]
        assert sum(times.values()) == overviews[at].idle_ns and all(
            times[cause] == overviews[at].parts[cause] for cause in times
        )
    assert main(["diff", *files]) == 0
    assert "idle         38.7 ms -> 18.7 ms: " in capsys.readouterr().out


def test_an_op_that_repeats_is_matched_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = Program(steady(layers=3)), Program(steady(layers=4))
    before.layers, after.layers = ["head"] * 3, ["head"] * 4
    _, found = compared(capsys, before.write(tmp_path / "a.sqlite"), after.write(tmp_path / "b.sqlite"))
    assert found["matched"] == 30 and sorted(named(found, "added")) == [("linear", "head"), ("relu", "head")]
    assert all(one["instances"] == 5 for one in found["added"])  # type: ignore[attr-defined]


def test_without_steps_there_is_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = Program(steady(1)), Program(steady(1, seed=1))
    before.marked = after.marked = False
    _, found = compared(capsys, before.write(tmp_path / "a.sqlite"), after.write(tmp_path / "b.sqlite"))
    assert {one["verdict"] for one in found["changes"] if one["op"] == "linear"} == {None}  # type: ignore[attr-defined]
    assert found["step"] is None


def test_a_capture_that_was_cut_off_and_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, part = Program(steady(5)), Program(steady(3))
    files = [whole.write(tmp_path / "a.sqlite"), part.write(tmp_path / "b.sqlite")]
    _, found = compared(capsys, *files)
    assert found["comparable"] is False and "5 and 3 steps" in str(found["why"])
    n = Nsys()
    n.range('softmax(fp32[64,512]) #pyprof{"mod":"torch"}', 0, 50)
    n.kernel(ADD, 10, 100, 900_000)
    _, found = compared(capsys, files[0], str(n.write(tmp_path / "c.sqlite")))
    assert found["comparable"] is False and str(found["why"]).startswith("other programs") and found["matched"] == 0


def test_baselines(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before, after = Program(steady()).write(tmp_path / "a.sqlite"), Program(steady(seed=1)).write(tmp_path / "b.sqlite")
    assert main(["diff", "--baseline", "main", after]) == 1
    assert "no baseline 'main'" in capsys.readouterr().err
    assert main(["diff", "--save", "main", before]) == 0
    assert main(["diff", "--baseline", "main", after, "--format", "json"]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert main(["diff", before, after, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**kept, "files": [before, after]}
    assert kept["files"][1] == after and Path(kept["files"][0]).exists()
    for wrong in (
        ["--save", "../x", before],
        ["--baseline", "main", before, after],
        [before],
        ["--fail-over", "x", before, after],
    ):
        assert main(["diff", *wrong]) == 2
    Path(f"{before}-wal").write_bytes(b"changes")
    capsys.readouterr()
    assert main(["diff", "--save", "main", before]) == 1
    assert "a.sqlite-wal beside it holds changes that are not in the file" in capsys.readouterr().err


def test_random_halves_of_one_program_raise_no_alarm() -> None:
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(20):
        steps = rng.normal(100_000_000, 2_000_000, 20)
        rng.shuffle(steps)
        found = differences(steps[None, :10], steps[None, 10:])
        alarms += bool(found.beyond_noise[0])
    assert alarms <= 1


def test_five_percent_of_one_op_in_ten_steps_is_found() -> None:
    rng = np.random.default_rng(2)
    seen = 0
    for _ in range(20):
        before, after = rng.normal(1_000_000, 20_000, 10), rng.normal(1_050_000, 21_000, 10)
        found = differences(before[None], after[None])
        seen += bool(found.beyond_noise[0] and found.low[0] > 0)
    assert seen >= 18


@pytest.mark.parametrize("names", [("h100_vit", "mi300_vit", 150), ("mi300_bert_small", "h100_bert_small", 60)])
def test_the_same_program_on_two_gpus(captures: Path, names: tuple[str, str, int], capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(captures / "kineto" / f"{name}.json.gz") for name in names[:2]]
    _, found = compared(capsys, *files)
    assert found["comparable"] and found["matched"] == names[2] and not found["added"] and not found["removed"]


@pytest.mark.parametrize(
    "name",
    ["nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite", "nvprof/v100_lm/net.sql", "kineto/a100_alexnet_cupti_counters.json.gz"],
)
def test_a_capture_against_its_own_records(
    captures: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    capture, parsed = str(captures / name), str(tmp_path / "net.parquet")
    assert main(["parse", capture, "-o", parsed]) == 0
    code, found = compared(capsys, capture, parsed, "--fail-over", "1%")
    assert code == 0 and found["comparable"] and not found["added"] and not found["removed"]
    changes: list[dict[str, object]] = found["changes"]  # type: ignore[assignment]
    assert all(one["verdict"] in ("same", "noise", None) and one["before_ns"] == one["after_ns"] for one in changes)


def test_folders_are_compared_rank_by_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, factor in (("before", 1), ("after", 2)):
        (tmp_path / folder).mkdir()
        for rank in range(3):
            times = (np.array(steady()) * (factor if rank == 1 else 1)).tolist()
            Program(times).write(tmp_path / folder / f"net.rank{rank}.sqlite")
    (tmp_path / "before" / "net.rank2.sqlite").unlink()
    folders = [str(tmp_path / name) for name in ("before", "after")]
    assert main(["diff", *folders, "--format", "json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "only" in printed.err and [one["rank"] for one in found["ranks"]] == [0, 1]
    changed = [one["after_ns"] - one["before_ns"] for one in found["ranks"]]
    assert changed[0] == 0 and changed[1] == sum(map(sum, steady()))
    assert found["after_ns"] == round(sum(one["after_ns"] for one in found["ranks"]) / 2)
    assert main(["diff", *folders]) == 0
    assert "linear" in capsys.readouterr().out


def test_two_runs_are_judged_by_their_ledgers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = []
    for name, ns in (("before", 10_000), ("after", 10_500)):
        names.append(str(Program(steady()).write(tmp_path / f"{name}.sqlite")))
        lines = [{"schema": 1, "by": "step", "step": n, "begin_ns": n * ns, "wall_ns": ns + n % 7} for n in range(200)]
        (tmp_path / f"{name}.steps.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["diff", *names, "--fail-over", "3%"]) == 3
    said = capsys.readouterr().out
    assert "whole run    10.0 us -> 10.5 us  +5.0%: slower (95 %: " in said
    assert "; median of 198 and 198 steps that were not recorded)" in said
    assert main(["diff", "--save", "main", names[0], "--baselines", str(tmp_path / "kept")]) == 0
    assert main(["diff", "--baseline", "main", names[0], "--baselines", str(tmp_path / "kept")]) == 0
    assert "10.0 us  +0.0%: the same within noise (95 %: " in capsys.readouterr().out


def test_of_two_runs_on_a_cpu_it_says_op_time(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *[str(data / "kineto_cpu.json.gz")] * 2]) == 0
    out = capsys.readouterr().out
    assert "op time  " in out and "kernel time" not in out
