"""Texts, lines and cells that nobody wrote for us: each is read as what it can be, counted or refused in one line, never a traceback."""

import io
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.errors import PyprofError
from pyprof.loading.formats import op_rules
from pyprof.loading.load import load, load_capture
from pyprof.model.calltext import call_text, parse_call_text
from pyprof.model.markers import Kind, decode, split_ids
from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec, parse_call
from pyprof.model.records import Records
from pyprof.parse.records.netdict.read import read_lines
from pyprof.parse.records.netdict.write import lines
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame
from tests import examples
from tests.test_loading import torch_trace
from tests.tiny import SCHEMA, Nsys

GEMM = "ampere_sgemm_128x64_tn"
TENSOR = "{'name': '', 'type': 'tensor', 'shape': (4, 8), 'dtype': 'float32'}"


def _legacy(args: str) -> str:
    return "{'mod': 'torch', 'op': 'add', 'args': [" + args + "]}"


USERS = {
    "keys that cannot be hashed": "{[1]: 2}",
    "dicts in dicts": "{{}: 1}",
    "a step without end": 'x #pyprof{"step":Infinity}',
    "a step beyond 31 bits": 'x #pyprof{"step":2147483648}',
    "a step that is none": 'x #pyprof{"step":NaN}',
    "a step before the first": 'x #pyprof{"step":-3}',
    "ProfilerStep beyond 31 bits": "ProfilerStep#99999999999999999999",
    "ProfilerStep of 5000 digits": "ProfilerStep#" + "9" * 5000,
    "a module that is a list": 'f(fp32[4]) #pyprof{"mod":[1]}',
    "a module that is null": 'f(fp32[4]) #pyprof{"mod":null}',
    "lists too deep": "f(" + "[" * 65 + "]" * 65 + ') #pyprof{"mod":"torch"}',
    "lists far too deep": "f(" + "[" * 5000 + "]" * 5000 + ') #pyprof{"mod":"torch"}',
    "deep JSON": 'f() #pyprof{"mod":"torch","src":' + "[" * 20000 + "]" * 20000 + "}",
    "deep literal": "{'mod': " + "[" * 5000 + "]" * 5000 + "}",
    "a size below 0": 'f(fp32[-4,8]) #pyprof{"mod":"torch"}',
    "a size beyond 62 bits": 'f(fp32[4611686018427387904]) #pyprof{"mod":"torch"}',
    "a number of 5000 digits": "f(" + "9" * 5000 + ') #pyprof{"mod":"torch"}',
    "an escape that Python does not know": "{'a': '\\d'}",
    "a legacy module that is a number": "{'mod': 1, 'op': 'add', 'args': []}",
}


@pytest.mark.parametrize("name", USERS)
def test_a_text_that_only_looks_like_ours_is_a_range_of_the_users(name: str) -> None:
    marker = decode(USERS[name])
    assert (marker.kind, marker.name, marker.call) == (Kind.USER, USERS[name], None)


def test_what_can_be_read_of_a_damaged_text_is_kept() -> None:
    spec = TensorSpec((8, 2))
    for sizes, args in {"[[1 2], [8, 2]]": (UNKNOWN, spec), "[[-], [8, 2]]": (UNKNOWN, spec), "[[1,,2]]": (UNKNOWN,),
                        f"[[{'9' * 5000}], [8, 2]]": (UNKNOWN, spec), "[[-4, 8], [8, 2]]": (UNKNOWN, spec)}.items():  # fmt: skip
        call = decode(f"aten::mm, sizes = {sizes}", keyed=True).call
        assert call is not None and (call.op, call.args) == ("mm", args)
    for shape in ("('a',)", "(None,)", "(1.5,)", "(-3, -4)", "(10**3,)"):
        marker = decode(_legacy("{'name': '', 'type': 'tensor', 'shape': " + shape + ", 'dtype': 'float32'}, " + TENSOR))
        if marker.call is not None:
            assert marker.call.args == (UNKNOWN, TensorSpec((4, 8), "float32"))
        else:
            assert marker.kind == Kind.USER
    for value in ("{1, 2}", "b'ab'", "{'a': 1}", "[" * 70 + "]" * 70, "1" * 4000):
        marker = decode(_legacy("{'name': 'a b', 'type': 'x', 'value': " + value + "}, " + TENSOR))
        assert marker.call is not None and format(marker.call).startswith("add(") and marker.call.kwargs == ()
    assert decode(_legacy("{'name': '', 'type': 'str', 'value': '\\ud800'}")).call == OpCall("torch", "add", ("?",), flat=True)


def test_numbers_of_emit_nvtx_beyond_62_bits_are_none() -> None:
    for digits in ("18446744073709551615", "9" * 5000, "-5", str(1 << 62)):
        assert split_ids(f"aten::mm, seq = {digits}")[1] == -1
    assert split_ids("aten::mm, seq = 1, op_id = " + "9" * 5000) == ("aten::mm", 1, -1, True)
    assert split_ids(f"aten::mm, seq = {(1 << 62) - 1}, op_id = 7") == ("aten::mm", (1 << 62) - 1, 7, True)


def test_a_cpp_function_keeps_the_namespaces_of_its_arguments() -> None:
    marker = decode("torch::autograd::CppNode<(anonymous namespace)::Foo>", keyed=True, numbered=True)
    assert marker.kind == Kind.BACKWARD and marker.call is not None
    assert marker.call.op == "CppNode<(anonymous namespace)::Foo>"
    assert parse_call_text(call_text(marker.call)) == marker.call


@pytest.mark.parametrize("unit", ["1.1.", "1", "(1", "-1+", "1e", "infinf"])
def test_long_texts_are_refused_without_going_over_them_again_and_again(unit: str) -> None:
    with pytest.raises(ValueError):  # in time that grows with the square of the length this would take many minutes
        parse_call("f(" + unit * 100_000, "torch")


NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        ["ops.aten.add", "a::b", "f(x)", "~torch", "?a", "", " a b ", '"q"', 'x"y', "(anonymous namespace)::F", "a\nb"]
    ),
)


@settings(deadline=None)
@given(NAMES, NAMES, st.booleans(), st.booleans(), st.booleans())
def test_every_name_of_an_op_survives_its_text(module: str, op: str, dispatcher: bool, flat: bool, described: bool) -> None:
    args = (TensorSpec((2, 3), "float32", (3, 1)),) if described else ()
    call = OpCall(module, op, args, dispatcher=dispatcher, flat=flat and described, described=described)
    assert parse_call_text(call_text(call)) == call


_PIECES = st.sampled_from(
    ["aten::mm", ", seq = ", ", op_id = ", ", sizes = [[", "]]", "[", "]", "(", ")", "{", "}", "'mod': ", "'op': ", "'args': ", "'type': 'tensor'",
     "'shape': ", "'dtype': 'float32'", "'traceMarker': ", "fp32[", "{1,", "^", "#pyprof{", ' #pyprof{"mod":', ' #pyprof{"layer":', ' #pyprof{"step":',
     '"torch"', "Backward0", "ProfilerStep#", "Optimizer.step#", "layer:", "torch::autograd::CppNode<", ">", "9" * 30, "-", "1e999", "NaN", "inf", "nan",
     "None", "\\ud800", "\\", '"', "'", ",", " ", ":", "..", "?", "=", "~", "\x00", "\n", "j", "+"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=40), st.lists(st.one_of(_PIECES, st.text(max_size=4)), max_size=14).map("".join))


@settings(max_examples=examples(120), deadline=None)
@given(TEXTS)
def test_any_text_means_something_and_reads_back(text: str) -> None:
    bare, seq, op_id, keyed = split_ids(text)
    assert -1 <= seq < 1 << 62 and -1 <= op_id < 1 << 62
    marker = decode(bare, keyed=keyed, numbered=seq >= 0)
    marker.text.encode()
    marker.name.encode()
    if marker.call is not None:
        again = parse_call_text(call_text(marker.call))
        assert (again.module, again.op, again.described) == (marker.call.module, marker.call.op, marker.call.described)
        assert call_text(again) == call_text(marker.call)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(max_size=20) | TEXTS, min_size=1, max_size=4))
def test_any_texts_on_a_stack_give_a_table_and_lines_that_read_back(tmp_path: Path, texts: list[str]) -> None:
    n = Nsys()
    for depth, text in enumerate(texts):
        n.range(text.encode("utf-8", "replace").decode(), 10 + depth, 500 - depth, registered=bool(depth % 2))
    n.kernel(GEMM, 100, 1000, 1100)
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    written = list(lines(records))
    again = read_lines(written, "x", op_rules())
    assert list(lines(again)) == written and _table(again) == _table(records)


def _table(records: Records) -> list[list[str]]:
    table = [column.texts(Frame(records)) for column in COLUMNS]
    for texts in table:
        "".join(texts).encode()
    return table


RECORD: dict[str, Any] = {
    "kShortName": "a", "kDuration": 1, "layer": [], "trace": [], "reprMarkers": [], "marker": [], "seqMarker": ["aten::mm, seq = 3"],
    "seqId": [3], "subSeqId": 0, "altSeqId": [], "dir": "fprop", "mod": ["na"], "op": ["mm"], "tid": 5, "device": 0, "stream": 7,
    "grid": [1, 1, 1], "block": [1, 1, 1], "kLongName": "a",
}  # fmt: skip
OURS: dict[str, Any] = RECORD | {
    "kind": "kernel", "phase": "forward", "start": 1, "pid": 3, "corr": 4, "launch": 0, "instance": 0, "inner": "aten::mm(...)",
    "call": "~?aten::mm(any[4,2], any[2,8])", "own": "aten::mm(...)", "opLayer": ["x"], "opTrace": [], "ranges": ["r"], "open": 1,
    "gpu": {"name": "A100", "cc": "8.0", "sms": 108}, "fwd_instance": 2, "step": 1, "regs": 3, "smem": 4, "bytes": 3,
    "graph_node": 4, "rank": 0, "copykind": "HtoD", "byTime": 1,
}  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.lists(st.integers() | st.text(max_size=3), max_size=3),
    st.sampled_from([10**30, 2**63 - 1, 2**62, 2**40, -(2**63), "\ud800", ["\ud800"], {}, {"a": 1}, [[1]], "[" * 600, "f(" + "[" * 600, [10**30, 1, 1],
                     "aten::mm(fp32[-4,5], fp32[5,-8])", ["x, seq = " + "9" * 30], ["x, seq = y"], {"name": 5, "cc": "8.0.1", "sms": 10**30}, "9" * 5000]),
)  # fmt: skip


@settings(max_examples=examples(120), deadline=None)
@given(st.sampled_from([RECORD, OURS]), st.sampled_from(sorted(OURS)), ODD, st.booleans())
def test_any_value_in_a_record_is_read_or_refused_by_number(
    record: dict[str, Any], key: str, value: Any, as_json: bool
) -> None:
    changed = record | {key: value}
    line = json.dumps(changed) if as_json else repr(changed)
    try:
        records = read_lines([line + "\n"], "net.dict", op_rules())
    except PyprofError as error:
        assert "line 1 is" in str(error) and error.hint
    else:
        left_out = int(key == "kDuration" and bool(records.notes))
        assert all(len(texts) == 1 - left_out for texts in _table(records))
        list(lines(records))


@pytest.mark.parametrize(
    "line",
    ["{[]: 1}", "{'kShortName': {[]: 1}}", "(" * 100_000, "[" * 100_000, "{'a':" * 100_000, "-" * 100_000 + "1", "1" * 5000, "'\\d'",
     '{"kShortName": ' + "1" * 5000 + "}", "b'x'", "1+1j", "{'kShortName': 'a', **{}}", "f'{x}'", "{1}", "\x00",
     "{'kShortName': 'a'", "not a record", "[1, 2]", '{"a": 1}', "__import__('os').abort()", '{"kShortName": "a", "kDuration": "x", "dir": "fprop"}'],
)  # fmt: skip
def test_a_line_that_is_no_record_is_named_by_number(line: str) -> None:
    with pytest.raises(PyprofError, match="line 1 is"):
        read_lines([line + "\n"], "net.dict", op_rules())


def test_a_value_nested_without_end_is_named_by_its_line() -> None:
    damaged = json.dumps(OURS)[:-1] + ', "new": ' + "[" * 100_000 + "]" * 100_000 + "}\n"
    with pytest.raises(PyprofError, match="line 2 is"):
        read_lines([json.dumps(OURS) + "\n", damaged], "net.dict", op_rules())


def test_a_number_beyond_its_column_is_unknown_and_never_another() -> None:
    records = read_lines([json.dumps(OURS | {"device": 2**40, "step": 2**33 + 5}) + "\n"], "net.dict", op_rules())
    assert (records["device"][0], records["step"][0], records["stream"][0]) == (-1, -1, 7)


def test_numbers_of_instances_without_measure_are_numbered_anew_in_their_order() -> None:
    written = [json.dumps(OURS | {"instance": i, "fwd_instance": f}) + "\n" for i, f in ((2**40, 7), (7, -1), (2**61, 2**40))]
    records = read_lines(written, "net.dict", op_rules())
    assert (records["instance"].tolist(), records["fwd_instance"].tolist()) == ([1, 0, 2], [0, -1, 1])
    assert len(_table(records)[0]) == 3


_LOOSE = {name: ", ".join(column.split()[0] for column in columns.split(", ")) for name, columns in SCHEMA.items()}
_CELLS = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.binary(max_size=8),
    st.sampled_from(["", "abc", "12", "9" * 5000, 1.5, float("inf"), b"\xff\xfe", 2**31, 2**40]),
)  # fmt: skip


def _capture() -> Nsys:
    n = Nsys()
    n.range("aten::linear, seq = 5, op_id = 1, sizes = [[4, 8], [2, 8], []]", 10, 40)
    n.kernel(GEMM, 20, 1000, 1100)
    n.range("AddmmBackward0, seq = 5, op_id = 4, sizes = [[4, 2]]", 50, 90, thread=8)
    n.kernel(GEMM, 60, 1100, 1200, thread=8)
    n.range("mine", 6, 500, event=60, domain=3, registered=True)
    n.rows["NVTX_EVENTS"].append((1, None, 75, "domain", (1 << 48) | (7 << 24) | 7, None, 3))
    n.rows["CUDA_GRAPH_NODE_EVENTS"].append((20, 21, (1 << 48) | (7 << 24) | 7, 500, None))
    n.kernel("g", 25, 1300, 1400, node=500)
    n.copy(2, 200, 1500, 1510)
    n.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append((500, 600, 0, 7, 41, (1 << 48) | (7 << 24), 3))
    n.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100", 0, 108, 8, 0))
    return n


@settings(max_examples=examples(250), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
@pytest.mark.slow
def test_any_cell_may_hold_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    monkeypatch.setattr("tests.tiny.SCHEMA", _LOOSE)
    changes = []
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(_LOOSE)))
        column, row = data.draw(st.sampled_from(_LOOSE[name].split(", "))), data.draw(st.integers(1, 4))
        changes.append((f"UPDATE {name} SET {column} = ? WHERE rowid = {row}", data.draw(_CELLS)))
    path = _capture().write(tmp_path / "net.sqlite")
    db = sqlite3.connect(path)
    for sql, value in changes:
        db.execute(sql, (value,))
    db.commit()
    db.close()
    try:
        records = load_capture(path)
    except PyprofError as error:
        assert error.hint
        return
    written = list(lines(records))
    assert len(written) == len(_table(records)[0]) and list(lines(read_lines(written, "x", op_rules()))) == written


def test_a_range_without_a_readable_time_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _capture().write(tmp_path / "net.sqlite")
    db = sqlite3.connect(path)
    db.execute("UPDATE NVTX_EVENTS SET globalTid = 1.5 WHERE rowid = 1")
    db.commit()
    db.close()
    assert main(["prof", str(path), "-c", "op"]) == 0
    assert "or no thread: 1 of the ranges, ops and calls" in capsys.readouterr().err


def _written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, str, str]:
    path = _capture().write(tmp_path / "net.sqlite")
    assert main(["parse", str(path)]) == 0
    text = capsys.readouterr().out
    assert main(["prof", str(path), "-c", "idx,op,sil"]) == 0
    return path, text, capsys.readouterr().out


def test_a_file_is_what_it_holds_whatever_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, text, table = _written(tmp_path, capsys)
    shuffled = "".join(json.dumps(dict(sorted(json.loads(line).items()))) + "\n" for line in text.splitlines())
    files = {
        "capture.dict": path.read_bytes(),
        "sorted.jsonl": shuffled.encode(),
        "sorted": shuffled.encode(),
        "sorted.json": b"\n \n" + shuffled.encode(),
        "mark.dict": b"\xef\xbb\xbf" + text.encode(),
        "mark.txt": b"\xef\xbb\xbf\r\n" + text.replace("\n", "\r\n").encode(),
        "wide.txt": text.encode("utf-16"),
        "python.sqlite": "".join(repr(json.loads(line)) + "\n\n" for line in text.splitlines()).encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert main(["prof", str(tmp_path / name), "-c", "idx,op,sil"]) == 0, name
        assert capsys.readouterr().out == table, name


def test_standard_input_is_read_as_a_file_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text, table = _written(tmp_path, capsys)
    for content in (
        text.encode(),
        b"\xef\xbb\xbf" + text.encode(),
        text.encode("utf-16"),
        text.encode().replace(b"mine", b"\xff"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)), encoding="ascii"))  # type: ignore[type-var]
        assert main(["prof", "-c", "idx,op,sil"]) == 0
        assert capsys.readouterr().out == table


def test_a_terminal_of_another_encoding_gets_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = Nsys()
    n.range("layer:é\u3000\U0001f680", 10, 500)
    n.kernel(GEMM, 100, 1000, 1100)
    path = n.write(tmp_path / "net.sqlite")
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    assert main(["prof", str(path), "--csv", "-c", "layer"]) == 0
    assert raw.getvalue() == "Layer\r\né\u3000\U0001f680\r\n".encode()


def test_a_kernel_without_a_name_and_a_device_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    n.kernel("", 20, 100, 100)
    n.rows["TARGET_INFO_GPU"].append((0, None, 0, 108, 8, 0))
    path = n.write(tmp_path / "net.sqlite")
    assert main(["prof", str(path), "-c", "kernel,name,sil"]) == 0
    assert capsys.readouterr().out == "Kernel Name Sil(ns)\nna na 0\n"
    (gpu,) = load(str(path)).gpus
    assert gpu.name == ""


def test_where_to_write_is_looked_at_before_the_work_and_nothing_is_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "no.sqlite"
    (tmp_path / "out.dict").mkdir()
    for target, code, said in (
        ("out.dict", 1, "is a directory"),
        ("x.txt", 2, "unknown format"),
        ("a/b.dict", 1, "no directory"),
    ):
        assert main(["parse", str(missing), "-o", str(tmp_path / target)]) == code
        assert said in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["out.dict"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A capture, its lines and a small trace of torch.profiler, unharmed."""
    path = _capture().write(tmp_path_factory.mktemp("whole") / "net.sqlite")
    return {
        "net.sqlite": path.read_bytes(),
        "net.dict": "".join(lines(load_capture(path))).encode(),
        "trace.json": torch_trace(path.with_name("trace.json")).read_bytes(),
    }


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(["net.sqlite", "net.dict", "trace.json"]), st.integers(0, 1 << 20), st.binary(max_size=40), st.booleans(),
       st.sampled_from(["x", "x.dict", "x.sqlite", "x.json", "x.json.gz"]))  # fmt: skip
def test_a_damaged_file_gives_a_table_or_one_line_and_a_hint(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    whole: dict[str, bytes],
    kind: str,
    at: int,
    damage: bytes,
    cut: bool,
    name: str,
) -> None:
    content = whole[kind]
    at %= len(content)
    path = tmp_path / name
    path.write_bytes(content[:at] + damage + (b"" if cut else content[at + len(damage) :]))
    code = main(["prof", str(path), "-c", "idx,op,layer,params,kernel,flops"])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    if code == 0:
        assert out.startswith("Idx Op ") and err
    else:
        assert (code, out, len(err.splitlines())) == (1, "", 2) and err.splitlines()[1].startswith("hint: ")
