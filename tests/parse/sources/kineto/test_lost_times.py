"""Traces of torch.profiler whose records are lost, odd or written in another way: read where the meaning is certain."""

import codecs
import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyprof.errors import InputError
from pyprof.loading.formats import op_rules
from pyprof.loading.load import load_capture, open_trace
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind
from pyprof.parse.records.netdict.read import read_lines
from pyprof.parse.records.netdict.write import lines
from pyprof.prof.cost import cost_records
from pyprof.prof.frame import Frame
from pyprof.report.time.overview import Overview

Events = list[dict[str, Any]]
MM = {"Input Dims": [[128, 256], [256, 512]], "Input type": ["float", "float"]}


def event(cat: str, name: str, ts: float, dur: float, tid: int = 100, pid: int = 100, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def mms(count: int = 6, **more: Any) -> Events:
    """Products one after another, each op of 40 us with its launch, and its kernel of 50 us."""
    found = []
    for number in range(1, count + 1):
        at, same = 1000 + 100 * number, {"External id": number, "correlation": number}
        found += [
            event("cpu_op", "aten::mm", at, 40, **{"External id": number}, **MM),
            event("cuda_runtime", "cudaLaunchKernel", at + 10, 5, **same),
            event("kernel", "ampere_sgemm_128x64_nn", at + 60, 50, tid=7, pid=0, device=0, stream=7, **same, **more),
        ]
    return found


def written(path: Path, events: Events, **facts: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **facts, "traceEvents": events}, indent=0))
    return path


def ops(records: Records) -> list[str]:
    return ["" if code < 0 else records.calls[code].name for code in records["call"].tolist()]


def without_launches(events: Events) -> Events:
    return [one for one in events if one["cat"] != "cuda_runtime"]


def without_ids(events: Events) -> Events:
    for one in events:
        one["args"].pop("correlation", None)
    return events


def zero_ids(events: Events) -> Events:
    return [one | {"args": one["args"] | {"correlation": 0}} if one["cat"] != "cpu_op" else one for one in events]


def pairs(events: Events) -> Events:
    """Ops as two events each."""
    found = []
    for one in events:
        begin, end = copy.deepcopy(one), copy.deepcopy(one)
        begin, end = begin | {"ph": "B"}, end | {"ph": "E", "ts": one["ts"] + one["dur"], "args": {}}
        found += [begin, end] if one["cat"] == "cpu_op" else [one]
    return found


def far(events: Events) -> Events:
    return [one | {"ts": 10**16 + one["ts"]} for one in events]


def as_texts(events: Events) -> Events:
    return [one | {"ts": str(one["ts"])} for one in events]


CERTAIN: dict[str, tuple[Callable[[Events], Events], str | None]] = {
    "no launches": (without_launches, "6 kernels, copies and fills are placed by External id"),
    "no correlation ids": (without_ids, None),
    "correlation ids of 0": (zero_ids, None),
    "begins and ends": (pairs, None),
    "times beyond 64 bits": (far, None),
    "times as texts": (as_texts, None),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_what_is_written_in_another_way_has_its_ops_and_times(tmp_path: Path, name: str) -> None:
    change, note = CERTAIN[name]
    records = load_capture(written(tmp_path / "t.json", change(mms())))
    assert ops(records) == ["aten::mm"] * 6 and records["dur_ns"].tolist() == [50_000] * 6
    assert (records["start_ns"] - records["start_ns"][0]).tolist() == [100_000 * number for number in range(6)]
    notes = [one for one in records.messages() if "with_stack" not in one]
    assert [] == notes if note is None else note in notes[0]


def test_ids_that_other_ops_have_place_nothing(tmp_path: Path) -> None:
    """As in old releases, which counted the ids of ops in another way."""
    events = without_launches(mms())
    for one in events:
        if one["cat"] == "kernel":
            one["args"]["External id"] = 7 - one["args"]["External id"]
    assert ops(load_capture(written(tmp_path / "t.json", events))) == [""] * 6


@pytest.mark.parametrize("of", ["kernel", "cpu_op"])
@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000])
def test_what_has_no_time_is_left_out_and_counted(tmp_path: Path, of: str, base: int) -> None:
    events = [one | {"ts": base + one["ts"]} for one in mms()]
    lost = [one for one in events if one["cat"] == of][3:]
    for one in lost:
        one |= {"ts": 0, "dur": 50 if base and of == "kernel" else 0}
    records = load_capture(written(tmp_path / "t.json", events))
    assert len(records) == (3 if of == "kernel" else 6) and int(records["start_ns"].min()) // 1000 == base + 1160
    assert [text for text in records.messages() if "without a kernel" in text] == []
    (note,) = [note for note in records.notes if "no time" in note]
    assert note.endswith("3 of the kernels, copies and fills" if of == "kernel" else "3 of the ranges, ops and calls")


def test_launches_whose_kernels_were_dropped_are_counted(tmp_path: Path) -> None:
    events = [one for one in mms() if one["cat"] != "kernel" or one["ts"] > 1300]
    records = load_capture(written(tmp_path / "t.json", events))
    assert "2 launches without a kernel in the capture" in records.messages() and records.unseen is None


@pytest.mark.parametrize(
    ("late", "moved"),
    [([-450] * 6, [450] * 6), ([-450] * 3 + [30] * 3, [450] * 6), ([-450, *[0] * 59], [0] * 60), ([-1] * 6, [0] * 6)],
    ids=["all", "changes sign", "one of many", "as clocks differ"],
)
def test_a_clock_that_is_behind_is_moved_with_a_note(tmp_path: Path, late: list[int], moved: list[int]) -> None:
    """late: by how much each kernel begins after its launch, in us."""
    events = mms(len(late))
    for number, one in enumerate(one for one in events if one["cat"] == "kernel"):
        one["ts"] = 1000 + 100 * (number + 1) + 10 + late[number]
    path = written(tmp_path / "t.json", events)
    records, trace = load_capture(path), open_trace(path)
    delay = sorted(records["start_ns"] - records["launch_ns"])
    assert delay == sorted(1000 * (own + by) for own, by in zip(late, moved, strict=True))
    said = [note for note in records.notes if "before their launch" in note]
    assert len(said) == (moved[0] > 0) and all("450 us" in note and "device 0" in note for note in said)
    assert len(trace.activities["kind"]) == len(late)


def test_two_ranks_with_the_same_ids_are_refused(tmp_path: Path) -> None:
    other = mms()
    for one in other:
        one["ts"] += 3
        one["args"]["device"] = 1
    with pytest.raises(InputError, match="several traces in one") as caught:
        open_trace(written(tmp_path / "t.json", mms() + other))
    assert "pyprof ranks" in caught.value.hint
    later = [one | {"ts": one["ts"] + 10_000} for one in mms()]
    assert ops(load_capture(written(tmp_path / "t.json", mms() + later))) == ["aten::mm"] * 12


def test_ranges_that_never_ended_are_open_and_named(tmp_path: Path) -> None:
    begun = event("user_annotation", "epoch 1", 1050, 0) | {"ph": "B"}
    trace = open_trace(written(tmp_path / "t.json", [begun, *pairs(mms())]))
    assert trace.ranges["open"].tolist().count(1) == 1
    assert (
        "1 of the user's ranges were still open when the recording ended: epoch 1"
        in load_capture(tmp_path / "t.json").messages()
    )


def test_a_device_of_2021_has_its_name(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "t.json", mms(), computeProperties=[{"id": 0, "name": "A100", "numSms": 108}]))
    assert trace.strings[int(trace.devices["name"][0])] == "A100" and trace.devices["sms"].tolist() == [108]


def test_events_of_mtia_are_kernels(tmp_path: Path) -> None:
    events = mms()
    for one in events:
        if one["cat"] != "cpu_op":
            one["cat"] = {"kernel": "mtia_ccp_events", "cuda_runtime": "mtia_runtime"}[one["cat"]]
    assert ops(load_capture(written(tmp_path / "t.json", events))) == ["aten::mm"] * 6


def test_work_items_of_hip_are_counted_in_blocks(tmp_path: Path) -> None:
    events = mms(grid=[301_056, 4, 1], block=[256, 1, 1])
    for one in events:
        if one["cat"] == "cuda_runtime":
            one["name"] = "hipExtModuleLaunchKernel" if one["args"]["correlation"] < 4 else "hipModuleLaunchKernel"
    records = load_capture(written(tmp_path / "t.json", events))
    assert records["grid_x"].tolist() == [1176] * 3 + [301_056] * 3 and records["grid_y"].tolist() == [4] * 6


QUOTED = '_lib = torch.library.Library("_test", "IMPL")\n(1): <module>'  # as torch 2.0 wrote names, with a line in one


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "gzip"])
@pytest.mark.parametrize("quoted", [False, True])
def test_texts_with_a_mark_at_their_begin(tmp_path: Path, encoding: str, quoted: bool) -> None:
    path = written(tmp_path / "t.json", [event("python_function", "NAME", 1, 9999), *mms()])
    text = path.read_text().replace("NAME", QUOTED if quoted else "f.py(1): g")
    packed = codecs.BOM_UTF8 + text.encode()
    if encoding != "gzip":
        packed = (codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b"") + text.encode(encoding)
    path.write_bytes(gzip.compress(packed) if encoding == "gzip" else packed)
    assert ops(load_capture(path)) == ["aten::mm"] * 6


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("behind", [2, 25, 90, 300])
def test_a_file_that_was_cut_is_read_up_to_its_last_whole_event(tmp_path: Path, packed: bool, behind: int) -> None:
    """Wherever the cut is: behind the events, in a string, in a character."""
    path = written(tmp_path / "t.json", mms())
    text = path.read_text().replace("ampere_sgemm", "k\u00e4rn").encode()
    raw = gzip.compress(text[:-behind])[:-9] if packed else text[:-behind]
    path.write_bytes(raw)
    trace = open_trace(path)
    (note,) = [note for note in trace.notes if "ends in the middle" in note]
    events = len(trace.activities["kind"]) + len(trace.launches["corr"]) + len(trace.ranges["label"])
    assert f"read are the {events} events before byte" in note and events == {2: 18, 300: 16}.get(behind, 17)


def test_a_cut_before_the_first_op_is_the_reason(tmp_path: Path) -> None:
    events = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}, *mms(1)]
    path = written(tmp_path / "t.json", events)
    text = path.read_text()
    path.write_text(text[: text.index("aten::mm")])
    with pytest.raises(InputError, match="the file ends in the middle: read are the 1 events"):
        open_trace(path)


@pytest.mark.parametrize("size", [-3, -(1 << 62), 1 << 62])
@pytest.mark.parametrize("name", ["aten::mm", "aten::add"])
def test_sizes_that_no_tensor_has_are_unknown_with_a_reason(tmp_path: Path, size: int, name: str) -> None:
    events = mms(1)
    events[0]["name"], events[0]["args"]["Input Dims"] = name, [[size, 4], [4, 512]]
    records = load_capture(written(tmp_path / "t.json", events))
    again = read_lines(lines(records), "net.dict", op_rules())
    assert [*lines(again)] == [*lines(records)]
    for costs in (cost_records(records), cost_records(again)):
        assert costs.flops.tolist() == [-1] and all([*costs.reasons])


# file: kernels, and a part of the note that is asked for
CASES = {
    "bom": (18, ""), "utf16": (18, ""), "be_pairs": (18, ""), "quotes_newline": (18, ""), "huge_ts": (18, ""),
    "compute_properties_2021": (18, ""), "no_runtime": (18, "18 kernels, copies and fills are placed by External id"),
    "truncated": (10, "the file ends in the middle: read are the 34 events before byte 8,295 of 8,335"),
    "kernel_ts0": (12, ": 6 of the kernels, copies and fills"), "kernel_ts0_nosteps": (12, ": 6 of the kernels"),
    "half_ts0": (8, ": 10 of the kernels, copies and fills, 19 of the ranges, ops and calls"),
    "half_ts0_nosteps": (8, ": 10 of the kernels, copies and fills, 18 of the ranges, ops and calls"),
    "skew": (18, "kernels began up to 450 us before their launch"), "repeat": (36, ""),
    "dropped_first": (12, "6 launches without a kernel in the capture"),
    "launches_without_kernels": (0, "18 kernels were launched and none was recorded"), "mtia": (18, "18 kernels without a launch"),
    "negative_dims": (1, ""), "negative_dims_small": (1, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_given_cases(captures: Path, name: str) -> None:
    kernels, note = CASES[name]
    records = load_capture(captures / "cases/kineto" / f"{name}.json")
    assert int((records["kind"] == ActivityKind.KERNEL).sum()) == kernels and note in " ".join(records.messages())
    assert set(ops(records)) == ({"aten::add"} if "dims" in name else {"aten::mm"} if name != "mtia" else {""})
    overview = Overview(Frame(records))
    assert overview.division.count == 1 and 0 < overview.division.wall_ns <= 6_000_000
