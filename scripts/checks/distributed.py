"""Matrix FLOPs of distributed, checkpointed and compiled programs against torch.utils.flop_counter, by phase.

    python -m scripts.checks.distributed [NAME ...]

Each program runs one step on the CPU in a fake process group under torch.profiler. The same step with plain tensors of the local
sizes is counted by torch. Products of forward and of backward must be equal to the operation.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

WIDTH, ROWS = 64, 16
Step = Callable[[], None]
Made = tuple[Step, Callable[[], tuple[int, int]]]
"""A step of the program, and FLOPs of forward and backward of the same with local tensors."""


class Block(nn.Module):
    """Attention and a feed-forward layer; heads and hidden features may be a part of the whole."""

    def __init__(self, heads: int = 4, hidden: int = 4 * WIDTH) -> None:
        super().__init__()
        self.heads, inner = heads, heads * WIDTH // 4
        self.norm = nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (one(y).unflatten(-1, (-1, WIDTH // 4)).transpose(1, 2) for one in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        x = x + self.o((scores @ v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(x)))


def counted(model: nn.Module, *inputs: torch.Tensor, times: int = 1) -> Callable[[], tuple[int, int]]:
    """FLOPs of forward and backward of a model on plain tensors, by torch."""

    def count() -> tuple[int, int]:
        with FlopCounterMode(display=False) as forward:
            out = model(*inputs)
        with FlopCounterMode(display=False) as backward:
            out.sum().backward()
        return forward.get_total_flops() * times, backward.get_total_flops() * times

    return count


def _mesh(*sizes: int, names: tuple[str, ...] = ("tp",)):  # type: ignore[no-untyped-def]
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", sizes, mesh_dim_names=names)


def _parallel(model: nn.Module, mesh, sequence: bool = False) -> nn.Module:  # type: ignore[no-untyped-def]
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as tp

    plan = {name: tp.ColwiseParallel() for name in ("q", "k", "v", "up")} | {n: tp.RowwiseParallel() for n in ("o", "down")}
    if sequence:
        whole, part = Replicate(), Shard(1)
        plan |= {
            "norm": tp.SequenceParallel(use_local_output=False),
            **{n: tp.ColwiseParallel(input_layouts=part) for n in ("q", "k", "v", "up")},
            **{n: tp.RowwiseParallel(output_layouts=part, use_local_output=False) for n in ("o", "down")},
            "": tp.PrepareModuleInputOutput(
                input_layouts=whole, desired_input_layouts=part, output_layouts=part, desired_output_layouts=whole,
                use_local_input=False,
            ),
        }  # fmt: skip
    return tp.parallelize_module(model, mesh, plan)


def _trained(model: nn.Module, x: torch.Tensor) -> Step:
    return lambda: model(x).sum().backward()


def tensor_parallel(size: int, sequence: bool = False) -> Made:
    x = torch.randn(2, ROWS, WIDTH)
    model = _parallel(Block(), _mesh(size), sequence)
    return _trained(model, x), counted(Block(4 // size, 4 * WIDTH // size), x)


def fsdp(mesh_2d: bool) -> Made:
    from torch.distributed.fsdp import fully_shard

    x = torch.randn(2, ROWS, WIDTH)
    model = nn.Sequential(Block(), Block())
    parts = 1
    if mesh_2d:
        mesh, parts = _mesh(2, 2, names=("dp", "tp")), 2
        for block in model:
            _parallel(block, mesh["tp"])
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    else:
        for block in model:
            fully_shard(block)
        fully_shard(model)
    plain = nn.Sequential(Block(4 // parts, 4 * WIDTH // parts), Block(4 // parts, 4 * WIDTH // parts))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, counted(plain, x)


def data_parallel(hook: bool) -> Made:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    x = torch.randn(2, ROWS, WIDTH)
    model = nn.parallel.DistributedDataParallel(Block())
    if hook:
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        model.module.up.weight.register_hook(lambda gradient: gradient.sin() * gradient.norm())
        model.module.o.weight.register_post_accumulate_grad_hook(_halve)
    return _trained(model, x), counted(Block(), x)


def _halve(weight: torch.Tensor) -> None:
    if weight.grad is not None:
        weight.grad.mul_(0.5)


def pipeline(schedule: str, stages: int = 1) -> Made:
    from torch.distributed import pipelining

    batches, x = 4, torch.randn(8, ROWS, WIDTH)
    made = [pipelining.PipelineStage(Block(), number, stages, torch.device("cpu")) for number in range(stages)]
    kind = pipelining.schedules.get_schedule_class(schedule)
    run = kind(made if stages > 1 else made[0], batches, loss_fn=lambda out, _: out.sum())
    return lambda: run.step(x, target=x), counted(nn.Sequential(*(Block() for _ in range(stages))), x[:2], times=batches)


def checkpointed(reentrant: bool) -> Made:
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with set_checkpoint_early_stop(False):  # else the op at which it stops has a range and does not run
                out: torch.Tensor = checkpoint(self.block, x, use_reentrant=reentrant)
            return out

    x = torch.randn(2, ROWS, WIDTH, requires_grad=True)
    return _trained(Net(), x), counted(Net(), x)


def compiled(backend: str) -> Made:
    x = torch.randn(2, ROWS, WIDTH)
    return _trained(torch.compile(Block(), backend=backend), x), counted(Block(), x)


PROGRAMS: dict[str, Callable[[], Made]] = {
    "tp2": lambda: tensor_parallel(2),
    "tp4": lambda: tensor_parallel(4),
    "sequence_parallel": lambda: tensor_parallel(4, sequence=True),
    "fsdp2": lambda: fsdp(False),
    "fsdp2_tp2": lambda: fsdp(True),
    "ddp": lambda: data_parallel(False),
    "ddp_hooks": lambda: data_parallel(True),
    "pipeline_gpipe": lambda: pipeline("GPipe"),
    "pipeline_1f1b": lambda: pipeline("1F1B"),
    "pipeline_zero_bubble": lambda: pipeline("InterleavedZeroBubble", stages=2),
    "checkpoint": lambda: checkpointed(False),
    "checkpoint_reentrant": lambda: checkpointed(True),
    "compile_eager": lambda: compiled("eager"),
    "compile_aot_eager": lambda: compiled("aot_eager"),
    "compile_inductor": lambda: compiled("inductor"),
}


def record(name: str, path: Path) -> tuple[int, int]:
    """Run a program's third step under torch.profiler. Returns the FLOPs of forward and backward that torch counts."""
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.manual_seed(0)
    if name.startswith(("ddp", "pipeline")):  # which look at what they receive
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    else:
        dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    step, count = PROGRAMS[name]()
    wanted = count()
    for _ in range(2):
        step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step()
    recorded.export_chrome_trace(str(path))
    return wanted


def found(path: Path) -> tuple[int, int]:
    """FLOPs of products of forward (and run again) and of backward that pyprof finds in a trace; -1 where any is unknown."""
    from pyprof.loading.load import load
    from pyprof.model.records import PHASES
    from pyprof.prof.cost import cost_records

    records = load(str(path))
    costs = cost_records(records)
    flops, phase = costs.of("matmul_flops", slice(None)), records["phase"]
    forward, backward = (phase == PHASES.index(one) for one in ("forward", "backward"))
    again = records["recomputed"] == 1
    first = int(flops[(flops > 0) & forward & ~again].sum())
    return first, int(flops[(flops > 0) & (backward | (forward & again))].sum())


def main(names: list[str]) -> int:
    """Check programs, each in a process of its own. Returns the exit code."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [*PROGRAMS]:
            path = Path(folder) / f"{name}.json"
            done = subprocess.run(
                [sys.executable, "-m", __spec__.name, "--record", name, str(path)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                failed += 1
                print(f"FAILED {name}: {done.stderr.strip().splitlines()[-1]}")
                continue
            wanted = tuple(map(int, done.stdout.split()[-2:]))
            ours = found(path)
            failed += ours != wanted
            print(
                f"{'ok    ' if ours == wanted else 'FAILED'} {name:22} forward, backward: {ours}, by torch {wanted}", flush=True
            )
    print(f"{len(names or PROGRAMS) - failed} of {len(names or PROGRAMS)} programs as torch counts them")
    return min(failed, 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        print(*record(sys.argv[2], Path(sys.argv[3])))
    else:
        sys.exit(main(sys.argv[1:]))
