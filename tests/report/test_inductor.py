"""`pyprof inductor`: compiled programs recorded here on the CPU, and hand-written captures whose truth fits on a screen."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.load import load
from pyprof.parse.records import COLUMNS, Records
from pyprof.parse.trace import ActivityKind
from pyprof.prof.frame import Frame
from pyprof.report.compiled_module import CompiledModule, find_modules, read_module
from pyprof.report.inductor import Busy, busy, categories, grouped, kernels
from tests.conftest import ROOT

PROGRAMS = ROOT / "tests" / "programs"


def rows_of(text: str) -> list[dict[str, str]]:
    """A table that was printed as CSV."""
    return list(csv.DictReader(io.StringIO(text)))


class Compiled(NamedTuple):
    """A capture of a compiled training step, the cache that holds its modules, and the environment that it ran in."""

    trace: Path
    cache: Path
    env: dict[str, str]

    def modules(self) -> list[CompiledModule]:
        return [read_module(path) for path in find_modules([self.cache])]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    pytest.importorskip("torch", reason="needs torch")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("torch.compile on a CPU needs a C++ compiler")
    folder = tmp_path_factory.mktemp("compiled")
    cache = folder / "cache"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    program = str(PROGRAMS / "compiled_step.py")
    command = [sys.executable, "-m", "pyprof", "run", "--inductor", "--tool", "torch", "--steps", "2:4", "-o", "net", program]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Compiled(folder / "net.json.gz", cache, env)


def test_bytes_are_what_the_kernels_really_touch(compiled: Compiled) -> None:
    """Held against running each kernel alone with other contents of its buffers: no source is read there."""
    found: dict[str, tuple[int | None, int | None]] = {}
    expected: dict[str, tuple[int, int]] = {}
    for module in compiled.modules():
        command = [sys.executable, str(PROGRAMS / "kernel_truth.py"), str(module.path)]
        done = subprocess.run(command, env=compiled.env, capture_output=True, text=True, check=True)
        for name, (read, written) in json.loads(done.stdout.splitlines()[-1]).items():
            expected[f"{module.direction} {name}"] = read, written
        for fused in module.fused:
            (site,) = fused.sites
            found[f"{module.direction} {fused.name}"] = site.read_bytes, site.written_bytes
    assert found == expected and len(found) == 6


def test_every_fused_kernel_is_a_row_with_its_bytes(compiled: Compiled, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inductor", str(compiled.trace), "--module", str(compiled.cache), "--csv"]
    assert main([*arguments, "--table", "kernels"]) == 0
    rows = rows_of(capsys.readouterr().out)
    fused = {(row["Graph"], row["Kernel"]): row for row in rows if row["Category"] == "cpp_fused"}
    modules = {f"{m.graph}_{m.direction}": m for m in compiled.modules()}
    assert set(modules) == {"0_forward", "0_backward"}
    assert set(fused) == {(graph, f.name) for graph, module in modules.items() for f in module.fused}
    for (graph, name), row in fused.items():
        site = next(f for f in modules[graph].fused if f.name == name).sites[0]
        assert (row["Launches"], row["Bytes"], row["From"]) == ("2", str(site.bytes), "module")
        assert row["File"] == str(modules[graph].path)
    assert fused["0_forward", "cpp_fused_gelu_native_layer_norm_1"]["Fuses"] == "gelu,native_layer_norm"
    assert {row["Category"] for row in rows if row["Kernel"] in ("aten::addmm", "aten::mm")} == {"gemm"}
    assert {row["Category"] for row in rows if row["Kernel"].startswith("aten::convolution")} == {"conv"}
    # The modules are found without --module as well: the capture's Python frames name them.
    assert main(["inductor", str(compiled.trace), "--csv", "--table", "kernels"]) == 0
    assert rows_of(capsys.readouterr().out) == rows


def test_categories_sum_to_the_whole(compiled: Compiled) -> None:
    records = load(str(compiled.trace))
    rows = np.arange(len(records))
    groups, times = grouped(Frame(records), rows, compiled.modules()), busy(records, rows)
    assert (groups.ns.sum(), groups.count.sum()) == (records["dur_ns"].sum(), len(records))
    assert times.total == records["dur_ns"].sum() and 0 < times.union <= times.wall
    table = categories(groups, times)
    values = {column.key: v for column, v in zip(table.columns, table.values, strict=True)}
    for key in ("launches", "time_us", "busy", "wall", "gb"):
        numbers = values[key].values  # type: ignore[union-attr]
        assert numbers[-1] == pytest.approx(np.nansum(numbers[:-1])), key
    assert values["busy"].values[-1] == pytest.approx(100)  # type: ignore[union-attr]
    assert kernels(groups, times).rows.size == len(groups.launches)


def test_without_modules_the_bytes_are_unknown(compiled: Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.py"
    other.write_text("print('never run')\n")
    assert main(["inductor", str(compiled.trace), "--module", str(other), "--csv", "--table", "kernels"]) == 0
    out, err = capsys.readouterr()
    assert {r["Bytes"] for r in rows_of(out) if r["Category"] == "cpp_fused"} == {"na"}
    assert "6 of 6 fused kernels without bytes" in err and "never run" not in out


def test_a_triton_launch_with_recorded_arguments(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """x, y and the sum of sin(x) and cos(y), each 10 by 10 of fp32."""
    assert main(["inductor", str(captures / "kineto/a100_triton_add.json.gz"), "--csv", "--table", "kernels"]) == 0
    (row,) = rows_of(capsys.readouterr().out)
    assert row["Kernel"] == "triton_poi_fused_add_cos_sin_0" and row["Category"] == "pointwise"
    assert (row["Bytes"], row["From"], row["Fuses"]) == ("1200", "arguments", "add,cos,sin")
    assert row["File"].endswith("/cqaokwf2bph4egogzevc22vluasiyuui4i54zpemp6knbsggfbuu.py")


@pytest.mark.parametrize("name", ["kineto/h100_vit.json.gz", "kineto/a100_train_stacks.json.gz"])
def test_real_captures_add_up(captures: Path, name: str) -> None:
    records = load(str(captures / name))
    rows = np.arange(len(records))
    groups, times = grouped(Frame(records), rows, []), busy(records, rows)
    assert groups.ns.sum() == times.total == records["dur_ns"].sum() and times.union <= min(times.total, times.wall)
    assert {"gemm", "norm", "memcpy"} <= {launch.category for launch in groups.launches}


# ---------------------------------------------------------------------------------------------- time


def _records(rows: list[tuple[int, int, int]], kind: int = ActivityKind.KERNEL) -> Records:
    columns = {name: np.full(len(rows), -1, dtype) for name, (dtype, _) in COLUMNS.items()}
    columns["kind"][:] = kind
    for at, (start, length, device) in enumerate(rows):
        columns["start_ns"][at], columns["dur_ns"][at], columns["device"][at] = start, length, device
    return Records(columns)


def test_overlapping_kernels_keep_a_device_busy_once() -> None:
    two_streams = _records([(0, 60, 0), (30, 60, 0), (95, 5, 0)])
    assert busy(two_streams, np.arange(3)) == Busy(total=125, union=95, wall=100)
    assert busy(two_streams, np.array([0, 2])) == Busy(total=65, union=65, wall=100)
    two_devices = _records([(0, 100, 0), (0, 50, 1), (50, 50, 1)])
    assert busy(two_devices, np.arange(3)) == Busy(total=200, union=200, wall=200)
    assert busy(two_devices, np.arange(0)) == Busy(0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.just(0)), min_size=1, max_size=12))
def test_busy_is_the_union(rows: list[tuple[int, int, int]]) -> None:
    covered = {at for start, length, _ in rows for at in range(start, start + length)}
    times = busy(_records(rows), np.arange(len(rows)))
    assert times.union == len(covered) <= times.wall
