"""What people hold in Python: tables with NA for unknown values, one object a file, documents, errors."""

import inspect
import json
import pydoc
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

import pyprof
from pyprof.api import Loaded
from pyprof.cli import main
from pyprof.errors import InputError, UsageError
from pyprof.model.records import Records
from tests.report.summary.test_summary import two_steps
from tests.tiny import Nsys


def test_columns_types_and_unknowns(tmp_path: Path) -> None:
    n = Nsys()
    n.range('mm(bf16[4,8], bf16[8,2]) #pyprof{"mod":"torch"}', 10, 100)
    n.kernel("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_TNT", 20, 1000, 1100)
    n.kernel("unheard_of", None, 2000, 2200)
    path = str(n.write(tmp_path / "net.sqlite"))
    frame = pyprof.table(path, "idx,op,sil,flops,occ,tc")
    assert list(frame) == ["idx", "op", "sil", "flops", "occ", "tc"]
    assert frame["flops"].dtype == "Int64" and frame["flops"].tolist() == [2 * 4 * 8 * 2, pd.NA]
    assert isinstance(frame["op"].dtype, pd.CategoricalDtype) and frame["op"].isna().tolist() == [False, True]
    assert frame["sil"].sum() == 300 and frame["tc"].isna().tolist() == [False, True]
    assert len(pyprof.table(path).columns) > 40
    assert callable(pyprof.table)


def test_a_loaded_file_gives_records_and_ops(tmp_path: Path, data: Path) -> None:
    path = str(data / "kineto_cpu.json.gz")
    found = pyprof.load(path)
    assert isinstance(found.records, Records)
    pd.testing.assert_frame_equal(found.to_pandas(), pyprof.table(path))
    pd.testing.assert_frame_equal(found.to_pandas("records", "op,flops"), pyprof.table(path, "op,flops"))
    ops = found.to_pandas("ops")
    pd.testing.assert_frame_equal(ops, found.ops().to_pandas())
    assert list(ops)[:4] == ["op", "shape", "self_cpu", "self_cpu_pct"] and ops["calls"].dtype == "Int64"
    assert list(found.ops(shapes=False).to_pandas("op,cuda_time_total,count")) == ["op", "device_total", "calls"]
    with pytest.raises(UsageError):
        found.to_pandas("kernels")
    with pytest.raises(UsageError):
        found.to_pandas("ops", "no_such")
    parsed = str(tmp_path / ("net.parquet" if find_spec("pyarrow") else "net.dict"))
    assert main(["parse", path, "-o", parsed]) == 0
    records = pyprof.load(parsed)
    assert len(records.to_pandas()) == len(found.to_pandas())
    with pytest.raises(InputError, match="records hold no ops inside others"):
        records.ops()


def test_a_loaded_file_is_counted_iterated_and_shown(tmp_path: Path) -> None:
    n = Nsys()
    n.range('mm(bf16[4,8], bf16[8,2]) #pyprof{"mod":"torch"}', 10, 100)
    n.kernel("void <script>alert(1)</script><float>()", 20, 1000, 1100)
    n.kernel("unheard_of", None, 2000, 2200)
    path = n.write(tmp_path / "net<1>.sqlite")
    found = pyprof.load(path)
    assert repr(found).startswith("net<1>.sqlite ") and max(map(len, repr(found).splitlines())) <= 80, "of this terminal"
    assert "By op" in repr(found) and str(found.summary()).startswith("net<1>.sqlite ")
    rows = list(found)
    assert len(found) == len(rows) == 2
    assert [(row["idx"], row["op"], row["sil"]) for row in rows] == [(1, "mm", 100), (2, None, 200)]
    text = found._repr_html_()
    assert "<strong>net&lt;1&gt;.sqlite</strong>" in text and ">mm</td>" in text and "<script>" not in text


def test_ops_are_counted_iterated_and_shown(data: Path) -> None:
    ops = pyprof.load(data / "kineto_cpu.json.gz").ops()
    rows = list(ops)
    assert len(ops) == len(rows) == len(ops.to_pandas()) and repr(ops) == f"<pyprof: ops by input shapes, {len(ops)} rows>"
    assert {"op", "shape", "self_cpu", "calls"} <= rows[0].keys() and rows[0]["device_total"] is None
    assert ops._repr_html_().count("<tr>") == 1 + min(len(ops), 10)


def test_the_summary_is_that_of_the_command(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(data / "kineto_cpu.json.gz")
    assert main(["summary", path]) == 0
    assert str(pyprof.summary(path)) == capsys.readouterr().out.rstrip("\n")
    with pytest.raises(InputError, match="there is no device"):
        pyprof.summary(path, gpu="no such")


def test_two_files_are_compared_as_the_command_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as Jupyter does
    first, second = (
        str(two_steps(mm_ns).write(tmp_path / name)) for mm_ns, name in ((20_000, "a.sqlite"), (15_000, "b.sqlite"))
    )
    found = pyprof.load(first).compare(pyprof.load(second))
    assert main(["diff", first, second, "--format", "json"]) == 0
    assert found.json() == capsys.readouterr().out and found.to_dict() == json.loads(found.json())
    assert (found.before_ns, found.after_ns, found.comparable) == (60_000, 50_000, True)
    rows = found.to_pandas()
    assert [*rows] == ["op", "shape", "layer", "before", "after", "change", "what"]
    assert rows[["op", "before", "after", "change"]].values.tolist() == [
        ["mm", 40_000, 30_000, -10_000],
        ["add", 20_000, 20_000, 0],
    ]
    assert [row["change"] for row in found] == [-10_000, 0] and len(found) == 2
    assert [*found.to_pandas("op,change")] == ["op", "change"]
    assert main(["diff", first, second]) == 0
    assert repr(found).splitlines()[2] == str(found).splitlines()[2] == "kernel time 60.0 us -> 50.0 us -16.7%"
    assert [" ".join(line.split()) for line in str(found).splitlines()[:5]] == [
        " ".join(line.split()) for line in capsys.readouterr().out.splitlines()[:5]
    ]
    assert found._repr_html_().count("<tr>") == 4 and "kernel time 60.0 us -&gt; 50.0 us" in found._repr_html_()
    assert repr(pyprof.load(first).compare(second)) == repr(found) and "\x1b" not in repr(found)
    with pytest.raises(UsageError):
        found.to_pandas("no_such")
    with pytest.raises(InputError):
        pyprof.load(first).compare(tmp_path / "none")


def test_help_shows_real_signatures_and_documents() -> None:
    for function in (pyprof.load, pyprof.table, pyprof.summary):
        # Python 3.13 breaks long signatures into lines, 3.14 leaves out the quotes.
        text = "".join(pydoc.plain(pydoc.render_doc(function)).replace("'", "").split())
        assert f"{function.__name__}(file:str|os.PathLike[str]" in text and len(inspect.getdoc(function) or "") > 80
    assert "to_pandas(self,what" in "".join(pydoc.plain(pydoc.render_doc(Loaded)).replace("|", "").split())


def test_errors_are_those_of_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file") as caught:
        pyprof.load(tmp_path / "missing.sqlite")
    assert caught.value.hint and caught.value.exit_code == 1


# Who calls pyprof from a program relies on these: names may be added at the end or by keyword, not taken away or moved.
PUBLIC = {
    "capture": "path, *, schedule, shapes, stacks, table, on_trace, **counters",
    "formula": "*op_names, kind, composed",
    "init": "*, mode, stack, backend, method, enable_function_stack",
    "instrument": "*, stack, backend",
    "load": "file, graphs",
    "profile": "steps, *, shapes",
    "schedule": "*, wait, warmup, active, repeat, skip",
    "shutdown": "",
    "step": "number, *, tokens",
    "summary": "file, gpu",
    "table": "file, columns, kinds",
    "timeit": "fn, *args, seconds, warmup, calls, flush, device, launches",
    "wrap": "owner, name",
}
METHODS = {
    "compare": "other",
    "counters": "trace",
    "ops": "shapes",
    "plot_layers": "",
    "plot_roofline": "gpu",
    "memory": "at",
    "plot_timeline": "",
    "summary": "gpu",
    "to_pandas": "what, columns, kinds",
}


def _parameters(function: Callable[..., object]) -> str:
    """`(self, a: int = 1, *, b: str) -> None` -> `a, *, b`."""
    bare = [p.replace(annotation=p.empty, default=p.empty) for p in inspect.signature(function).parameters.values()]
    return str(inspect.Signature([p for p in bare if p.name != "self"]))[1:-1]


@pytest.mark.torch
def test_the_public_names_and_what_they_take() -> None:
    pytest.importorskip("torch", reason="needs torch")
    assert {*PUBLIC, "PyprofError", "__version__"} == set(pyprof.__all__)
    assert {name: _parameters(getattr(pyprof, name)) for name in PUBLIC} == PUBLIC
    public = {name: value for name, value in vars(Loaded).items() if not name.startswith("_") and callable(value)}
    assert {name: _parameters(value) for name, value in public.items()} == METHODS
    assert all(inspect.getdoc(getattr(pyprof, name)) for name in PUBLIC)
