"""Two ranks on the CPU (gloo) with two stages each train with ScheduleInterleavedZeroBubble; one step of each is recorded.

python tests/programs/pipeline_cpu.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble

RANKS, MICROBATCHES, WIDTH = 2, 2, 384


def train(rank: int, folder: str) -> None:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    parts = [nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(2))) for _ in range(2)]
    stages: list[Any] = [
        PipelineStage(part, rank + RANKS * number, 2 * RANKS, torch.device("cpu")) for number, part in enumerate(parts)
    ]
    schedule = ScheduleInterleavedZeroBubble(stages, n_microbatches=MICROBATCHES, loss_fn=nn.MSELoss())
    optimizer = torch.optim.SGD([one for part in parts for one in part.parameters()], lr=1e-3)
    batch = torch.randn(64 * MICROBATCHES, WIDTH)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=torch.profiler.schedule(wait=0, warmup=2, active=1),
        on_trace_ready=lambda one: one.export_chrome_trace(f"{folder}/rank{rank}.json"),
    ) as profiler:  # fmt: skip
        for _ in range(3):
            optimizer.zero_grad()
            schedule.step(*([batch] if rank == 0 else []), **({} if rank == 0 else {"target": batch, "losses": []}))
            optimizer.step()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    mp.spawn(train, (str(Path(sys.argv[1]).resolve()),), nprocs=RANKS)
