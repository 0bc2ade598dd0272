"""What a launch of a fused kernel moves, and what its name says, on inputs of a few numbers."""

from pathlib import Path

import pytest

from pyprof.compiled.fused import LaunchedKernel, _category, _from_arguments, _graph, _nodes_of_name
from pyprof.compiled.kernel_source import Kernel, Pointer
from pyprof.compiled.module import CompiledModule, Site
from pyprof.model.opcall import OpCall, TensorSpec

TEN, FIVE, UNKNOWN = Site(6, 4), Site(5, 0), Site(None, 4)


@pytest.mark.parametrize(
    ("sites", "own", "launches", "expected"),
    [
        ((), None, 3, None),
        ((), 8, 3, 24),
        ((TEN, TEN), 8, 3, 30),  # alike: their number does not matter
        ((TEN, FIVE), None, 4, 30),  # two runs of both
        ((TEN, FIVE), None, 3, None),  # which of them ran once more is not known
        ((TEN, UNKNOWN), 8, 2, None),
    ],
)
def test_bytes_of_launches(sites: tuple[Site, ...], own: int | None, launches: int, expected: int | None) -> None:
    assert LaunchedKernel("k", "pointwise", "na", sites, own).bytes_of(launches) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("triton_poi_fused_add_0", "pointwise"),
        ("triton_per_fused_sum_1", "persistent reduction"),
        ("triton_unk_fused_mm_2", "other"),
        ("triton__0d1d", "other"),
        ("triton_my_kernel", "user Triton"),
        ("cpp_fused_add_0", "cpp_fused"),
    ],
)
def test_category_by_name(name: str, expected: str) -> None:
    assert _category(name, None) == expected
    assert _category(name, Kernel((), category="split scan")) == "split scan"  # its source knows better


def test_ops_in_a_name_are_the_longest_known() -> None:
    assert _nodes_of_name("triton_poi_fused__softmax_add_3") == ("_softmax", "add")
    assert _nodes_of_name("cpp_fused_native_layer_norm_relu_12") == ("native_layer_norm", "relu")
    assert _nodes_of_name("triton_poi_fused_unheard_mul_0") == ("unheard", "mul")
    assert _nodes_of_name("triton_mine") == ()


def call(*args: object) -> OpCall:
    return OpCall("inductor", "triton_poi_fused_add_0", args, (), dispatcher=True)


def test_bytes_by_arguments() -> None:
    a, b = TensorSpec((10,), "float32"), TensorSpec((10,), "float16")
    assert _from_arguments(call(a, b, 10), None) == (60, "arguments")
    assert _from_arguments(call(10), None) == (None, "") == _from_arguments(None, None)
    assert _from_arguments(call(a, TensorSpec((10,), None)), None) == (None, "")


def test_bytes_by_arguments_as_the_source_uses_them() -> None:
    a, b = TensorSpec((10,), "float32"), TensorSpec((10,), "float16")
    in_place, only_written, a_part = Pointer(4, True, True), Pointer(2, False, True), Pointer(4, True, False, most=3)
    assert _from_arguments(call(a, b), Kernel((in_place, only_written))) == (2 * 40 + 20, "arguments")
    assert _from_arguments(call(a, b), Kernel((a_part, only_written))) == (3 * 4 + 20, "arguments")
    assert _from_arguments(call(a, b), Kernel((in_place,))) == (60, "arguments")  # a source of another kernel: not used


def test_graphs_by_module_and_direction() -> None:
    module = CompiledModule(Path("c1.py"), "model__1", "inference", {})
    assert _graph(module, "forward") == "model__1_inference"
    assert _graph(None, "backward") == "backward" and _graph(None, "") == "na"
    assert module.fits("forward") and module.fits("") and not module.fits("backward")
