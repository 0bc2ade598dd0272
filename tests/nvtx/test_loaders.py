"""Batches of DataLoaders in ranges, and what is left as it was."""

import pytest
import torch
from nvtx_recording import Recorder
from torch.utils.data import DataLoader, Dataset

from pyprof import nvtx as instrumenter
from pyprof.parse.attribution.host import says_loading


class Numbers(Dataset[torch.Tensor]):
    """Random numbers, one more than asked for raises."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(3) + index


class Broken(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        raise LookupError("no such picture")


def loaded(workers: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return list(DataLoader(Numbers(), 2, shuffle=True, num_workers=workers))


@pytest.mark.parametrize(("workers", "name"), [(0, "_SingleProcessDataLoaderIter"), (2, "_MultiProcessingDataLoaderIter")])
def test_each_batch_is_a_range_of_torchs_name_and_the_same_batch(workers: int, name: str) -> None:
    before, recorder = loaded(workers), Recorder()
    with instrumenter.instrument(backend=recorder):
        during = loaded(workers)
    ranges = [text for text in recorder.texts if text.startswith("enumerate(DataLoader)")]
    assert ranges == [f"enumerate(DataLoader)#{name}.__next__"] * 4  # three batches, and that there are no more
    assert says_loading(ranges[0])
    assert all(torch.equal(one, other) for one, other in zip(before, during, strict=True))
    assert recorder.open == 0


def test_what_a_data_set_raises_comes_through_without_our_frames() -> None:
    recorder = Recorder()
    with instrumenter.instrument(backend=recorder), pytest.raises(LookupError) as raised:
        next(iter(DataLoader(Broken())))
    assert recorder.open == 0
    assert not [entry for entry in raised.traceback if "pyprof/nvtx" in str(entry.path)]


def test_paused_it_records_nothing() -> None:
    recorder = Recorder()
    with instrumenter.instrument(backend=recorder):
        batches = iter(DataLoader(Numbers()))
        recorder.clear()
        instrumenter.pause()
        next(batches)
        assert not recorder.texts


def test_under_emit_nvtx_torch_writes_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._C import _autograd, _profiler

    recorder = Recorder()
    monkeypatch.setattr(_autograd, "_profiler_type", lambda: _profiler.ActiveProfilerType.NVTX)
    with instrumenter.instrument(backend=recorder):
        next(iter(DataLoader(Numbers())))
    assert not [text for text in recorder.texts if "DataLoader" in text]
