"""Data-parallel training by DistributedDataParallel: two processes on the CPU (gloo), or one a GPU (NCCL).

    pyprof run -o ddp torchrun --nproc-per-node 2 -m pyprof.examples.ddp
    pyprof ranks ddp.rank*.json.gz

What to look for: a capture and records of each rank; the all_reduce of gradients is communication. Rank 1 sleeps 20 ms before
each step, as if its data came late: `pyprof ranks` says that it comes last to the collectives, how long the other waited for
it, and that its host was late, not its layers. `pyprof summary` with the same files is the screen of the whole job.
"""

from __future__ import annotations

import time

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Six steps on random data; the process group is described by what torchrun puts into the environment."""
    on_gpu = torch.cuda.is_available()
    torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
    rank = torch.distributed.get_rank()
    if on_gpu:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    device = "cuda" if on_gpu else "cpu"
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    net = DistributedDataParallel(layers.to(device))
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(6):
        if rank == 1:
            time.sleep(0.02)
        loss = net(torch.randn(64, 256, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank}: loss {loss.item():.4f}")
    # Before the group: with the network as its last user this thread and gloo's can wait for each other for ever.
    del net, optimizer, loss
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
