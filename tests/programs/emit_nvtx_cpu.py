"""A training step under torch.autograd.profiler.emit_nvtx on a machine without a GPU, with pyprof's own ranges around its ops.

    nsys profile -t nvtx python emit_nvtx_cpu.py BUILD_FOLDER NVTX_INCLUDE_FOLDER

emit_nvtx hands its texts to torch's CUDA profiler stubs, which a CPU build leaves empty. A small library put in their place passes
the texts to NVTX, as the CUDA build does, so that nsys records exactly what this torch release writes.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import pyprof.nvtx

STUBS = r"""
#include <nvtx3/nvToolsExt.h>
#include <torch/csrc/profiler/stubs/base.h>
using namespace torch::profiler::impl;
struct NvtxOnly : ProfilerStubs {
  void record(c10::DeviceIndex*, ProfilerVoidEventStub*, int64_t*) const override {}
  float elapsed(const ProfilerVoidEventStub*, const ProfilerVoidEventStub*) const override { return 0; }
  void mark(const char* name) const override { nvtxMarkA(name); }
  void rangePush(const char* name) const override { nvtxRangePushA(name); }
  void rangePop() const override { nvtxRangePop(); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}
};
static NvtxOnly stubs;
static int registered = (registerCUDAMethods(&stubs), 0);
"""


def build(folder: Path, nvtx_include: str) -> Path:
    """Compile the library; a few seconds with any C++17 compiler called c++."""
    source, library = folder / "stubs.cpp", folder / "libstubs.so"
    source.write_text(STUBS)
    home = Path(torch.__file__).parent
    includes = [f"-I{home}/include", f"-I{nvtx_include}"]
    libraries = [f"-L{home}/lib", f"-Wl,-rpath,{home}/lib", "-lc10", "-ltorch_cpu", "-ldl"]
    command = ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", *includes, str(source), "-o", str(library), *libraries]
    subprocess.run(command, check=True)
    return library


class Net(nn.Module):
    """A convolution with batch normalisation, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 6 * 6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 3, 6, 6) -> (n, 10)."""
        return self.fc(F.relu(self.bn(self.conv(x))).flatten(1))


def main() -> None:
    """One step to warm up, one recorded."""
    ctypes.CDLL(str(build(Path(sys.argv[1]), sys.argv[2])))
    torch.cuda.synchronize = lambda device=None: None  # emit_nvtx calls it at both ends
    torch.manual_seed(0)
    net, x, labels = Net(), torch.randn(4, 3, 6, 6), torch.randint(10, (4,))
    F.cross_entropy(net(x), labels).backward()
    if not pyprof.nvtx.init():
        sys.exit("pyprof.nvtx.init() did not see that nsys records")
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        F.cross_entropy(net(x), labels).backward()
    pyprof.nvtx.shutdown()


if __name__ == "__main__":
    main()
