"""Every collective of torch.distributed on gloo, on two processes, with the instrumenter on as off.

python tests/nvtx/collectives.py RANK STORE on|off       prints the results and, where on, the calls told, as JSON
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent))

from nvtx_recording import Recorder

from pyprof import nvtx as instrumenter

RANKS = 2


def exchange(rank: int) -> dict[str, Any]:
    """Each collective once, and a few in what torch builds from them; name -> what this rank has afterwards."""
    base = torch.arange(4.0) + rank
    found: dict[str, Any] = {}

    def own() -> torch.Tensor:
        return base.clone()

    found["all_reduce"] = tensor = own()
    dist.all_reduce(tensor)
    found["async all_reduce"] = tensor = own()
    work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True)
    assert work is not None
    work.wait()
    found["broadcast"] = tensor = own()
    dist.broadcast(tensor, 1)
    found["reduce"] = tensor = own()
    dist.reduce(tensor, 0)
    found["all_gather"] = parts = [torch.zeros(4) for _ in range(RANKS)]
    dist.all_gather(parts, own())
    found["all_gather_into_tensor"] = tensor = torch.zeros(8)
    dist.all_gather_into_tensor(tensor, own())
    found["reduce_scatter_tensor"] = tensor = torch.zeros(2)
    dist.reduce_scatter_tensor(tensor, own())
    found["reduce_scatter"] = tensor = torch.zeros(2)
    dist.reduce_scatter(tensor, list(own().chunk(2)))
    found["all_to_all_single"] = tensor = torch.zeros(4)
    dist.all_to_all_single(tensor, own(), [2, 2], [2, 2])
    found["gather"] = parts = [torch.zeros(4) for _ in range(RANKS)] if rank == 0 else None
    dist.gather(own(), parts)
    found["scatter"] = tensor = torch.zeros(4)
    dist.scatter(tensor, [own(), own()] if rank == 0 else None)
    found["send"] = tensor = own()
    if rank:
        dist.recv(tensor, 0)
    else:
        dist.send(tensor, 1)
    found["isend"] = tensor = own()
    (dist.irecv(tensor, 0) if rank else dist.isend(tensor, 1)).wait()
    dist.barrier()
    dist.monitored_barrier()
    objects: list[Any] = [None] * RANKS
    dist.all_gather_object(objects, {"rank": rank})
    found["all_gather_object"] = objects
    return found


def train(rank: int) -> dict[str, Any]:
    """DistributedDataParallel, FSDP and DTensor: parameters after a step."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    torch.manual_seed(0)
    found: dict[str, Any] = {}
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(2, 4) * (rank + 1)).sum().backward()
    optimizer.step()
    found["ddp"] = [p.detach() for p in net.parameters()]
    mesh = init_device_mesh("cpu", (RANKS,))
    sharded = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    fully_shard(sharded[0], mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    adam = torch.optim.AdamW(sharded.parameters(), lr=0.1)
    sharded(torch.ones(2, 4) * (rank + 1)).sum().backward()
    adam.step()
    found["fsdp"] = [p.full_tensor().detach() for p in sharded.parameters()]
    left = distribute_tensor(torch.eye(4) * 2, mesh, [Shard(0)])
    right = distribute_tensor(torch.ones(4, 4), mesh, [Replicate()])
    found["dtensor"] = (left @ right).sum(0).full_tensor()
    return found


def plain(value: Any) -> Any:
    """Tensors as lists."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def main() -> None:
    """Run as one of the two processes."""
    rank, store, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    recorder = Recorder()
    if how == "on":
        instrumenter.init(backend=recorder)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=dist.FileStore(store, RANKS))
    recorder.clear()
    results = exchange(rank)
    told = [str(m.call) for m in recorder.markers if m.call is not None and m.call.module == "torch.distributed"]
    results |= train(rank)
    later = sorted({m.call.name for m in recorder.markers if m.call is not None and "c10d" in m.call.module})
    dist.barrier()
    dist.destroy_process_group()
    stats = instrumenter.stats()
    instrumenter.shutdown()
    print(
        json.dumps({"results": plain(results), "told": told, "later": later, "open": recorder.open, "errors": stats.last_error})
    )


if __name__ == "__main__":
    main()
