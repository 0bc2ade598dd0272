"""Whatever raises while a call is recorded reaches the program, and leaves no range open."""

import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

import pytest
import torch

from pyprof import nvtx
from pyprof.nvtx.api import end_step
from pyprof.nvtx.traceback import interrupted


class Stop(Exception):
    """What the program raises."""


class Ranges:
    """A recorder written in Python, which can be interrupted before it has done anything."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.too_many = 0

    def prepare(self, text: str) -> str:
        return text

    def push(self, text: str) -> None:
        self.open.append(text)

    def pop(self) -> None:
        if self.open:
            self.open.pop()
        else:
            self.too_many += 1


def every_call(program: Callable[[], object], ranges: Ranges) -> int:
    """Run the program again and again, raising at its first call of a function, its second, ...; how many there were."""
    calls = at = 0

    def trace(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal at
        at -= event == "call"
        if at == 0 and event == "call":
            raise Stop

    while True:
        calls += 1
        at = calls
        sys.settrace(trace)
        try:
            program()
        except Stop:
            torch.set_grad_enabled(True)  # torch's own `with no_grad()` may be left half-way
            end_step()  # as the next step does, where the `with` of this one was interrupted
            assert not ranges.open and not ranges.too_many, calls
        else:
            return calls
        finally:
            sys.settrace(None)
        assert calls < 5000


@pytest.mark.parametrize("method", ["patch", "mode"])
def test_raised_at_every_call(method: str) -> None:
    ranges = Ranges()
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    x, sizes = torch.ones(2, 4), iter(range(1, 1 << 30))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    nvtx.init(mode="on", backend=ranges, method=method)
    try:

        def program() -> None:
            torch.ones(next(sizes)).add(1)  # a new size: it is described
            with nvtx.step():
                net(x)[0]
                optimizer.step()

        assert every_call(program, ranges) > 40
        assert nvtx.stats().errors == 0
    finally:
        nvtx.shutdown()


def _caught(function: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as found:
        function()
    return found.value


def _handled(*arguments: object) -> None:
    raise TypeError("of the handler")


@pytest.mark.parametrize("handler", [_handled, lambda *_: 1 / 0])
def test_a_signals_handler_is_told_by_its_frame(handler: Callable[..., None]) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        assert interrupted(_caught(lambda: signal.raise_signal(signal.SIGUSR1)))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_another_thread_raises() -> None:
    def until_raised() -> None:
        raised = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raised(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(TypeError))
        while True:
            pass

    assert interrupted(_caught(until_raised))


class Refuses(torch.Tensor):
    """A tensor whose own property fails, as the program could not know: that is no interruption."""

    @property
    def shape(self) -> torch.Size:
        raise TypeError


def test_defects_are_ours() -> None:
    assert not interrupted(_caught(lambda: Refuses().shape))
    assert not interrupted(_caught(lambda: next(iter(()))))
    assert not interrupted(_caught(lambda: int("a")))
