"""net.dict: lines that are JSON and Python at once, read back to the same records; the original's lines read too."""

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.loading.formats import op_rules
from pyprof.loading.load import open_trace
from pyprof.model.calltext import call_text, parse_call_text
from pyprof.model.opcall import OpCall, TensorSpec, format_call
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.records.netdict.read import read_lines
from pyprof.parse.records.netdict.write import keys_text, lines
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame
from tests.given import records_of, slow
from tests.tiny import Nsys

NASTY = 'quote " back\\slash \u2028 emoji 🚀 tab\t nl\n \x00 end'


def test_lines_read_back_to_the_same_lines_and_mean_the_same_as_json_and_python(tmp_path: Path) -> None:
    n = Nsys()
    n.range(NASTY, 1, 500)
    n.range("aten::mm, seq = 10, op_id = 9, sizes = [[4, 2], [2, 8]]", 10, 50)
    n.range("aten::mm_inner, seq = 9, op_id = 10", 11, 49)
    n.kernel("void f<(int)4>(char *)", 20, 100, 200)
    n.kernel(f"k {NASTY}", None, 300, 400)
    written = list(lines(attribute(open_trace(n.write(tmp_path / "n.sqlite")), op_rules())))
    for line in written:
        assert json.loads(line) == ast.literal_eval(line)
        assert not {"null", "true", "false", "NaN"} & set(line.replace(",", " ").replace(":", " ").split())
    assert json.loads(written[0])["ranges"] == [NASTY]
    assert list(lines(read_lines(written, "x", op_rules()))) == written


CAPTURES = [
    "nvprof/v100_lm/net.sql",
    "nsys/h100_2gpu_train.nsys2026.2.sqlite",
    "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite",
    "kineto/h100_vit.json.gz",
    "kineto/v100_dlrm_8ranks/worker3.pt.trace.json.gz",
    *slow("kineto/v100_resnet50_2021.json.gz"),
]


@pytest.mark.parametrize("name", CAPTURES)
def test_real_captures_read_back_to_the_same_lines_and_the_same_table(captures: Path, name: str) -> None:
    records = records_of(captures / name)
    written = list(lines(records))
    again = read_lines(written, name, op_rules())
    assert list(lines(again)) == written
    frames = Frame(records), Frame(again)
    for column in COLUMNS:
        assert column.texts(frames[0]) == column.texts(frames[1]), column.key
    described = {line.split()[0] for line in keys_text().splitlines()}  # on the page `pyprof help schema`
    assert {key for line in written for key in json.loads(line)} <= described


def test_the_originals_lines_get_the_same_ops_as_our_parse_of_the_same_capture(captures: Path) -> None:
    rules = op_rules()
    with (captures / "nvprof/v100_lm/net.dict").open() as stream:
        theirs = read_lines(stream, "net.dict", rules)
    ours = records_of(captures / "nvprof/v100_lm/net.sql")
    ours = ours.select(ours["kind"] == 0)
    assert (ours["dir"] == theirs["dir"]).all()
    assert ((ours["fwd_instance"] >= 0) == (theirs["fwd_instance"] >= 0)).all() or (ours["fwd_instance"] >= 0).sum() >= (
        theirs["fwd_instance"] >= 0
    ).sum()
    names = [(ours.calls[a].op, theirs.calls[b].op) for a, b in zip(ours["call"], theirs["call"], strict=True)]
    assert sum(a == b for a, b in names) >= 150


def _original(**values: object) -> str:
    record: dict[str, object] = {
        "kShortName": "k", "kDuration": 1, "layer": [], "trace": [], "reprMarkers": [], "marker": [], "seqMarker": [], "seqId": [],
        "subSeqId": 0, "altSeqId": [], "dir": "fprop", "mod": ["na"], "op": ["na"], "tid": 1, "device": 0, "stream": 7,
        "grid": (1, 1, 1), "block": (1, 1, 1), "kLongName": "k",
    }  # fmt: skip
    return repr(record | values) + "\n"


def test_a_number_that_the_original_put_second_pairs_backward_with_forward() -> None:
    written = [
        _original(seqMarker=["mm, seq = 9"], seqId=[9], op=["mm"]),
        _original(seqMarker=["mul, seq = 10"], seqId=[10], op=["mul"]),
        _original(seqMarker=["add_, seq = 0"], altSeqId=[0], op=["add_"]),
        # It ordered numbers as text: 10 before 9.
        _original(seqMarker=["MmBackward, seq = 9"], seqId=[10], altSeqId=[9], tid=2, dir="bprop"),
        _original(seqMarker=["MmBackward, seq = 9"], seqId=[11], altSeqId=[0, 9], tid=2, dir="bprop"),
        _original(seqMarker=["NegBackward, seq = 11"], seqId=[11], altSeqId=[0], tid=2, dir="bprop"),
    ]
    records = read_lines(written, "net.dict", op_rules())
    assert records["fwd_instance"].tolist() == [-1, -1, -1, 0, 0, -1]
    assert [records.calls[code].op for code in records["call"].tolist()[3:5]] == ["mm", "mm"]


_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
_dims = st.lists(st.integers(0, 10**6), max_size=5).map(tuple)
_scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20))
_values = st.recursive(
    st.one_of(_scalars, _dims.map(lambda d: TensorSpec(d, "float32"))),
    lambda v: st.one_of(st.lists(v, max_size=3), st.lists(v, max_size=3).map(tuple)),
    max_leaves=6,
)


@given(
    _names,
    _names,
    st.lists(_values, max_size=4),
    st.dictionaries(_names.filter(lambda n: n not in ("None", "True", "False")), _values, max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_calls_survive_their_text(
    module: str, op: str, args: list[object], kwargs: dict[str, object], dispatcher: bool, flat: bool
) -> None:
    call = OpCall(module, op, tuple(args), tuple(kwargs.items()), dispatcher, flat)
    again = parse_call_text(call_text(call))
    assert (again.module, again.op, again.dispatcher, again.flat) == (module, op, dispatcher, flat)
    assert format_call(again) == format_call(call)


def test_a_call_that_cannot_be_read_still_names_its_op() -> None:
    call = parse_call_text("my::odd op(what, is %% this)")
    assert (call.module, call.op, call.described) == ("my", "odd op", False)


def test_keys_that_are_not_known_are_reported(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel("k", 10, 20, 30)
    n.kernel("k", 40, 50, 60)
    ours = list(lines(attribute(open_trace(n.write(tmp_path / "n.sqlite")), op_rules())))
    newer = [line[:-2] + ', "cluster": 2}\n' for line in ours]
    for given_lines, count in ((ours, 0), (newer, 2), ([ours[0], newer[1]], 1), ([_original(cluster=2)], 1)):
        found = read_lines(given_lines, "net.dict", op_rules())
        note = f"the key 'cluster' is unknown and was not read: lines of net.dict that have it: {count}"
        assert [message for message in found.messages() if "cluster" in message] == [note] * (count > 0)
        assert len(found) == len(given_lines)


def test_lines_of_less_than_no_time_are_left_out_and_counted() -> None:
    numbered: dict[str, object] = {"seqMarker": ["aten::mm, seq = 3"], "seqId": [3], "op": ["mm"]}
    records = read_lines([_original(kDuration=ns, **numbered) for ns in (5, -2, 7, -1)], "net.dict", op_rules())
    assert records["dur_ns"].tolist() == [5, 7] and len(records.seq_numbers) == 2
    assert records.notes == ["left out, since they take less than no time (kDuration below 0): 2 of the lines"]
