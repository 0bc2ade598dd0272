"""Lines whose meaning is remembered are read as they are one by one."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import InputError
from pyprof.loading.formats import op_rules
from pyprof.loading.load import open_trace
from pyprof.model.records import COLUMNS, Records
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.records.netdict import read
from pyprof.parse.records.netdict.read import read_lines
from pyprof.parse.records.netdict.write import lines
from tests.given import records_of, slow
from tests.tiny import Nsys


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lines of ops that ran three times each, with one number, with several and with none on their stacks."""
    n = Nsys()
    for turn in range(3):
        at = 1000 * turn
        n.range(f"outer, seq = {5 + turn}, op_id = {10 * turn}", at + 1, at + 400)
        n.range(f"aten::mm, seq = {7 + turn}, op_id = {10 * turn + 1}, sizes = [[4, 2], [2, 8]]", at + 10, at + 50)
        n.range(f"aten::mm, seq = {7 + turn}, op_id = {10 * turn + 2}, sizes = [[4, 2], [2, 8]]", at + 11, at + 49)
        n.range(f"aten::add, seq = {8 + turn}, op_id = {10 * turn + 3}, sizes = [[4], [4]]", at + 60, at + 90)
        n.range('not a number, seq = x" of it', at + 500, at + 600)
        for begin in (at + 20, at + 30, at + 70, at + 510):
            n.kernel("void f<(int)4>(char *)", begin, begin + 100, begin + 105)
        n.kernel("alone", None, at + 700, at + 710)
    return list(lines(attribute(open_trace(n.write(tmp_path_factory.mktemp("own") / "n.sqlite")), op_rules())))


def _outcome(given_lines: list[str]) -> object:
    """All that was read, or the error's text."""
    try:
        found = read_lines(given_lines, "net.dict", op_rules())
    except InputError as error:
        return str(error)
    return _all_of(found)


def _all_of(found: Records) -> object:
    columns = {name: (found[name].dtype.str, found[name].tolist()) for name in COLUMNS}
    return (columns, found.strings.values, found.stacks, found.calls, found.gpus, found.seq_offsets.tolist(),
            found.seq_numbers.tolist(), found.source)  # fmt: skip


def _each_alone(given_lines: list[str]) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "_MAX_KINDS", 0)
        return _outcome(given_lines)


def test_lines_of_ops_that_ran_again_are_read_once(written: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert _outcome(written) == _each_alone(written)
    parsed = []
    loads = json.loads
    monkeypatch.setattr(read.json, "loads", lambda text: parsed.append(text) or loads(text))
    _outcome(written)
    assert 0 < len(parsed) <= len(written) / 3 + 1


@pytest.mark.parametrize("epoch", [1_583_978_810_000_000_000, 9_200_000_000_000_000_000])
def test_times_since_1970_are_read_as_well(written: list[str], epoch: int) -> None:
    """nvprof and torch.profiler record such; the larger ones go beyond 64 bits in the sum with a duration."""
    later = [re.sub(r'"(start|launch)": (\d+)', lambda m: f'"{m[1]}": {int(m[2]) + epoch}', line) for line in written]
    assert _outcome(later) == _each_alone(later)


CAPTURES = ["nvprof/v100_lm/net.sql", *slow("nsys/h100_2gpu_train.nsys2026.2.sqlite"), "kineto/h100_vit.json.gz"]


@pytest.mark.parametrize("name", CAPTURES)
def test_real_captures_read_as_line_by_line(captures: Path, name: str) -> None:
    given_lines = list(lines(records_of(captures / name)))
    assert _outcome(given_lines) == _each_alone(given_lines)


def test_the_originals_lines_and_ours_in_one_file(captures: Path, written: list[str]) -> None:
    theirs = (captures / "nvprof/v100_lm/net.dict").read_text().splitlines(keepends=True)[:20]
    mixed = [line for pair in zip(theirs, written + written, strict=False) for line in pair]
    assert _outcome(mixed) == _each_alone(mixed)


_NUMBER = re.compile(r"-?\d+")
_ODD = st.sampled_from(["-1", "007", "1.0", "1e3", "9" * 19, "9" * 18, '"na"', "", "0", "true", "null", "\n", " 5", "٣"])
_NUMBERS = st.one_of(st.integers(0, 10**18).map(str), _ODD)
_INSERTED = st.sampled_from(
    [', "start": 3', ', "kDuration": 9', ', "seqId": [4]', ', "seqMarker": ["x, seq = 4"]', ', "gpu": {"a": 1, "start": 2}',
     ', "corr": 1', "}", "{", '"', ", seq = 4", '\\"', "\x00", "\r", ' "seqMarker": []', ", 'start': 5", "]", "["]
)  # fmt: skip


def _changed(draw: Callable[..., object], line: str) -> str:
    if draw(st.booleans()):
        found = draw(st.sampled_from(list(_NUMBER.finditer(line))))
        assert isinstance(found, re.Match)
        line = line[: found.start()] + str(draw(_NUMBERS)) + line[found.end() :]
    if draw(st.integers(0, 3)) == 0:
        places = [m.start() for m in re.finditer(r'[,\]}"]', line)]
        at = draw(st.sampled_from(places))
        assert isinstance(at, int)
        line = line[:at] + str(draw(_INSERTED)) + line[at:]
    return line


@given(st.data())
def test_changed_lines_are_read_as_line_by_line_or_refused_with_the_same_words(written: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(written), min_size=1, max_size=6))
    given_lines = [part for line in chosen for part in (line, _changed(data.draw, line), line)]
    assert _outcome(given_lines) == _each_alone(given_lines)
