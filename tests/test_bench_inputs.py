"""What scripts/bench makes and checks its inputs with: a trace repeated, a capture held against the truth of its generator."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pyprof.loading.formats import op_rules
from pyprof.loading.load import load_capture, open_trace
from pyprof.model.trace import ActivityKind
from pyprof.parse.attribution.attribute import innermost_ranges
from tests.tiny import Nsys, tid

BENCH = Path(__file__).resolve().parent.parent / "scripts/bench"


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "capture", "name"),
    [("kineto", "kineto/h100_vit.json.gz", "long.json"), ("nvprof", "nvprof/v100_lm/net.sql", "long.sql")],
)
def test_a_capture_repeated_is_what_a_longer_program_would_have_recorded(
    captures: Path, tmp_path: Path, script: str, capture: str, name: str
) -> None:
    once, thrice = captures / capture, tmp_path / name
    done = _run(BENCH / f"repeat_{script}.py", once, thrice, "--times", 3)
    assert done.returncode == 0 and "3 times" in done.stdout, done.stderr
    short, long = load_capture(once), load_capture(thrice)
    assert len(long) == 3 * len(short)
    turns = np.array_split(np.arange(len(long)), 3)
    for turn in turns:
        part = long.select(turn)
        for column in ("dur_ns", "stream", "grid_x", "kind", "dir", "phase", "tid"):
            assert (part[column] == short[column]).all(), column
        assert [part.calls[c].name for c in part["call"].tolist()] == [short.calls[c].name for c in short["call"].tolist()]
        assert len(np.unique(part["instance"])) == len(np.unique(short["instance"]))
    numbers = [[n for n in long["instance"][turn].tolist() if n >= 0] for turn in turns]
    assert all(min(after) > max(before) for before, after in pairwise(numbers))
    assert long.counts == {what: 3 * count for what, count in short.counts.items()}


def test_a_kernel_in_another_range_than_the_truth_says_is_told(tmp_path: Path) -> None:
    n = Nsys()
    text = "aten::mm, seq = 10, op_id = 9, sizes = [[4, 2], [2, 8]]"
    n.range(text, 10, 50)
    inside, outside, orphan = n.kernel("k", 20, 100, 200), n.kernel("k", 60, 200, 300), n.kernel("k", None, 300, 400)
    capture = n.write(tmp_path / "n.sqlite")
    rows = [(inside, 1, f'"{text}"'), (outside, 1, ""), (orphan, 0, f'"{text}"')]
    for said, code, told in (
        (rows, 0, "3 kernels, 0 differ"),
        ([*rows[:1], (outside, 1, f'"{text}"'), rows[2]], 1, "1 differ"),
    ):
        truth = "".join(f"{tid() & ~0xFFFFFF},{corr},{has},{range_text}\n" for corr, has, range_text in said)
        (tmp_path / "truth.csv").write_text("globalPid,correlationId,has_launch,innermost\n" + truth)
        done = _run(BENCH / "truth.py", capture, tmp_path / "truth.csv")
        assert (done.returncode, told in done.stdout) == (code, True), done.stdout + done.stderr
    assert (load_capture(capture)["kind"] == ActivityKind.KERNEL).all()


@pytest.mark.parametrize("depth", [8, 300, 0])
def test_kernels_of_a_deep_capture_are_in_the_ranges_that_they_were_put_in(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "deep.sqlite"
    done = _run(BENCH / "deep.py", "--ranges", 600, "--depths", depth, "--write", path)
    assert done.returncode == 0 and "1800 rows" in done.stdout, done.stderr
    trace = open_trace(path)
    launched, innermost = innermost_ranges(trace, op_rules())
    order = np.argsort(trace.activities["corr"])
    row = innermost[order]
    level = np.arange(600) % (depth or 600)
    # Of a range popped too early and the one in it the later is no part of the stack, a start/end range that crosses never.
    own = ~np.isin(level % 8, (3, 4, 7))
    assert len(order) == 600 and launched.all() and (row >= 0).all() and (row[own] == np.arange(600)[own]).all()
    assert (row <= np.arange(600)).all() and (level[row] + 2 >= level).all()
    nested = np.cumsum(~np.isin(np.arange(depth or 600) % 8, (4, 7)))[level]
    told = [count for what, count in load_capture(path).counts.items() if "128 nested ranges" in what]
    assert sum(told) == np.count_nonzero(nested > 128) == {8: 0, 300: 260, 0: 430}[depth]
