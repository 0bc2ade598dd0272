"""Qualified paths of modules, without anyone naming them."""

import pytest
import torch
from nvtx_recording import Recorder
from torch import nn

from pyprof import nvtx as instrumenter


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(4, 4)
        self.tied = self.blocks[0].fc

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.tied(self.head(x))


def test_paths_nest_and_ops_lie_within(recorder: Recorder) -> None:
    net = Net()
    recorder.clear()
    net(torch.ones(1, 4))
    assert recorder.layers() == ["Net", "blocks.0", "blocks.0.fc", "blocks.1", "blocks.1.fc", "head", "tied"]
    around = [
        t.partition(" #")[0] for t in recorder.nested[recorder.texts.index(recorder.of("torch.nn.functional.linear")[0].text)]
    ]
    assert around == ["Net", "blocks.0", "blocks.0.fc"]


def test_a_module_called_outside_its_parent_is_told_by_its_place(recorder: Recorder) -> None:
    net = Net()
    recorder.clear()
    net.blocks[1].fc(torch.ones(1, 4))
    net(torch.ones(1, 4))
    net.head(torch.ones(1, 4))
    assert recorder.layers()[0] == "blocks.1.fc"
    assert recorder.layers()[-1] == "head"


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_of_a_model_built_before_init_is_told_by_its_place_when_it_runs_again(
    recorder: Recorder, reentrant: bool
) -> None:
    instrumenter.shutdown()
    net, x = Net(), torch.ones(1, 4, requires_grad=True)
    instrumenter.init(backend=recorder)
    outer = nn.Sequential(nn.Linear(4, 4))
    outer.forward = lambda x: net.head(torch.utils.checkpoint.checkpoint(net.blocks[1], x, use_reentrant=reentrant))  # type: ignore[method-assign]
    net(x)
    recorder.clear()
    outer(x).sum().backward()
    assert recorder.layers()[-2:] == ["blocks.1", "blocks.1.fc"]


def test_a_module_that_no_one_holds_is_told_by_its_class(recorder: Recorder) -> None:
    class Loose(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.ReLU()(x)

    recorder.clear()
    Loose()(torch.ones(1))
    assert recorder.layers() == ["Loose", "ReLU"]


def test_modules_added_later_are_found(recorder: Recorder) -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    net(torch.ones(1, 4))
    net.append(nn.Sequential(nn.ReLU()))
    recorder.clear()
    net(torch.ones(1, 4))
    assert recorder.layers() == ["Sequential", "0", "1", "1.0"]


def test_a_failing_module_closes_its_range(recorder: Recorder) -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(RuntimeError, match="shapes"):
        net(torch.ones(1, 5))
    assert recorder.open == 0
    recorder.clear()
    net(torch.ones(1, 4))
    assert recorder.layers() == ["Sequential", "0"]


def test_a_module_that_cannot_be_hashed_is_still_told(recorder: Recorder) -> None:
    class Odd(nn.Module):
        __hash__ = None  # type: ignore[assignment]

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ReLU()

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("not to be compared")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    odd = Odd()
    recorder.clear()
    odd(torch.ones(1))
    assert recorder.layers() == ["Odd", "inner"]


def test_modules_are_not_kept_alive(recorder: Recorder) -> None:
    import gc
    import weakref

    net = Net()
    net(torch.ones(1, 4))
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS"])
def test_optimizer_steps_are_told(recorder: Recorder, name: str) -> None:
    net = nn.Linear(2, 2)
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(torch.ones(1, 2)).sum()
        loss.backward()
        return loss

    recorder.clear()
    optimizer.step(closure)
    assert [m.name for m in recorder.markers if m.name.endswith(".step")] == [f"{name}.step"]


def test_an_optimizer_of_ones_own_made_later_is_told(recorder: Recorder) -> None:
    class Mine(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            super().step()

    net = nn.Linear(2, 2)
    mine = Mine(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(mine, 1)
    net(torch.ones(1, 2)).sum().backward()
    recorder.clear()
    mine.step()
    scheduler.step()
    assert [m.name for m in recorder.markers if m.name.endswith(".step")] == ["Mine.step"]


def test_a_failing_step_closes_its_range(recorder: Recorder) -> None:
    class Bad(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            raise ArithmeticError

    bad = Bad(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(ArithmeticError):
        bad.step()
    assert recorder.open == 0
