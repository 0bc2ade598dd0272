"""Programs of a few kernels that follow each other on one device, launched well ahead: for advice whose figures fit on a screen."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pyprof.loading.load import load
from pyprof.prof.frame import Frame
from pyprof.report.advice.base import Advice
from pyprof.report.advice.kinds import advise
from pyprof.report.time.overview import Overview
from tests.conftest import SHARED
from tests.tiny import Nsys

# Rows of nsys's table of devices: id, name, ordinal, multiprocessors, compute capability.
A100 = (0, "NVIDIA A100-SXM4-80GB", 0, 108, 8, 0)
H100 = (0, "NVIDIA H100 80GB HBM3", 0, 132, 9, 0)
V100 = (0, "Tesla V100-SXM2-16GB", 0, 80, 7, 0)
MI300X = (0, "AMD Instinct MI300X", 0, 304, 9, 4)
RTX_3070_TI = (0, "NVIDIA GeForce RTX 3070 Ti", 0, 48, 8, 6)


def overview_of(made: Nsys | Path, folder: Path = Path()) -> Overview:
    """Overview of a capture, or of rows, which are written into the folder first. Tests share that of a given capture."""
    if isinstance(made, Path) and made.is_relative_to(SHARED):
        return _overview_of_given(made)
    file = made.write(folder / "net.sqlite") if isinstance(made, Nsys) else made
    return Overview(Frame(load(str(file), with_host=True)))


@lru_cache(maxsize=12)
def _overview_of_given(file: Path) -> Overview:
    return Overview(Frame(load(str(file), with_host=True)))


def advice_of(overview: Overview) -> dict[str, Advice]:
    """All advice by kind."""
    return {one.kind: one for one in advise(overview)}


class Timeline:
    """Ops one after another; a launch takes 1 us, so that the host is ahead of all kernels of more."""

    def __init__(self, gpu: tuple[object, ...] = A100) -> None:
        self.nsys = Nsys()
        self.nsys.rows["TARGET_INFO_GPU"].append(gpu)
        self.launched, self.ends = 0, 1_000

    def op(self, text: str | None, *kernels: tuple[str, int], grid: tuple[int, int, int] = (1, 1, 1)) -> Timeline:
        """One call (`F.` for torch.nn.functional, None: kernels that no range describes) and its kernels, each with its time in us."""
        begin = self.launched
        for name, us in kernels:
            self.nsys.kernel(name, self.launched + 10, self.ends, self.ends + us * 1_000, grid=grid)
            self.launched += 1_000
            self.ends += us * 1_000
        if text is not None:
            mod = "torch.nn.functional" if text.startswith("F.") else "torch"
            self.nsys.range(f'{text.removeprefix("F.")} #pyprof{{"mod":"{mod}"}}', begin, self.launched)
        return self

    def overview(self, folder: Path) -> Overview:
        return overview_of(self.nsys, folder)

    def advice(self, folder: Path) -> dict[str, Advice]:
        return advice_of(self.overview(folder))
