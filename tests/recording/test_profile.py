"""`pyprof.profile` and the counting of steps: what is recorded begins and ends with a step, and torch is as before."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

import pyprof
from pyprof import nvtx
from pyprof.errors import UsageError
from pyprof.model.markers import Kind
from pyprof.nvtx.state import STATE
from pyprof.recording import profile as profile_module
from pyprof.recording.profile import Recorder as Switch
from pyprof.recording.steps import StepClock, Steps, StepWindow
from tests.nvtx.nvtx_recording import Recorder


class Ranges(Recorder):
    """Ranges, and what they tell of steps."""

    def sizes(self) -> list[int]:
        """Rows of the input of each linear layer."""
        return [marker.call.tensors[0].shape[0] for marker in self.of("torch.nn.functional.linear")]

    def names(self, kind: Kind) -> list[str]:
        return [marker.name for marker in self.markers if marker.kind is kind]


@pytest.fixture
def ranges() -> Iterator[Ranges]:
    """What is recorded inside `profile`; before and after it nothing is instrumented, and optimizers are torch's own."""
    optimizers = [torch.optim.Optimizer, torch.optim.SGD, torch.optim.AdamW]
    for cls in optimizers[1:]:
        cls([torch.ones(1, requires_grad=True)], lr=0.1)  # torch prepares a class when it is first used
    before = [dict(vars(cls)) for cls in optimizers]
    found = Ranges()
    nvtx.init(backend=found)
    nvtx.pause()
    yield found
    assert (found.open, STATE.on) == (0, False)
    nvtx.shutdown()
    assert [dict(vars(cls)) for cls in optimizers] == before
    assert not nvtx.api.step_listeners and not nvtx.api.held_back


def _train(sizes: tuple[int, ...], *, step: bool = False, scheduler: bool = False, optimizer: str = "SGD") -> Iterator[None]:
    """One training step at a time; the layer's input has as many rows as the size of the step."""
    net = torch.nn.Linear(8, 4)
    opt = getattr(torch.optim, optimizer)(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 2) if scheduler else None
    yield
    for size in sizes:
        if step:
            pyprof.step()
        net(torch.ones(size, 8)).sum().backward()
        opt.step()
        if schedule is not None:
            schedule.step()
        yield


@pytest.mark.parametrize("more", [{}, {"scheduler": True}, {"step": True}, {"optimizer": "AdamW"}], ids=str)
@pytest.mark.parametrize("made_before", [True, False])
def test_the_chosen_steps_and_no_others(ranges: Ranges, more: dict[str, Any], made_before: bool) -> None:
    loop = _train((2, 3, 5, 7, 11), **more)
    if made_before:
        next(loop)
    with pyprof.profile((1, 3)):
        for _ in loop:
            pass
    assert ranges.sizes() == [3, 5]
    assert ranges.names(Kind.OPTIMIZER) == [f"{more.get('optimizer', 'SGD')}.step"] * 2 or (made_before and "scheduler" in more)
    steps = [int(name.removeprefix("step ")) for name in ranges.names(Kind.STEP)]
    assert steps == [1, 2] or ("step" in more and len(steps) == 2)  # `pyprof.step` goes on counting where it was


def test_without_steps_all_of_the_block(ranges: Ranges) -> None:
    loop = _train((2, 3, 5))
    next(loop)
    next(loop)
    with pyprof.profile():
        next(loop)
    next(loop)
    assert ranges.sizes() == [3]


def test_a_programs_own_init_does_not_begin_to_record(ranges: Ranges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvtx.api, "_nvtx", lambda: ranges)
    with pyprof.profile((1, 2)):
        nvtx.api.init()
        for _ in _train((2, 3, 5)):
            pass
    assert ranges.sizes() == [3]


def test_it_ends_with_the_block_also_by_an_exception(ranges: Ranges) -> None:
    with pytest.raises(ZeroDivisionError), pyprof.profile((0, 100)):
        loop = _train((2, 3))
        next(loop)
        next(loop)
        raise ZeroDivisionError
    next(loop)
    assert ranges.sizes() == [2]


def test_the_lack_of_cuda_is_said_once(ranges: Ranges, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    profile_module._print_once.cache_clear()
    for _ in range(2):
        with pyprof.profile():
            torch.ones(2)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("pyprof: torch's own ranges are missing, and with them the backward pass: ")


@pytest.mark.parametrize("steps", [(3, 3), (5, 2), (-1, 2)])
def test_steps_that_are_none(steps: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="contain no step"):
        pyprof.profile(steps)


def test_of_several_optimizers_the_first_counts() -> None:
    begun: list[int] = []
    clock = StepClock(begun.append)
    clock.start()
    try:
        weights = [torch.ones(1, requires_grad=True) for _ in range(2)]
        generator, critic = (torch.optim.SGD([weight], lr=0.1) for weight in weights)
        for _ in range(3):
            generator.step()
            critic.step()
    finally:
        clock.stop()
    generator.step()
    assert begun == [0, 1, 2, 3] and clock.number == 3


def test_a_step_that_fails_is_none_and_its_error_passes() -> None:
    class Failing(torch.optim.SGD):  # type: ignore[misc, name-defined]
        def step(self, closure: Any = None) -> Any:
            raise ZeroDivisionError

    begun: list[int] = []
    clock = StepClock(begun.append)
    clock.start()
    try:
        failing = Failing([torch.ones(1, requires_grad=True)], lr=0.1)
        good = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
        with pytest.raises(ZeroDivisionError):
            failing.step()
        good.step()
    finally:
        clock.stop()
    assert begun == [0, 1]


@pytest.mark.parametrize(
    ("windows", "numbers", "expected"),
    [
        (((2, 4),), [0, 1, 2, 3, 4, 0, 1, 2, 3], [2, 4]),
        (((1, 2), (2, 3), (5, 7)), [0, 1, 2, 3, 4, 5, 6], [1, 2, 2, 3, 5, "end"]),
        (((1, 2), (4, 5)), [0, 3, 4, 6], [4, 6]),  # the program's own numbers jump
        (((1, 2),), [0], []),
    ],
)
def test_each_window_opens_once(windows: Steps, numbers: list[int], expected: list[int | str]) -> None:
    said: list[int | str] = []
    now: list[int | str] = []
    window = StepWindow(windows, lambda: said.append(now[-1]), lambda: said.append(now[-1]))
    for number in numbers:
        now.append(number)
        window.begins(number)
    now.append("end")
    window.close()
    assert said == expected


def test_steps_on_another_thread_are_counted_and_not_marked(ranges: Ranges) -> None:
    """Ranges belong to the thread that opens them: the one that is open on the first thread could not be closed."""
    clock = StepClock(lambda number: None, mark=True)
    nvtx.resume()
    clock.start(in_step=True)
    try:
        opt = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
        opt.step()
        assert not clock.strayed
        thread = threading.Thread(target=opt.step)
        thread.start()
        thread.join()
    finally:
        clock.stop()
        nvtx.pause()
    assert ranges.names(Kind.STEP) == ["step 0", "step 1"]
    assert clock.strayed and clock.number == 2


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A torch that seems to have CUDA, and what is asked of it."""
    asked: list[str] = []

    class Cudart:
        def __getattr__(self, name: str) -> Any:
            return lambda: asked.append(name)

    class Emit:
        def __init__(self, record_shapes: bool) -> None:
            self.shapes = record_shapes

        def __enter__(self) -> None:
            asked.append(f"emit_nvtx({self.shapes})")

        def __exit__(self, *_: object) -> None:
            asked.append("end of emit_nvtx")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: asked.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "cudart", Cudart)
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", Emit)
    return asked


ALL = ["synchronize", "cudaProfilerStart", "emit_nvtx(True)", "end of emit_nvtx", "synchronize", "cudaProfilerStop"]


def test_the_cuda_profiler_runs_on_the_chosen_steps(ranges: Ranges, cuda: list[str]) -> None:
    with pyprof.profile((1, 2)):
        loop = _train((2, 3, 5))
        next(loop)
        assert cuda == []
        next(loop)
        assert cuda == ALL[:3]
        next(loop)
        assert cuda == ALL
        next(loop)
    assert cuda == ALL


def test_deferred_cuda_is_left_alone_until_the_program_uses_it(
    ranges: Ranges, cuda: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "_lazy_call", queue.append)
    early, late = Switch(defer=True), Switch(defer=True)
    early.enter()
    early.leave()
    late.enter()
    assert cuda == []
    for action in queue:  # the program begins to use CUDA: too late for the first, whose steps are over
        action()
    assert cuda == ALL[:3]
    late.leave()
    assert cuda == ALL
