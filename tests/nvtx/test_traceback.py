"""Tracebacks and warnings are those of the program without the instrumenter."""

import gc
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvtx_recording import Recorder

from pyprof import nvtx as instrumenter

HERE = Path(__file__).name


class Failing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, x)


def _failing_step() -> None:
    def closure() -> float:
        raise ArithmeticError

    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1).step(closure)


def _trace(run: Callable[[], Any]) -> list[tuple[str, int | None, str]]:
    try:
        run()
    except Exception as error:
        return [(entry.filename, entry.lineno, entry.name) for entry in traceback.extract_tb(error.__traceback__)][1:]
    raise AssertionError("no exception")


FAILURES: list[Callable[[], Any]] = [
    lambda: torch.mm(torch.ones(2, 3), torch.ones(2, 3)),
    lambda: torch.ones(2) @ torch.ones(3),
    lambda: torch.ones(2)[7],
    lambda: Failing()(torch.ones(2, 3)),
    lambda: torch.ops.aten.mm(torch.ones(2, 3), torch.ones(2, 3)),
    lambda: torch.func.vmap(lambda x: torch.mm(x, x))(torch.ones(2, 3)),
    _failing_step,
]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 puts the frame back when the exception goes on")
@pytest.mark.parametrize("method", ["patch", "mode"])
@pytest.mark.parametrize("number", range(len(FAILURES)))
def test_tracebacks_have_no_frame_of_ours(number: int, method: str) -> None:
    if method == "mode" and number == 4:
        pytest.skip("an op of torch.ops is called twice over under any TorchFunctionMode")
    plain = _trace(FAILURES[number])
    recorder = Recorder()
    instrumenter.init(backend=recorder, method=method)
    assert _trace(FAILURES[number]) == plain
    instrumenter.pause()
    assert _trace(FAILURES[number]) == plain
    assert recorder.open == 0


def test_causes_and_contexts_are_kept(recorder: Recorder) -> None:
    with pytest.raises(ValueError) as caught:
        try:
            torch.ones(2)[5]
        except IndexError as error:
            raise ValueError from error
    assert type(caught.value.__cause__) is IndexError
    with pytest.raises(RuntimeError) as caught_other:
        try:
            raise KeyError
        except KeyError:
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert type(caught_other.value.__context__) is KeyError


def _warned() -> list[tuple[str, str, int]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(2):
            torch.std(torch.ones(1))
        torch.std(torch.ones(1))
    return [(str(w.message)[:30], Path(w.filename).name, w.lineno) for w in found]


def test_warnings_keep_their_place_and_are_shown_once_for_each() -> None:
    plain = _warned()
    assert [file for _, file, _ in plain] == [HERE] * 2
    instrumenter.init(backend=Recorder())
    assert _warned() == plain


def test_a_filter_by_module_still_holds(recorder: Recorder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module=__name__.replace(".", r"\."))
        torch.std(torch.ones(1))
    assert "torch.std" in recorder.ops()


def test_the_callers_names_are_not_kept_alive(recorder: Recorder) -> None:
    source = "def run():\n    global t\n    t = torch.ones(2) + 1\n"
    from types import FunctionType, ModuleType

    names: dict[str, Any] = {"torch": torch, "__name__": "gone"}
    (code,) = [part for part in compile(source, "gone.py", "exec").co_consts if hasattr(part, "co_code")]
    FunctionType(code, names)()
    assert isinstance(torch, ModuleType)
    gone = weakref.ref(names["t"])
    names.clear()
    gc.collect()
    assert gone() is None
    assert recorder.markers[-1].src[0].startswith("gone.py:3")
