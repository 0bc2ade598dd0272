"""Every integer column of Records comes back from net.dict and from Parquet, each line's own number in its own row."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyprof.loading.formats import op_rules
from pyprof.loading.load import load
from pyprof.model.opcall import OpCall
from pyprof.model.records import COLUMNS, POOLED, GpuInfo, MarkedStep, Records, Stack
from pyprof.model.trace import ActivityKind
from pyprof.parse.records import parquet
from pyprof.parse.records.netdict.read import read_lines
from pyprof.parse.records.netdict.write import OPTIONAL, lines

ROWS = 5
PLAIN = [name for name in COLUMNS if name not in POOLED and name != "name"]
# What a column may hold; any other holds numbers that no other column has. Codes are in the order in which lines are read.
VALID = {
    "kind": [ActivityKind.MEMCPY, 0, 1, ActivityKind.MEMCPY, 4], "copykind": [1, 2, 8, 9, 10], "dir": [0, 1, 0, 1, 1],
    "phase": [4, 3, 2, 1, 0], "by_time": [1, 0, 1, 0, 0], "phase_inferred": [1, -1, 1, -1, -1], "recomputed": [1, 0, 1, 0, 0], "name": [0, 1, 2, 3, 4],
    "stack": [0, 2, 4, 6, 8], "scope": [1, 3, 5, 7, 9], "gpu": [0, 1, 2, 3, 4], "engine_step": [0, 1, 2, 3, 4],
    "call": [0, 3, 6, 9, 12], "own": [1, 4, 7, 10, 13], "inner": [2, 5, 8, 11, 14],
}  # fmt: skip


def numbered(different: list[str]) -> Records:
    """Records that differ in these columns, and are alike in the others."""
    columns = {}
    for at, (name, (dtype, _)) in enumerate(COLUMNS.items()):
        values = np.array(VALID.get(name, range(100 * at + 7, 100 * at + 7 + ROWS)))
        columns[name] = (values if name in different else np.full(ROWS, values[0])).astype(dtype)
    columns["copykind"][columns["kind"] != ActivityKind.MEMCPY] = -1
    records = Records(columns, seq_offsets=np.arange(ROWS + 1), seq_numbers=columns["seq"].copy())
    for row in range(ROWS):
        records.strings.code(f"kernel {row}")
        records.stacks += [Stack(layer=(f"own {row}",), seq_names=("aten::mm",)), Stack(layer=(f"scope {row}",))]
        records.calls += [OpCall("aten", f"{name}{row}", dispatcher=True) for name in ("call", "own", "inner")]
        records.gpus.append(GpuInfo(f"GPU {row}"))
        records.engine_steps.append(MarkedStep(7, row, 10 * row, 10 * row + 5, ("step[DECODE bs=2]",)))
    return records


@pytest.mark.parametrize("different", [list(COLUMNS), *([name] for name in PLAIN)], ids=lambda names: "-".join(names[:2]))
def test_each_row_keeps_its_own_numbers(tmp_path: Path, different: list[str]) -> None:
    records = numbered(different)
    again = read_lines(lines(records), "net.dict", op_rules())
    for name in COLUMNS:
        assert again[name].dtype == COLUMNS[name][0], name
        assert again[name].tolist() == records[name].tolist(), name
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    parquet.write(records, tmp_path / "net.parquet")
    stored = load(str(tmp_path / "net.parquet"))
    for name in COLUMNS:
        assert stored[name].dtype == COLUMNS[name][0], name
        assert stored[name].tolist() == records[name].tolist(), name


def test_a_column_that_is_added_needs_no_other_declaration(tmp_path: Path) -> None:
    added = 'from pyprof.model.records import COLUMNS\nCOLUMNS["cluster_x"] = ("i4", "thread blocks of a cluster in x")\n'
    script = f"{added}from tests.parse.records import test_every_column as t\nfrom pathlib import Path\n"
    script += f"for different in (['cluster_x'], list(COLUMNS)):\n    t.test_each_row_keeps_its_own_numbers(Path({str(tmp_path)!r}), different)\n"
    script += "assert list(t.OPTIONAL)[-1] == 'cluster_x' and not t.OPTIONAL['cluster_x'].shared\n"
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root)


def test_integers_are_where_they_have_always_been_in_a_line() -> None:
    assert list(OPTIONAL) == [
        "start", "pid", "rank", "corr", "launch", "launchdur", "instance", "fwd_instance", "step", "recomputed", "regs", "smem",
        "bytes", "graph_node", "inferred",
    ]  # fmt: skip
