"""Timing generated kernels: what does not need a GPU of the part that does."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from pyprof.cli import main
from pyprof.compiled.kernel_source import triton_kernel
from pyprof.timers.generated import _copies, moved_bytes, triton_results
from pyprof.timers.timing import Timing

KERNEL = """
@triton_heuristics.pointwise(
    size_hints=[64],
    triton_meta={'signature': {'in_out_ptr0': '*fp32', 'in_ptr0': '*fp16', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}},
    inductor_meta={'kernel_name': 'triton_poi_fused_add_0', 'kernel_num_gb': 0.5},
)
@triton.jit
def triton_poi_fused_add_0(in_out_ptr0, in_ptr0, xnumel, XBLOCK: tl.constexpr):
    xnumel = 60
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    x0 = xindex
    tmp0 = tl.load(in_out_ptr0 + (x0), None) + tl.load(in_ptr0 + (x0 % 10), None)
    tl.store(in_out_ptr0 + (x0), tmp0, None)
"""


class _Tuner:
    """Two configurations, the second twice as fast; launchers of a release that wants a grid."""

    def __init__(self) -> None:
        self.launchers: list[Any] = []

    def precompile(self) -> None:
        def launcher(*arguments: Any, stream: int) -> None:
            raise TypeError("launcher() missing 1 required keyword-only argument: 'grid'")

        for block, registers in ((64, 16), (128, 24)):
            launched = SimpleNamespace(config=f"XBLOCK: {block}", n_regs=registers, n_spills=0, shared=1024)
            self.launchers.append(_Launcher(launcher, launched))

    def bench(self, launcher: Any, *arguments: Any) -> float:
        return 0.004 / launcher.n_regs


class _Launcher:
    def __init__(self, function: Any, facts: SimpleNamespace) -> None:
        self.function, self.config, self.n_regs, self.n_spills = function, facts.config, facts.n_regs, facts.n_spills
        self.shared = facts.shared

    def __call__(self, *arguments: Any, stream: int) -> None:
        self.function(*arguments, stream=stream)


def _cuda() -> SimpleNamespace:
    """torch with a GPU of which only the name is needed."""
    device = SimpleNamespace(name="NVIDIA A100-SXM4-80GB", major=8, minor=0, multi_processor_count=108)
    cuda = SimpleNamespace(
        current_device=lambda: 0,
        get_device_properties=lambda _: device,
        current_stream=lambda: SimpleNamespace(cuda_stream=5),
    )
    return SimpleNamespace(cuda=cuda)


def test_each_configuration_is_launched_on_the_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    source = triton_kernel(KERNEL)
    assert source is not None
    launched: list[tuple[Any, ...]] = []

    class Tuner:
        def __init__(self) -> None:
            self.launchers: list[Any] = []

        def precompile(self) -> None:
            facts = SimpleNamespace(config="XBLOCK: 64", n_regs=16, n_spills=2, shared=0)
            self.launchers = [_Launcher(lambda *arguments, stream: launched.append((*arguments, stream)), facts)]

    def timed(fn: Any, *, seconds: float, device: str, launches: bool) -> Timing:
        fn()
        assert (seconds, device, launches) == (0.01, "cuda", False)
        return Timing("cuda:0", (1e-6, 2e-6, 3e-6), (1e-6, 2e-6, 3e-6))

    monkeypatch.setattr("pyprof.timers.generated.timeit", timed)
    arguments = torch.zeros(60), torch.zeros(10, dtype=torch.float16), 60
    (result,) = triton_results(SimpleNamespace(get_args=lambda: arguments, kernel=Tuner()), source, _cuda(), 0.01)
    assert launched == [(*arguments, 5), (*arguments, 5)]
    assert (result.time_us, result.best_us, result.spills, result.gbs) == pytest.approx((2, 1, 2, 0.25))


def test_every_configuration_is_a_row_the_most_rapid_first() -> None:
    source = triton_kernel(KERNEL)
    assert source is not None
    arguments = torch.zeros(60), torch.zeros(10, dtype=torch.float16), 60
    assert moved_bytes(source, arguments) == 2 * 240 + 20
    assert moved_bytes(source, (None, *arguments[1:])) == 500_000_000  # what Inductor reckoned
    module = SimpleNamespace(get_args=lambda: arguments, kernel=_Tuner())
    results = triton_results(module, source, _cuda(), 0.01)
    assert [(r.kernel, r.config, r.regs, r.smem) for r in results] == [
        ("triton_poi_fused_add_0", "XBLOCK: 128", 24, 1024),
        ("triton_poi_fused_add_0", "XBLOCK: 64", 16, 1024),
    ]
    assert results[1].time_us == pytest.approx(0.25) and results[1].gbs == pytest.approx(500 / 0.25e-6 / 1e9)
    assert results[1].peak == pytest.approx(100 * 2 / 2039, rel=0.01)


def test_one_line_says_why_a_kernel_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, module, other = (tmp_path / name for name in ("k.py", "fwd.py", "other.py"))
    kernel.write_text(KERNEL)
    module.write_text(f"triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''{KERNEL}''')\n")
    other.write_text("x = 1\n")
    if not torch.cuda.is_available():
        assert main(["inductor", "bench", str(kernel)]) == 1
        assert "a Triton kernel, and torch has no GPU here" in capsys.readouterr().err
    assert main(["inductor", "bench", str(module)]) == 2
    assert "its 1 kernels are Triton's, each in a file of its own" in capsys.readouterr().err
    for path, text in ((other, "no generated kernel in it"), (tmp_path / "gone.py", "no such file")):
        assert main(["inductor", "bench", str(path)]) == 1
        err = capsys.readouterr().err
        assert text in err and err.count("\n") == 2


def test_copies_share_memory_where_the_arguments_do() -> None:
    whole = torch.arange(6.0)
    first, second, number = _copies([whole, whole[2:4], 7])
    second.fill_(9)
    assert first.tolist() == [0, 1, 9, 9, 4, 5] and number == 7 and whole.tolist() == [0, 1, 2, 3, 4, 5]
