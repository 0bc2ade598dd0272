"""pyprof.parse.sources.kineto.trace_file: results do not depend on where blocks end."""

import io
import json
from pathlib import Path
from unittest import mock

import pytest

from pyprof.errors import InputError
from pyprof.loading.load import load
from pyprof.parse.records.netdict.write import lines
from pyprof.parse.sources.kineto import trace_file
from pyprof.parse.sources.kineto.trace_file import TraceFile
from tests.conftest import ROOT

GIVEN = [
    "a100_train_stacks.json.gz", "v100_resnet50_2021.json.gz", "mi300_resnet_checkpoint.json.gz", "h100_vit.json.gz",
    "serving/vllm_decode_full.run.json.gz",
]  # fmt: skip


def worked(text: bytes) -> list[str]:
    file = TraceFile(io.BufferedReader(io.BytesIO(text)), "t.json", block_bytes=1000)
    return [event.name for events in file.blocks() for event in events]


def trace_of(events: list[str]) -> bytes:
    return ('{"traceEvents": [' + ",\n ".join(events) + "]}").encode()


def event(name: str) -> str:
    return json.dumps({"ph": "X", "cat": "cpu_op", "name": name, "ts": 1, "dur": 1, "args": {"External id": 1}})


@pytest.mark.parametrize("wrong", ['{"ph": , }', '{"ts": ' + "9" * 70_000 + "x}"])
def test_text_that_is_damaged_after_many_blocks(wrong: str) -> None:
    text = trace_of([*map(event, map(str, range(300))), wrong, *map(event, map(str, range(300)))])
    with pytest.raises(InputError, match="not valid JSON"):
        worked(text)


def test_lists_of_objects_that_are_no_events() -> None:
    """Behind the events and inside one: a block that ends in such a list has no end of an event near its own."""
    listed = [{"number": number} for number in range(1000)]
    events = [event(str(number)) for number in range(300)]
    inside = [*events[:100], json.dumps({**json.loads(event("100")), "args": {"listed": listed}}), *events[101:]]
    behind = b'{"traceEvents": [' + ",".join(events).encode() + b'], "others": ' + json.dumps(listed).encode() + b"}"
    for text in (trace_of(inside), behind):
        assert worked(text) == [str(number) for number in range(300)]


@pytest.mark.parametrize("capture", sorted((ROOT / "tests" / "data").glob("*.json.gz")), ids=lambda path: path.name)
@pytest.mark.parametrize("block_bytes", [3_000, 50_000])
def test_records_of_own_captures(capture: Path, block_bytes: int) -> None:
    check(capture, block_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("block_bytes", [20_000, 400_000])
def test_records_of_given_captures(captures: Path, name: str, block_bytes: int) -> None:
    check(captures / "kineto" / name, block_bytes)


def check(capture: Path, block_bytes: int) -> None:
    expected = load(str(capture))
    with mock.patch.object(trace_file, "_BLOCK_BYTES", block_bytes):
        found = load(str(capture))
    assert [*lines(found)] == [*lines(expected)]
    assert found.messages() == expected.messages()
