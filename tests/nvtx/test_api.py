"""init, shutdown and their relatives: once, nested, undone, and invisible to what looks at torch's functions."""

from __future__ import annotations

import copy
import inspect
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from nvtx_recording import Recorder, differences, snapshot

import pyprof
from pyprof import nvtx as instrumenter
from pyprof.errors import UsageError
from pyprof.nvtx import api
from pyprof.nvtx.backend import tool_attached
from pyprof.nvtx.standin import StandIn


def test_init_twice_is_init_once(recorder: Recorder) -> None:
    before = torch.add
    assert instrumenter.init(backend=recorder)
    assert torch.add is before
    recorder.clear()
    torch.ones(2)
    assert recorder.ops() == ["torch.ones"]


def test_shutdown_restores_every_attribute_and_may_be_repeated() -> None:
    before = snapshot()
    table = dict(torch.jit._builtins._get_builtin_table())
    recorder = Recorder()
    for _ in range(3):
        instrumenter.init(backend=recorder)
        assert differences(before, snapshot())
        instrumenter.shutdown()
        instrumenter.shutdown()
        assert differences(before, snapshot()) == []
    assert table.items() <= torch.jit._builtins._get_builtin_table().items()
    assert not torch.nn.modules.module._global_module_registration_hooks
    assert "__add__" not in vars(torch.Tensor)


def test_with_form_restores_also_after_an_exception_and_nests() -> None:
    before = snapshot()
    outer, inner = Recorder(), Recorder()
    with pytest.raises(KeyError), instrumenter.instrument(backend=outer):
        torch.ones(1)
        with instrumenter.instrument(backend=inner):
            torch.ones(2)
        torch.ones(3)
        raise KeyError
    assert differences(before, snapshot()) == []
    assert outer.calls() == ["ones(1)", "ones(3)"]
    assert inner.calls() == ["ones(2)"]


def test_pause_and_resume(recorder: Recorder) -> None:
    recorder.clear()
    instrumenter.pause()
    torch.ones(1)
    instrumenter.resume()
    torch.ones(2)
    assert recorder.calls() == ["ones(2)"]
    instrumenter.shutdown()
    instrumenter.resume()
    assert not instrumenter.enabled()


def test_auto_does_nothing_where_no_tool_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "tool_attached", lambda: "")
    before = snapshot()
    assert pyprof.init() is False
    assert differences(before, snapshot()) == []
    monkeypatch.setattr(api, "tool_attached", tool_attached)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    assert pyprof.init() is True


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="never"):
        instrumenter.init(mode="never")


def test_functions_look_like_what_they_stand_for() -> None:
    looks = {}
    for kind in ("plain", "patched"):
        if kind == "patched":
            instrumenter.init(backend=Recorder())
        functions = [torch.add, torch.Tensor.add, torch.Tensor.__getitem__, F.linear, F.conv2d, torch.linalg.det]
        looks[kind] = [(f.__name__, f.__doc__, _signature(f)) for f in functions]
        assert all(callable(f) for f in functions)
    assert looks["plain"] == looks["patched"]


def _signature(function: object) -> str:
    try:
        return str(inspect.signature(function))  # type: ignore[arg-type]
    except ValueError:
        return "none"


def test_one_function_reached_by_two_names_stays_one(recorder: Recorder) -> None:
    assert F.conv2d is torch.conv2d
    assert F.linear is torch._C._nn.linear


def test_functions_written_in_python_keep_their_identity() -> None:
    before = (F.relu, F.softmax, F.multi_head_attention_forward, torch.nn.Linear.forward)
    instrumenter.init(backend=Recorder())
    assert before == (F.relu, F.softmax, F.multi_head_attention_forward, torch.nn.Linear.forward)
    assert torch.nn.TransformerEncoderLayer(8, 2).activation_relu_or_gelu == 1


def test_patched_functions_pickle_by_name(recorder: Recorder) -> None:
    assert api._patches is not None
    replaced = [new for _, _, _, new in api._patches._done if isinstance(new, StandIn)]
    assert len(replaced) > 1200
    # A few builtins of old torches (`torch.vitals_enabled`) belong to a capsule, which no pickle holds, without us either.
    replaced = [new for new in replaced if type(getattr(new._pyprof_original, "__self__", None)).__name__ != "PyCapsule"]
    # Tensor.__pow__ cannot be pickled without us either: its name is that of another method.
    unlike = {new.__name__ for new in replaced if pickle.loads(pickle.dumps(new)) is not new}
    assert unlike == {"pow", "pow_"}
    assert all(copy.deepcopy(new) is new and copy.copy(new) is new for new in replaced)
    text = pickle.dumps((torch.add, F.gelu))
    instrumenter.shutdown()
    assert pickle.loads(text) == (torch.add, F.gelu)
    assert text == pickle.dumps((torch.add, F.gelu))


def test_a_function_kept_in_a_class_binds_as_ever() -> None:
    def results() -> list[str]:
        class Holder:
            function = torch.add
            method = torch.Tensor.add

        class Own(torch.Tensor):
            twin = torch.Tensor.add

        x = torch.ones(2)
        found = [str(Holder.function(x, x)), str(Holder().function(x, x)), str(x.as_subclass(Own).twin(x))]
        with pytest.raises(TypeError) as caught:
            Holder().method(x, x)  # type: ignore[operator]
        return [*found, str(caught.value)]

    plain = results()
    instrumenter.init(backend=Recorder())
    assert results() == plain


def test_inspect_takes_functions_for_what_they_stand_for() -> None:
    def looks() -> list[object]:
        return [
            (
                inspect.isbuiltin(f),
                inspect.isroutine(f),
                inspect.isfunction(f),
                f.__qualname__,
                hasattr(f, "__module__"),
                repr(f),
            )
            for f in (torch.add, torch.Tensor.add, torch.Tensor.__getitem__, F.gelu, torch.linalg.det)
        ]

    plain = looks()
    instrumenter.init(backend=Recorder())
    assert looks() == plain
    assert torch.overrides.resolve_name(torch.Tensor.add) == "torch.Tensor.add"


# What remains different for programs while torch is instrumented.


def test_patched_functions_and_bound_methods_are_of_other_types(recorder: Recorder) -> None:
    assert type(torch.add) is StandIn
    assert isinstance(torch.add, type(len)) and isinstance(torch.add, staticmethod)
    assert inspect.ismethod(torch.ones(1).add) and not inspect.isbuiltin(torch.ones(1).add)
    torch.add.note = 1  # type: ignore[attr-defined]
    assert torch.add.note == 1  # type: ignore[attr-defined]
    del torch.add.note  # type: ignore[attr-defined]


def test_what_was_taken_before_is_equal_and_not_identical() -> None:
    before, recorder = torch.add, Recorder()
    instrumenter.init(backend=recorder)
    assert before == torch.add and hash(before) == hash(torch.add) and {before: 1}[torch.add] == 1
    assert before is not torch.add
    with torch.no_grad():
        before(1, torch.tensor(2))
    assert recorder.ops() == ["torch.tensor"]  # a call by the name taken before is not told


def test_modules_are_saved_and_copied_as_ever(recorder: Recorder) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.TransformerEncoderLayer(4, 2))
    file = io.BytesIO()
    torch.save(net, file)
    instrumenter.shutdown()
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(copy.deepcopy(again)[0].weight, net[0].weight)


class Own:
    """Functions of each kind that a class can have."""

    def method(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Scale."""
        return x * scale

    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @classmethod
    def of_class(cls, x: torch.Tensor) -> str:
        return cls.__name__


def test_wrap_tells_the_users_own_functions(recorder: Recorder) -> None:
    before = dict(vars(Own))
    for name in ("method", "static", "of_class", "method"):
        pyprof.wrap(Own, name)
    assert str(inspect.signature(Own.method)) == "(self, x: 'torch.Tensor', scale: 'float' = 1.0) -> 'torch.Tensor'"
    assert Own.method.__doc__ == "Scale."
    x = torch.ones(2)
    recorder.clear()
    Own().method(x, scale=3.0)
    assert Own.static(x).tolist() == [2, 2]
    assert Own.of_class(x) == "Own"
    assert [c for c in recorder.calls() if not c.startswith("__")] == [
        "method(?, fp32[2], scale=3.0)",
        "static(fp32[2])",
        "of_class(?, fp32[2])",
    ]
    instrumenter.shutdown()
    assert dict(vars(Own)) == before


def test_wrap_an_autograd_function(recorder: Recorder) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    pyprof.wrap(Double, "forward")
    pyprof.wrap(Double, "backward")
    x = torch.ones(2, requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2]
    assert {"Double.forward", "Double.backward"} <= set(recorder.ops())


def test_wrap_refuses_what_is_no_function() -> None:
    with pytest.raises(UsageError, match="nothing_here"):
        pyprof.wrap(Own, "nothing_here")


def test_steps_are_told_and_closed(recorder: Recorder) -> None:
    recorder.clear()
    for _ in range(2):
        instrumenter.step()
        torch.ones(2)
    with instrumenter.step(7):
        torch.ones(3)
    torch.ones(4)
    told = [(text.partition(" #")[0], len(around)) for text, around in zip(recorder.texts, recorder.nested, strict=True)]
    assert told == [
        *[("step 0", 0), ("ones(2)", 1), ("step 1", 0), ("ones(2)", 1)],
        *[("step 7", 0), ("ones(3)", 1), ("ones(4)", 0)],
    ]
    assert [m.step for m in recorder.markers if m.step is not None] == [0, 1, 7]


def test_a_programs_own_init_does_not_record_what_profile_holds_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "held_back", True)
    monkeypatch.setattr(api, "tool_attached", lambda: True)
    recorder = Recorder()
    monkeypatch.setattr(api, "_nvtx", lambda: recorder)
    assert instrumenter.init() and not instrumenter.enabled()
    torch.ones(1)
    assert recorder.ops() == []
    instrumenter.init(mode="on")  # asked for in so many words
    torch.ones(2)
    assert recorder.calls() == ["ones(2)"]
