"""torch.profiler traces of a made-up job on many ranks, in which every step is: load data, three layers, one all_reduce, wait for it.

The host waits for the GPU at the end of each step, so that all ranks leave a step together: what a rank is late in a step is
lost there, once. Times are us.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
LAUNCH, KERNEL, TRANSFER, LOADING = 10, 300, 50, 200
LAYERS = ("embed", "body", "head")
At = Mapping[tuple[int, int], int]  # (rank, step) -> us


@dataclass(frozen=True)
class Steps:
    """begin: when each rank begins, 0 where not given; loading, sleeping: what a rank loads data and does nothing recorded longer in
    a step, before its first launch; longer: what a rank's kernels of one layer take longer, in every step; after: the same of
    a kernel that only follows the all_reduce; sent: how long a rank waits, before the all_reduce, for what one other sends; clock: by how much each rank's clock is ahead; noise: (rank, step) -> us that the
    first layer takes longer."""

    ranks: int
    steps: int = 3
    begin: Mapping[int, int] = field(default_factory=dict)
    loading: At = field(default_factory=dict)
    sleeping: At = field(default_factory=dict)
    longer: Mapping[tuple[int, str], int] = field(default_factory=dict)
    after: Mapping[int, int] = field(default_factory=dict)
    clock: Mapping[int, int] = field(default_factory=dict)
    noise: At = field(default_factory=dict)
    sent: Mapping[int, int] = field(default_factory=dict)
    loader: str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    def write(self, folder: Path, only: tuple[int, ...] | None = None) -> Path:
        """The traces of all ranks, or of some."""
        folder.mkdir(parents=True, exist_ok=True)
        events: list[list[dict[str, Any]]] = [[] for _ in range(self.ranks)]
        now = [10_000_000 + self.begin.get(rank, 0) for rank in range(self.ranks)]
        for step in range(self.steps):
            came = [self._until_all_reduce(events[rank], rank, step, now[rank]) for rank in range(self.ranks)]
            end = max(at for _, at in came) + TRANSFER
            for rank, (launch, begin) in enumerate(came):
                one = _Events(events[rank], 1000 * (step + 1) + 900)
                done = one.launch(launch, begin, end - begin, NCCL, 20)
                done = one.launch(launch + 5, done, 100 + self.after.get(rank, 0), "post_kernel", 7)
                one.x("user_annotation", f"ProfilerStep#{step}", now[rank], done + 20 - now[rank])
                now[rank] = done + 30
        for rank in only if only is not None else range(self.ranks):
            ahead = self.clock.get(rank, 0)
            _write(folder, rank, self.ranks, [{**event, "ts": event["ts"] + ahead} for event in events[rank]])
        return folder

    def _until_all_reduce(self, events: list[dict[str, Any]], rank: int, step: int, now: int) -> tuple[int, int]:
        """When this rank launches the all_reduce of a step that it begins now, and when it comes to it."""
        one = _Events(events, 1000 * (step + 1))
        loading = LOADING + self.loading.get((rank, step), 0)
        one.x("user_annotation", self.loader, now + 5, loading)
        now += 5 + loading + self.sleeping.get((rank, step), 0)
        free = now
        for layer in LAYERS:
            more = self.longer.get((rank, layer), 0) + (self.noise.get((rank, step), 0) if layer == "embed" else 0)
            one.x("user_annotation", layer, now, 2 * LAUNCH)
            one.x("cpu_op", "aten::mm", now + 1, 2 * LAUNCH - 2)
            free = one.launch(now + 2, max(now + LAUNCH, free), KERNEL + more, "ampere_sgemm_128x64_nn", 7)
            now += 2 * LAUNCH + 5
        if rank in self.sent:
            free = one.launch(now - 2, max(free, now + LAUNCH), self.sent[rank], SEND, 20)
        return now, max(free, now + LAUNCH)


def gloo(folder: Path, loading: tuple[int, ...], steps: int = 3, leaving: tuple[int, ...] = (), ahead: int = 0) -> Path:
    """A run on the CPU: each step loads data for that much longer on each rank, computes, and requests an all_reduce, which
    gloo's own thread works on until 50 us after the last rank's.

    leaving: how much later its thread ends, step by step and rank by rank in each; ahead: by how much the last rank's clock is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    events: list[list[dict[str, Any]]] = [[] for _ in loading]
    now = 10_000_000
    for step in range(steps):
        asked = [now + LOADING + more + 320 for more in loading]
        end = max(asked) + 10 + TRANSFER
        more_at_end = leaving[step * len(loading) :][: len(loading)] or (0,) * len(loading)
        for rank, more in enumerate(loading):
            one = _Events(events[rank], 0)
            one.x("user_annotation", f"ProfilerStep#{step}", now, end + max(more_at_end) + 40 - now)
            one.x("user_annotation", Steps.loader, now + 5, LOADING + more)
            one.x("cpu_op", "aten::mm", now + LOADING + more + 10, 300)
            one.x("cpu_op", "c10d::allreduce_", asked[rank], 20)
            one.x("user_annotation", "gloo:all_reduce", asked[rank] + 10, end - asked[rank] - 10 + more_at_end[rank], 200)
            one.x("cpu_op", "aten::add_", end + max(more_at_end) + 5, 30)
        now = end + max(more_at_end) + 50
    for rank, own in enumerate(events):
        shift = ahead if rank == len(loading) - 1 else 0
        _write(folder, rank, len(loading), [{**event, "ts": event["ts"] + shift} for event in own])
    return folder


def _write(folder: Path, rank: int, ranks: int, events: list[dict[str, Any]]) -> None:
    whole = {
        "schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events,
        "distributedInfo": {"backend": "any", "rank": rank, "world_size": ranks},
    }  # fmt: skip
    (folder / f"rank{rank}.json").write_text(json.dumps(whole))


class _Events:
    def __init__(self, events: list[dict[str, Any]], corr: int) -> None:
        self.events, self.corr = events, corr

    def x(self, cat: str, name: str, ts: int, dur: int, tid: int = 100, **args: object) -> None:
        """One event."""
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": tid, "ts": ts, "dur": dur, "args": args})

    def launch(self, ts: int, begin: int, dur: int, name: str, stream: int) -> int:
        """A kernel and its launch at `ts`; when it ends."""
        self.corr += 1
        self.x("cuda_runtime", "cudaLaunchKernel", ts, 3, correlation=self.corr)
        self.x("kernel", name, begin, dur, stream, correlation=self.corr, device=0, stream=stream)
        return begin + dur
