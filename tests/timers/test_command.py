"""`pyprof bench`: which call is chosen, and the table that comes of it."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

from pyprof.cli import main
from pyprof.commands import bench as command
from pyprof.errors import PyprofError, ToolError
from pyprof.timers import isolated
from pyprof.timers.isolated import Isolated, TimingJob
from pyprof.timers.timing import Timing
from tests.terminals import bare
from tests.tiny import Nsys

GEMM = "ampere_sgemm_128x64_tn"


@pytest.fixture(autouse=True)
def _in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process of its own would measure; tests marked slow start one, which imports torch, for each command."""
    if request.node.get_closest_marker("slow"):
        return

    def measured(_: Isolated, job: TimingJob) -> Timing:
        found = isolated._answer(isolated.TimingJob.run, (job,), False)
        if isinstance(found, PyprofError):
            raise found
        return found

    monkeypatch.setattr(Isolated, "time", measured)


@pytest.fixture
def capture(tmp_path: Path) -> str:
    n = Nsys()
    n.range('linear(fp32[6,20], fp32[10,20]) #pyprof{"mod":"torch.nn.functional"}', 10, 100)
    n.kernel(GEMM, 20, 1000, 1100)
    n.range('linear(fp32[8,20], fp32[10,20]) #pyprof{"mod":"torch.nn.functional"}', 110, 200)
    n.kernel(GEMM, 120, 2000, 2300)
    n.kernel("splitKreduce_kernel", 130, 2300, 2500)
    n.range("only my own range", 300, 400)
    n.kernel("my_kernel", 310, 3000, 3100)
    n.range("aten::mm, op_id = 7", 500, 600)
    n.kernel(GEMM, 510, 4000, 4100)
    n.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100-SXM4-40GB", 0, 108, 8, 0))
    return str(n.write(tmp_path / "net.sqlite"))


def _bench(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], str]:
    code = main(["bench", *words, "--device", "cpu"])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


@pytest.mark.slow
def test_a_row_and_its_alternatives(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = _bench(capsys, capture, "--idx", "2", "--seconds", "0.001")
    assert code == 0 and lines[0] == "torch.nn.functional.linear: linear(fp32[8,20], fp32[10,20])"
    assert lines[1] == "on cpu, cold caches, median of 10 calls; recorded: 0.5 us on NVIDIA A100-SXM4-40GB"
    names = [line[: lines[2].index(" ")] for line in lines[2:]]
    assert lines[2].split()[0] == "Call" and [name.strip() for name in names] == ["Call", "as r", "padd", "bf16", "fp16"]
    assert lines[3].split()[6] == "1"  # one launch
    assert _bench(capsys, capture, "--idx", "3", "--seconds", "0.001")[1][0] == lines[0]  # the op's other kernel


@pytest.mark.slow
def test_the_op_that_took_most_time(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("linear", "torch.nn.functional.linear"):
        assert _bench(capsys, capture, "--op", name, "--seconds", "0.001")[1][0].endswith("linear(fp32[8,20], fp32[10,20])")
    words = ("--op", "linear", "--shape", "6,20", "10,20", "--warm", "--seconds", "0.001")
    _, lines, _ = _bench(capsys, capture, *words)
    assert (
        lines[0].endswith("linear(fp32[6,20], fp32[10,20])")
        and ", warm caches, " in lines[1]
        and "recorded: 0.1 us" in lines[1]
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--op", "aten::mm", "--shape", "4,5", "5,6"), "aten::mm: mm(fp32[4,5], fp32[5,6])"),
        (("--op", "mm", "--shape", "[4,5]", "[5,6]", "--dtype", "bfloat16"), "aten::mm: mm(bf16[4,5], bf16[5,6])"),
        (("--op", "torch.relu", "--shape", "4"), "torch.relu: relu(fp32[4])"),
        (("--op", "aten::sum(fp32[4,5]{1,4}, [0], True)"), "aten::sum: sum(fp32[4,5]{1,4}, [0], True)"),
    ],
)
def test_without_a_capture(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is made once."""
    monkeypatch.setattr(isolated, "timeit", lambda fn, *args, **_: fn(*args) is None or Timing("cpu", (1e-6,), (1e-6,), {}))
    code, lines, _ = _bench(capsys, *words, "--seconds", "0.001")
    assert code == 0 and lines[0] == said and lines[3].startswith("as given")


def test_times_and_rates_are_what_was_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """2 * 100 * 100 * 100 FLOPs and 120,000 bytes; fp32 takes 2 us, bf16 1 us, fp16 the same for the median but not the best."""
    answers = iter([(2e-6, 2e-6), (1e-6, 1e-6), (1e-6, 3e-6)])
    monkeypatch.setattr(isolated, "timeit", lambda work, **_: Timing("cpu", found := next(answers), found, {"aten::mm": 1}))
    _, lines, _ = _bench(capsys, "--op", "aten::mm", "--shape", "100,100", "100,100")
    rows = [line.split() for line in lines[3:]]
    assert rows[0] == ["as", "given", "2.0", "2.0", "2.0", "0%", "1", "1", "60"]
    assert rows[1] == ["bf16", "1.0", "1.0", "1.0", "0%", "1", "2", "60", "2.00x"]
    assert rows[2] == ["fp16", "2.0", "1.0", "3.0", "50%", "1", "1", "30", "1.00x", "(noise)"]


def test_an_alternative_that_cannot_be_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from pyprof.model.opcall import parse_call
    from pyprof.timers.alternatives import Alternative

    impossible = Alternative("odd", (parse_call("mm(fp32[2,3], fp32[4,5])", "aten", dispatcher=True),))
    monkeypatch.setattr(command, "alternatives", lambda call, gpu: [impossible])
    code, lines, err = _bench(capsys, "--op", "aten::mm", "--shape", "4,5", "5,6", "--seconds", "0.001")
    assert code == 0 and lines[4].split() == ["odd", *["na"] * 8] and "note: odd: aten::mm cannot be run here" in err


def test_advice_is_tried(capture: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """fp32 takes 2 us, bf16 1 us, fp16 cannot be run; of the two calls that can be padded neither can."""
    answers = iter([2e-6, 1e-6, ToolError("not here"), ToolError("stopped"), ToolError("stopped")])

    def measured(_: Isolated, job: TimingJob) -> Timing:
        answer = next(answers)
        if isinstance(answer, ToolError):
            raise answer
        return Timing(job.device, (answer,), (answer,), {"aten::linear": 1})

    monkeypatch.setattr(Isolated, "time", measured)
    code, lines, err = _bench(capsys, capture, "--advice")
    assert code == 0 and lines[0] == "reduced_precision: 1 x torch.nn.functional.linear: linear(fp32[8,20], fp32[10,20])"
    assert lines[1] == "on cpu, cold caches, median of 1 calls; recorded: 0.5 us on NVIDIA A100-SXM4-40GB"
    assert [line.split()[0] for line in lines[3:6]] == ["as", "bf16", "fp16"]
    assert lines[4].endswith("2.00x") and lines[5].split()[1] == "na" and "note: fp16: not here" in err
    assert lines[7].startswith("gemm_alignment: not tried: torch.nn.functional.linear: ") and lines[7].endswith(": stopped")
    assert lines[8].startswith("gemm_alignment: not tried: torch.nn.functional.linear: linear(fp32[6,20]")
    assert lines[10:] == [
        "fused_attention: not tried: no product, softmax and product over one batch of heads was recorded with its shapes", "",
        "fused_optimizer: not tried: no optimizer was recorded with its ops", "",
        "not tried, since no op was recorded that they apply to: double_precision, channels_last",
    ]  # fmt: skip
    assert _bench(capsys, capture, "--advice", "channels_last")[0] == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("CAPTURE", "--advice", "fp8"), 2, "'fp8' cannot be tried"),
        (("CAPTURE", "--advice", "--idx", "1"), 2, "--advice chooses the ops of FILE itself"),
        (("--advice",), 2, "--advice chooses the ops of FILE itself"),
        ((), 2, "without FILE, --op must name an op"),
        (("--idx", "1"), 2, "without FILE, --op must name an op"),
        (("--op", "aten::mm"), 2, "--shape must give the shapes"),
        (("--op", "aten::mm", "--shape", "4,x"), 2, "is not a shape"),
        (("--op", "aten::mm", "--shape", "4,-5"), 2, "is not a shape"),
        (("--op", "aten::mm", "--shape", "4", "--dtype", "fp99"), 2, "unknown dtype"),
        (("--op", "aten::mm(fp32[4", "--shape", "4"), 2, "is not a call"),
        (("--op", "aten::mm", "--shape", "4,5", "6,7"), 1, "cannot be run here"),
        (("--op", "torch.load", "--shape", "4,5"), 2, "cannot be run alone"),
        (("--op", "mm", "--shape", "4,5", "5,6", "--seconds", "0"), 2, "--seconds must be positive"),
        (("CAPTURE",), 2, "use either --idx or --op"),
        (("CAPTURE", "--idx", "99"), 2, "there is no row 99"),
        (("CAPTURE", "--idx", "4"), 2, "row 4 has no op"),
        (("CAPTURE", "--idx", "5"), 2, "arguments were not recorded"),
        (("CAPTURE", "--op", "conv2d"), 2, "no call of 'conv2d'"),
        (("CAPTURE", "--op", "linear", "--shape", "1,1"), 2, "no call of 'linear'"),
        (("missing.sqlite", "--idx", "1"), 1, "no such file"),
    ],
)  # fmt: skip
def test_wrong_usage(capture: str, words: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = tuple(capture if word == "CAPTURE" else word for word in words)
    found, lines, err = _bench(capsys, *words)
    assert (found, lines) == (code, []) and said in err and "hint: " in err


@pytest.mark.parametrize(("device", "code"), [("tpu", 2), ("cuda:x", 2), ("meta", 2), ("cuda:99", 1)])
def test_a_device_that_is_not_there(device: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--op", "mm", "--shape", "4,5", "5,6", "--device", device]) == code
    assert device in capsys.readouterr().err


def test_without_torch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["bench", "--op", "mm", "--shape", "4,5", "5,6"]) == 1
    assert "pip install torch" in capsys.readouterr().err


def test_a_terminal_gets_times_as_people_read_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    numbers = ["12040.0", "280.0", "16100.0", "29%", "1", "0.01", "2.5", ""]
    command._print_table([["as given", *numbers], ["bf16", *["na"] * 8]])
    lines = [bare(line).split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["Call", "Time", "best"] and lines[1][:8] == ["as", "given", "12.0", "ms", "280", "us", "16.1", "ms"]
    assert lines[2] == ["bf16", *["na"] * 8]
