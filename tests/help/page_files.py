"""The files that examples of help pages name, all tiny: recorded on a CPU without a GPU, or made up."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyprof.cli import main
from tests.compiled.test_inductor import gpu_modules, gpu_trace
from tests.conftest import ROOT
from tests.counters.test_counters import ncu_and_capture
from tests.rank_traces import Steps
from tests.report.diff.test_diff import Program, steady
from tests.report.memory.snapshots import out_of_memory
from tests.timers.test_block_timers import filled

DATA, EXAMPLES = ROOT / "tests" / "data", ROOT / "pyprof" / "examples"


def make(folder: Path) -> Path:
    """The folder with all of them."""
    folder.mkdir()
    shutil.copy(DATA / "kineto_cpu.json.gz", folder / "net.json.gz")
    shutil.copy(DATA / "nsys_emit_nvtx.sqlite", folder / "net.sqlite")
    shutil.copy(EXAMPLES / "training.py", folder / "net.py")
    shutil.copy(EXAMPLES / "custom_op.py", folder)
    for name in ("net.dict", "net.parquet"):
        assert main(["parse", str(folder / "net.json.gz"), "-o", str(folder / name)]) == 0
    Program(steady()).write(folder / "before.sqlite")
    Program([[time + 20_000 for time in times] for times in steady(seed=1)]).write(folder / "after.sqlite")
    Steps(ranks=4, loading={(2, step): 3000 for step in range(3)}).write(folder / "ranks")
    shutil.copy(folder / "ranks" / "rank0.json", folder / "gpu.json")
    gpu_trace(folder / "compiled.json")
    (folder / "modules").mkdir()
    gpu_modules(folder / "modules")
    ncu, capture = ncu_and_capture(folder)
    ncu.rename(folder / "ncu.csv")
    capture.rename(folder / "counted.json")
    filled().save(folder / "timers.npz")
    out_of_memory(folder / "snapshot.pickle")
    return folder
