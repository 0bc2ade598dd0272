"""pyprof.parse.sources.kineto.events: blocks, exact times, and text that is not quite JSON."""

import gzip
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyprof.errors import InputError
from pyprof.parse.sources.kineto.events import Event, decode_args, nanoseconds
from pyprof.parse.sources.kineto.ops import OpArgs
from pyprof.parse.sources.kineto.trace_file import TraceFile
from tests import examples

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ['},{"ph":', '}, {"name": "x', "}\n,\n{", '"traceEvents": [', "\\", '\\"', "]}"]
)
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | NAMES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.sampled_from("XMisf"),
            "cat": NAMES,
            "name": NAMES,
            "pid": st.integers(0, 9) | NAMES,
            "ts": st.integers(0, 99),
        },
        optional={"args": st.dictionaries(NAMES, VALUES, max_size=3), "tid": st.integers(0, 9)},
    ),
    max_size=12,
)


def fields(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(e.ph, e.cat, e.name, e.pid, e.tid, float(e.ts), float(e.dur), json.loads(bytes(e.args))) for e in events]


def plainly(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(e["ph"], e["cat"], e["name"], e["pid"], e.get("tid", -1), float(e["ts"]), 0.0, e.get("args", {})) for e in events]


def opened(path: Path, **options: int) -> TraceFile:
    return TraceFile(io.BufferedReader(io.BytesIO(path.read_bytes())), str(path), **options)


def all_of(file: TraceFile) -> list[Event]:
    """All events, with args that outlive the block."""
    found: list[Event] = []
    for block in file.blocks():
        for event in block:
            event.args = event.args.copy()
        found += block
    return found


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS, st.sampled_from([64, 200, 1000]), st.sampled_from([None, 2]), st.booleans(), st.booleans())
def test_blocks_of_any_size_give_what_the_json_module_gives(
    tmp_path: Path, events: list[dict[str, Any]], size: int, indent: int | None, packed: bool, ascii_: bool
) -> None:
    facts = {"schemaVersion": 1, "distributedInfo": {"rank": 3}}
    text = json.dumps({**facts, "traceEvents": events, "baseTimeNanoseconds": 7}, indent=indent, ensure_ascii=ascii_).encode()
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    file = opened(path, block_bytes=size)
    assert fields(all_of(file)) == plainly(events)
    assert (file.facts.distributedInfo, file.facts.baseTimeNanoseconds) == ({"rank": 3}, 7)


@given(st.integers(0, 1 << 52))
def test_times_relative_to_a_base_are_exact_as_floats(ns: int) -> None:
    text = f"{ns // 1000}.{ns % 1000:03d}"
    assert nanoseconds([float(text), Decimal(text)]).tolist() == [ns, ns]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1_600_000_000_000_000_000, 1_900_000_000_000_000_000), min_size=1, max_size=5), st.integers(0, 9))
def test_epoch_times_with_a_fraction_keep_their_nanoseconds(tmp_path: Path, times: list[int], tenth: int) -> None:
    """A float of epoch microseconds is good to a quarter of one."""
    texts = [f"{ns // 1000}.{ns % 1000:03d}" for ns in times]
    events = ",".join(f'{{"ph": "X", "cat": "c", "name": "n", "ts": {text}, "dur": 1.{tenth}}}' for text in texts)
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{events}]}}')
    found = all_of(opened(path))
    assert nanoseconds([e.ts for e in found]).tolist() == times
    assert nanoseconds([e.dur for e in found]).tolist() == [1000 + 100 * tenth] * len(times)


def test_whole_times() -> None:
    assert nanoseconds([1_661_203_462_598_738, 5]).tolist() == [1_661_203_462_598_738_000, 5000]
    assert nanoseconds([]).tolist() == []


CLEAN = '{"traceEvents": [\n  {\n    "ph": "X", "cat": "c", "name": "NAME", "pid": 1, "tid": 2, "ts": 3.5, "dur": 4,\n    "args": {"a": 1}\n  }]}'


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a\nb\tc\x01", "a\nb\tc\x01"),  # control characters as they are
        ("C:\\dir\\new\\_", "C:\\dir\new\\_"),  # stray backslashes; those that JSON knows mean what they mean
        ('a "quoted" b', 'a "quoted" b'),  # as Kineto wrote quotes until 2026
        ('f(1) #pyprof{"mod":"torch"}', 'f(1) #pyprof{"mod":"torch"}'),
        ('{"device": "cpu", "dtype": "float32"}(12): run', '{"device": "cpu", "dtype": "float32"}(12): run'),
        ("caf\udce9", "caf\ufffd"),  # a byte that is not UTF-8
    ],
)
@pytest.mark.parametrize("own_line", [False, True])
def test_names_that_are_not_quite_json(tmp_path: Path, written: str, meant: str, own_line: bool) -> None:
    text = CLEAN.replace(", ", ",\n    ") if own_line else CLEAN
    path = tmp_path / "t.json"
    path.write_bytes(text.replace("NAME", written).encode("utf-8", "surrogateescape"))
    assert fields(all_of(opened(path))) == [("X", "c", meant, 1, 2, 3.5, 4.0, {"a": 1})]


@pytest.mark.parametrize(
    ("find", "put", "args"),
    [
        (
            '{"a": 1}',
            '{"a": nan, "b": -inf, "c": "nan, inf,]", "d": NaN}',
            {"a": None, "b": None, "c": "nan, inf,]", "d": None},
        ),
        ("}]}", "},\n]}", {"a": 1}),
        ('"a": 1', '"a": 1,', {"a": 1}),
    ],
)
def test_values_that_are_not_quite_json(tmp_path: Path, find: str, put: str, args: dict[str, Any]) -> None:
    path = tmp_path / "t.json"
    path.write_text(CLEAN.replace(find, put))
    assert fields(all_of(opened(path))) == [("X", "c", "NAME", 1, 2, 3.5, 4.0, args)]


def test_one_bad_block_among_many(tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "c", "name": f"n{i}", "pid": 1, "tid": 1, "ts": i} for i in range(400)]
    text = json.dumps({"traceEvents": events}).replace("n200", "n200\n\\q")
    path = tmp_path / "t.json"
    path.write_text(text)
    file = opened(path, block_bytes=2000)
    assert [e.name for e in all_of(file)] == [f"n{i}" if i != 200 else "n200\n\\q" for i in range(400)]


def test_text_that_cannot_be_read(tmp_path: Path) -> None:
    events = ",".join(['{"ph": "X", "name": "n", "ts": 1}'] * 500)
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{events}, {{"ph": , }}, {events}]}}')
    for size in (1000, 1 << 20):
        with pytest.raises(InputError, match=r"not valid JSON \(expecting value\) at byte 17,02\d, line 1$"):
            all_of(opened(path, block_bytes=size))


def test_one_wrong_value_leaves_the_others_of_its_event(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    args = ['{"Sequence number": 5}', '{"Sequence number": "x", "Fwd thread id": "3"}', "{}"]
    path.write_text('{"traceEvents": [' + ",".join(f'{{"ph": "X", "args": {a}}}' for a in args) + "]}")
    found = decode_args(OpArgs, all_of(opened(path)))
    assert [(a.seq, a.fwd) for a in found] == [(5, 0), (-1, 3), (-1, 0)]


@pytest.mark.parametrize(
    "odd",
    [
        "\n" * 2_000_000,  # looked for a name at each line's begin, to the last line
        '"name": "x",' * 200_000,  # looked for the end of each name, to the end of the line
        '"' + '\\"' * 1_000_000,  # looked for the end of a string that never ends, from each quote in it
        '"' + " " * 30_000_000,  # kept a place to go back to for each character
    ],
    ids=["empty lines", "names without ends", "quotes", "one string"],
)
def test_damaged_text_is_gone_over_once(tmp_path: Path, odd: str) -> None:
    """Otherwise each of these takes hours, or the last one gigabytes."""
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": nan ' + odd)
    with pytest.raises(InputError, match="cut short before the end of the first event"):
        all_of(opened(path))


def test_an_event_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyprof.parse.sources.kineto.trace_file._MOST_EVENT_BYTES", 1 << 20)
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "' + "x" * 3_000_000 + '"}]}')
    with pytest.raises(InputError, match="one event of more than 1 MiB"):
        all_of(opened(path, block_bytes=1 << 16))
    assert len(all_of(opened(path, block_bytes=4 << 20))) == 1  # which is less than a block
