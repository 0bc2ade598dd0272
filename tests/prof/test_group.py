"""Rows chosen, sorted and grouped: against the table of all rows added up by hand."""

import csv
import io
import json
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.prof.columns import ALIASES, HEADERS
from pyprof.tables.table import Fractions, Integers, Texts, sort_key
from pyprof.tables.where import conditions
from tests.tiny import Nsys

GEMM, ADD = "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4>(int)"
LINEAR = 'linear(fp32[{0},8], fp32[2,8]) #pyprof{{"mod":"torch.nn.functional"}}'


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Three steps of two layers, each with two kernels; one range in a domain; one kernel without anything."""
    n, clock, chance = Nsys(), 100, random.Random(5)
    for step in range(3):
        begin = clock
        for layer in ("net.block.0", "net.block.1", "net.head"):
            first = clock
            n.range(LINEAR.format(4 + step), clock + 1, clock + 40)
            for name in (GEMM, ADD):
                clock += 10
                n.kernel(name, clock, 100_000 + 100 * clock, 100_000 + 100 * clock + chance.randrange(1, 900))
            clock += 50
            n.range(f'{layer} #pyprof{{"layer":"Block"}}', first, clock)
        n.range(f'step {step} #pyprof{{"step":{step}}}', begin, clock + 5)
        clock += 20
    n.range("warm", 100, 200, domain=3)
    n.rows["NVTX_EVENTS"].append((1, None, 75, "mine", (1 << 48) | (7 << 24) | 7, None, 3))
    n.range("warm", 345, 365)
    n.kernel("", None, 500_000, 500_100)
    return n.write(tmp_path / "net.sqlite")


def _rows(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> list[dict[str, str]]:
    assert main(["prof", str(path), "--csv", *arguments]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))


def _refused(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> tuple[int, str]:
    code = main(["prof", str(path), *arguments])
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 2 and err.splitlines()[1].startswith("hint: ")
    return code, err


EVERY = "idx,op,params,layer,kernel,sil,flops,bytes,instance,step,start,dir"


@pytest.mark.parametrize("keys", ["op", "layer", "shape", "kernel", "family", "op,shape", "layer,kernel", "step"])
def test_groups_are_what_adding_up_the_rows_gives(capture: Path, capsys: pytest.CaptureFixture[str], keys: str) -> None:
    _compare(_rows(capsys, capture, "-c", EVERY + ",family"), _rows(capsys, capture, "--group-by", keys))


@pytest.mark.parametrize("keys", ["op", "shape", "op,dir", "kernel"])
def test_groups_of_a_real_capture(captures: Path, capsys: pytest.CaptureFixture[str], keys: str) -> None:
    path = captures / "nvprof/v100_lm/net.sql"
    _compare(_rows(capsys, path, "-c", EVERY), _rows(capsys, path, "--group-by", keys))


def _compare(rows: list[dict[str, str]], groups: list[dict[str, str]]) -> None:
    heads = list(groups[0])[: list(groups[0]).index("Calls")]
    members: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        members[tuple(row[head] for head in heads)].append(row)
    total = sum(int(row["Sil(ns)"]) for row in rows)
    assert {tuple(group[head] for head in heads) for group in groups} == set(members) and len(groups) == len(members)
    assert [int(g["Time(ns)"]) for g in groups] == sorted((int(g["Time(ns)"]) for g in groups), reverse=True)
    for group in groups:
        own = members[tuple(group[head] for head in heads)]
        time = sum(int(row["Sil(ns)"]) for row in own)
        assert (int(group["Kernels"]), int(group["Time(ns)"])) == (len(own), time)
        assert group["Share(%)"] == f"{100 * time / total:.1f}"
        assert int(group["Calls"]) == len({row["Instance"] if row["Instance"] != "na" else row["Idx"] + "!" for row in own})
        for cost, rate, scale in (("FLOPs", "TFLOP/s", 1e3), ("Bytes", "GB/s", 1)):
            known = [row for row in own if row[cost] != "na"]
            added, spent = sum(int(row[cost]) for row in known), sum(int(row["Sil(ns)"]) for row in known)
            enough = len(known) == len(own) or (known and spent > 0.99 * time)
            assert group[cost] == (str(added) if enough else "na")
            assert group[rate] == (f"{added / spent / scale:.{3 if scale > 1 else 2}f}" if enough and spent else "na")
            if cost == "FLOPs":
                assert group["Known(%)"] == (f"{100 * spent / time:.1f}" if time else "100.0" if enough else "na")


def test_a_tree_of_layers_holds_all_inside_each(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows(capsys, capture, "-c", EVERY)
    tree = _rows(capsys, capture, "--tree", "layer")
    assert [row["Layer"] for row in tree][:2] == ["(all)", "net"] and {row["Layer"] for row in tree[2:]} == {
        "net.block", "net.block.0", "net.block.1", "net.head"
    }  # fmt: skip
    for node in tree:
        inside = [r for r in rows if node["Layer"] == "(all)" or f"{r['Layer']}.".startswith(f"{node['Layer']}.")]
        assert int(node["Time(ns)"]) == sum(int(r["Sil(ns)"]) for r in inside)
        assert (int(node["Kernels"]), int(node["Depth"])) == (
            len(inside),
            0 if node["Layer"] == "(all)" else node["Layer"].count(".") + 1,
        )
    assert tree[0]["Share(%)"] == "100.0"
    at = [row["Layer"] for row in tree].index("net.block")
    assert {row["Layer"] for row in tree[at + 1 : at + 3]} == {"net.block.0", "net.block.1"}
    assert main(["prof", str(capture), "--tree", "layer", "-w", "110", "-c", "layer,kernels"]) == 0
    assert "\n| | | 0 " in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("--group-by", "op"), ("--tree", "layer"), ("-c", "idx,op,gbs,sil")])
def test_every_form_holds_the_same(capture: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    rows = _rows(capsys, capture, *arguments)
    assert main(["prof", str(capture), "--format", "jsonl", *arguments]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(objects) == len(rows)
    for thing, row in zip(objects, rows, strict=True):
        for value, text in zip(thing.values(), row.values(), strict=True):
            assert (value is None and text == "na") or value == (text if isinstance(value, str) else float(text))
    for form in (["--format", "table"], ["-w", "99999999999999999999"], ["-w", "150"]):
        assert main(["prof", str(capture), *form, *arguments]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == len(rows) + 1 and len({len(line) for line in lines}) == 1


def test_groups_can_be_sorted_cut_and_their_columns_chosen(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows(capsys, capture, "--group-by", "layer", "--sort", "layer", "--top", "2", "-c", "calls,layer")
    assert rows == [{"Calls": "1", "Layer": "-"}, {"Calls": "3", "Layer": "net.block.0"}]
    assert _refused(capsys, capture, "--group-by", "layer", "-c", "kernal")[0] == 2
    assert _refused(capsys, capture, "--group-by", "layers")[0] == 2
    assert _refused(capsys, capture, "--group-by", "")[0] == 2
    assert _refused(capsys, capture, "--group-by", "op", "--tree", "layer")[0] == 2
    assert _rows(capsys, capture, "--group-by", "op", "--where", "op=nothing") == []
    assert [r["Layer"] for r in _rows(capsys, capture, "--tree", "layer", "--where", "op=nothing")] == ["(all)"]


def test_sums_beyond_64_bits_are_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    for number in range(5):
        n.range(
            LINEAR.format(0).replace("0,8", "1000003,1000003").replace("2,8", "1000003,1000003"),
            10 + 100 * number,
            90 + 100 * number,
        )
        n.kernel(GEMM, 20 + 100 * number, 10_000 + number, 10_001 + number)
    (group,) = _rows(capsys, n.write(tmp_path / "net.sqlite"), "--group-by", "op", "--sort", "flops")
    assert int(group["FLOPs"]) == 5 * 2 * 1000003**3 > 1 << 63


def test_steps(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = _rows(capsys, capture, "-c", EVERY)
    for text, wanted in (
        ("1:2", {"1"}),
        ("1", {"1"}),
        ("1:", {"1", "2"}),
        (":2", {"0", "1"}),
        (":", {"0", "1", "2"}),
        ("7:9", set()),
    ):
        assert _rows(capsys, capture, "-c", EVERY, "--step", text) == [row for row in whole if row["Step"] in wanted]
    assert main(["prof", str(capture), "--step", "7:9"]) == 0
    assert "note: nothing of step 7:9 is in this capture, whose steps are 0 to 2\n" in capsys.readouterr().err
    for wrong in ("", "a", "-1:2", "1:2:3", "1.5", "2:1", "1:1"):
        assert _refused(capsys, capture, f"--step={wrong}")[0] == 2


def test_time(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = _rows(capsys, capture, "-c", EVERY)
    starts = [int(row["Start(ns)"]) for row in whole]
    assert _rows(capsys, capture, "-c", EVERY, "--time", f"{starts[2]}:{starts[5]}") == whole[2:5]
    assert _rows(capsys, capture, "-c", EVERY, "--time", f"{starts[5] - starts[0]}ns:") == whole[5:]
    assert _rows(capsys, capture, "-c", EVERY, "--time", ":0.003ms") == [
        row for row, start in zip(whole, starts, strict=True) if start < starts[0] + 3000
    ]
    for wrong in ("", "5", "a:b", "1:2:3", "-5:", "1h:", "9" * 40 + ":"):
        assert _refused(capsys, capture, f"--time={wrong}")[0] == 2


def test_ranges_with_and_without_a_domain_and_layers(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rows(name: str) -> list[int]:
        return [int(row["Idx"]) for row in _rows(capsys, capture, "-c", "idx", "--range", name)]

    layers = {int(row["Idx"]): row["Layer"] for row in _rows(capsys, capture, "-c", "idx,layer")}
    in_domain, in_default = rows("warm@mine"), rows("warm")
    assert in_domain and in_default and not set(in_domain) & set(in_default)
    assert rows("mine:warm") == in_domain and rows("warm@*") == sorted(in_domain + in_default)
    assert rows("net.block") == [idx for idx, layer in layers.items() if layer.startswith("net.block.")]
    assert rows("net.head") == [idx for idx, layer in layers.items() if layer == "net.head"]
    code, err = _refused(capsys, capture, "--range", "net.heat")
    assert code == 1 and "did you mean 'net.head'?" in err


def test_a_capture_without_steps_says_how_to_mark_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    n.kernel(GEMM, 20, 100, 200)
    code, err = _refused(capsys, n.write(tmp_path / "net.sqlite"), "--step", "1:2")
    assert code == 1 and "pyprof.step()" in err


def test_a_value_may_hold_commas_and_equal_signs(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = "M=4,N=2,K=8,fp32"
    assert len(_rows(capsys, capture, "--where", f"params={params}")) == 6
    assert len(_rows(capsys, capture, "--where", f"op=linear,params={params},grid=1,1,1,kernel=ampere_sgemm_128x64_tn")) == 3
    assert len(_rows(capsys, capture, "--where", "n=2, OP=linear,m=4")) == 3
    assert [c.header.key for c in conditions("shape=a,b,dir=x", HEADERS, ALIASES)] == ["params", "dir"]
    assert "'foo'" in _refused(capsys, capture, "--where", "op=linear,foo=3")[1]
    assert main(["prof", str(capture), "--where", "op = Linear", "-c", "op"]) == 0
    out, err = capsys.readouterr()
    assert out == "Op\n" and "note: no row has op 'Linear'; did you mean 'linear'?" in err
    assert _refused(capsys, capture, "--where", "op")[0] == 2 and _refused(capsys, capture, "--where", "op,dir=x")[0] == 2


def test_top_and_sort(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _refused(capsys, capture, "--top", "-1")[0] == 2
    assert _rows(capsys, capture, "--top", "0") == []
    rows = _rows(capsys, capture, "-c", "kernel,sil,idx", "--sort", "kernel,sil")
    key = [(row["Kernel"] == "na", row["Kernel"], -int(row["Sil(ns)"]), int(row["Idx"])) for row in rows]
    assert key == sorted(key) and len(rows) == 19


def test_numbers_beyond_what_a_float_holds_are_sorted_as_numbers() -> None:
    values = np.array([1 << 60, (1 << 60) + 1, -1, 5])
    assert np.argsort(sort_key(Integers.from_zero(values)), kind="stable").tolist() == [1, 0, 3, 2]
    assert np.argsort(sort_key(Integers.from_zero(np.array([1 << 70, (1 << 70) + 1, -1], object))), kind="stable").tolist() == [
        1,
        0,
        2,
    ]
    assert np.argsort(sort_key(Fractions.not_nan(np.array([1.0, np.nan, 2.0]))), kind="stable").tolist() == [2, 0, 1]
    assert np.argsort(sort_key(Texts(np.array([1, -1, 0]), ["a", "b"])), kind="stable").tolist() == [2, 0, 1]


def test_how_much_is_known_is_told_without_any_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    n.kernel(GEMM, 20, 100, 100)
    assert main(["prof", str(n.write(tmp_path / "net.sqlite"))]) == 0
    assert "1 rows, 0.000 ms" in capsys.readouterr().err
