"""Block timers on readings written by hand, and the command that reports on them."""

import json
import subprocess
import sys
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.errors import InputError, NotACapture, PyprofError, ToolError, UsageError
from pyprof.tables.table import Table, printed
from pyprof.timers import Buffer, load, readings
from pyprof.timers.clocks import EMPTY
from tests.conftest import ROOT


class Time(IntEnum):
    LOAD = 1
    SOLVE = 2


def filled(**options: object) -> Buffer:
    """Two blocks, three iterations, two lanes; reading the clock takes 10 ticks, of which there are 10^9 a second."""
    buffer = Buffer(Time, 3, 2, **options)  # type: ignore[arg-type]
    buffer.ticks[0] = 10
    buffer.ticks[Time.LOAD] = [[110, 110], [110, 110], [110, 9110]]
    buffer.ticks[Time.SOLVE] = [[210, 610], [310, 710], [210, 610]]
    return buffer.calibrate(hz=1e9)


def rows(table: Table) -> list[dict[str, str]]:
    cells = zip(*(printed(values) for values in table.values), strict=True)
    return [dict(zip([header.key for header in table.headers], row, strict=True)) for row in cells]


def blocks(buffer: Buffer) -> dict[str, dict[str, str]]:
    return {row["block"]: row for row in rows(readings.blocks(readings.readings_of(buffer)))}


def test_blocks_are_less_the_timers_cost_and_an_interruption_is_not_their_time() -> None:
    found = blocks(filled())
    load, solve = found["LOAD"], found["SOLVE"]
    assert (load["count"], load["median_ticks"], load["median_ns"], load["imbalance"]) == ("6", "100.0", "100.0", "1.00")
    assert load["p99_ticks"] == "8650.0"  # 0.95 of the way from 100 to 9100
    assert (solve["median_ticks"], solve["imbalance"]) == ("450.0", "1.50")  # lanes 200 and 600
    assert (load["share"], solve["share"]) == ("20.0", "80.0")  # 6 * 100 of 6 * 100 + 3 * 200 + 3 * 600
    assert load["flags"] == solve["flags"] == ""
    assert "LOAD" in str(filled()) and "note: share is of all blocks together" in str(filled())


def test_lanes_are_a_curve() -> None:
    buffer = filled()
    buffer.ticks[Time.LOAD] = [[110, 210], [210, 110], [110, 210]]  # each lane is the slow one at times
    found = rows(readings.lanes(readings.readings_of(buffer)))
    keys = ("block", "place", "lane", "count", "median_ticks", "sorted_ticks")
    assert [tuple(row[key] for key in keys) for row in found] == [
        ("LOAD", "0", "lane 0", "3", "100.0", "100.0"),
        ("LOAD", "1", "lane 1", "3", "200.0", "200.0"),
        ("SOLVE", "0", "lane 0", "3", "200.0", "200.0"),
        ("SOLVE", "1", "lane 1", "3", "600.0", "600.0"),
    ]


def test_a_block_without_work_and_one_that_never_ran() -> None:
    class Many(IntEnum):
        WORK, REMOVED, NEVER, CLOCKLESS = 1, 2, 3, 4

    buffer = Buffer(Many, 2, 2)
    for block, ticks in enumerate((20, 2000, 24)):
        buffer.ticks[block] = ticks
    buffer.ticks[Many.CLOCKLESS] = 0
    found = blocks(buffer)
    assert [row["flags"] for row in found.values()] == ["", "removed?", "not reached", "not reached"]
    assert found["NEVER"]["median_ticks"] == found["CLOCKLESS"]["median_ns"] == found["CLOCKLESS"]["share"] == "na"
    assert found["WORK"]["median_ns"] == "na" and found["WORK"]["share"] == "99.8"
    assert any("--hz" in note for note in readings.readings_of(buffer).notes)


def test_a_cost_that_no_timer_has_leaves_nothing(tmp_path: Path) -> None:
    buffer = Buffer(Time, 3, 2).ingest(np.full((3, 3, 2), 2**63 - 1)).calibrate(hz=1e9, cost=1e300)
    buffer.save(tmp_path / "t.npz")
    assert main(["timers", str(tmp_path / "t.npz"), "--csv"]) == 0


def test_a_clock_that_returns_0_is_unsupported() -> None:
    buffer = Buffer(Time, 3, 2).ingest(np.zeros((3, 3, 2), np.int64)).calibrate(hz=1e9)
    assert {row["flags"] for row in blocks(buffer).values()} == {"unsupported"}
    assert {row["median_ns"] for row in blocks(buffer).values()} == {"na"} and "unsupported" in str(buffer)
    # Steps of globaltimer are so long that a block can be shorter: there 0 is a reading.
    timer = Buffer(Time, 3, 2, clock="globaltimer").ingest(np.zeros((3, 3, 2), np.int64))
    assert {(row["count"], row["median_ns"]) for row in blocks(timer).values()} == {("6", "0.0")}


def test_readings_of_32_bits_wrap_around() -> None:
    buffer = Buffer({"a": 0}, 2, 1, bits=32)
    buffer.ticks[0, 0, 0], buffer.ticks[0, 1, 0] = 5 - (2**32 - 95), 100  # 0xffffffa1 to 5
    assert blocks(buffer)["a"]["median_ticks"] == "100.0"
    buffer.bits = 64
    found = blocks(buffer)["a"]
    assert (found["count"], found["median_ticks"], found["flags"]) == ("1", "100.0", "backwards")


def test_without_a_cost_nothing_is_subtracted_and_a_short_block_is_flagged() -> None:
    buffer = Buffer({"dead": 0, "work": 1}, 2, 1).ingest(np.array([[30, 34], [500, 500]]))
    found = blocks(buffer)
    assert (found["dead"]["flags"], found["dead"]["median_ticks"], found["work"]["flags"]) == ("removed?", "32.0", "")
    assert "the timer's own cost is unknown" in str(buffer)
    assert blocks(buffer.calibrate(cost=32))["work"]["median_ticks"] == "468.0"


def on_two_sms() -> Buffer:
    """Two lanes on SMs whose clocks are far apart, 2 GHz; lane 1 begins 500 ns later. LOAD takes 200 ticks, SOLVE 400."""
    buffer = filled(kernel="timed")
    buffer.ingest(np.repeat([[[10] * 2] * 3, [[210] * 2] * 3, [[410] * 2] * 3], 1, axis=1))
    for lane, (clock, ns) in enumerate([(1_000_000, 7_000), (77, 7_500)]):
        buffer.pairs[:, :, lane] = [[clock, ns], [clock + 20_000, ns + 10_000]]
        for iteration in range(3):
            buffer.starts[Time.LOAD, iteration, lane] = clock + 100 + 1000 * iteration
            buffer.starts[Time.SOLVE, iteration, lane] = clock + 400 + 1000 * iteration
        buffer.sms[lane] = 5 + lane
    return buffer.calibrate()


def test_pairs_give_the_rate_the_place_and_the_share(tmp_path: Path) -> None:
    buffer = on_two_sms()
    assert buffer.hz == 2e9
    found = readings.readings_of(buffer)
    assert found.together and "share is of the kernel, by its pairs of clocks" in found.notes
    starts = {(found.names[b][1], i, lane): ns for b, i, lane, ns in zip(*found[:3], found.start_ns, strict=True)}
    assert (starts["LOAD", 0, 0], starts["SOLVE", 2, 0], starts["LOAD", 0, 1]) == (0.0, 1150.0, 500.0)
    assert blocks(buffer)["SOLVE"]["share"] == "6.0"  # 6 * 400 of 2 * 20,000 ticks
    assert {lane.thread for lane in found.lanes} == {"lane 0 (SM 5)", "lane 1 (SM 6)"}
    events = timeline(buffer, tmp_path)
    assert {(e["pid"], e["tid"]) for e in events} == {("timed", "lane 0 (SM 5)"), ("timed", "lane 1 (SM 6)")}
    first = events[0]
    assert (first["name"], first["ts"], first["dur"], first["args"]["ticks"]) == ("LOAD", 0.0, 0.1, 200)
    given = Buffer(Time, 3, 2).ingest(buffer.ticks).calibrate(pairs=((0, 0), (3_000, 1_000)))
    assert given.hz == 3e9


def timeline(buffer: Buffer, folder: Path, *words: str) -> list[dict[str, object]]:  # type: ignore[type-arg]
    buffer.save(folder / "t.npz")
    assert main(["timers", str(folder / "t.npz"), "--chrome", str(folder / "out.json"), *words]) == 0
    return list(json.loads((folder / "out.json").read_text())["traceEvents"])


def test_clocks_of_different_sms_are_never_compared() -> None:
    buffer = on_two_sms()
    del buffer._held["pairs"]
    found = readings.readings_of(buffer)
    assert not found.together and found.start_ns[found.lane == 0].tolist() == found.start_ns[found.lane == 1].tolist()
    buffer.clock = "tsc"  # one clock for all
    found = readings.readings_of(buffer)
    assert found.together and found.start_ns.min() == 0 and found.start_ns.max() > 400_000


def test_a_timeline_joins_a_trace_at_the_kernels_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = {"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "other", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 7},
        {"ph": "X", "cat": "kernel", "name": "timed", "ts": 50.5, "dur": 20.0, "pid": 0, "tid": 7},
    ]}  # fmt: skip
    (tmp_path / "net.json").write_text(json.dumps(trace))
    events = timeline(on_two_sms(), tmp_path, "--into", str(tmp_path / "net.json"))
    assert events[:2] == trace["traceEvents"] and events[2]["ts"] == 50.5 and len(events) == 14
    assert (
        main(
            [
                "timers",
                str(tmp_path / "t.npz"),
                "--kernel",
                "no",
                "--chrome",
                str(tmp_path / "o"),
                "--into",
                str(tmp_path / "net.json"),
            ]
        )
        == 2
    )
    assert "no launch of no" in capsys.readouterr().err and not (tmp_path / "o").exists()


def test_blocks_without_begins_are_drawn_one_after_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = timeline(filled(), tmp_path)
    assert [(e["name"], e["ts"], e["dur"]) for e in events[:3]] == [
        ("LOAD", 0.0, 0.1),
        ("SOLVE", 0.1, 0.2),
        ("LOAD", pytest.approx(0.3), 0.1),
    ]
    assert events[6]["tid"] == "lane 1" and events[6]["ts"] == 0.0
    assert "one after another" in capsys.readouterr().err


def test_a_block_around_the_others_is_the_whole() -> None:
    buffer = Buffer({"all": 1, "part": 2}, 1, 1, whole=1).ingest(np.array([[10], [1010], [260]]))
    assert {name: row["share"] for name, row in blocks(buffer).items()} == {"all": "100.0", "part": "25.0"}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    buffer = on_two_sms()
    buffer.save(tmp_path / "t.npz")
    found = load(tmp_path / "t.npz")
    assert str(found) == str(buffer) and (found.names, found.hz, found.kernel) == (buffer.names, 2e9, "timed")
    assert all((found.array(name) == buffer.array(name)).all() for name in ("ticks", "starts", "pairs", "sms"))
    empty = Buffer(Time, 1, 1)
    empty.save(tmp_path / "e.npz")
    assert load(tmp_path / "e.npz").hz is None and (load(tmp_path / "e.npz").ticks == EMPTY).all()
    assert "not reached" in str(empty)


def test_a_file_that_is_none_or_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "t.npz"
    filled().save(whole)
    content = whole.read_bytes()
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.savez(tmp_path / "objects.npz", pyprof_timers=np.array([{}], object))
    (tmp_path / "text.npz").write_text("PKno")
    (tmp_path / "no.json").write_text('{"traceEvents": []}')
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    for name in ("other.npz", "objects.npz", "text.npz", "no.json", "cut.npz", "missing.npz"):
        assert main(["timers", str(tmp_path / name)]) == 1
        error = capsys.readouterr().err
        assert name in error and "hint: " in error and "Traceback" not in error
    with pytest.raises(NotACapture):
        load(tmp_path / "other.npz")
    for at in range(0, len(content), 7):
        (tmp_path / "bit.npz").write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])
        try:
            readings.text(readings.readings_of(load(tmp_path / "bit.npz")))
        except InputError:
            pass


def test_every_format_has_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled().save(tmp_path / "t.npz")
    file = str(tmp_path / "t.npz")
    assert main(["timers", file, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1 and [row["median_ns"] for row in found["blocks"]] == [100.0, 450.0]
    assert main(["timers", file, "--csv", "-c", "block,share", "--where", "share>50"]) == 0
    assert capsys.readouterr().out == "Block,Share(%)\r\nSOLVE,80.0\r\n"
    assert main(["timers", file, "--table", "lanes", "-o", str(tmp_path / "lanes.parquet")]) == 0
    assert (tmp_path / "lanes.parquet").read_bytes()[:4] == b"PAR1"
    assert main(["timers", file, "--hz", "5e8", "--csv", "-c", "median_ns"]) == 0
    assert "200.0" in capsys.readouterr().out
    for words, said in ((["--into", "x"], "--chrome"), (["--hz", "0"], "--hz"), (["-c", "nothing"], "nothing")):
        assert main(["timers", file, *words]) == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Buffer({}, 1), UsageError),
        (lambda: Buffer({"a": -1}, 1), UsageError),
        (lambda: Buffer(Time, 0), UsageError),
        (lambda: Buffer(Time, 1, backend="jax"), UsageError),
        (lambda: Buffer(Time, 1, clock="sundial"), UsageError),
        (lambda: Buffer(Time, 1, whole=9), UsageError),
        (lambda: Buffer(Time, 3, 2).ingest(np.zeros((2, 3, 2), np.int64)), UsageError),
        (lambda: Buffer(Time, 3, 2).ingest(np.zeros((3, 3, 2))), UsageError),
        (lambda: Buffer(Time, 3, 2).ingest(np.zeros((3, 3, 2), np.int64), ends=1), UsageError),
        (lambda: Buffer(Time, 1).calibrate(), UsageError),
        (lambda: Buffer(Time, 1).calibrate("fast"), UsageError),
        (lambda: Buffer(Time, 1).calibrate(-1), UsageError),
        (lambda: Buffer(Time, 1).calibrate(pairs=((5, 5), (9, 5))), UsageError),
    ],
)
def test_wrong_usage(make: object, error: type[PyprofError]) -> None:
    with pytest.raises(error) as raised:
        make()  # type: ignore[operator]
    assert raised.value.hint


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, backend in (("torch", "torch"), ("quadrants", "quadrants")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ToolError, match=f"{package.capitalize() if backend == 'quadrants' else package}.* not installed"):
            Buffer(Time, 1, backend=backend)
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "pyprof.timers.triton", raising=False)
    with pytest.raises(ToolError, match="Triton"):
        import pyprof.timers.triton  # noqa: F401


def test_numpy_is_enough() -> None:
    code = (
        "import sys, pyprof.timers as t, pyprof.commands.timers; b = t.Buffer({'a': 1}, 2); b.ticks[:] = 100; str(b); "
        "sys.exit(bool({'torch', 'quadrants', 'triton', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_tensors_of_torch_are_a_backend() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    buffer = Buffer(Time, 3, 2, backend="torch")
    assert buffer.ticks.dtype == torch.int64 and tuple(buffer.ticks.shape) == (3, 3, 2)
    buffer.ticks[Time.LOAD] = 500
    assert blocks(buffer)["LOAD"]["median_ticks"] == "500.0" and blocks(buffer)["SOLVE"]["flags"] == "not reached"
    assert blocks(Buffer(Time, 3, 2).ingest(buffer.ticks))["LOAD"]["count"] == "6"
