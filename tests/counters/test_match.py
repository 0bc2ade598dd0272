"""Which record a measured launch is: hand-written sequences, and a real capture against itself under Nsight Compute's names."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.counters.match import HOW, Match, match
from pyprof.loading.load import load
from pyprof.model.markers import encode_step
from pyprof.model.records import COLUMNS, Records, Stack
from pyprof.model.trace import Strings
from pyprof.parse.records.selection import choose_kinds
from pyprof.parse.sources.measured.launches import Launch

SIZE = (1, 1, 1)


def records(
    kernels: str, stacks: Sequence[Stack] = (), device: Sequence[int] | None = None, pid: Sequence[int] | None = None
) -> Records:
    """A record a letter, each 10 ns after the other; the n-th has the n-th stack."""
    strings = Strings()
    columns = {name: np.full(len(kernels), -1, dtype) for name, (dtype, _) in COLUMNS.items()}
    columns["kind"][:] = 0
    columns["start_ns"] = columns["launch_ns"] = 10 * np.arange(len(kernels))
    columns["name"] = np.array([strings.code(letter) for letter in kernels], np.int32)
    columns["device"][:] = 0 if device is None else device
    columns["pid"][:] = 1 if pid is None else pid
    columns["stack"] = np.arange(len(kernels), dtype=np.int32) if stacks else columns["stack"]
    for what in ("grid", "block"):
        for axis in "xyz":
            columns[f"{what}_{axis}"][:] = 1
    return Records(columns, strings, list(stacks))


def launches(kernels: str, scopes: Sequence[tuple[str, ...]] = (), device: int = 0) -> list[Launch]:
    each = scopes or [()] * len(kernels)
    return [Launch(letter, SIZE, SIZE, device=device, scopes=scope) for letter, scope in zip(kernels, each, strict=True)]


def how(found: Match) -> list[str]:
    return [HOW[code] for code in found.how.tolist()]


def test_the_same_program() -> None:
    found = match(launches("abab"), records("abab"))
    assert found.candidates == [[0], [1], [2], [3]] and how(found) == ["exact"] * 4


def test_another_order_of_streams_and_a_kernel_that_only_one_has() -> None:
    found = match(launches("baxab"), records("yabab"))
    assert found.candidates == [[2], [1], [], [3], [4]]
    assert how(found) == ["exact", "exact", "none", "exact", "exact"]


def test_a_part_that_fits_once() -> None:
    found = match(launches("bca"), records("abcab"))
    assert found.candidates == [[1], [2], [3]] and how(found) == ["order"] * 3


def test_a_part_that_fits_in_every_step() -> None:
    whole = records("abcabcabc")
    found = match(launches("bc"), whole)
    assert found.candidates == [[1, 4, 7], [2, 5, 8]] and how(found) == ["ambiguous"] * 2
    assert found.agreed(np.array([0, 5, 6, 0, 5, 7, 0, 5, 6])).tolist() == [5, -1]


def test_ranges_decide_between_places() -> None:
    stacks = [Stack(layer=(layer,)) for layer in ("l.0", "l.0", "l.1", "l.1", "l.2", "l.2")]
    own = ('l.1 #pyprof{"layer":"Linear"}',)
    found = match(launches("a", [own]), records("ababab", stacks))
    assert found.candidates == [[2]] and how(found) == ["nvtx"]
    found = match(launches("a", [("somewhere else",)]), records("ababab", stacks))
    assert found.candidates == [[0, 2, 4]] and how(found) == ["ambiguous"]


def test_a_filter_by_kernel() -> None:
    found = match(launches("abd"), records("abcdabe"))
    assert found.candidates == [[0], [1], [3]] and how(found) == ["order"] * 3


def test_launches_that_are_missing_between() -> None:
    found = match(launches("adbb"), records("aadbab"))  # one d, two b; the a is one of those before d
    assert found.candidates[1:] == [[2], [3], [5]] and how(found)[1:] == ["exact"] * 3
    assert found.candidates[0] == [0, 1] and how(found)[0] == "ambiguous"


def test_launches_that_the_timeline_lost() -> None:
    found = match(launches("abacaba"), records("abcaba"))
    assert found.candidates == [[0], [1], [], [2], [3], [4], [5]]
    assert how(found) == ["order", "exact", "none", "exact", "order", "exact", "order"]
    found = match(launches("aab"), records("ab"))  # which of the two was lost is not known
    assert found.candidates == [[0], [0], [1]] and how(found) == ["ambiguous", "ambiguous", "exact"]
    assert found.settled.tolist() == [1]


def test_two_processes_on_one_device() -> None:
    whole = records("axbayb", pid=[1, 2, 1, 2, 1, 2])  # aby and xab
    own = [one._replace(pid=pid) for pid, part in ((8, "xab"), (9, "aby")) for one in launches(part)]
    found = match(own, whole)
    assert found.candidates == [[1], [3], [5], [0], [2], [4]] and how(found) == ["exact"] * 6
    found = match(launches("ab"), records("aabb", pid=[1, 2, 1, 2]))
    assert found.candidates == [[0, 2], [1, 3]] or how(found) == ["ambiguous"] * 2


def test_ranges_that_were_measured_apart() -> None:
    """The first of two layers in each of three steps, whose kernels are the same: only the ranges tell."""
    stacks = [Stack(layer=(layer,)) for _ in range(3) for layer in ("l.0", "l.1")]
    whole = records("aaaaaa", stacks)
    whole.columns["step"][:] = [0, 0, 1, 1, 2, 2]
    ranges = [(encode_step(step), "of another tool", 'l.0 #pyprof{"layer":"Linear"}') for step in range(3)]
    found = match(launches("aaa", ranges), whole)
    assert found.candidates == [[0], [2], [4]] and how(found) == ["nvtx"] * 3
    found = match(launches("aa", [ranges[1][1:]] * 2), whole)  # two of three, without their steps
    assert found.candidates == [[0, 2, 4], [2, 4]] and how(found) == ["ambiguous"] * 2


def test_devices_are_apart() -> None:
    found = match([*launches("a", device=1), *launches("a")], records("aa", device=[0, 1]))
    assert found.candidates == [[1], [0]]
    assert match(launches("a", device=7), records("aa")).candidates == [[]]


def test_another_size_is_another_launch() -> None:
    other = Launch("a", (2, 1, 1), SIZE, device=0)
    assert how(match([other], records("a"))) == ["none"]
    assert match([Launch("a", device=0)], records("a")).candidates == [[0]]  # a tool that writes no sizes


@given(st.text("abc", min_size=1, max_size=12), st.data())
def test_every_candidate_is_the_same_kernel_and_no_record_is_settled_twice(program: str, data: st.DataObject) -> None:
    kept = [letter for letter in program if data.draw(st.booleans())]
    found = match(launches("".join(kept)), records(program))
    assert len(found.candidates) == len(kept)
    for letter, fitting in zip(kept, found.candidates, strict=True):
        assert fitting and all(program[row] == letter for row in fitting)
    settled = [fitting[0] for fitting, code in zip(found.candidates, how(found), strict=True) if code in ("exact", "order")]
    assert len(settled) == len(set(settled))
    if kept == list(program):
        assert found.candidates == [[row] for row in range(len(program))]


@given(st.text("abc", min_size=1, max_size=12), st.data())
def test_what_is_settled_of_a_part_without_a_gap_is_right(program: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(program) - 1))
    end = data.draw(st.integers(begin + 1, len(program)))
    found = match(launches(program[begin:end]), records(program))
    for row, fitting, code in zip(range(begin, end), found.candidates, how(found), strict=True):
        assert row in fitting and (len(fitting) == 1 or code == "ambiguous")


@given(st.text("abc", min_size=1, max_size=12), st.data())
def test_what_is_exact_is_right_whatever_was_left_out(program: str, data: st.DataObject) -> None:
    kept = [row for row in range(len(program)) if data.draw(st.booleans())]
    found = match(launches("".join(program[row] for row in kept)), records(program))
    assert all(
        fitting == [row] for row, fitting, code in zip(kept, found.candidates, how(found), strict=True) if code == "exact"
    )
    # The other way round: what the timeline lost.
    found = match(launches(program), records("".join(program[row] for row in kept)))
    assert all(
        kept[fitting[0]] == row
        for row, (fitting, code) in enumerate(zip(found.candidates, how(found), strict=True))
        if code in ("exact", "order")
    )


def as_ncu_writes(name: str) -> str:
    """Without namespaces, casts and `const`."""
    text = re.sub(r"\((?:int|bool|unsigned int|unsigned long)\)(?=\d)", "", name).replace("<unnamed>::", "")
    return re.sub(r"\b[A-Za-z_]\w*::", "", text).replace("operator ()() const::", "operator ()() ")


@pytest.mark.parametrize("step", [1, 3])
def test_a_real_capture_under_the_names_of_ncu(captures: Path, step: int) -> None:
    whole = choose_kinds(load(str(captures / "nsys/h100_2gpu_train.nsys2026.2.sqlite")), "kernel")
    order = np.lexsort((np.arange(len(whole)), np.where(whole["launch_ns"] >= 0, whole["launch_ns"], whole["start_ns"])))
    truth = [row for row in order.tolist() if whole["device"][row] == 0][:: step or 1]

    def launch(row: int) -> Launch:
        grid, block = (tuple(int(whole[f"{what}_{axis}"][row]) for axis in "xyz") for what in ("grid", "block"))
        name = as_ncu_writes(whole.strings[int(whole["name"][row])])
        return Launch(name, grid, block, device=0)  # type: ignore[arg-type]

    found = match([launch(row) for row in truth], whole)
    settled = [fitting[0] == row for fitting, row in zip(found.candidates, truth, strict=True) if len(fitting) == 1]
    among = [row in fitting for fitting, row in zip(found.candidates, truth, strict=True)]
    assert all(how(found)[at] != "none" for at in range(len(truth)))
    if step == 1:
        assert all(settled) and len(settled) == len(truth) > 1000
    else:  # two thirds are missing
        assert all(among) and all(settled)
