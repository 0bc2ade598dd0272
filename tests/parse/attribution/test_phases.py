"""Rule 5: in which part of a step a kernel ran, and what is unknown since nothing tells."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.loading.load import load_capture
from pyprof.model.records import PHASES, Records
from pyprof.parse.attribution.phases import phase_of_range
from pyprof.parse.records.selection import choose_kinds
from pyprof.prof.columns import HEADERS, RecordTable
from pyprof.prof.frame import Frame
from pyprof.prof.group import group_by
from pyprof.tables.table import choose, printed
from tests.given import records_of
from tests.tiny import Nsys, tid

OTHER = "void at::native::vectorized_elementwise_kernel<4>(int)"


def phases(n: Nsys, tmp_path: Path) -> list[str]:
    """phase/dir of each row; * where only its name tells."""
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    table = RecordTable(Frame(records))
    columns = [printed(table.of(key)) for key in ("phase", "dir", "inferred")]
    return [f"{phase}/{dir_}{'*' * int(inferred)}" for phase, dir_, inferred in zip(*columns, strict=True)]


def shares(records: Records) -> dict[str, float]:
    """Time of kernels by phase, ms."""
    frame = Frame(choose_kinds(records, "kernel"))
    groups = group_by(frame, np.arange(len(frame.records)), choose("phase", HEADERS))
    names, times = (printed(groups.of(key)) for key in ("phase", "time"))
    return {name: int(time) / 1e6 for name, time in zip(names, times, strict=True)}


def test_ranges_named_after_a_phase_tell_it_of_kernels_without_an_op(tmp_path: Path) -> None:
    n = Nsys()
    n.range("Forward", 10, 40)
    n.range("attention", 20, 30)  # inside: says nothing
    n.range("my_bwd", 50, 80)
    n.range("forward_backward", 60, 70)  # says both: the one around it counts
    n.range("Optimizer step", 90, 99)
    for number, launch in enumerate((5, 15, 25, 45, 55, 65, 92)):
        n.kernel(f"k{number}", launch, 1000 + launch, 1001 + launch)
    expected = ["na/na", "forward/fprop", "forward/fprop", "na/na", "backward/bprop", "backward/bprop", "optimizer/fprop"]
    assert phases(n, tmp_path) == expected


def test_a_range_of_the_main_thread_tells_it_of_other_threads(tmp_path: Path) -> None:
    n = Nsys()
    n.range("Backward", 10, 40)
    n.kernel("k0", 20, 1000, 1001, thread=9)
    n.kernel("k1", 50, 1002, 1003, thread=9)
    assert phases(n, tmp_path) == ["backward/bprop", "na/na"]


def test_what_ddp_copies_as_backward_ends_is_of_backward(tmp_path: Path) -> None:
    """The engine calls it behind all autograd functions. What it searches before backward is not."""
    n = Nsys()
    for begin, part in ((10, "copy_bucket_to_grad"), (50, "search_unused_parameters")):
        n.range(f"torch.distributed.ddp.reducer::{part}", begin, begin + 30)
        n.range("aten::mul, op_id = 1", begin + 5, begin + 25)
        n.kernel(OTHER, begin + 10, 1000 + begin, 1001 + begin)
    assert phases(n, tmp_path) == ["backward/bprop", "forward/fprop"]


def test_an_op_tells_it_whatever_range_is_around(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1", 10, 20)
    n.range("aten::convolution_backward, op_id = 2", 30, 40)  # without its autograd function around it
    n.kernel("k0", 15, 1000, 1001)
    n.kernel("k1", 35, 1002, 1003)
    assert phases(n, tmp_path) == ["forward/fprop", "backward/bprop"]


def test_ops_of_optimizers_and_of_the_scaler_are_the_optimizers(tmp_path: Path) -> None:
    n = Nsys()
    ops = ("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_", "_fused_adamw_", "_foreach_norm")
    for at, name in enumerate(ops):
        n.range(f"aten::{name}, op_id = {at}", 100 * at, 100 * at + 50)
        n.kernel("void multi_tensor_apply_kernel<4>()", 100 * at + 5, 1000 + at, 1001 + at)
    assert phases(n, tmp_path) == ["optimizer/fprop"] * 3 + ["forward/fprop"]


def test_a_graph_recorded_as_a_whole_may_be_anything(tmp_path: Path) -> None:
    n = Nsys()
    for start in (10, 50):
        n.range(f"aten::add_, op_id = {start}", start, start + 10)
        n.kernel("add", start + 5, 1000 + start, 1001 + start)
    n.api(30, 77, name="cudaGraphLaunch_v10000")
    n.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append((1030, 1040, 0, 7, 77, tid() & ~0xFFFFFF, 5))
    assert phases(n, tmp_path) == ["forward/fprop", "na/na", "forward/fprop"]


def test_a_name_of_one_phase_alone_is_inferred(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, seq = 1, op_id = 1", 10, 20)
    n.range("MmBackward0, seq = 1, op_id = 2", 30, 40, thread=9)
    for name, launch, thread in (("a", 12, None), ("both", 14, None), ("both", 32, 9), ("b", 34, 9)):
        n.kernel(name, launch, 1000 + launch, 1001 + launch, thread=thread)
    for at, name in enumerate(("a", "b", "both", "new")):
        n.kernel(name, None, 2000 + at, 2001 + at)
    assert phases(n, tmp_path)[4:] == ["forward/fprop*", "backward/bprop*", "na/na", "na/na"]


def test_a_kernel_named_backward_is_not_forward(tmp_path: Path) -> None:
    n = Nsys()
    n.range("Forward", 10, 40)
    n.kernel("split_embedding_backward_codegen_sgd_unweighted_kernel", 20, 1000, 1001)
    n.kernel("flash_bwd_dq_dk_dv_loop_kernel", 60, 1002, 1003)
    n.kernel("triton_poi_fused_relu_threshold_backward_1", 70, 1004, 1005)  # a forward graph makes relu's mask
    n.kernel("void forward_kernel<int>()", 80, 1006, 1007)  # what is called forward may run anywhere
    assert phases(n, tmp_path) == ["forward/fprop", "backward/bprop*", "na/na", "na/na"]


def test_communication_and_copies_keep_their_phase_and_what_is_known_of_their_direction(tmp_path: Path) -> None:
    n = Nsys()
    n.range("Backward", 10, 40)
    n.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, 1000, 1001)
    n.copy(1, 30, 1002, 1003)
    n.copy(1, 50, 1004, 1005)
    assert phases(n, tmp_path) == ["communication/bprop", "copy/bprop", "copy/na"]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("Forward", "forward"), ("forward", "forward"), ("fwd", "forward"), ("train/forward_pass", "forward"), ("ForwardPass", "forward"),
        ("Backward", "backward"), ("loss.backward", "backward"), ("bwd", "backward"), ("BWD pass", "backward"), ("optimizer", "optimizer"),
        ("forward_backward", None), ("fwd+bwd", None), ("forwarding table", None), ("step", None), ("", None), ("straightforward", None),
        ("FeedForward", None), ("feed_forward.2", None), ("Backward feed-forward", "backward"), ("skip_backward", None),
        ("RNN_backward_direction", None), ("optimizer_state_dict", None), ("FSDP::post_backward (0)", "backward"), ("mlp(F)", "forward"),
        ("Torch-Compiled Region: !0/1/0", "backward"), ("Optimizer.zero_grad#SGD.zero_grad", None), ("attn(W)", "backward"),
    ],
)  # fmt: skip
def test_names_of_ranges(name: str, phase: str | None) -> None:
    assert phase_of_range(name) == (-1 if phase is None else PHASES.index(phase))


def test_ranges_forward_and_backward_of_a_real_capture(captures: Path) -> None:
    found = shares(records_of(captures / "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite"))
    assert {name: round(time, 3) for name, time in found.items()} == {"forward": 971.26, "backward": 760.791, "na": 1.753}


def test_nothing_tells_of_a_real_capture_without_ops(captures: Path) -> None:
    assert set(shares(records_of(captures / "nsys/a100_gpt2.7b.nsys2024.6.sqlite"))) == {"na"}


def test_sums_by_phase_are_the_whole(captures: Path) -> None:
    records = records_of(captures / "kineto/mi300_resnet_checkpoint.json.gz")
    found = shares(records)
    assert sum(found.values()) == pytest.approx(97.256, abs=0.001) and 0 < found["na"] < 2.1
    # Before, the 6.5 ms of kernels without a launch were forward; where a name tells it, half of them are backward's.
    assert found["backward"] == pytest.approx(9.435 + 2.269, abs=0.002)


def test_collectives_on_the_cpu_are_communication(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1, sizes = [[2, 2], [2, 2]]", 10, 20)
    n.range("c10d::allreduce_, op_id = 2, sizes = [[2]]", 30, 40)
    n.range("_c10d_functional::all_reduce, op_id = 3, sizes = [[2], [], []]", 50, 60)
    n.range("_c10d_functional::wait_tensor, op_id = 4, sizes = [[2]]", 70, 80)
    assert phases(n, tmp_path) == ["forward/fprop", *["communication/fprop"] * 3]
