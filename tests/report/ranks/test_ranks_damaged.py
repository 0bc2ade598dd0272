"""Records with anything in any column: the report tells what it can and never falls over."""

import json
from pathlib import Path

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.model.records import Records
from tests.rank_records import Job, write_rank
from tests.rank_traces import Steps, gloo

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")

TIMES = ("start_ns", "dur_ns", "launch_ns")
CODES = ("rank", "pid", "device", "stream", "step", "phase", "scope", "call", "inner", "own", "kind", "instance", "name")


def damaged(records: Records, rng: np.random.Generator) -> Records:
    """Some of the rows, with values of four columns put in places where they do not belong."""
    rows = np.sort(rng.choice(len(records), int(rng.integers(0, len(records) + 1)), replace=False))
    records = records.select(rows)
    for name in rng.choice(TIMES + CODES, 4) if len(rows) else []:
        column = records.columns[name]
        at = rng.integers(0, len(column), max(len(column) // 3, 1))
        column[at] = rng.choice([-1, 0, 1, 10**15] if name in TIMES else np.arange(-1, int(column.max()) + 1), len(at))
    return records


@pytest.mark.parametrize("seed", range(12))
def test_any_column_may_hold_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(1, 5))
    job = Job(
        ranks, steps=int(rng.integers(1, 4)), layers=2, kernels=2, steps_recorded=bool(rng.integers(2)),
        utc_ns=int(rng.choice([-1, 0, 10**18])), group=str(rng.choice(["", "0"])),
    )  # fmt: skip
    for rank in range(ranks):
        write_rank(tmp_path / "set", rank, damaged(job.records(rank), rng))
    codes = {
        main(["ranks", str(tmp_path / "set"), *more]) for more in ([], ["-o", str(tmp_path / "out")], ["--matrix", "wait"])
    }
    captured = capsys.readouterr()
    assert codes == {0} or (codes == {1} and "nothing ran on a GPU" in captured.err)
    assert ("rank" in captured.out) or "error: " in captured.err


@pytest.mark.parametrize("seed", range(8))
def test_traces_may_lack_or_hold_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    """Captures have the host's ranges as well: events lost, out of place, of other threads, and of no or absurd length."""
    rng = np.random.default_rng(seed)
    gloo(tmp_path, (0, 900)) if seed % 2 else Steps(3, begin={1: 700}, loading={(2, 1): 900}).write(tmp_path)
    for path in tmp_path.iterdir():
        trace = json.loads(path.read_text())
        events = [event for event in trace["traceEvents"] if rng.random() > 0.1]
        for at in rng.integers(0, len(events), len(events) // 4).tolist():
            key = str(rng.choice(["ts", "dur", "tid", "pid"]))
            events[at][key] = int(rng.choice([0, -5, 1, 100, 10**7, 10**12]))
        path.write_text(json.dumps({**trace, "traceEvents": events}))
    assert main(["ranks", str(tmp_path)]) in (0, 1)
    captured = capsys.readouterr()
    assert "compared" in captured.out.partition("\n")[0] or "error: " in captured.err
