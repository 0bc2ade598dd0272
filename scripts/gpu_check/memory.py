"""Record two steps of training on this GPU and hold `pyprof memory` against torch's statistics.

    python -m scripts.gpu_check.memory

The snapshot of the allocator and the trace, both written by `pyprof.capture(memory=True)`, must have the peak that
torch.cuda.max_memory_allocated() has, and never more allocated than reserved. Takes under a minute.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

import pyprof


def main() -> int:
    """Print a line for each check. Returns the exit code."""
    if not torch.cuda.is_available():
        print("skip  torch finds no GPU here")
        return 0
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, device="cuda")
    optimizer = torch.optim.AdamW(layer.parameters())
    side = torch.cuda.Stream()

    def step() -> None:
        x = torch.randn(16, 256, 512, device="cuda")
        with torch.cuda.stream(side):
            other = x * 2  # freed while another stream uses it
        x.record_stream(side)
        del other
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()

    step()
    with tempfile.TemporaryDirectory(prefix="pyprof-check-") as folder:
        trace = Path(folder) / "net.json.gz"
        with pyprof.capture(trace, table=0, memory=True):
            torch.cuda.reset_peak_memory_stats()
            step()
            step()
            torch.cuda.synchronize()
            peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        return max([check(file, peak, reserved) for file in (trace.with_name("net.memory.pickle"), trace)])


def check(file: Path, peak: int, reserved: int) -> int:
    """Compare one recording; 1 where it differs."""
    report = pyprof.load(file).memory()
    [device] = [one for one in report.devices if one.trace.device == torch.cuda.current_device()]
    replayed = device.replay
    found = replayed.largest(1), replayed.largest(2)
    never = replayed.allocated is not None and replayed.reserved is not None and (replayed.allocated <= replayed.reserved).all()
    good = found == (peak, reserved) and bool(never)
    print(f"{'pass' if good else 'fail'}  {file.name}: peak and reserved {found}, torch's own {(peak, reserved)}")
    print(report)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
