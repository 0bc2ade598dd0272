"""Which kernel of a backward carries which part of it, however many are looked at at a time."""

from pathlib import Path

import pytest

from pyprof.loading.load import load_capture
from pyprof.prof.cost import cost_records
from tests.tiny import Nsys

_SIZES = "[[2, 8, 12, 12], [2, 4, 12, 12], [8, 4, 3, 3], [], [], [], [], [], [], [], []]"
_WGRAD, _OUTPUTS = 2 * (2 * 12 * 12) * 8 * (4 * 3 * 3), 2 * 8 * 12 * 12


@pytest.mark.parametrize("sum_ns", [10, 100])
@pytest.mark.parametrize(("mark", "products"), [("", 1), ("^", 2)])
def test_on_a_cpu_a_row_is_the_whole_backward(tmp_path: Path, sum_ns: int, mark: str, products: int) -> None:
    """A convolution's backward on the CPU is one op: the sum inside it, however long it takes, is not all that it does."""
    n = Nsys()
    n.range(f'conv2d(fp32[2,4,12,12]{mark}, fp32[8,4,3,3]^, fp32[8]^, padding=1) #pyprof{{"mod":"torch.nn.functional"}}', 0, 90)
    n.range("aten::conv2d, seq = 5, op_id = 1, sizes = [[2, 4, 12, 12], [8, 4, 3, 3], [8], [], [], [], []]", 10, 80)
    n.range("ConvolutionBackward0, seq = 5, op_id = 4, sizes = [[2, 8, 12, 12]]", 100, 300, thread=8)
    n.range(f"aten::convolution_backward, op_id = 5, sizes = {_SIZES}", 110, 290, thread=8)
    n.range(f"aten::_slow_conv2d_backward, op_id = 6, sizes = {_SIZES}", 120, 280, thread=8)
    n.range("aten::sum, op_id = 7, sizes = [[2, 8, 12, 12], [], [], [], [8]]", 180, 180 + sum_ns, thread=8)
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    costs = cost_records(records)
    (row,) = (at for at, code in enumerate(records["own"].tolist()) if records.calls[code].op == "convolution_backward")
    assert records.calls[records["inner"][row]].op == ("sum" if sum_ns == 100 else "_slow_conv2d_backward")
    assert costs.matmul_flops[row] == products * _WGRAD and costs.vector_flops[row] == _OUTPUTS
    # Read are the gradient of the output, the input and, for the input's gradient, the weight; written the gradients.
    elements = _OUTPUTS + 2 * 4 * 144 + 8 * 36 + 8 + (8 * 36 + 2 * 4 * 144 if mark else 0)
    assert costs.bytes[row] == 4 * elements


def costs_on_a_cpu(n: Nsys, folder: Path, times: int, *ops: str) -> dict[str, list[tuple[int, int, int]]]:
    """By op what the rows of a backward carry that ran so many times: matrix FLOPs, others and bytes."""
    for begin in range(1000, 1000 + 1000 * times, 1000):
        n.range("SomeBackward0, seq = 5, op_id = 4", begin, begin + 10 + 100 * len(ops), thread=8)
        for at, op in enumerate(ops):
            n.range(f"aten::{op}, op_id = 5", begin + 5 + 100 * at, begin + 95 + 100 * at - at, thread=8)
    records = load_capture(n.write(folder / "net.sqlite"))
    costs, found = cost_records(records), dict[str, list[tuple[int, int, int]]]()
    for row in (records["fwd_instance"] >= 0).nonzero()[0].tolist():
        carried = [int(column[row]) for column in (costs.matmul_flops, costs.vector_flops, costs.bytes)]
        found.setdefault(records.calls[records["own"][row]].op, []).append((carried[0], carried[1], carried[2]))
    return found


@pytest.mark.parametrize("times", [1, 2])
def test_ops_of_a_linear_backward_on_a_cpu_carry_their_own_part(tmp_path: Path, times: int) -> None:
    n = Nsys()
    n.range('linear(fp32[64,32]^, fp32[16,32]^, fp32[16]^) #pyprof{"mod":"torch.nn.functional"}', 0, 90)
    n.range("aten::addmm, seq = 5, op_id = 2", 10, 80)
    found = costs_on_a_cpu(n, tmp_path, times, "t", "mm", "t", "mm", "sum")
    assert found["mm"] == [(2 * 64 * 32 * 16, 0, 4 * (64 * 32 + 32 * 16 + 64 * 16))] * 2 * times
    assert [sum(part) for part in zip(*found["sum"], strict=True)] == [0, 64 * 16, 4 * (64 * 16 + 16)]


def test_a_sum_alone_on_a_cpu_is_the_bias(tmp_path: Path) -> None:
    n = Nsys()
    n.range('linear(fp32[64,32]^, fp32[16,32]^, fp32[16]^) #pyprof{"mod":"torch.nn.functional"}', 0, 90)
    n.range("aten::addmm, seq = 5, op_id = 2", 10, 80)
    assert costs_on_a_cpu(n, tmp_path, 1, "sum")["sum"] == [(0, 64 * 16, 4 * (64 * 16 + 16))]


def test_each_run_of_a_whole_backward_on_a_cpu_carries_all_of_it(tmp_path: Path) -> None:
    found = []
    for times in (1, 2):
        n = Nsys()
        n.range('conv2d(fp32[2,4,12,12], fp32[8,4,3,3]^, fp32[8]^, padding=1) #pyprof{"mod":"torch.nn.functional"}', 0, 90)
        n.range("aten::conv2d, seq = 5, op_id = 1", 10, 80)
        found += costs_on_a_cpu(n, tmp_path, times, "convolution_backward")["convolution_backward"]
    assert found[0][:2] == (_WGRAD, _OUTPUTS) and found == 3 * found[:1]


def test_without_a_word_of_gradients_a_whole_backward_on_a_cpu_is_unknown(captures: Path) -> None:
    """The input of this convolution wants no gradient, but nothing in the capture says so."""
    records = load_capture(captures / "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite")
    costs = cost_records(records)
    (row,) = (at for at, code in enumerate(records["own"].tolist()) if records.calls[code].op == "convolution_backward")
    assert costs.matmul_flops[row] == -1 and "convolution_backward: output_mask not recorded" in costs.reasons
