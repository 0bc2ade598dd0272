"""pyprof.parse.sources.kineto.trace_file and its team: results do not depend on where blocks end and which process reads them."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from pyprof.arrays.processes import several
from pyprof.errors import InputError, ToolError
from pyprof.loading import load
from pyprof.parse.records.netdict.write import lines
from pyprof.parse.sources.kineto import trace_file
from pyprof.parse.sources.kineto.events import Event
from pyprof.parse.sources.kineto.team import Buffer, Team
from pyprof.parse.sources.kineto.trace_file import TraceFile
from tests.children import children
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")

GIVEN = [
    "a100_train_stacks.json.gz", "v100_resnet50_2021.json.gz", "mi300_resnet_checkpoint.json.gz", "h100_vit.json.gz",
    "serving/vllm_decode_full.run.json.gz",
]  # fmt: skip


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Processes from the first block on; none is left."""
    monkeypatch.setattr(trace_file, "_ALONE_BYTES", 0)
    before = children()
    yield
    assert children() <= before


def names(events: list[Event]) -> tuple[int, list[str]]:
    return os.getpid(), [event.name for event in events]


def worked(
    text: bytes, processes: int, work: Callable[[list[Event]], tuple[int, list[str]]] = names
) -> list[tuple[int, list[str]]]:
    file = TraceFile(io.BufferedReader(io.BytesIO(text)), "t.json", block_bytes=1000)
    return [found for _, found in file.worked(lambda: work, processes)]


def trace_of(events: list[str]) -> bytes:
    return ('{"traceEvents": [' + ",\n ".join(events) + "]}").encode()


def event(name: str) -> str:
    return json.dumps({"ph": "X", "cat": "cpu_op", "name": name, "ts": 1, "dur": 1, "args": {"External id": 1}})


@pytest.mark.parametrize("packed", [False, True])
def test_processes_give_all_events_in_order(packed: bool) -> None:
    expected = [f"op{number}" for number in range(500)]
    text = trace_of([*map(event, expected)])
    found = worked(gzip.compress(text) if packed else text, 3)
    assert [name for _, some in found for name in some] == expected
    assert {process for process, _ in found} > {os.getpid()}  # the end of the text is read here


def test_what_only_looks_like_the_end_of_an_event_is_read_here() -> None:
    within = "{}, {" * 3  # in a name, where a block is likely to end
    expected = [f"op{number} {within}" for number in range(60)]
    found = worked(trace_of([*map(event, expected)]), 2)
    assert [name for _, some in found for name in some] == expected


def test_text_that_is_damaged_after_many_blocks() -> None:
    text = trace_of([*map(event, map(str, range(300))), '{"ph": , }', *map(event, map(str, range(300)))])
    with pytest.raises(InputError, match="not valid JSON"):
        worked(text, 2)


def test_what_the_work_raises_is_raised_here() -> None:
    parent = os.getpid()

    def work(events: list[Event]) -> tuple[int, list[str]]:
        if os.getpid() != parent:
            raise InputError("of the work")
        return names(events)

    with pytest.raises(InputError, match="of the work"):
        worked(trace_of([*map(event, map(str, range(300)))]), 2, work)


def test_a_process_that_is_killed() -> None:
    parent = os.getpid()

    def work(events: list[Event]) -> tuple[int, list[str]]:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return names(events)

    with pytest.raises(ToolError, match="was killed"):
        worked(trace_of([*map(event, map(str, range(300)))]), 2, work)


def test_lists_of_objects_that_are_no_events() -> None:
    """Behind the events and inside one: a block that ends in such a list has no end of an event near its own."""
    listed = [{"number": number} for number in range(1000)]
    events = [event(str(number)) for number in range(300)]
    inside = [*events[:100], json.dumps({**json.loads(event("100")), "args": {"listed": listed}}), *events[101:]]
    behind = b'{"traceEvents": [' + ",".join(events).encode() + b'], "others": ' + json.dumps(listed).encode() + b"}"
    for text in (trace_of(inside), behind):
        for processes in (1, 3):
            found = worked(text, processes)
            assert [name for _, names in found for name in names] == [str(number) for number in range(300)]


def test_processes_that_are_gone_when_more_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    send, sent = Team.send, []

    def send_late(team: Team[tuple[int, list[str]]], buffer: Buffer) -> int:
        sent.append(buffer)
        if len(sent) == 3:
            for worker in team._workers:
                os.kill(worker.process, signal.SIGKILL)
                os.waitid(os.P_PID, worker.process, os.WEXITED | os.WNOWAIT)
        return send(team, buffer)

    monkeypatch.setattr(Team, "send", send_late)
    with pytest.raises(ToolError, match="was killed"):  # not BrokenPipeError, which is that of standard output
        worked(trace_of([*map(event, map(str, range(900)))]), 2)


def test_nothing_is_left_where_not_all_is_read() -> None:
    file = TraceFile(io.BufferedReader(io.BytesIO(trace_of([*map(event, map(str, range(900)))]))), "t.json", block_bytes=1000)
    results = file.worked(lambda: names, 2)
    next(results)
    results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("capture", sorted((ROOT / "tests" / "data").glob("*.json.gz")), ids=lambda path: path.name)
@pytest.mark.parametrize(("block_bytes", "processes"), [(3_000, 1), (3_000, 3), (50_000, 2)])
def test_records_of_own_captures(capture: Path, block_bytes: int, processes: int) -> None:
    check(capture, block_bytes, processes)


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize(("block_bytes", "processes"), [(20_000, 1), (20_000, 3), (400_000, 2)])
def test_records_of_given_captures(captures: Path, name: str, block_bytes: int, processes: int) -> None:
    check(captures / "kineto" / name, block_bytes, processes)


def check(capture: Path, block_bytes: int, processes: int) -> None:
    expected = load(str(capture))
    with mock.patch.object(trace_file, "_BLOCK_BYTES", block_bytes), several(processes):
        found = load(str(capture))
    assert [*lines(found)] == [*lines(expected)]
    assert found.messages() == expected.messages()
