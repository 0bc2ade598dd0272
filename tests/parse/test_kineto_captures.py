"""Real torch.profiler captures: what each kernel's op is, checked against a plain reading of the events."""

import json
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.loading.load import load_capture
from pyprof.model.opcall import OpCall
from pyprof.model.records import PHASES, Records
from pyprof.model.trace import ActivityKind
from pyprof.parse.records.netdict.write import lines
from pyprof.prof.frame import Frame
from tests.given import records_of, trace_of

Event = dict[str, Any]
BACKWARD, COMMUNICATION = PHASES.index("backward"), PHASES.index("communication")


def events_of(path: Path) -> list[Event]:
    return trace_of(path)["traceEvents"]


def kernels_of(path: Path) -> Records:
    records = records_of(path)
    return records.select(records["kind"] == ActivityKind.KERNEL)


def call_of(records: Records, row: int) -> OpCall | None:
    code = int(records["call"][row])
    return records.calls[code] if code >= 0 else None


def test_training_ops_come_from_time_and_never_from_external_ids(captures: Path, tmp_path: Path) -> None:
    path = captures / "kineto/a100_train_stacks.json.gz"
    kernels = kernels_of(path)
    assert len(kernels) == 8568 and int((kernels["call"] >= 0).sum()) >= 8520
    whole = trace_of(path)
    ops = {e["args"]["External id"] for e in whole["traceEvents"] if e.get("cat") == "cpu_op"}
    assert not ops & {e["args"].get("External id") for e in whole["traceEvents"] if e.get("cat") == "kernel"}

    def without_id(event: Event) -> Event:
        if event.get("cat") not in ("kernel", "cuda_runtime", "gpu_memcpy", "gpu_memset"):
            return event
        return event | {"args": {name: value for name, value in event["args"].items() if name != "External id"}}

    until = np.quantile([float(event["ts"]) for event in whole["traceEvents"] if "ts" in event], 0.2)
    begin = [event for event in whole["traceEvents"] if float(event.get("ts", 0)) < until]
    found = []
    for events in (begin, [*map(without_id, begin)]):
        (tmp_path / "net.json").write_text(json.dumps({**whole, "traceEvents": events}))
        found.append(list(lines(load_capture(tmp_path / "net.json"))))
    assert found[0] == found[1] and len(found[0]) > 1000


def test_layers_and_source_lines_where_the_capture_holds_them(captures: Path) -> None:
    events = events_of(captures / "kineto/a100_train_stacks.json.gz")
    # Despite its name this one holds empty stacks and hierarchies and no Python frames: nothing may be made up.
    held = {e["args"].get(key) for e in events if e.get("cat") == "cpu_op" for key in ("Call stack", "Module Hierarchy")}
    assert held == {""} and not any(e.get("cat") == "python_function" for e in events)
    train = kernels_of(captures / "kineto/a100_train_stacks.json.gz")
    assert not any(train.stacks[code].trace for code in np.unique(train["scope"]).tolist())
    vit = kernels_of(captures / "kineto/h100_vit.json.gz")
    scopes = [vit.stacks[code] for code in vit["scope"].tolist()]
    assert all(stack.layer and stack.trace for stack in scopes)
    resnet = kernels_of(captures / "kineto/v100_resnet50_2021.json.gz")
    lines_known = np.array([bool(stack.trace) for stack in resnet.stacks])[resnet["scope"]]
    assert lines_known[resnet["phase"] == PHASES.index("forward")].mean() > 0.99


def test_backward_kernels_get_their_forwards_shapes(captures: Path) -> None:
    """Each kernel launched within a backward function: its shapes are those of a forward op with the function's number, or of an
    op around that one. What the engine ran around it has its own."""
    path = captures / "kineto/a100_train_stacks.json.gz"
    events = events_of(path)
    numbered: dict[int, list[Event]] = defaultdict(list)
    functions: dict[int, list[Event]] = defaultdict(list)
    ops: list[Event] = [e for e in events if e.get("cat") == "cpu_op"]
    for op in ops:
        args = op["args"]
        if args.get("Fwd thread id", 0) == 0 and args.get("Sequence number", -1) >= 0:
            numbered[args["Sequence number"]].append(op)
        elif args.get("Fwd thread id", 0) > 0 and not op["name"].startswith(("aten::", "autograd::engine::")):
            functions[op["tid"]].append(op)
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    tid = np.array([op["tid"] for op in ops])
    begin, end = _times(ops)
    times_of = {tid: _times(functions[tid]) for tid in functions}

    @cache
    def shapes_of(number: int) -> list[list[list[int]]]:
        last = max(numbered[number], key=lambda op: (op["ts"], op["args"]["External id"]))
        around = (tid == last["tid"]) & (begin <= last["ts"]) & (end >= last["ts"] + last["dur"])
        if not any("float" in op["args"]["Input type"] for op in numbered[number] if op["ts"] >= last["ts"]):
            around |= (
                (tid == last["tid"]) & (begin >= last["ts"]) & (begin < last["ts"] + 300)
            )  # an op of FBGEMM, without a number
        return [_sizes(ops[i]["args"].get("Input Dims")) for i in np.flatnonzero(around).tolist()]

    kernels = kernels_of(path)
    backward = np.flatnonzero(kernels["phase"] == BACKWARD)
    checked, accumulating, inside = 0, Counter[str](), Counter[str]()
    for row in backward.tolist():
        launch = launches[int(kernels["corr"][row])]
        first, last = times_of.get(launch["tid"], (begin[:0], end[:0]))
        around = np.flatnonzero((first <= launch["ts"]) & (launch["ts"] + launch["dur"] <= last))
        number = functions[launch["tid"]][around[-1]]["args"]["Sequence number"] if len(around) else -1
        call = call_of(kernels, row)
        assert call is not None
        if number not in numbered or kernels["fwd_instance"][row] < 0:
            assert kernels["call"][row] == kernels["own"][row]
            (accumulating if number not in numbered else inside)[call.op] += 1
            continue
        assert [list(t.shape) for t in call.tensors if t.shape] in shapes_of(number), call
        checked += 1
    assert checked == 3030
    # Functions of FBGEMM and DDP that have no formula: the ops in them. The rest makes, sums and adds gradients up, and scales them.
    assert set(inside) == {"recat_embedding_grad_output_mixed_D_batch"}
    assert set(accumulating) <= {"add", "add_", "ones_like", "sum", "mul", "div_"}


def _times(events: list[Event]) -> tuple[Any, Any]:
    begin = np.array([event["ts"] for event in events])
    return begin, begin + np.array([event["dur"] for event in events])


def _sizes(dims: list[Any] | None) -> list[list[int]]:
    """Sizes of all tensors that have some, those in lists too."""
    flat: list[list[int]] = []
    for entry in dims or []:
        flat += entry if entry and isinstance(entry[0], list) else [entry]
    return [d for d in flat if d]


def test_every_kernel_of_2021_is_a_row_with_its_op(captures: Path) -> None:
    kernels = kernels_of(captures / "kineto/v100_resnet50_2021.json.gz")
    assert len(kernels) == 8772 and (kernels["call"] >= 0).all()
    assert round(int(kernels["dur_ns"].sum()) / 1e6, 1) == 591.5
    named = Counter(call.op for row in range(len(kernels)) if (call := call_of(kernels, row)) is not None)
    assert named["conv2d"] > 1000 and named["batch_norm"] > 500


def test_eight_ranks_and_what_their_collectives_moved(captures: Path) -> None:
    files = sorted((captures / "kineto/v100_dlrm_8ranks").glob("*.gz"))
    for rank, path in enumerate(files):
        kernels = kernels_of(path)
        assert set(kernels["rank"].tolist()) == {rank}
        nccl = kernels.select(kernels["phase"] == COMMUNICATION)
        events = events_of(path)
        recorded = [e for e in events if "nccl" in e["name"].lower() and e.get("cat") in ("kernel", "Kernel")]
        assert len(nccl) == len(recorded) > 0
        inner = [nccl.calls[code] for code in nccl["inner"].tolist()]
        assert all(call.described and call.tensors for call in inner if call.module == "nccl")


@pytest.mark.parametrize("name", ["h100_bert_small", "h100_vit"])
def test_inferences_have_an_op_shapes_and_flops_for_every_kernel(captures: Path, name: str) -> None:
    kernels = kernels_of(captures / f"kineto/{name}.json.gz")
    assert (kernels["call"] >= 0).all()
    assert all(call.described for row in range(len(kernels)) if (call := call_of(kernels, row)) is not None)
    assert (Frame(kernels).costs.flops >= 0).all()
