"""Traces of Proton's instrumented kernels, written here as Proton writes them: times are corrected, or unknown."""

import gzip
import json
from pathlib import Path

import pytest

from pyprof.cli import main
from pyprof.errors import NotACapture
from pyprof.timers import proton, readings

INIT = 1_763_769_600_000_000_000  # globaltimer at the first CTA's begin


class Trace:
    """A trace as Proton's writer makes it: cycles of a CTA count from its begin, and a cycle is written as 1 ns."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def cta(
        self, kernel: str, core: int, cta: int, init_ns: int, lived_ns: int, scopes: list[tuple[str, int, int, int]]
    ) -> None:
        """scopes: name, warp, first and last cycle since the CTA's begin."""
        args = {
            "Init Time (ns)": INIT + init_ns, "Post Final Time (ns)": INIT + init_ns + lived_ns, "Finalization Time (ns)": 40,
            "Frequency (MHz)": 1000.0, "call_stack": ["main"],
        }  # fmt: skip
        for name, warp, first, last in scopes:
            ts, dur = (init_ns + first) / 1000, (last - first) / 1000
            place = {"pid": f"{kernel} Core{core} CTA{cta}", "tid": f"warp {warp} (line 0)"}
            self.events.append(
                {"cname": "c", "name": name, "cat": kernel, "ph": "X", **place, "ts": ts, "dur": dur, "args": args}
            )

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": self.events}))
        return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A kernel on two CTAs, launched twice. Cycles last 0.5 ns, but those of the second launch of CTA 1 last 1 ns."""
    made = Trace()
    for launch, begin in enumerate((0, 50_000)):
        made.cta("add_kernel", 3, 0, begin, 1000, [("load", 0, 0, 800), ("add", 0, 800, 2000), ("load", 4, 100, 500)])
        made.cta("add_kernel", 7, 1, begin + 250, 1000 * (1 + launch), [("load", 0, 0, 1600), ("add", 0, 1600, 2000)])
    return made.write(tmp_path / "p.chrome_trace")


def test_times_are_cycles_scaled_to_the_life_of_the_cta(trace: Path) -> None:
    found = proton.read(trace)
    assert found.names == [("add_kernel", "load"), ("add_kernel", "add")]
    assert [lane.thread for lane in found.lanes] == ["warp 0", "warp 4", "warp 0"]
    mine = [
        (found.lanes[lane].process[-10:], found.lanes[lane].thread, found.names[block][1], iteration, ticks, ns, start)
        for block, iteration, lane, ticks, ns, start in zip(*found[:6], strict=True)
    ]
    assert mine == [
        ("Core3 CTA0", "warp 0", "load", 0, 800, 400.0, 0.0),
        ("Core3 CTA0", "warp 0", "add", 0, 1200, 600.0, 400.0),
        ("Core3 CTA0", "warp 0", "load", 1, 800, 400.0, 50_000.0),
        ("Core3 CTA0", "warp 0", "add", 1, 1200, 600.0, 50_400.0),
        ("Core3 CTA0", "warp 4", "load", 0, 400, 200.0, 50.0),
        ("Core3 CTA0", "warp 4", "load", 1, 400, 200.0, 50_050.0),
        ("Core7 CTA1", "warp 0", "load", 0, 1600, 800.0, 250.0),
        ("Core7 CTA1", "warp 0", "add", 0, 400, 200.0, 1_050.0),
        ("Core7 CTA1", "warp 0", "load", 1, 1600, 1600.0, 50_250.0),
        ("Core7 CTA1", "warp 0", "add", 1, 400, 400.0, 51_850.0),
    ]
    assert found.together and "2000 MHz in the median (1000 to 2000)" in " ".join(found.notes)


def test_the_table_of_a_trace(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timers", str(trace), "--format", "json"]) == 0
    load, add = json.loads(capsys.readouterr().out)["blocks"]
    assert (load["count"], load["median_ns"], load["imbalance"], load["flags"]) == (6, 400.0, 2.0, "")
    # Three warps lived 2000 cycles in each of two launches; load took 800, 400 and 1600 of them.
    assert (load["share"], add["share"], add["count"]) == (46.7, 26.7, 4)
    assert main(["timers", str(trace), "--table", "lanes", "--csv", "-c", "lane,median_ns", "--where", "block=load"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "add_kernel Core3 CTA0 warp 4,200.0", "add_kernel Core3 CTA0 warp 0,400.0", "add_kernel Core7 CTA1 warp 0,1200.0",
    ]  # fmt: skip
    assert main(["timers", str(trace), "--hz", "1e9", "--csv", "-c", "block,median_ns"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["load,800.0", "add,800.0"]


def test_a_timeline_has_a_track_for_each_warp(trace: Path, tmp_path: Path) -> None:
    assert main(["timers", str(trace), "--chrome", str(tmp_path / "out.json")]) == 0
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert {(e["pid"], e["tid"]) for e in events} == {
        ("add_kernel Core3 CTA0", "warp 0"), ("add_kernel Core3 CTA0", "warp 4"), ("add_kernel Core7 CTA1", "warp 0"),
    }  # fmt: skip
    assert (events[1]["name"], events[1]["ts"], events[1]["dur"]) == ("add", 0.4, 0.6)


@pytest.mark.parametrize("command", ["counters", "prof", "parse", "summary"])
def test_other_commands_lead_here(command: str, trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(trace)]) == 1
    said = capsys.readouterr().err
    assert "times inside kernels, by Proton, not a capture" in said and f"hint: pyprof timers {trace}" in said


def test_asynchronous_events_belong_to_their_cta(tmp_path: Path) -> None:
    made = Trace()
    made.cta("k", 0, 0, 0, 1000, [("wait", 0, 0, 1000)])
    place = {"pid": "k Core0 CTA0", "tid": "warp 0 (line 1)", "args": {"call_stack": []}}
    made.events.append({"name": "copy", "cat": "async", "ph": "X", "ts": 0.5, "dur": 1.5, **place})
    made.events.append({"name": "copy", "cat": "flow", "ph": "X", "ts": 0.5, "dur": 0, "bind_id": 1, "flow_out": True, **place})
    found = proton.read(made.write(tmp_path / "p.chrome_trace"))
    assert found.names == [("k", "wait"), ("k", "copy")] and [lane.thread for lane in found.lanes] == [
        "warp 0",
        "warp 0 (line 1)",
    ]
    assert found.ns.tolist() == [500.0, 750.0]  # 2000 cycles in 1000 ns
    assert readings.blocks(found).of("share").values.tolist() == [50.0, 75.0]  # type: ignore[union-attr]  # one warp lived


def test_an_old_trace_has_cycles_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels stand 10,000,000 cycles apart there, and nothing says how long a cycle is."""
    events = [
        {
            "name": "load", "cat": "k", "ph": "X", "pid": f"k Core{core} CTA{core} [measure in clock cycle (assume 1GHz)]",
            "tid": "warp 0 (line 0)", "ts": 10_000.0 * launch, "dur": 2.0 + core, "args": {"Unit": "GPU cycle", "Kernel Gap": "10000000cycle(ns)"},
        }
        for launch in (0, 1) for core in (0, 1)
    ]  # fmt: skip
    file = tmp_path / "old.chrome_trace"
    file.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    assert main(["timers", str(file), "--csv", "-c", "block,count,median_ticks,median_ns,share"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1] == "load,4,2500.0,na,100.0" and "4 of 4 CTAs have cycles only: --hz" in said.err
    assert main(["timers", str(file), "--chrome", str(tmp_path / "o.json")]) == 2
    assert "--hz" in capsys.readouterr().err
    assert main(["timers", str(file), "--hz", "2e9", "--csv", "-c", "median_ns"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "1250.0"


@pytest.mark.parametrize(
    "content",
    [
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {}}]}',
        '{"traceEvents": [{"ph": "X", "pid": "k Core0 CTA0", "ts": 1e300}]}',
        '{"traceEvents": [{"ph": "X", "pid": "k Core0 CTA0", "args": {"Init Time (ns)": 99999999999999999999}}]}',
        '{"traceEvents": 3}', "[]", "", "\x1f\x8b", '{"traceEvents": ' + "[" * 100_000,
    ],
)  # fmt: skip
def test_another_file(content: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(NotACapture):
        proton.read(file)
