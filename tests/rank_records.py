"""Records of a made-up job on many ranks, with the truth beside them: clocks, who is late and by which layer, waiting, overlap.

Each layer computes, then its all_reduce runs beside the next layer's kernels; a step ends when its last all_reduce has. One rank
may take longer in one layer. Every rank's clock is ahead by its own offset.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.model.records import COLUMNS, PHASES, Records, Stack
from pyprof.model.trace import Strings

Ints = npt.NDArray[np.int64]
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ELEMENTS = 1 << 20
TRANSFER_NS, GAP_NS, KERNEL_NS = 30_000, 500, 10_000


@dataclass(frozen=True)
class Job:
    """offsets: ns that each rank's clock is ahead of the truth; straggler: rank, layer, ns that each of its kernels there takes
    longer; jitter: largest ns by which kernels differ; group: of the collectives, '' not recorded; steps_recorded: whether
    records know their step; utc_ns: the start of all sessions, -1 not recorded."""

    ranks: int
    steps: int = 3
    layers: int = 4
    kernels: int = 5
    offsets: tuple[int, ...] = ()
    straggler: tuple[int, int, int] | None = None
    jitter: int = 0
    seed: int = 0
    group: str = "0"
    steps_recorded: bool = True
    utc_ns: int = -1
    collective: str = field(default="allreduce")

    @cached_property
    def compute(self) -> Ints:
        """ns of every kernel: rank, step, layer, kernel."""
        rng = np.random.default_rng(self.seed)
        times = KERNEL_NS + rng.integers(0, self.jitter + 1, (self.ranks, self.steps, self.layers, self.kernels))
        if self.straggler is not None:
            rank, layer, more = self.straggler
            times[rank, :, layer] += more
        return times.astype(np.int64)

    @cached_property
    def truth(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Begin of each layer on each rank, arrival of each rank at each all_reduce (rank, step, layer); end of each all_reduce and
        begin of its transfer (step, layer)."""
        layer_ns = (self.compute + GAP_NS).sum(axis=3)
        begin = np.zeros((self.ranks, self.steps, self.layers), np.int64)
        arrive = np.zeros_like(begin)
        end = np.zeros((self.steps, self.layers), np.int64)
        meet = np.zeros_like(end)
        now = np.full(self.ranks, 5_000_000_000, np.int64)
        for step in range(self.steps):
            free = np.full(self.ranks, 0, np.int64)
            for layer in range(self.layers):
                begin[:, step, layer] = now
                now = now + layer_ns[:, step, layer]
                arrive[:, step, layer] = np.maximum(now, free)
                meet[step, layer] = arrive[:, step, layer].max()
                end[step, layer] = meet[step, layer] + TRANSFER_NS
                free = np.full(self.ranks, end[step, layer])
            now = np.maximum(now, free) + GAP_NS
        return begin, arrive, end, meet

    @property
    def wait(self) -> Ints:
        """ns that each rank waited in each step."""
        _, arrive, _, meet = self.truth
        found: Ints = (meet - arrive).sum(axis=2)
        return found

    def records(self, rank: int) -> Records:
        """What a capture of that rank gives."""
        begin, arrive, end, _ = self.truth
        compute = self.compute[rank]
        ahead = np.cumsum(compute + GAP_NS, axis=2) - compute - GAP_NS
        start = np.concatenate([(begin[rank][..., None] + ahead).ravel(), arrive[rank].ravel()])
        stop = np.concatenate([(begin[rank][..., None] + ahead + compute).ravel(), end.ravel()])
        kernels, met = compute.size, end.size
        layer = np.concatenate(
            [np.repeat(np.tile(np.arange(self.layers), self.steps), self.kernels), np.full(met, self.layers)]
        )
        step = np.concatenate(
            [np.repeat(np.arange(self.steps), self.layers * self.kernels), np.repeat(np.arange(self.steps), self.layers)]
        )
        order = np.argsort(start, kind="stable")
        rows = kernels + met
        communicates = np.arange(rows) >= kernels
        given = {
            "start_ns": start + (self.offsets[rank] if self.offsets else 0),
            "dur_ns": stop - start,
            "pid": np.full(rows, 100 + rank),
            "rank": np.full(rows, rank),
            "device": np.zeros(rows),
            "stream": np.where(communicates, 20, 7),
            "kind": np.zeros(rows),
            "name": communicates,
            "step": step if self.steps_recorded else np.full(rows, -1),
            "stack": layer,
            "scope": layer,
            "call": communicates,
            "inner": communicates,
            "own": communicates,
            "instance": np.arange(rows),
            "phase": np.where(communicates, PHASES.index("communication"), 0),
            "launch_ns": start + (self.offsets[rank] if self.offsets else 0) - 5_000,
            "corr": np.arange(rows),
        }
        columns = {
            name: np.asarray(given.get(name, np.full(rows, -1))).astype(dtype)[order] for name, (dtype, _) in COLUMNS.items()
        }
        strings = Strings()
        strings.code("ampere_sgemm_128x64_nn"), strings.code(NCCL)
        return Records(
            columns, strings, [Stack(layer=(f"layers.{i}",)) for i in range(self.layers)] + [Stack()], [MATMUL, self.call],
            seq_offsets=np.zeros(rows + 1, np.int64), source="kineto", utc_ns=self.utc_ns,
        )  # fmt: skip

    @property
    def call(self) -> OpCall:
        """The all_reduce as torch.profiler tells it."""
        moved = TensorSpec((ELEMENTS,), "float32")
        facts: tuple[tuple[str, object], ...] = (
            ("collective", self.collective),
            ("input", moved),
            ("output", moved),
            ("group_size", self.ranks),
        )
        named = (*facts, ("group", self.group)) if self.group else facts
        return OpCall("c10d", "record_param_comms", (), named, dispatcher=True, described=True)

    def write(self, folder: Path) -> Path:
        """A data set of all ranks."""
        for rank in range(self.ranks):
            write_rank(folder, rank, self.records(rank))
        return folder


MATMUL = OpCall("aten", "mm", (TensorSpec((64, 64), "float32"), TensorSpec((64, 64), "float32")), dispatcher=True)


def write_rank(folder: Path, rank: int, records: Records, name: str = "net") -> Path:
    """One rank's file of a data set."""
    from pyprof.parse.records.parquet import write

    path = folder / f"rank={rank}" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    write(records, path)
    return path
