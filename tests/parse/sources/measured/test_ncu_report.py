"""Reports of Nsight Compute. None may be given away, so those that Debian's package brings are read where they are found."""

import os
from pathlib import Path

import numpy as np
import pytest

from pyprof.counters.counted import counted
from pyprof.errors import InputError
from pyprof.parse.sources.measured import ncu_report

pytest.importorskip("ncu_report", reason="the package ncu-report is not installed")


@pytest.fixture
def examples() -> Path:
    folder = os.environ.get("PYPROF_NCU_EXAMPLES")
    if not folder:
        pytest.skip("PYPROF_NCU_EXAMPLES names no folder with the example reports of nsight-compute: see scripts/install_ncu")
    return Path(folder)


def test_a_launch_of_a_known_number_of_operations(examples: Path) -> None:
    (file,) = examples.rglob("addConstDouble.ncu-rep")
    found = ncu_report.read(file, "addConstDouble.ncu-rep")
    (launch,) = found.launches
    assert (launch.name, launch.grid, launch.block) == (
        "addConstDouble(int, double *, double, double *)", (12288, 1, 1), (256, 1, 1),
    )  # fmt: skip
    assert launch.cc == "8.6" and found.gpus == {0: "NVIDIA RTX A4500"}
    values = counted(found)
    assert values.vector["fp64"][0] == pytest.approx(12288 * 256, rel=1e-5)  # one addition a thread
    assert (values.dram_bytes[0], values.time_ns[0]) == (25_170_176 + 22_777_984, 89_728)
    assert np.isnan(values.tensor[0])


def test_a_damaged_report(tmp_path: Path) -> None:
    file = tmp_path / "broken.ncu-rep"
    file.write_bytes(b"NVR\0" + bytes(200))
    with pytest.raises(InputError, match=r"broken.*cannot read it|no launch was measured"):
        ncu_report.read(file, "broken.ncu-rep")
