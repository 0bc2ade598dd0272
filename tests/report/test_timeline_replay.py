"""The replay of a timeline against a simulator of host, queues, streams and events, and against what is known of given captures."""

import heapq
import math
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from tests.given import slow
from tests.timeline import overview_of
from tests.tiny import Nsys

LATENCY, CALL, QUEUE = 4_000, 3_000, 1_024  # ns of a launch to its begin, of a call; launches that a stream's queue holds


class Do(NamedTuple):
    """An instruction of the host after so much time of its own: launch a kernel, wait for a stream or the device, let the
    next kernel of a stream wait for all that another has been given, or begin or end an op."""

    what: str
    host_ns: int
    stream: int = 0
    name: str = ""
    ns: int = 0
    other: int = 0


class Machine:
    """Runs a program call by call; what it did is written as a capture."""

    def __init__(self, program: list[Do]) -> None:
        self.nsys, self.now, self.first, self.last = Nsys(), 0, -1, 0
        self.running: dict[int, list[int]] = {}  # ends of what each stream has not finished
        self.free: dict[int, int] = {}  # when all that a stream was given has run
        self.after: dict[int, int] = {}  # what the next kernel of a stream waits for
        self.begun = 0  # the op
        self.nsys.rows["ANALYSIS_DETAILS"] = [(1 << 40,)]  # when the session ended
        for at, one in enumerate(program):
            self.now += one.host_ns
            getattr(self, one.what)(at, one)

    def launch(self, at: int, one: Do) -> None:
        queue, called = self.running.setdefault(one.stream, []), self.now
        while queue and queue[0] <= self.now:
            heapq.heappop(queue)
        if len(queue) >= QUEUE:
            self.now = heapq.heappop(queue)
        begin = max(self.now + LATENCY, self.free.get(one.stream, 0), self.after.pop(one.stream, 0))
        end = self.free[one.stream] = begin + one.ns
        heapq.heappush(queue, end)
        self.now += CALL
        self.nsys.kernel(one.name, called, begin, end, stream=7 + one.stream)
        calls = self.nsys.rows["CUPTI_ACTIVITY_KIND_RUNTIME"]
        calls[-1] = (called, self.now, *calls[-1][2:])
        self.first, self.last = begin if self.first < 0 else self.first, max(self.last, end)

    def wait(self, at: int, one: Do) -> None:
        ends = self.free.values() if one.stream < 0 else [self.free.get(one.stream, 0)]
        called, self.now = self.now, max(self.now + CALL, *ends, 0)
        name = "cudaDeviceSynchronize_v3020" if one.stream < 0 else "cudaStreamSynchronize_v3020"
        self.nsys.api(called, 1_000_000 + at, name=name, took=self.now - called)

    def event(self, at: int, one: Do) -> None:
        self.after[one.stream] = max(self.after.get(one.stream, 0), self.free.get(one.other, 0))

    def begin(self, at: int, one: Do) -> None:
        self.begun = self.now

    def end(self, at: int, one: Do) -> None:
        self.nsys.range('add(fp32[8], fp32[8]) #pyprof{"mod":"torch"}', self.begun, self.now)


def any_program(chosen: random.Random) -> list[Do]:
    """Phases with a pace of their own, on up to three streams that now and then wait for each other, with waits of the host."""
    program, streams = [Do("launch", 10_000, 0, "a", 20_000)], chosen.randint(1, 3)
    for _ in range(chosen.randint(3, 8)):
        host, kernel = chosen.choice([5_000, 12_000, 30_000]), chosen.choice([3_000, 15_000, 40_000])
        for _ in range(chosen.choice([30, 100, 300, 1_500])):
            stream = chosen.choice([0, 0, 0, chosen.randrange(streams)])
            if streams > 1 and chosen.random() < 0.05:
                program.append(Do("event", 0, stream, other=(stream + 1) % streams))
            ns = int(kernel * chosen.uniform(0.5, 1.5))
            program.append(Do("launch", int(host * chosen.uniform(0.9, 1.1)), stream, chosen.choice("abc"), ns))
            if chosen.random() < 0.01:
                program.append(Do("wait", 2_000, chosen.choice([-1, stream])))
        program.append(Do("wait", 2_000, -1))
        program.append(Do("launch", chosen.choice([10_000, 3_000_000]), 0, "a", kernel))
    return program


def changed(program: list[Do], how: str) -> list[Do]:
    """The program with kernels b four times as fast, without them, or without waits of the host."""
    if how == "faster":
        return [one._replace(ns=one.ns // 4) if one.name == "b" else one for one in program]
    if how == "removed":
        op, left, result = int(np.percentile([one.host_ns for one in program if one.what == "launch"], 10)), 0, list[Do]()
        for one in program:  # of the host's time before a kernel no more is its op's than a tenth of all kernels have
            if one.name == "b":
                left += max(one.host_ns - op, 0)
            else:
                result.append(one._replace(host_ns=one.host_ns + left))
                left = 0
        return result
    return [one for one in program if one.what != "wait"]


def change_of(overview: Overview, how: str) -> Change:
    name = overview.frame.of_name(str)
    rows = np.flatnonzero(np.array([text == "b" for text in name.pool] + [False])[name.codes])
    if how == "faster":
        cut = overview.records["dur_ns"][rows]
        return Change(rows=rows, cut_ns=cut - cut // 4)
    assert overview.waits is not None
    return Change(removed=rows) if how == "removed" else Change(waits=np.arange(len(overview.waits)))


@pytest.mark.parametrize("seed", range(24))
def test_the_replay_foresees_what_the_machine_does(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    program, how = any_program(chosen), ("faster", "removed", "waits")[seed % 3]
    one, other = Machine(program), Machine(changed(program, how))
    wall = one.last - one.first
    overview = overview_of(one.nsys, tmp_path)
    assert overview.division.wall_ns == wall and overview.replay.saves_ns() == 0
    saves = overview.replay.saves_ns(change_of(overview, how))
    assert saves == pytest.approx(wall - (other.last - other.first), abs=0.01 * wall)


def ops_with_jitter(chosen: random.Random, own_ns: int, python_ns: int) -> list[list[Do]]:
    """Ops of one or two launches with less work than a launch takes: a median of own time before the first, and of Python's
    before the op, which now and then pauses for long."""
    ops = []
    for _ in range(1_200):
        pause = chosen.uniform(3e5, 3e6) if chosen.random() < 0.01 else 0
        name, ns = chosen.choice("abc"), chosen.randrange(2_000, 7_000)
        own = int(chosen.lognormvariate(math.log(own_ns), 0.5))
        launches = [Do("launch", own, 0, name, ns), Do("launch", 500, 0, name, ns)][: chosen.randint(1, 2)]
        python = int(chosen.lognormvariate(math.log(python_ns), 0.8) + pause)
        ops.append([Do("begin", python), *launches, Do("end", 2_000)])
    return ops


@pytest.mark.parametrize(("own_ns", "python_ns", "as_if"), [(25_000, 5_000, 0.7), (15_000, 12_000, 1), (12_000, 20_000, 1.2)])
@pytest.mark.parametrize("seed", range(2))
def test_what_ops_take_of_a_host_whose_pace_varies(
    tmp_path: Path, own_ns: int, python_ns: int, as_if: float, seed: int
) -> None:
    """A capture does not say what of the time before a launch was its op's. What goes with ops b is what they took, within a
    tenth, where that is half of the time; 0.7 of it where it is eight tenths, 1.2 where it is a third."""
    ops = ops_with_jitter(random.Random(seed), own_ns, python_ns)
    left = [op[:1] if op[1].name == "b" else op for op in ops]  # the Python before the op stays
    one, other = (Machine([do for op in some for do in op]) for some in (ops, left))
    overview = overview_of(one.nsys, tmp_path)
    saves = overview.replay.saves_ns(change_of(overview, "removed"))
    assert saves == pytest.approx(as_if * (one.last - other.last), rel=0.1)


GIVEN = {  # ms that a device without any work, and hidden communication, save: least and most
    "kineto/h100_vit.json.gz": ((0, 0.005), (0, 0)),
    "kineto/v100_resnet50_2021.json.gz": ((16, 17), (0, 0)),
    "more/v100dgxs_resnet50_workers4_2021.json.gz": ((0, 8.46), (0, 0)),
    "more/rtx2080ti_linear_39steps.json.gz": ((0, 9.8), (0, 0)),
    "kineto/a100_train_stacks.json.gz": ((45, 60), (33, 38)),
}


@pytest.mark.parametrize("name", [*list(GIVEN)[:2], *slow(*list(GIVEN)[2:4]), *list(GIVEN)[4:]])
def test_no_more_than_the_host_waits_for_a_device(captures: Path, name: str) -> None:
    overview = overview_of(captures / name)
    saved = overview.replay.what_if()
    for what, (least, most) in zip(("device infinitely fast", "communication hidden"), GIVEN[name], strict=True):
        assert least <= saved[what] / 1e6 <= most, what
    assert max(saved.values()) <= overview.division.wall_ns and overview.replay.saves_ns() == 0
