"""Kernels before which the device waited for the host, and those that stood in a queue."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.loading.load import load, load_capture
from pyprof.model.records import Records
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame, waited_for_launch
from tests.tiny import Nsys, tid

CAPTURES = (
    "kineto/h100_vit.json.gz",
    "kineto/mi300_vit.json.gz",
    "kineto/v100_resnet50_2021.json.gz",
    "nsys/h100_2gpu_train.nsys2026.2.sqlite",
    "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite",
    "nvprof/v100_lm/net.sql",
)


class Calls(Nsys):
    """Kernels by the begin and end of their launch call and of their own."""

    def add(self, called: int, returned: int, start: int, end: int, *, stream: int = 7, pid: int = 7, device: int = 0) -> None:
        corr = self.kernel("k", None, start, end, stream=stream, pid=pid, device=device)
        self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
            (called, returned, tid(pid), corr, self.string("cudaLaunchKernel_v7000"))
        )


def _waited(n: Nsys, folder: Path) -> list[bool]:
    records = load_capture(n.write(folder / "net.sqlite"))
    found: list[bool] = waited_for_launch(records, records).tolist()
    return found


def test_a_kernel_that_was_queued_did_not_wait(tmp_path: Path) -> None:
    n = Calls()
    n.add(0, 100, 90, 400)  # nothing is known of what was before it
    n.add(200, 300, 410, 420)  # the first ran until 400
    n.add(430, 500, 510, 520)  # nothing ran any more
    n.add(510, 519, 521, 530)  # the third ran until 520
    n.add(515, 520, 531, 540)  # so did the fourth until 530
    n.add(535, 545, 550, 560)  # the fifth ended while this call ran
    assert _waited(n, tmp_path) == [False, False, True, False, False, True]


def test_other_streams_count_and_other_devices_and_processes_do_not(tmp_path: Path) -> None:
    n = Calls()
    n.add(0, 10, 20, 1000, stream=8)
    n.add(30, 40, 50, 60)  # its own stream was idle, the device was not
    n.add(1010, 1020, 1030, 1040)
    n.add(0, 10, 21, 22, device=1)
    n.add(30, 40, 51, 61, device=1)
    n.add(0, 10, 23, 24, pid=9)
    n.add(30, 40, 52, 62, pid=9)
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    waited = waited_for_launch(records, records)
    assert records["start_ns"][waited].tolist() == [51, 52, 1030]


def test_nothing_is_said_of_kernels_without_a_launch_of_their_own(tmp_path: Path) -> None:
    n = Calls()
    n.add(0, 10, 20, 30)
    n.kernel("k", None, 100, 110)
    n.kernel("k", 200, 220, 230, corr=77, node=1)
    n.kernel("k", None, 240, 250, corr=77, node=2)
    assert _waited(n, tmp_path) == [False] * 4


def test_a_kernel_whose_begin_was_not_recorded_did_not_wait_as_far_as_is_known() -> None:
    columns = {"kind": [0, 0], "pid": [7, 7], "device": [0, 0], "launch_ns": [10, 30], "launch_dur_ns": [5, 5]}
    records = Records({name: np.array(values) for name, values in columns.items()})
    assert waited_for_launch(records, records).tolist() == [False, False]


def test_what_is_not_shown_kept_the_device_busy_all_the_same(tmp_path: Path) -> None:
    n = Calls()
    n.add(0, 10, 20, 30)
    n.copy(1, 35, 45, 500)
    n.add(60, 70, 510, 520)
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    kernels = records.select(records["kind"] == 0)
    assert waited_for_launch(kernels, kernels).tolist() == [False, True]
    assert waited_for_launch(kernels, records).tolist() == [False, False]


@pytest.mark.parametrize("name", CAPTURES)
def test_only_rows_before_which_the_device_waited_are_bound_by_their_launch(captures: Path, name: str) -> None:
    """Each row on its own, in plain Python: the latest end of what began before it on its device."""
    records = load(str(captures / name))
    bound = next(column for column in COLUMNS if column.key == "bound").texts(Frame(records))
    busy_until: dict[tuple[int, int], int] = {}
    checked = 0
    names = ("pid", "device", "start_ns", "dur_ns", "launch_ns", "launch_dur_ns", "kind")
    rows = np.stack([records[column].astype(np.int64) for column in names], axis=1)
    assert (np.diff(rows[:, 2]) >= 0).all()
    for row, limit in zip(rows.tolist(), bound, strict=True):
        pid, device, start, took, launch, call_took, kind = row
        if limit == "launch" and kind == 0:
            assert busy_until[pid, device] <= launch + call_took, row
            checked += 1
        busy_until[pid, device] = max(busy_until.get((pid, device), -1), start + took)
    assert (checked > 0) == any(limit == "launch" for limit in bound)
