"""The parser on real captures: v100_lm field by field against the original PyProf, and the known facts of the others."""

import ast
import csv
import json
import sqlite3
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.loading.formats import op_rules
from pyprof.loading.load import load_capture, open_trace
from pyprof.model.markers import decode, is_backward_name, split_ids
from pyprof.model.trace import ActivityKind
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.records.netdict.write import lines
from tests.conftest import SHARED
from tests.given import slow


def _query(path: Path, sql: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return db.execute(sql, values).fetchall()


def _kernels(path: Path) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, lines(load_capture(path))) if row["kind"] == "kernel"]


def test_v100_lm_equals_the_original_field_by_field(captures: Path) -> None:
    ours = _kernels(captures / "nvprof/v100_lm/net.sql")
    theirs = [ast.literal_eval(line) for line in (captures / "nvprof/v100_lm/net.dict").read_text().splitlines()]
    assert len(ours) == len(theirs) == 160
    differs = defaultdict(list)
    for index, (own, original) in enumerate(zip(ours, theirs, strict=True)):
        for key, value in original.items():
            if own[key] != (list(value) if isinstance(value, tuple) else value):
                differs[key].append(index)
    # kLongName: the demangler differs. dir: kernels of the autograd thread outside of any XBackward range (accumulating
    # gradients, summing those of a bias), which the original calls fprop for want of "Backward" in their text.
    assert set(differs) == {"kLongName", "dir"}
    assert len(differs["kLongName"]) <= 25
    autograd = {row["tid"] for row in theirs if row["dir"] == "bprop"}
    assert len(autograd) == 1
    assert differs["dir"] == [i for i, r in enumerate(theirs) if r["tid"] in autograd and r["dir"] == "fprop"]
    assert len(differs["dir"]) == 24 and all(ours[i]["dir"] == "bprop" for i in differs["dir"])


def test_h100_two_processes(captures: Path) -> None:
    path = captures / "nsys/h100_2gpu_train.nsys2026.2.sqlite"
    rows = _kernels(path)
    assert len(rows) == 4010 and sum("launch" in row for row in rows) == 3986
    assert not [row for row in rows if row["dir"] == "bprop"]
    truth = {
        (pid >> 24 & 0xFFFFFF, corr, start): (device, thread & 0xFFFFFF if thread else "na")
        for pid, corr, start, device, thread in _query(
            path,
            "SELECT k.globalPid, k.correlationId, k.start, k.deviceId, r.globalTid FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
            "ON r.correlationId = k.correlationId AND (r.globalTid & ~16777215) = k.globalPid",
        )
    }
    assert len(truth) == 4010
    for row in rows:
        assert truth[(row["pid"], row["corr"], row["start"])] == (row["device"], row["tid"])


def test_a100_user_ranges_become_layers(captures: Path) -> None:
    rows = _kernels(captures / "nsys/a100_gpt2.7b.nsys2024.6.sqlite")
    assert len(rows) == 7328 and all(row["layer"] for row in rows)
    assert rows[0]["gpu"]["cc"] == "8.0" and rows[0]["gpu"]["sms"] == 108


def test_rtx3070ti_backward_thread_gets_its_ranges_by_time(captures: Path) -> None:
    rows = _kernels(captures / "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite")
    assert len(rows) == 17032
    by_time = [row for row in rows if row.get("byTime")]
    assert len(by_time) == 6135 and {row["layer"][-1] for row in by_time} == {"Backward"}
    assert all(row["layer"] for row in rows)


def _brute_force_stack(path: Path, end: int, thread: int, launch: int) -> list[str]:
    """Every closed range open on the launching thread at the launch, outermost first."""
    rows = _query(
        path,
        "SELECT coalesce(text, (SELECT value FROM StringIds WHERE id = textId)), start, end FROM NVTX_EVENTS "
        "WHERE eventType IN (59, 60) AND globalTid = ? AND start <= ? AND end > ? AND end < ? ORDER BY start, -end",
        thread,
        launch,
        launch,
        end,
    )
    return [row[0] for row in rows]


def test_h100_stacks_equal_brute_force(captures: Path) -> None:
    path = captures / "nsys/h100_2gpu_train.nsys2026.2.sqlite"
    end = _query(path, "SELECT max(duration) FROM ANALYSIS_DETAILS")[0][0]
    launches = _query(
        path,
        "SELECT k.globalPid, k.correlationId, r.globalTid, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND (r.globalTid & ~16777215) = k.globalPid",
    )
    rows = {(row["pid"], row["corr"]): row for row in _kernels(path)}
    for pid, corr, thread, launch in launches[:: len(launches) // 200]:
        stack = [split_ids(text) for text in _brute_force_stack(path, end, thread, launch)]
        row = rows[(pid >> 24 & 0xFFFFFF, corr)]
        numbered = sorted({(seq, text.partition(", sizes")[0]) for text, seq, _, _ in stack if seq >= 0})
        assert set(row["seqMarker"]) <= {f"{name}, seq = {seq}" for seq, name in numbered}
        ops = [text for text, _, _, keyed in stack if keyed and "::" in text]
        assert row.get("inner", "").split("(")[0].lstrip("~?") == (ops[-1].partition(", sizes")[0] if ops else "")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), marks=pytest.mark.slow),
        ("--processes", "3", "--row-order", "shuffled", "--orphans", "0.05", "--unfinished", "7"),
        pytest.param(("--markers", "emit", "--emit", "old"), marks=pytest.mark.slow),
        ("--markers", "emit", "--row-order", "shuffled"),
        ("--markers", "pyprof", "--processes", "2"),
    ],
    ids=" ".join,
)
def test_generated_captures_equal_their_truth(tmp_path: Path, options: tuple[str, ...]) -> None:
    tool = SHARED / "tools" / "gen_nsys.py"
    if not tool.exists():
        pytest.skip("needs ../shared/tools/gen_nsys.py beside the project, which is not there")
    capture, truth_file = tmp_path / "g.sqlite", tmp_path / "g.csv"
    arguments = ["--kernels", "2000", "--layers", "3", "--truth", str(truth_file), *options]
    subprocess.run([sys.executable, str(tool), str(capture), *arguments], check=True, capture_output=True)
    truth = {(int(p), int(c)): (h == "1", t) for p, c, h, t in list(csv.reader(truth_file.read_text().splitlines()))[1:]}
    trace = open_trace(capture)
    records = attribute(trace, op_rules())
    shown = records.select(records["kind"] == ActivityKind.KERNEL)
    rows = [json.loads(line) for line in lines(shown)]
    assert len(rows) == len(truth)
    for row in rows:
        launched, text = truth[((1 << 48) | (row["pid"] << 24), row["corr"])]
        assert ("launch" in row) == launched
        if not launched:
            continue
        bare, seq, _, keyed = split_ids(text)
        marker = decode(bare, keyed=keyed, numbered=seq >= 0)
        if marker.call is not None and marker.call.dispatcher:
            assert row["inner"].lstrip("~?").split("(")[0] == marker.call.name
            if seq >= 0:
                assert f"{marker.name}, seq = {seq}" in row["seqMarker"] or len(row["seqMarker"]) > 0
        elif marker.call is not None:
            assert row["marker"][-1] == text
        else:
            assert "call" not in row
    _check_forward(capture, rows)


def _check_forward(capture: Path, rows: list[dict[str, Any]]) -> None:
    """Each backward kernel's forward instance holds the range whose number its autograd function carries."""
    numbers: dict[tuple[int, int], set[str]] = defaultdict(set)
    for text, thread in _query(capture, "SELECT text, globalTid FROM NVTX_EVENTS WHERE text IS NOT NULL"):
        bare, seq, _, _ = split_ids(text)
        name = bare.partition(", sizes")[0]
        if seq >= 0 and not is_backward_name(name) and not text.startswith("autograd::"):
            numbers[(thread >> 24 & 0xFFFFFF, seq)].add(name)
    op_of = {(row["pid"], row["instance"]): row for row in rows if "instance" in row}
    checked = 0
    for row in rows:
        if row["dir"] != "bprop" or "fwd_instance" not in row:
            continue
        forward = op_of.get((row["pid"], row["fwd_instance"]))
        if forward is None:  # the forward op's only kernel lost its launch
            continue
        own = {name.partition(", seq")[0] for name in forward["seqMarker"]}
        assert own & numbers[(row["pid"], row["seqId"][0])]
        assert forward["call"] == row["call"] and row["seqId"][0] in (*forward["seqId"], *forward["altSeqId"])
        checked += 1
    backward = [row for row in rows if row["dir"] == "bprop" and "launch" in row and "inferred" not in row]
    assert checked >= 0.9 * len(backward)


@pytest.mark.parametrize("name", [*slow("h100_2gpu_train.nsys2026.2"), "cpu_emit_nvtx_torch2.13.nsys2023.4"])
def test_the_order_of_rows_changes_nothing(captures: Path, tmp_path: Path, name: str) -> None:
    source = captures / "nsys" / f"{name}.sqlite"
    shuffled = tmp_path / "shuffled.sqlite"
    shuffled.write_bytes(source.read_bytes())
    db = sqlite3.connect(shuffled)
    random = np.random.default_rng(3)
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        rows = db.execute(f'SELECT * FROM "{table}"').fetchall()
        if rows and table != "StringIds":
            db.execute(f'DELETE FROM "{table}"')
            holes = ",".join("?" * len(rows[0]))
            db.executemany(f'INSERT INTO "{table}" VALUES ({holes})', [rows[i] for i in random.permutation(len(rows))])
    db.commit()
    db.close()
    assert list(lines(load_capture(source))) == list(lines(load_capture(shuffled)))


def test_cpu_capture_gives_cpu_rows_and_decodes_every_line(captures: Path) -> None:
    path = captures / "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite"
    texts = [text for (text,) in _query(path, "SELECT text FROM NVTX_EVENTS WHERE eventType = 59")]
    kinds: dict[str, int] = defaultdict(int)
    for text in texts:
        bare, seq, op_id, keyed = split_ids(text)
        marker = decode(bare, keyed=keyed, numbered=seq >= 0)
        kinds[marker.kind.name] += 1
        assert keyed and op_id > 0 and text.startswith(bare.partition(", sizes")[0])
        if ", sizes = " in text:
            wanted = ast.literal_eval(text.partition(", sizes = ")[2].partition(", input_op_ids")[0])
            assert marker.call is not None
            assert [list(getattr(value, "shape", ())) for value in marker.call.args] == wanted
    assert dict(kinds) == {"DISPATCH": 109, "ENGINE": 14, "BACKWARD": 14, "USER": 1}
    rows = [json.loads(line) for line in lines(load_capture(path))]
    assert {row["kind"] for row in rows} == {"cpu"}
    by_name = {row["kLongName"]: row for row in rows}
    assert by_name["aten::mkldnn_convolution"]["call"].startswith("~?aten::conv2d(any[2,3,8,8], any[4,3,3,3], any[4]")
    assert by_name["aten::convolution_backward"]["call"].startswith("~?aten::conv2d(")
    mm = [row for row in rows if row["kLongName"] == "aten::mm"]
    assert [row["own"] for row in mm] == ["~?aten::mm(any[2,5], any[5,144])", "~?aten::mm(any[5,2], any[2,144])"]
    assert all(row["call"].startswith("~?aten::linear(") and row["dir"] == "bprop" for row in mm)


def test_cpu_edge_cases_keep_leaked_and_cross_thread_ranges_apart(captures: Path) -> None:
    trace = open_trace(captures / "nsys/cpu_nvtx_package_edge_cases.nsys2023.4.sqlite")
    names = [trace.markers[label].name for label in trace.ranges["label"].tolist()]
    free = {name for name, flag in zip(names, trace.ranges["free"].tolist(), strict=True) if flag}
    assert free == {"startend_A", "cross_thread", "never_ended"}
    from pyprof.parse.attribution.ranges import leaked

    assert {name for name, flag in zip(names, leaked(trace).tolist(), strict=True) if flag} == {"never_ended", "never_popped"}
    assert any(len(name) == 5000 for name in names) and any("✓" in name and "\n" in name for name in names)
