"""Attribution against a second one: slow, obvious, and written from the rules alone.

Captures drawn at random hold several processes, threads and streams, graphs with clones of clones, ranges of other domains and
start/end ranges that cross, ranges never closed, calls without thread, kernels without launch, ids used twice.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyprof.loading.load import open_trace
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.records.netdict.write import lines
from tests.tiny import SESSION_END, Nsys, rules, tid

KNOWN, COPIES = ("aten::linear", "aten::addmm", "aten::mm", "aten::mul"), ("aten::copy_", "aten::to")
NAMES = (*KNOWN, *COPIES, "aten::sub", "aten::chunk")
ENGINE = 50  # the thread of each process on which only the autograd engine runs


@dataclass
class Range:
    """kind: op, backward, engine, user or step; label: the text, or the op's name with its own number."""

    pid: int
    thread: int
    start: int
    end: int | None
    kind: str
    label: str
    seq: int = -1
    op: str = ""
    own_stack: bool = True  # of the default domain's push/pop stack


class World:
    """One random program: what it wrote into the export, and the same as plain lists for the oracle."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nsys = Nsys()
        self.ranges: list[Range] = []
        self.calls: list[tuple[int, int | None, int, int]] = []  # pid, thread, start, corr
        self.kernels: list[tuple[str, int, int, int, int | None]] = []  # name, pid, start, corr, node
        self.nodes: list[tuple[int, int, int, int, int | None]] = []  # pid, thread, start, node, origin
        self.number = 0
        for pid in (7, 9)[: self.random.choice((1, 2))]:
            self._process(pid)

    def _add(self, found: Range, *, event: int = 59, domain: int = 0) -> None:
        self.number += 1
        text = found.label
        if found.op:
            found.label = f"{found.op} {self.number}"
            keys = f", seq = {found.seq}" if found.seq >= 0 else ""
            text = f"{found.op}{keys}, op_id = {self.number}"
            if found.kind == "op":
                text += f", sizes = [[{self.number}]]"
        elif found.kind == "engine":
            text = f"autograd::engine::evaluate_function: {found.label}, op_id = {self.number}"
        self.nsys.range(text, found.start, found.end, pid=found.pid, thread=found.thread, event=event, domain=domain)
        self.ranges.append(found)

    def _process(self, pid: int) -> None:
        pick, main = self.random.randrange, pid
        for step in range(4):
            if pick(4):
                end = 2000 * step + 1900
                self._add(Range(pid, main, 2000 * step, end, "step", f"ProfilerStep#{step}"))
        seq = 0
        for step in range(4):
            begin = 2000 * step + 10
            if pick(5) == 0:  # a worker with a counter of its own
                self._forward(pid, 60, begin, begin + 850, pick(8), 0)
            top = seq
            seq = self._forward(pid, main, begin, begin + 850, seq, 0)
            self._backward(pid, begin + 900, begin + 1800, list(range(top, seq)))
        for _ in range(pick(8)):  # ranges that owe no order to that stack
            start = pick(8000)
            end = self.random.choice((None, SESSION_END, start + pick(4000) + 1))
            thread, event, domain = self.random.choice((main, main, ENGINE, 60, 70)), 59 + pick(2), pick(3)
            if event == 59 and domain == 0 and end not in (None, SESSION_END):
                domain = 1
            self._add(
                Range(pid, thread, start, end, "user", f"user {self.number}", own_stack=False), event=event, domain=domain
            )
        self._launches(pid)

    def _forward(self, pid: int, thread: int, start: int, end: int, seq: int, depth: int) -> int:
        """Ops one after another, each with others inside that peek at the same number; the innermost takes it."""
        at = start
        while at + 20 < end and self.random.random() < 0.75:
            stop = at + self.random.randrange(15, max(16, (end - at) // 2))
            if self.random.random() < 0.2:
                self._add(
                    Range(pid, thread, at, stop, "user", self.random.choice(("block 1", "Forward 2", "bwd 3", "block 4")))
                )
                seq = self._forward(pid, thread, at + 1, stop - 1, seq, depth + 1)
            else:
                self._add(Range(pid, thread, at, stop, "op", "", seq, self.random.choice(NAMES)))
                inner = self._forward(pid, thread, at + 1, stop - 1, seq, depth + 1) if depth < 4 else seq
                seq = max(inner, seq + 1) if inner == seq else inner
            at = stop + self.random.randrange(1, 5)
        return seq

    def _backward(self, pid: int, start: int, end: int, numbers: list[int]) -> None:
        thread = self.random.choice((ENGINE, ENGINE, ENGINE, pid))
        width = (end - start) // (len(numbers) + 1)
        for place, seq in enumerate(reversed(numbers)):
            at = start + place * width
            if width < 12:
                continue
            name = self.random.choice(("MulBackward0", "AddmmBackward0"))
            self._add(Range(pid, thread, at, at + width - 1, "engine", name))
            self._add(Range(pid, thread, at + 1, at + width - 2, "backward", "", seq, name))
            if self.random.random() < 0.6:
                self._add(Range(pid, thread, at + 3, at + width - 4, "op", "", -1, self.random.choice(NAMES)))

    def _launches(self, pid: int) -> None:
        pick = self.random.randrange
        for node in range(500, 506):
            thread = self.random.choice((pid, pid, ENGINE, 60))
            self.nodes.append((pid, thread, pick(8000), node, self.random.choice((None, None, node - 1, 499, 77))))
        for _ in range(60):
            corr = self.number = self.number + 1
            launch, thread = pick(8200), self.random.choice((pid, pid, pid, ENGINE, 60, 70))
            if pick(12) == 0 and self.calls:
                corr = self.random.choice(self.calls)[3]
            if pick(10) == 0:
                self.calls.append((pid, None, launch, corr))
            elif pick(10):
                self.calls.append((pid, thread, launch, corr))
            graph = pick(5) == 0
            for _ in range(1 + pick(4) * graph):
                start = launch + 10_000 + pick(300)
                self.kernels.append((f"k{len(self.kernels)}", pid, start, corr, 499 + pick(8) if graph else None))

    def write(self, path: Path, shuffle: int | None) -> list[dict[str, Any]]:
        n = self.nsys
        for name in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "CUDA_GRAPH_NODE_EVENTS"):
            n.rows[name] = []
        for pid, thread, start, corr in self.calls:
            where = None if thread is None else tid(pid, thread)
            n.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((start, start + 5, where, corr, n.string("cudaLaunchKernel")))
        for name, pid, start, corr, node in self.kernels:
            n.kernel(name, None, start, start + 7, pid=pid, corr=corr, node=node, stream=7 + start % 3)
        for pid, thread, start, node, origin in self.nodes:
            n.rows["CUDA_GRAPH_NODE_EVENTS"].append((start, start + 1, tid(pid, thread), node, origin))
        trace = open_trace(n.write(path, shuffle=shuffle))
        most = (1, 7, 1 << 16)[len(self.ranges) % 3]  # in how many slices must not show
        return [json.loads(line) for line in lines(attribute(trace, rules(KNOWN, COPIES), most))]


class Oracle:
    """Every question is answered by looking at everything."""

    def __init__(self, world: World) -> None:
        self.world = world

    def open_at(self, pid: int, thread: int, when: int) -> list[Range]:
        """Closed ranges of the thread's own stack, outermost first."""
        mine = [r for r in self.world.ranges if (r.pid, r.thread) == (pid, thread) and r.own_stack]
        return sorted((r for r in mine if r.start <= when < (r.end or 0)), key=lambda r: (r.start, -(r.end or 0)))

    def users_at(self, pid: int, thread: int, when: int) -> set[str]:
        found = set()
        for r in self.world.ranges:
            if (r.pid, r.thread) == (pid, thread) and r.kind in ("user", "step") and r.start <= when:
                if r.end is None or r.end == SESSION_END or when < r.end:
                    found.add(r.label)
        return found

    def launch(self, pid: int, corr: int, start: int) -> tuple[int, int] | None:
        """(time, thread): of the calls with the id the last before the kernel, else the first."""
        calls = sorted((s, t) for p, t, s, c in self.world.calls if (p, c) == (pid, corr) and t is not None)
        outer: list[tuple[int, int]] = []
        for when, thread in calls:
            if not any(t == thread and w <= when < w + 5 for w, t in outer):
                outer.append((when, thread))
        before = [call for call in outer if call[0] <= start]
        return before[-1] if before else outer[0] if outer else None

    def recorded(self, pid: int, node: int) -> tuple[int, int] | None:
        """(time, thread) at which the node, or the one it was cloned from, was recorded first."""
        known = {n: (s, t, o) for p, t, s, n, o in self.world.nodes if p == pid}
        seen: list[int] = []
        while node in known and node not in seen:
            seen.append(node)
            node = known[node][2] or -1
        return known[seen[-1]][:2] if seen else None

    def instance(self, stack: list[Range]) -> Range | None:
        """The outermost op with a formula, a copy that is apart, else the innermost op; a backward function begins anew."""
        root, apart, caller = None, False, ""
        for r in stack:
            if r.kind in ("backward", "engine"):
                root, apart = None, False
            elif r.kind == "op" and r.op in (*KNOWN, *COPIES):
                alone = r.op in COPIES and self.apart(r, caller)
                if root is None or (alone and not apart):
                    root, apart = r, alone
            caller = r.op if r.kind in ("op", "backward") else caller
        ops = [r for r in stack if r.kind in ("op", "backward")]
        return root or (ops[-1] if ops else None)

    def apart(self, copy: Range, caller: str) -> bool:
        """Not what a copy calls, or an op with a formula; nor a conversion that calls nothing, but one that does."""
        if copy.op != "aten::to" or caller in COPIES:
            return caller not in (*KNOWN, *COPIES)
        mine = [r for r in self.world.ranges if (r.pid, r.thread) == (copy.pid, copy.thread) and r.own_stack and r is not copy]
        ops = [r for r in mine if r.kind in ("op", "backward")]
        return any(copy.start <= r.start and (r.end or 0) <= (copy.end or 0) for r in ops)

    def engine_thread(self, pid: int) -> bool:
        return any(r.kind == "backward" and (r.pid, r.thread) == (pid, ENGINE) for r in self.world.ranges)

    def forward(self, function: Range) -> Range | None:
        """The last and deepest range with the number begun before; of several threads the one whose op is meant, else none."""
        found: dict[int, Range] = {}
        for r in sorted(self.world.ranges, key=lambda r: (r.start, -(r.end or 0))):
            if r.kind == "op" and (r.pid, r.seq) == (function.pid, function.seq) and r.start < function.start:
                found[r.thread] = r
        if len(found) > 1:
            meant = function.op.removesuffix("Backward0").lower()
            found = {t: r for t, r in found.items() if r.op.split("::")[1] == meant}
        if len(found) != 1:
            return None
        (owner,) = found.values()
        return self.instance([*self.open_at(owner.pid, owner.thread, owner.start)])

    def step(self, pid: int, launch: tuple[int, int] | None) -> int | None:
        if launch is None:
            return None
        for thread in (launch[1], pid):
            steps = [r for r in self.open_at(pid, thread, launch[0]) if r.kind == "step"]
            if steps:
                return int(steps[-1].label.split("#")[1])
        return None

    def kernel(self, pid: int, start: int, corr: int, node: int | None) -> dict[str, Any]:
        launch = self.launch(pid, corr, start)
        where = (self.recorded(pid, node) if node is not None else None) or launch
        row: dict[str, Any] = {"launch": launch and launch[0], "step": self.step(pid, launch), "users": set(), "by_time": False}
        row |= {"ranges": [], "told": False}
        row |= {"own": None, "forward": None, "dir": "na", "tid": launch and launch[1], "graph": node is not None}
        if where is None:
            return row
        when, thread = where
        stack, users = self.open_at(pid, thread, when), self.users_at(pid, thread, when)
        if not stack and not users and thread != pid:
            users = self.users_at(pid, pid, when)
            row["by_time"] = bool(users)
        own = self.instance(stack)
        named = {"Forward": "fprop", "bwd": "bprop"}
        ranges = [r for r in (stack if not row["by_time"] else self.open_at(pid, pid, when)) if r.kind == "user"]
        told = [named[r.label.split()[0]] for r in ranges if r.label.split()[0] in named]
        row["dir"] = told[-1] if told else "fprop" if own else "na"
        row |= {"users": users, "own": own and own.label, "ranges": [id(r) for r in ranges], "told": bool(told)}
        last_engine = max((i for i, r in enumerate(stack) if r.kind == "engine"), default=-1)
        functions = [r for r in stack[last_engine + 1 :] if r.kind == "backward"]
        if functions or last_engine >= 0 or (thread == ENGINE and self.engine_thread(pid)):
            row["dir"] = "bprop"
        if functions:
            forward = self.forward(functions[-1])
            innermost = forward is not None and forward.op not in (*KNOWN, *COPIES) and own is not None and own.kind == "op"
            row["forward"] = None if innermost else forward and forward.label
        return row


def fill_between(rows: list[tuple[int, dict[str, Any]]]) -> None:
    """Rule 5: unknown between two that are forward, with nothing of another thread or step among those, all in one range of the
    user's, or in neighbouring ranges that name no direction. rows: (pid, row).

    A graph, whose kernels have one launch, may hold a whole step: it is not filled, and ends what may lie between.
    """
    order = ("na", "fprop", "bprop")
    launched = sorted(
        (pid, row["launch"], row["tid"], order.index(row["dir"]), at)
        for at, (pid, row) in enumerate(rows)
        if row["launch"] is not None
    )
    found = [rows[at][1] for *_, at in launched]
    pids = [key[0] for key in launched]
    calls = Counter(key[:3] for key in launched)
    settled = [row["dir"] != "na" or row["graph"] or calls[key[:3]] > 1 for key, row in zip(launched, found, strict=True)]
    filled = []
    for at, row in enumerate(found):
        before = max((i for i in range(at) if settled[i]), default=None)
        after = next((i for i in range(at + 1, len(found)) if settled[i]), None)
        if not settled[at] and before is not None and after is not None:
            places = {(pids[i], found[i]["tid"], found[i]["step"]) for i in range(before, after + 1)}
            around = [found[i]["ranges"] for i in range(before, after + 1)]
            beside = all(around) and not any(found[i]["told"] for i in range(before, after + 1))
            near = len({(*one[-1:],) for one in around}) == 1 or (beside and len({(*one[-2:-1],) for one in around}) == 1)
            if len(places) == 1 and near and found[before]["dir"] == found[after]["dir"] == "fprop":
                filled.append(row)
    for row in filled:
        row["dir"] = "fprop"


def _label(text: str | None) -> str | None:
    """`~?aten::mm(any[12])` -> `aten::mm 12`; an autograd function keeps its name only."""
    if text is None:
        return None
    name, _, arguments = text.lstrip("~?").partition("(")
    number = arguments.removeprefix("any[").partition("]")[0]
    return f"{name} {number}" if number.isdigit() else name.removeprefix("autograd::")


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 20))])
def test_every_kernel_is_as_brute_force_says(tmp_path: Path, seed: int) -> None:
    world = World(seed)
    oracle = Oracle(world)
    plain = world.write(tmp_path / "net.sqlite", None)
    assert world.write(tmp_path / "net.sqlite", seed) == plain
    rows = {row["kLongName"]: row for row in plain}
    assert len(rows) == len(world.kernels) == len(plain)
    instances: dict[tuple[Any, ...], set[int]] = {}
    times: dict[tuple[Any, ...], int] = {}
    told = {name: (pid, oracle.kernel(pid, start, corr, node)) for name, pid, start, corr, node in world.kernels}
    fill_between(list(told.values()))
    for name, pid, _, corr, node in sorted(world.kernels, key=lambda k: (k[2], rows[k[0]]["stream"], k[3])):
        row, (_, expected) = rows[name], told[name]
        assert (row.get("launch"), row.get("step"), row["dir"]) == (expected["launch"], expected["step"], expected["dir"])
        assert {text.split(":")[-1] for text in row.get("ranges", ())} == {u for u in expected["users"] if "Step" not in u}
        assert bool(row.get("byTime")) == expected["by_time"]
        own = _label(row.get("own", row.get("call"))) if "instance" in row else None
        wanted = expected["own"] and (expected["own"] if "::" in expected["own"] else expected["own"].split()[0])
        assert own == wanted
        assert (_label(row["call"]) if "fwd_instance" in row else None) == expected["forward"]
        if wanted:
            replay: tuple[Any, ...] = ()
            if node is not None:
                turn = (pid, corr, expected["launch"], node)
                times[turn] = times.get(turn, -1) + 1
                replay = (corr, expected["launch"], times[turn])
            instances.setdefault((pid, expected["own"], replay), set()).add(row["instance"])
    numbers = [number for found in instances.values() for number in found]
    assert all(len(found) == 1 for found in instances.values()) and len(set(numbers)) == len(numbers)


def length(r: Range) -> int:
    return (r.end or 0) - r.start


def _cpu_rows(world: World) -> list[tuple[int, int, str]]:
    """(begin, time of its own, label) of each op instance: those with a formula or that copy, and what has none around or inside;
    copies inside an op of the dispatcher are no work in its stead."""
    oracle, found = Oracle(world), []
    for pid, thread in {(r.pid, r.thread) for r in world.ranges if r.own_stack}:
        mine = [r for r in world.ranges if (r.pid, r.thread) == (pid, thread) and r.own_stack]

        def around(r: Range, mine: list[Range] = mine) -> list[Range]:
            return [o for o in mine if o.start <= r.start and r.end <= o.end and o is not r]  # type: ignore[operator]

        def inside(r: Range, mine: list[Range] = mine) -> list[Range]:
            return [o for o in mine if r.start <= o.start and o.end <= r.end and o is not r]  # type: ignore[operator]

        def alone(r: Range) -> int:
            within = inside(r)
            return length(r) - sum(length(o) for o in within if not any(p in within for p in around(o)))

        def root(r: Range) -> Range | None:
            stack = [*sorted(around(r), key=lambda q: (q.start, -length(q))), r]
            own = oracle.instance(stack)
            return own if own is not None and own.op in (*KNOWN, *COPIES) else None

        formula = [r for r in mine if root(r) is r]
        ops = [r for r in mine if r.kind in ("op", "backward")]
        work = {"op": [r for r in formula if r.op not in COPIES], "backward": formula}
        bare = [r for r in ops if root(r) is None and not any(o in work[r.kind] for o in inside(r))]
        bare = [r for r in bare if not (r.kind == "backward" and any(o in ops for o in inside(r)))]
        rows = formula + [r for r in bare if not any(o in bare for o in around(r))]
        for r in rows:
            within = [o for o in inside(r) if o in rows]
            direct = [o for o in within if not any(p in within for p in around(o))]
            time = length(r) - sum(map(length, direct))
            # Without a formula the call is the part that took most time.
            theirs = {id(p) for o in within for p in (o, *inside(o))}
            parts = [r] if r in formula else [r, *(o for o in inside(r) if o in ops and id(o) not in theirs)]
            named = min(parts, key=lambda p: (-alone(p), p.start, -length(p)))
            found.append((r.start, time, named.label if named.kind == "op" else named.op))
    return sorted(found)


@pytest.mark.parametrize("seed", range(10))
def test_every_op_of_a_capture_without_a_gpu_is_as_brute_force_says(tmp_path: Path, seed: int) -> None:
    world = World(seed)
    world.kernels, world.nodes = [], []
    rows = world.write(tmp_path / "net.sqlite", seed)
    got = sorted((row["start"], row["kDuration"], _label(row.get("own", row.get("call"))) or "") for row in rows)
    assert got == _cpu_rows(world) and len(got) > 2
