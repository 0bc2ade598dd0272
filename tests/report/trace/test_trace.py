"""Timelines: what is drawn of a capture whose whole truth fits on a screen, and that it is valid for whoever draws it."""

import gzip
import itertools
import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.commands import trace as command
from pyprof.loading.load import load
from pyprof.parse.records.netdict.write import lines
from tests import examples
from tests.tiny import Nsys

Event = dict[str, Any]
LINEAR = 'linear(fp16[64,32], fp16[16,32]) #pyprof{"mod":"torch.nn.functional","src":"net.py:4"}'
GEMM = "ampere_h1688gemm_128x64_tn"


def small() -> Nsys:
    """Two steps of one layer with one product, and a copy that nothing launched in a step."""
    capture = Nsys()
    capture.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100-SXM4-40GB", 0, 108, 8, 0))
    for step in (0, 1):
        at = 10_000 * step + 1_000
        capture.range(f'step {step} #pyprof{{"step":{step}}}', at, at + 9_000)
        capture.range('blocks.0 #pyprof{"layer":"Block"}', at + 10, at + 2_000)
        capture.range(LINEAR, at + 20, at + 1_900)
        capture.kernel(GEMM, at + 100, at + 4_001, at + 8_004, grid=(8, 1, 1))
    capture.copy(1, 30_000, 31_000, 32_000, bytes=4096)
    return capture


def timeline(capture: Path, *options: str) -> tuple[list[Event], dict[str, Any]]:
    out = capture.parent / "timeline.json"
    assert main(["trace", str(capture), "-o", str(out), *options]) == 0
    whole = json.loads(out.read_bytes())
    events = whole.pop("traceEvents")
    check(events)
    return events, whole


def of(events: list[Event], category: str) -> list[Event]:
    return [event for event in events if event.get("cat") == category]


def ns(micros: float) -> int:
    return round(micros * 1000)


def check(events: list[Event]) -> None:
    """Every event is valid as Chrome's format has it, and drawn as it is meant: slices nest, arrows bind to slices and point
    ahead in time, counters follow one another."""
    tracks: dict[tuple[Any, Any], list[tuple[int, int]]] = defaultdict(list)
    arrows: dict[int, list[Event]] = defaultdict(list)
    named: Counter[tuple[Any, Any, str]] = Counter()
    counted: dict[tuple[Any, str], float] = {}
    for event in events:
        assert event["ph"] in "XMCsfi" and isinstance(event["name"], str)
        assert isinstance(event["pid"], (int, str)) and isinstance(event["tid"], (int, str))
        assert type(event["ts"]) in (int, float) and event["ts"] >= 0
        if event["ph"] == "X":
            assert type(event["dur"]) in (int, float) and event["dur"] >= 0 and event["cat"]
            tracks[event["pid"], event["tid"]].append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])))
        elif event["ph"] == "C":
            assert event["args"] and all(math.isfinite(value) for value in event["args"].values())
            assert event["ts"] >= counted.get((event["pid"], event["name"]), 0)
            counted[event["pid"], event["name"]] = event["ts"]
        elif event["ph"] in "sf":
            arrows[event["id"]].append(event)
        elif event["ph"] == "M":
            named[event["pid"], event["tid"], event["name"]] += 1
    assert set(named.values()) <= {1} and {(*track, "thread_name") for track in tracks} <= named.keys()
    for slices in tracks.values():
        assert slices == sorted(slices, key=lambda one: (one[0], -one[1]))
        open_until: list[int] = []
        for start, end in slices:
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)
    begins = {track: {start for start, _ in slices} for track, slices in tracks.items()}
    for ends in arrows.values():
        assert sorted(event["ph"] for event in ends) == ["f", "s"] and all(e.get("bp") == "e" for e in ends if e["ph"] == "f")
        assert len({event["ts"] for event in ends}) == 1 or min(ends, key=lambda event: event["ts"])["ph"] == "s"
        assert all(ns(event["ts"]) in begins[event["pid"], event["tid"]] for event in ends)


_TIME = st.integers(1, 300)
_SPAN = st.tuples(_TIME, st.integers(1, 40))


@settings(
    max_examples=examples(25),
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    ranges=st.lists(st.tuples(_SPAN, st.sampled_from(("a", LINEAR, 'l.0 #pyprof{"layer":"L"}', "step")), st.booleans())),
    kernels=st.lists(st.tuples(_TIME, _SPAN, st.integers(7, 8), st.booleans())),
    copies=st.lists(st.tuples(_TIME, _SPAN)),
)
def test_whatever_crosses_whatever_the_format_holds(tmp_path: Path, ranges: Any, kernels: Any, copies: Any) -> None:
    capture = Nsys()
    for (begin, ns), text, other in ranges:
        capture.range(text, begin, begin + ns, thread=8 if other else None)
    for launch, (wait, ns), stream, other in kernels:
        capture.kernel(GEMM, launch, launch + wait, launch + wait + ns, stream=stream, thread=8 if other else None)
    for launch, (wait, ns) in copies:
        capture.copy(1, launch, launch + wait, launch + wait + ns)
    if kernels or copies:
        timeline(capture.write(tmp_path / "net.sqlite"))


def test_a_kernel_is_drawn_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    events, whole = timeline(small().write(tmp_path / "net.sqlite"))
    first, second = of(events, "kernel")
    assert (first["name"], ns(first["ts"]), ns(first["dur"])) == (GEMM, 4_001, 4_003)  # the first step begins at 0
    assert ns(second["ts"]) == 14_001 and whole["displayTimeUnit"] == "ns"
    shown = first["args"]
    assert (shown["op"], shown["module"], shown["layer"], shown["phase"]) == (
        "linear",
        "torch.nn.functional",
        "blocks.0",
        "forward",
    )
    assert (shown["source line"], shown["step"], shown["FLOPs"]) == ("net.py:4", 0, 2 * 64 * 32 * 16)
    assert shown["TFLOP/s"] == round(2 * 64 * 32 * 16 / 4_003 / 1e3, 3) and shown["Tensor Cores"] == "used"
    assert shown["least bytes"] == 2 * (64 * 32 + 16 * 32 + 64 * 16) and shown["launch to begin (ns)"] == 3_901
    assert (shown["stream"], shown["device"], shown["grid"], shown["block"]) == (7, 0, [8, 1, 1], [128, 1, 1])
    (copy,) = of(events, "gpu_memcpy")
    assert (copy["args"]["bytes"], copy["args"].get("step"), copy["args"]["phase"]) == (4096, None, "copy")


def test_host_and_device_have_tracks_with_names_and_arrows_between_them(tmp_path: Path) -> None:
    events, _ = timeline(small().write(tmp_path / "net.sqlite"))
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] in ("process_name", "thread_name")}
    assert names["process_name", 7, 0] == "process 7" and names["process_name", 0, 0] == "GPU 0: NVIDIA A100-SXM4-40GB"
    assert names["thread_name", 0, 7] == "stream 7"
    calls = {event["args"]["correlation"]: event for event in of(events, "cuda_runtime")}
    for kernel in of(events, "kernel"):
        begin, end = (e for e in events if e["ph"] in "sf" and e["id"] == of(events, "kernel").index(kernel))
        call = calls[kernel["args"]["correlation"]]
        assert (begin["ts"], begin["tid"], end["ts"], end["tid"]) == (call["ts"], call["tid"], kernel["ts"], kernel["tid"])
    op = next(e for e in of(events, "cpu_op") + of(events, "user_annotation") if e["name"] == "linear")
    assert op["args"]["call"] == "linear(fp16[64,32], fp16[16,32])" and op["args"]["source line"] == "net.py:4"


def test_steps_stand_above_all_as_reports_find_them(tmp_path: Path) -> None:
    events, _ = timeline(small().write(tmp_path / "net.sqlite"))
    (pid,) = (e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == "program")
    drawn = [(e["name"], ns(e["ts"]), ns(e["dur"])) for e in of(events, "pyprof_layer") if e["pid"] == pid]
    assert drawn == [("step 0", 0, 10_000), ("step 1", 10_000, 9_000)]


def test_layers_nest_over_the_kernels_of_each_step(tmp_path: Path) -> None:
    events, _ = timeline(small().write(tmp_path / "net.sqlite"))
    drawn = [(event["name"], ns(event["ts"]), ns(event["dur"])) for event in of(events, "pyprof_layer")]
    assert drawn[:4] == [("step 0", 4_001, 4_003), ("forward", 4_001, 4_003), ("blocks", 4_001, 4_003), ("0", 4_001, 4_003)]
    assert [name for name, start, _ in drawn if start == 14_001] == ["step 1", "forward", "blocks", "0"]


def test_counters_add_up_to_the_flops_and_follow_the_queue(tmp_path: Path) -> None:
    events, _ = timeline(small().write(tmp_path / "net.sqlite"))
    counters: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["name"]].append((event["ts"], event["args"][event["name"]]))
    assert counters.keys() == {"TFLOP/s", "GB/s", "launch queue depth", "theoretical occupancy %"}
    rate = counters["TFLOP/s"]
    area = sum(value * (later - when) for (when, value), (later, _) in itertools.pairwise(rate))  # TFLOP/s times us
    assert area == pytest.approx(2 * (2 * 64 * 32 * 16) / 1e6, rel=0.02)  # values have three digits
    assert max(value for _, value in counters["launch queue depth"]) == pytest.approx(1)
    assert rate[-1][1] == 0


def test_a_part_is_cut_out_with_what_the_host_did_meanwhile(tmp_path: Path) -> None:
    path = small().write(tmp_path / "net.sqlite")
    whole, _ = timeline(path)
    events, _ = timeline(path, "--step", "1")
    (kernel,) = of(events, "kernel")
    assert kernel["args"]["step"] == 1 and not of(events, "gpu_memcpy")
    assert [e["name"] for e in of(events, "user_annotation") if e["name"].startswith("step")] == ["step 1"]
    assert len(events) < len(whole)
    assert [e["args"]["step"] for e in of(timeline(path, "--time", "0ns:1us")[0], "kernel")] == [0]
    assert len(of(timeline(path, "--range", "blocks.0")[0], "kernel")) == 2
    assert list(lines(load(str(tmp_path / "timeline.json"))))


def test_a_timeline_too_large_is_refused_with_the_cut_to_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capture, plain = Nsys(), Nsys()
    for at in range(0, 100_000, 100):
        capture.range(f'step {at // 1000} #pyprof{{"step":{at // 1000}}}', at, at + 99)
        for one in (capture, plain):
            one.kernel(GEMM, at + 1, at + 20, at + 90)
    for number, one in enumerate((capture, plain)):
        path, out = one.write(tmp_path / f"{number}.sqlite"), tmp_path / f"{number}.json"
        assert main(["trace", str(path), "-o", str(out)]) == 0
        monkeypatch.setattr(command, "LIMIT_BYTES", out.stat().st_size // 4)
        out.unlink()
        capsys.readouterr()
        assert main(["trace", str(path), "-o", str(out)]) == 1 and not out.exists()
        error, hint = capsys.readouterr().err.splitlines()
        assert "MB" in error and hint.startswith("hint: write a part of it: " + ("--time 0" if number else "--step 0:"))
        assert main(["trace", str(path), "-o", str(out), *hint.split()[-2:]]) == 0
        assert out.stat().st_size < command.LIMIT_BYTES
        monkeypatch.undo()


def test_files_are_compressed_by_name_and_the_same_each_time(tmp_path: Path, capsysbinary: Any) -> None:
    path = small().write(tmp_path / "net.sqlite")
    one, two, plain = tmp_path / "one.json.gz", tmp_path / "two.json.gz", tmp_path / "plain.json"
    for out in (one, two, plain):
        assert main(["trace", str(path), "-o", str(out)]) == 0
    assert one.read_bytes() == two.read_bytes() and gzip.decompress(one.read_bytes()) == plain.read_bytes()
    capsysbinary.readouterr()
    assert main(["trace", str(path)]) == 0
    assert capsysbinary.readouterr().out == plain.read_bytes()


def test_records_are_drawn_as_far_as_they_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small().write(tmp_path / "net.sqlite")
    for name in ("net.dict", "net.parquet"):
        assert main(["parse", str(path), "-o", str(tmp_path / name)]) == 0
        events, _ = timeline(tmp_path / name)
        assert "records hold nothing of the host" in capsys.readouterr().err
        assert [e["args"]["op"] for e in of(events, "kernel")] == ["linear"] * 2
        assert [e["args"]["FLOPs"] for e in of(events, "kernel")] == [2 * 64 * 32 * 16] * 2
        assert len(of(events, "cuda_runtime")) == sum(e["ph"] == "f" for e in events) > 1
        assert len(load(str(tmp_path / "timeline.json"))) == len(of(events, "kernel")) + len(of(events, "gpu_memcpy"))


def test_a_capture_of_nothing_but_ranges_is_drawn_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = Nsys()
    capture.range("outer", 100, 900)
    capture.range("inner", 200, 300)
    events, _ = timeline(capture.write(tmp_path / "net.sqlite"))
    assert [(e["name"], ns(e["ts"]), ns(e["dur"])) for e in events if e["ph"] == "X"] == [
        ("outer", 0, 800),
        ("inner", 100, 100),
    ]
    assert main(["trace", str(Nsys().write(tmp_path / "none.sqlite")), "-o", str(tmp_path / "none.json")]) == 1
    assert "holds neither GPU activity nor" in capsys.readouterr().err


def test_ops_of_a_capture_without_a_gpu_are_drawn_beside_their_thread(tmp_path: Path) -> None:
    capture = Nsys()
    capture.range(LINEAR, 1_000, 5_000)
    events, _ = timeline(capture.write(tmp_path / "net.sqlite"))
    (op,) = of(events, "pyprof_op")
    assert (ns(op["dur"]), op["args"]["op"], op["args"]["FLOPs"]) == (4_000, "linear", 2 * 64 * 32 * 16)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names[op["pid"], op["tid"]] == "ops of thread 7" and op["pid"] == 7


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"markers": []}, {"texts": []}, {"tables": {}}, {"markers": [{"text": "x", "kind": 99}]}, {"tracks": 3}],
)
def test_a_file_whose_own_tables_were_changed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    path = small().write(tmp_path / "net.sqlite")
    out = tmp_path / "timeline.json"
    assert main(["trace", str(path), "-o", str(out)]) == 0
    assert capsys.readouterr().err == f"{out}: written; ui.perfetto.dev opens it\n"
    whole = json.loads(out.read_text())
    whole["pyprof"] |= change
    out.write_text(json.dumps(whole))
    assert main(["prof", str(out)]) == 1
    assert capsys.readouterr().err.startswith(f"pyprof: error: {out}")
