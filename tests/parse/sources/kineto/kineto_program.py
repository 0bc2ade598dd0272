"""The program behind tests/data/kineto_cpu.json.gz, whose truth is known, and the command that records it anew.

python tests/parse/sources/kineto/kineto_program.py tests/data/kineto_cpu.json.gz
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from pathlib import Path

import torch

from pyprof.model.markers import encode_op
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.recording.torchprof import capture, schedule

BATCH, CLASSES, STEPS = 2, 5, 2
OWN = OpCall("torch.nn.functional", "softmax", (TensorSpec((BATCH, CLASSES), "float32"), -1))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.head = torch.nn.Linear(4 * 8 * 8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).flatten(1))


def loss_of(net: Net, x: torch.Tensor) -> torch.Tensor:
    with torch.profiler.record_function("forward"):
        y = net(x)
    with torch.profiler.record_function(encode_op(OWN, ("net.py:7",))):
        y = torch.softmax(y, -1)
    return torch.cat([y, y.detach()]).sum()


def train(path: Path) -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(BATCH, 3, 8, 8)
    with capture(path, schedule=schedule(active=STEPS)) as p:
        for _ in range(STEPS + 1):
            optimizer.zero_grad()
            loss_of(net, x).backward()
            optimizer.step()
            p.step()


def scrubbed(text: str) -> str:
    """The trace without names of the machine; otherwise as torch wrote it, which is not quite JSON: see its names with quotes."""
    text = re.sub(r'("(?:host_name|trace_id|traceName)": )"[^"\n]*"', r'\1""', text)
    return re.sub(r'("name": ")/[^"\n]*/(?=[^/"\n]+\()', r"\1", text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "trace.json"
        train(fresh)
        Path(sys.argv[1]).write_bytes(gzip.compress(scrubbed(fresh.read_text()).encode(), mtime=0))
