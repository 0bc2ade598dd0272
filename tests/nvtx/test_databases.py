"""torch's own databases, float32: the same results, exceptions and arguments with the instrumenter on as off."""

from __future__ import annotations

import pytest
import torch
from nvtx_recording import Recorder

pytest.importorskip("expecttest", reason="torch's own databases need the package expecttest")

import databases

pytestmark = pytest.mark.filterwarnings("ignore")

# Entries that leave no marker, with the reason.
SILENT = {
    "broadcast_shapes": "a Python function that calls no op",
    **dict.fromkeys(("T", "H", "mT", "mH"), "a property, not a call"),
    **dict.fromkeys(
        ("jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args", "jiterator_binary_return_by_ref"),
        "works on CUDA only",
    ),
    "jiterator_2inputs_2outputs": "works on CUDA only",
    **dict.fromkeys(
        ("_native_batch_norm_legit", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"),
        "the database calls torch.ops.aten",
    ),
}


@pytest.fixture
def one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("most", "samples", "checked"), [(2, 1_000, 600), pytest.param(None, 15_000, 10_000, marks=pytest.mark.slow)]
)
def test_operators(recorder: Recorder, most: int | None, samples: int, checked: int) -> None:
    report = databases.run_operators(recorder, torch.float32, most)
    recorder.clear()
    assert report.wrong == {}
    assert report.entries > 600 and report.samples > samples and report.checked > checked
    assert {name for name in report.silent if name not in SILENT} == set()


@pytest.mark.usefixtures("one_thread")
@pytest.mark.slow
def test_modules_forward_and_backward(recorder: Recorder) -> None:
    report = databases.run_modules(recorder)
    recorder.clear()
    assert report.wrong == {}
    assert report.entries > 100 and report.samples > 3_000 and not report.silent


@pytest.mark.usefixtures("one_thread")
def test_optimizers(recorder: Recorder) -> None:
    report = databases.run_optimizers(recorder)
    recorder.clear()
    assert report.wrong == {}
    assert report.entries >= 15 and report.samples > 150
