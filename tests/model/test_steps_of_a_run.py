"""A ledger beside a capture: how it is found, and what its lines say."""

from pathlib import Path

import pytest

from pyprof.model.ledger import CompileEvent, beside, compilations, read

LINES = """{"schema":1,"by":"loader","step":0,"begin_ns":0,"wall_ns":90}
{"schema":1,"by":"optimizer","step":0,"begin_ns":5,"wall_ns":100,"device_ns":null,"recorded":false,"traced":true}
{"schema":1,"by":"optimizer","step":1,"begin_ns":105,"wall_ns":40}
{"schema":1,"by":"optimizer","step":1,"begin_ns":105,"wall_ns":40,"device_ns":30,"allocated":7,"reserved":8,"peak":9}
{"compile":"graph_break","step":1,"frame":"forward","reason":"item","file":"net.py","line":6}
{"schema":1,"by":"optimizer","step":2,"begin_ns":145,"wall_ns":41,"recorded":true,"tokens":64}
{"schema":1,"by":"optimizer","step":3,"begin_ns":186,"wall_ns":12,"open":true}
not a line of ours
[1]
{"schema":1,"by":"optimizer","step":4,"beg"""


def test_later_lines_replace_earlier_ones_and_the_last_kind_of_mark_counts(tmp_path: Path) -> None:
    path = tmp_path / "net.steps.jsonl"
    path.write_text(LINES)
    found = read(path)
    assert found is not None and found.by == "optimizer"
    assert found.step.tolist() == [0, 1, 2, 3] and found.wall_ns.tolist() == [100, 40, 41, 12]
    assert found.device_ns.tolist() == [-1, 30, -1, -1] and found.peak.tolist() == [-1, 9, -1, -1]
    assert found.tokens.tolist() == [-1, -1, 64, -1]
    flags = found.recorded.tolist(), found.traced.tolist(), found.ended.tolist()
    assert flags == ([False, False, True, False], [True, False, False, False], [True, True, True, False])
    assert compilations(path) == [CompileEvent(1, "graph_break", "forward", "item", "net.py", 6)]


@pytest.mark.parametrize("text", ["", "\n[]\n7\n", '{"kShortName": "gemm", "by": "me"}'])
def test_what_is_no_ledger(tmp_path: Path, text: str) -> None:
    path = tmp_path / "net.steps.jsonl"
    path.write_text(text)
    assert read(path) is None and compilations(path) == []


@pytest.mark.parametrize(
    ("capture", "ledger"),
    [
        ("net.json.gz", "net.steps.jsonl"),
        ("net.2.sqlite", "net.2.steps.jsonl"),
        ("net.rank1.dict", "net.rank1.steps.jsonl"),
        ("net/rank0_step12.json.gz", "net.steps.jsonl"),
        ("net.steps.jsonl", "net.steps.jsonl"),
        ("other.json", ""),
        ("folder/net.json", ""),
        ("-", ""),
    ],
)
def test_the_ledger_stands_beside_its_capture(tmp_path: Path, capture: str, ledger: str) -> None:
    for name in ("net", "net.2", "net.rank1"):
        (tmp_path / f"{name}.steps.jsonl").touch()
    assert beside(tmp_path / capture) == (tmp_path / ledger if ledger else None)
