"""Handles, caps and the refusal to record nothing."""

import sys
import types

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from nvtx_recording import Recorder

import pyprof
from pyprof import nvtx as instrumenter
from pyprof.errors import ToolError
from pyprof.nvtx import api
from pyprof.nvtx.backend import NvtxBackend, Registry, tool_attached
from pyprof.nvtx.state import STATE


def test_each_text_is_prepared_once() -> None:
    prepared: list[str] = []

    class Counting(Recorder):
        def prepare(self, text: str) -> str:
            prepared.append(text)
            return text

    registry = Registry(Counting())
    assert [registry.find(t) for t in "aba"] == ["a", "b", "a"]
    assert prepared == ["a", "b"]


@given(st.lists(st.tuples(st.text(max_size=30), st.booleans()), max_size=40))
@example([(letter * 9, letter > "g") for letter in "abcdefghijklmn"])
@example([(str(number), number > 6) for number in range(14)])
def test_the_caps_hold(texts: list[tuple[str, bool]]) -> None:
    registry = Registry(Recorder(), max_texts=5, max_bytes=50)
    known = set()
    for text, reserve in texts:
        handle = registry.find(text, reserve=reserve)
        assert handle is None or handle == text
        if handle is not None:
            known.add(text)
        assert len(known) == len(registry) <= 10
        assert sum(map(len, known)) <= 100
    assert registry.capped == sum(1 for _ in range(registry.capped))


def test_beyond_the_cap_ops_are_told_without_arguments(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyprof.nvtx.state import STATE

    assert STATE.registry is not None
    monkeypatch.setattr(STATE.registry, "_max_texts", len(STATE.registry) + 3)
    recorder.clear()
    for size in range(50):
        torch.ones(size + 1)
    calls = recorder.calls()
    assert calls[0] == "ones(1)"
    assert calls[-1] == "ones(...)"
    assert instrumenter.stats().capped > 0
    assert recorder.markers[-1].src


def test_real_nvtx_takes_pushes_and_pops() -> None:
    backend = NvtxBackend()
    handle = backend.prepare("text")
    backend.push(handle)
    backend.pop()


def test_each_range_carries_the_sequence_number_of_its_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    import nvtx._lib.lib as lib

    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(
        lib, "push_range", lambda attributes, domain: seen.append((attributes.message.string, attributes.payload))
    )
    backend = NvtxBackend(torch.autograd._get_sequence_nr)
    if not backend._has_payload():
        pytest.skip("this release of nvtx has no payload")
    x = torch.ones(2, requires_grad=True)
    first = torch.autograd._get_sequence_nr()
    one, other = backend.prepare("one"), backend.prepare("other")
    backend.push(one)
    x.mul(2)
    backend.push(other)
    backend.push(one)
    assert seen == [("one", first), ("other", first + 1), ("one", first + 1)]


def test_init_refuses_loudly_without_the_nvtx_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "nvtx"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(api, "_nvtx", api._nvtx.__wrapped__)  # which keeps the backend that another test may have made
    with pytest.raises(ToolError, match="no range can be recorded") as error:
        pyprof.init(mode="on")
    assert "pip install nvtx" in error.value.hint and not STATE.on


def test_an_nvtx_package_of_another_shape_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    strange = types.ModuleType("nvtx._lib.lib")
    monkeypatch.setitem(sys.modules, "nvtx._lib.lib", strange)
    with pytest.raises(ToolError, match="cannot be used"):
        NvtxBackend()


@pytest.mark.parametrize("name", ["NSYS_PROFILING_SESSION_ID", "NVTX_INJECTION64_PATH"])
def test_a_tool_is_seen_by_its_environment(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in ("NSYS_PROFILING_SESSION_ID", "NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "LD_PRELOAD"):
        monkeypatch.delenv(other, raising=False)
    assert tool_attached() == ""
    monkeypatch.setenv(name, "x")
    assert tool_attached() == name
