"""Parquet: every record comes back as it was, other programs read the columns, and what is not used is not read."""

import base64
import dataclasses
import importlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.errors import InputError, NotACapture
from pyprof.loading.load import load, load_capture
from pyprof.model.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec
from pyprof.model.records import COLUMNS, DIRECTIONS, PHASES, GpuInfo, MarkedStep, Records, Stack
from pyprof.model.trace import ActivityKind
from pyprof.parse.records import parquet
from pyprof.parse.records.netdict.write import lines
from pyprof.parse.records.parquet.stored import read_pool, stored_pool
from pyprof.prof.columns import COLUMNS as SHOWN
from pyprof.prof.frame import Frame
from tests.conftest import ROOT
from tests.given import records_of
from tests.tiny import Nsys

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
reader = importlib.import_module("pyprof.parse.records.parquet.reader")
writer = importlib.import_module("pyprof.parse.records.parquet.writer")
pq = importlib.import_module("pyarrow.parquet")

CAPTURES = [
    "nvprof/v100_lm/net.sql",
    "nsys/h100_2gpu_train.nsys2026.2.sqlite",
    "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite",
    "kineto/h100_vit.json.gz",
    "kineto/v100_dlrm_8ranks/worker3.pt.trace.json.gz",
]


def resolved(records: Records) -> dict[str, list[object]]:
    """Every column, with codes replaced by their values."""
    pools = {"name": records.strings.values, "gpu": records.gpus, "engine_step": records.engine_steps}
    pools |= dict.fromkeys(("stack", "scope"), records.stacks) | dict.fromkeys(("call", "own", "inner"), records.calls)
    shown: dict[str, list[object]] = {}
    for name in COLUMNS:
        codes = records[name].tolist()
        shown[name] = [None if c < 0 else pools[name][c] for c in codes] if name in pools else codes
    shown["numbers"] = [records.numbers(row) for row in range(len(records))]
    return shown


@pytest.mark.parametrize("name", CAPTURES)
def test_real_captures_come_back_as_they_were(captures: Path, tmp_path: Path, name: str) -> None:
    records = records_of(captures / name)
    path = tmp_path / "net.parquet"
    parquet.write(records, path)
    again = load(str(path))
    assert resolved(again) == resolved(records)
    assert {n: again[n].dtype for n in COLUMNS} == {n: np.dtype(dtype) for n, (dtype, _) in COLUMNS.items()}
    assert (again.counts, again.notes, again.source) == (records.counts, records.notes, records.source)
    assert list(lines(again)) == list(lines(records))
    frames = Frame(records), Frame(again)
    for column in SHOWN:
        assert column.texts(frames[0]) == column.texts(frames[1]), column.key


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
names = st.lists(texts, max_size=2).map(tuple)
stacks = st.builds(Stack, names, names, names, names, names, names, names, st.just(-1), names, st.booleans())
calls = st.builds(
    lambda op, shape: OpCall("torch", op, (TensorSpec(tuple(shape), "float16", None),)),
    st.sampled_from(["mm", "linear"]), st.lists(st.integers(0, 9), max_size=3),
)  # fmt: skip
times = st.integers(-1, 1 << 62)
engine_steps = st.builds(MarkedStep, times, times, times, times, names)
gpus = st.builds(GpuInfo, texts, st.none() | st.just((9, 0)), st.integers(-1, 200))


@st.composite
def some_records(draw: st.DrawFn) -> Records:
    rows = draw(st.integers(0, 6))
    out = Records(
        {}, stacks=draw(st.lists(stacks, min_size=1, max_size=4)), calls=draw(st.lists(calls, max_size=3)),
        gpus=draw(st.lists(gpus, max_size=2)), engine_steps=draw(st.lists(engine_steps, max_size=2)), notes=draw(st.lists(texts, max_size=2)), source="nsys",
    )  # fmt: skip
    for text in draw(st.lists(texts, max_size=3)):
        out.strings.code(text)
    pools = {"name": len(out.strings), "gpu": len(out.gpus), "stack": len(out.stacks), "scope": len(out.stacks)}
    pools |= {"engine_step": len(out.engine_steps)} | dict.fromkeys(("call", "own", "inner"), len(out.calls))
    spelled = {"kind": len(ActivityKind.NAMES), "dir": len(DIRECTIONS), "phase": len(PHASES), "copykind": 128}
    for name, (dtype, _) in COLUMNS.items():
        limits = np.iinfo(dtype)
        low, high = -1, (pools | spelled).get(name, int(limits.max) + 1) - 1
        low = 0 if name in spelled or name in ("stack", "scope") else low
        if name not in pools and name not in spelled:
            low = int(limits.min)
        if name in ("instance", "fwd_instance"):
            high = 1 << 62
        out.columns[name] = np.array(draw(st.lists(st.integers(low, high), min_size=rows, max_size=rows)), dtype)
    numbers = draw(st.lists(st.lists(st.integers(0, 1 << 62), max_size=3), min_size=rows, max_size=rows))
    out.seq_offsets = np.cumsum([0, *map(len, numbers)])
    out.seq_numbers = np.array([n for some in numbers for n in some], np.int64)
    return out


def test_a_call_with_every_kind_of_argument_comes_back() -> None:
    half = TensorSpec((2, 3), "float16", (3, 1), True)
    args = (
        half, TensorSpec((), None, None), TensorSpec((4, 4), "int64", (1, 4)), [half, (half,), []], (), (1,), [1, [2.5, (None,)]],
        True, False, None, -7, 1 << 80, 1.5, float("inf"), -1e-30, complex(1, -2), 'a "text"\n\u00e9', "", DTypeArg("bfloat16"),
        slice(None, 3, -1), slice(2, None), ..., UNKNOWN,
    )  # fmt: skip
    pool = [
        OpCall("torch", "f", args, (("out", half), ("dim", (0, 1)))),
        OpCall("aten", "mm", (TensorSpec((2, 3), "float16", (3, 1)),), dispatcher=True, flat=True),
        OpCall("a::b", "f(x).y", described=False),
        OpCall("~?", '"quoted"', (), (), dispatcher=True),
    ]
    assert read_pool("calls", stored_pool(pool)) == pool
    (nan,) = read_pool("calls", stored_pool([OpCall("torch", "f", (float("nan"),))]))
    assert np.isnan(nan.args[0])


def test_pools_are_stored_as_earlier_files_have_them() -> None:
    """Objects with all their fields by name, as readers of the same schema version expect."""
    kept = {
        "gpus": [GpuInfo("A100", (8, 0))],
        "stacks": [Stack(("linear",), ("torch",), layer=("block",), seq_names=("aten::mm",), backward_at=0)],
        "engine_steps": [MarkedStep(7, 0, 10, 20, ("execute_1_2",))],
    }
    for pool, items in kept.items():
        plain = json.loads(zlib.decompress(base64.b64decode(stored_pool(items))))
        fields = [field.name for field in dataclasses.fields(type(items[0]))]
        assert [list(one) for one in plain] == [fields]
        assert read_pool(pool, stored_pool(items)) == items
    gpu = json.loads(zlib.decompress(base64.b64decode(stored_pool(kept["gpus"]))))[0]
    assert (gpu["name"], gpu["cc"], gpu["sms"]) == ("A100", [8, 0], -1)


@given(some_records(), st.integers(1, 4))
def test_any_records_come_back(tmp_path_factory: pytest.TempPathFactory, records: Records, group: int) -> None:
    path = tmp_path_factory.mktemp("p") / "any.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_ROWS", group)  # several groups of rows
        parquet.write(records, path)
    again = parquet.read(path)
    assert resolved(again) == resolved(records) and again.notes == records.notes
    rows = np.arange(len(records))[::2]
    assert resolved(again.select(rows).select(rows[: len(rows)] // 2)) == resolved(records.select(rows).select(rows // 2))


def test_the_command_writes_all_kinds_and_prof_shows_the_same(
    captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture, path = str(captures / CAPTURES[1]), tmp_path / "net.parquet"
    assert main(["parse", capture, "-o", str(path)]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["net.parquet"]
    table = pa.parquet.read_table(path)
    assert {"memcpy", "memset"} <= set(table["kind"].to_pylist()) and table["rank"].null_count == len(table)
    shown = []
    for file in (capture, str(path)):
        capsys.readouterr()
        assert main(["prof", file, "--csv", "-c", ",".join(c.key for c in SHOWN)]) == 0
        shown.append(capsys.readouterr())
    assert shown[0] == shown[1]


def test_columns_that_are_not_printed_are_not_read(captures: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.parquet"
    parquet.write(records_of(captures / CAPTURES[0]), path)
    records = load(str(path))
    assert len(records) and records["dur_ns"].sum() > 0
    assert isinstance(records, reader._Stored) and set(records.columns) == {"dur_ns"}


def test_other_files_are_named(captures: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pa.parquet.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(NotACapture, match="not of records"):
        load(str(other))
    whole = tmp_path / "whole.parquet"
    parquet.write(records_of(captures / CAPTURES[0]), whole)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:5000])
    with pytest.raises(InputError, match="cannot be read"):
        load(str(cut))
    table = pa.parquet.read_table(whole)
    facts = json.loads(table.schema.metadata[b"pyprof"]) | {"version": 99}
    pa.parquet.write_table(table.replace_schema_metadata({b"pyprof": json.dumps(facts).encode()}), other)
    with pytest.raises(InputError, match="schema version 99; this pyprof reads version 5"):
        load(str(other))


def test_replaced_ops_survive_select(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, seq = 10, op_id = 9, sizes = [[4, 2], [2, 8]]", 10, 50)
    for at in (20, 30, 40):
        n.kernel(f"k{at}", at, at + 100, at + 105)
    records = load_capture(n.write(tmp_path / "n.sqlite"))
    parquet.write(records, tmp_path / "n.parquet")
    stored = parquet.read(tmp_path / "n.parquet")
    calls = [*stored.calls, OpCall("my", "op")]
    changed = stored.select(np.array([0, 2])).with_ops({"call": np.array([0, 1], np.int32)}, calls)
    chosen = changed.select(np.array([False, True]))
    assert (chosen["call"].tolist(), chosen.calls[1].op, chosen["own"].tolist()) == ([1], "op", [0])
    assert [chosen.strings[code] for code in chosen["name"].tolist()] == ["k40"]
    assert [stored.calls[code].op for code in stored["call"].tolist()] == ["mm"] * 3


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    n = Nsys()
    for i in range(3):
        n.range(f"aten::mm, seq = {i}, op_id = {i}, sizes = [[4, 2], [2, 8]]", 100 * i, 100 * i + 90)
        n.kernel("k", 100 * i + 5, 100 * i + 200, 100 * i + 210)
    parquet.write(load_capture(n.write(tmp_path / "n.sqlite")), tmp_path / "n.parquet")
    return tmp_path / "n.parquet"


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The error of every command that reads the whole file: one line and a hint."""
    said = set()
    for words in (["prof", str(path), "--csv", "-c", ",".join(column.key for column in SHOWN)], ["summary", str(path)]):
        assert main(words) == 1, words
        out, err = capsys.readouterr()
        first, hint = err.splitlines()
        assert out == "" and first.startswith(f"pyprof: error: {path}: ") and hint.startswith("hint: ")
        said.add(first)
    assert len(said) == 1
    return said.pop()


def test_columns_that_are_missing_or_of_another_type_are_named(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.parquet.ParquetFile(stored).read()
    for at, name in enumerate(table.schema.names):
        pa.parquet.write_table(table.drop_columns([name]), stored)
        assert refused(stored, capsys).endswith(f"it has no column '{name}'")
        if at % 2:
            continue
        odd = (["a"], [1.5], [None], [[1]], [True], [2**64 - 1])[at // 2 % 6]
        other = pa.array(odd * len(table), pa.uint64() if odd[0] == 2**64 - 1 else None)
        pa.parquet.write_table(table.set_column(at, name, other), stored)
        if other.type != table.schema.types[at]:
            said = refused(stored, capsys).replace("list<element: ", "list<item: ")
            assert f"its column '{name}' is {other.type}, not " in said


@pytest.mark.parametrize(("name", "text"), [("kind", "kernal"), ("dir", ""), ("phase", "sideways"), ("copykind", "14")])
def test_texts_that_parse_does_not_write_are_named(
    stored: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    table = pa.parquet.ParquetFile(stored).read()
    column = pa.array([text] * len(table)).dictionary_encode()
    pa.parquet.write_table(table.set_column(table.schema.get_field_index(name), name, column), stored)
    path = ["prof", str(stored), "--csv", "-c", ",".join(column.key for column in SHOWN)]
    assert main(path) == 1
    assert f"its column '{name}' holds an unknown text\nhint: " in capsys.readouterr().err


def _damaged(stored: bytes) -> bytes:
    data = bytearray(base64.b64decode(stored))
    data[len(data) // 2] ^= 1
    return base64.b64encode(data)


def _pool(text: str) -> bytes:
    """A pool of any content with a correct checksum."""
    return base64.b64encode(zlib.compress(text.encode()))


@pytest.mark.parametrize(
    ("pool", "change"),
    [
        ("stacks", _damaged), ("calls", _damaged), ("stacks", lambda _: b"{"), ("stacks", lambda _: b""), ("calls", lambda _: b"AAAA" * 9),
        ("calls", lambda stored: stored[:20]), ("stacks", lambda _: _pool("[" * 100_000)), ("stacks", lambda _: _pool('[{"mod": "a"}]')),
        ("stacks", lambda _: _pool('[{"mod": ["a", 3]}]')), ("stacks", lambda _: _pool('[{"backward_at": 3}]')),
        ("stacks", lambda _: _pool('{"mod": []}')), ("stacks", lambda _: _pool("[3]")),
        *(("calls", lambda _, text=text: _pool(text)) for text in ("[1]", "[[]]", "{}", "[null]", '["torch.mm()"', "[]")),
    ],
)  # fmt: skip
def test_pools_that_parse_does_not_write_are_named(
    stored: Path, capsys: pytest.CaptureFixture[str], pool: str, change: Callable[[bytes], bytes]
) -> None:
    table = pa.parquet.ParquetFile(stored).read()
    metadata = table.schema.metadata
    key = f"pyprof.{pool}".encode()
    pa.parquet.write_table(table.replace_schema_metadata(metadata | {key: change(metadata[key])}), stored)
    words = ["prof", str(stored), "--csv", "-c", ",".join(column.key for column in SHOWN)]
    assert main(words) == 1
    first, hint = capsys.readouterr().err.splitlines()
    assert pool in first and first.startswith(f"pyprof: error: {stored}: ") and hint.startswith("hint: ")
    pa.parquet.write_table(table.replace_schema_metadata({k: v for k, v in metadata.items() if k != key}), stored)
    assert main(words) == 1 and f"its {pool} cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "facts",
    [
        "{", "3", "[]", "{}", '{"version": 1}', '{"version": 2}', '{"version": 3, "source": 3, "counts": {}, "notes": [], "utc_ns": 0}',
        '{"version": 3}', '{"version": 3, "source": "", "counts": [], "notes": [], "utc_ns": 0}',
        '{"version": 3, "source": "", "counts": {"a": "b"}, "notes": [], "utc_ns": 0}',
        '{"version": 3, "source": "", "counts": {}, "notes": [1], "utc_ns": 0}',
        '{"version": 3, "source": "", "counts": {}, "notes": [], "utc_ns": 0, "x": 1}',
        '{"version": 3, "source": "", "counts": {}, "notes": [], "utc_ns": 1180591620717411303424}', "[" * 100_000,
    ],
)  # fmt: skip
def test_metadata_that_parse_does_not_write_is_refused(stored: Path, capsys: pytest.CaptureFixture[str], facts: str) -> None:
    table = pa.parquet.ParquetFile(stored).read().replace_schema_metadata({b"pyprof": facts.encode()})
    pa.parquet.write_table(table, stored)
    said = refused(stored, capsys)
    assert "its metadata" in said or "records of schema version" in said


def test_a_byte_changed_on_the_way_is_never_a_wrong_number(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages have checksums: bytes all over what is before the footer are tried."""
    words = ["prof", str(stored), "--csv", "--kinds", "all", "-c", ",".join(column.key for column in SHOWN)]
    assert main(words) == 0
    told, whole = capsys.readouterr().out, stored.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for at in range(4, footer, 61):
        stored.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        code = main(words)
        out, err = capsys.readouterr()
        assert (code, out) == (0, told) or (code == 1 and out == "" and err.count("\n") == 2), f"byte {at}"


def test_one_execution_with_a_very_large_number_takes_no_memory(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["prof", str(stored), "--csv", "-c", "sil,flops,tflops,gbs,peak,lost"]
    assert main(words) == 0
    told = capsys.readouterr().out
    table = pa.parquet.ParquetFile(stored).read()
    numbers = pa.array([1 << 62, 5, 7])
    pa.parquet.write_table(table.set_column(table.schema.get_field_index("instance"), "instance", numbers), stored)
    assert main(words) == 0
    assert capsys.readouterr().out == told and told.count("\n") == 4
    numbers = pa.array([(1 << 63) - 1, 5, 7])
    pa.parquet.write_table(table.set_column(table.schema.get_field_index("instance"), "instance", numbers), stored)
    assert "'instance' has numbers beyond any count of calls" in refused(stored, capsys)


def test_a_damaged_column_name_is_reported(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = stored.read_bytes()
    stored.write_bytes(whole.replace(b"by_time", b"by_ti\xede"))
    assert "cannot be read: " in refused(stored, capsys)


@pytest.mark.parametrize("code", [-1, 7])
def test_texts_beyond_the_dictionary_are_named(
    stored: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A damaged page of texts can hold fewer than it did."""
    broken = pa.DictionaryArray.from_arrays(pa.array([code] * 3, pa.int32()), pa.array(["a"]), safe=False)
    monkeypatch.setattr(reader._File, "_chunks", lambda store, name, groups: [broken])
    with pytest.raises(InputError, match="texts beyond its dictionary"):
        parquet.read(stored)["name"]


def test_two_columns_of_one_name_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "net.parquet"
    parquet.write(load_capture(ROOT / "tests/data/nsys_ops.sqlite"), file)
    whole = pq.read_table(file)
    pq.write_table(whole.append_column(whole.schema.field("rank"), whole.column("rank")), file)
    assert main(["prof", str(file), "--csv"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "rank" in lines[0] and lines[0].startswith("pyprof: error: ") and lines[1].startswith("hint: ")
