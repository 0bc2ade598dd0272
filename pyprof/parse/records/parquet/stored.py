"""Facts about a capture and the pools of its records <-> JSON in the metadata of a Parquet file.

Pools are compressed, with zlib's checksum; a call is stored as its text in net.dict. Damaged metadata, or metadata rewritten by
another program, raise an error that names the fault.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec

from pyprof.errors import InputError, NotACapture
from pyprof.model.calltext import call_text, parse_call_text
from pyprof.model.host import PLACE_KINDS, Host, MarkedSteps, Whereabouts
from pyprof.model.host import VERSION as HOST_VERSION
from pyprof.model.opcall import OpCall, sound_text
from pyprof.model.pipeline import action_of
from pyprof.model.records import SCHEMA_VERSION, GpuInfo, MarkedStep, Records, Stack, Unseen

KEY = b"pyprof"
HOST_KEY = b"pyprof.host"
AGAIN = "parse the capture again: pyprof parse CAPTURE -o net.parquet"
POOL_ERRORS = (ValueError, LookupError, RecursionError, zlib.error, msgspec.MsgspecError)

_Int = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_TYPES: dict[str, Any] = {
    "stacks": list[Stack], "calls": list[str], "gpus": list[GpuInfo], "engine_steps": list[MarkedStep]
}  # fmt: skip
_MOST = (1 << 63) - 1
_CACHED = 1 << 14  # pool items: the files of a job's ranks share most of them
Item = TypeVar("Item")


class _Version(msgspec.Struct):
    version: int


class StoredFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of Records other than columns and pools."""

    version: int
    source: str
    counts: dict[str, _Int]
    notes: list[str]
    utc_ns: _Int


def stored_facts(records: Records) -> bytes:
    """Encode the facts about records."""
    notes = list(map(sound_text, records.notes))
    return msgspec.json.encode(StoredFacts(SCHEMA_VERSION, records.source, records.counts, notes, records.utc_ns))


def read_facts(path: object, metadata: dict[bytes, bytes]) -> StoredFacts:
    """Decode the facts in a file's metadata.

    Raises NotACapture for a file that pyprof did not write, InputError for another version or unreadable metadata.
    """
    stored = metadata.get(KEY)
    if stored is None:
        raise NotACapture(f"{path}: a Parquet file, but not of records", "give one that `pyprof parse -o` wrote")
    try:
        version = msgspec.json.decode(stored, type=_Version).version
        if version == SCHEMA_VERSION:
            return msgspec.json.decode(stored, type=StoredFacts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: its metadata cannot be read", AGAIN) from error
    raise InputError(f"{path}: records of schema version {version}; this pyprof reads version {SCHEMA_VERSION}", AGAIN)


class _HostSide(msgspec.Struct):
    version: int
    steps: MarkedSteps | None = None
    host: Host | None = None
    unseen: Unseen | None = None


def stored_host(records: Records) -> dict[bytes, bytes]:
    """Encode the steps and host of records, and what hides the device's work; empty if they have none."""
    if records.steps is None and records.host is None and records.unseen is None:
        return {}
    unseen = None if records.unseen is None else Unseen(*map(sound_text, records.unseen))
    plain = msgspec.json.encode(_HostSide(HOST_VERSION, records.steps, records.host, unseen))
    return {HOST_KEY: base64.b64encode(zlib.compress(plain, 1))}


def read_host(metadata: dict[bytes, bytes]) -> tuple[MarkedSteps | None, Host | None, Unseen | None]:
    """Decode steps, host and what hides the device; None if absent or of another version. Raises one of POOL_ERRORS if
    damaged."""
    if HOST_KEY not in metadata:
        return None, None, None
    plain = zlib.decompress(base64.b64decode(metadata[HOST_KEY], validate=True))
    if msgspec.json.decode(plain, type=_Version).version != HOST_VERSION:
        return None, None, None
    found = msgspec.json.decode(plain, type=_HostSide)
    steps, host = found.steps or MarkedSteps(), found.host or Host()
    spans = [*host.recorder, *(one for some in host.work.values() for one in some)]
    columns = [(steps.number, steps.begin_ns, steps.end_ns), *((one.begin_ns, one.end_ns) for one in spans)]
    columns += [(one.begin_ns, one.end_ns) for one in host.actions]
    columns += [(one.launch_ns, one.code) for one in host.doing]
    numbers = [*(number for some in columns for column in some for number in column), *host.frame_ns, *host.graph_launch_ns]
    numbers += [number for one in host.waits for number in (one.pid, one.tid, one.begin_ns, one.end_ns)]
    if any(len(column) != len(some[0]) for some in columns for column in some):
        raise ValueError("columns of unequal length")
    if any(not one.texts or len(one.texts) != len(one.begin_ns) or None in map(action_of, one.texts) for one in host.actions):
        raise ValueError("actions that are none")
    if any(not 0 <= one.text < len(host.texts) for one in host.waits):
        raise ValueError("a wait without a text")
    if any(not 0 <= code < len(one.names) for one in host.doing for code in one.code):
        raise ValueError("a pause without a name")
    if host.whereabouts is not None and not _is_tree(host.whereabouts):
        raise ValueError("places of the host that contradict each other")
    if min(numbers, default=0) < -_MOST or max(numbers, default=0) > _MOST:
        raise ValueError("a number of more than 64 bits")
    return found.steps, found.host, found.unseen


def _is_tree(one: Whereabouts) -> bool:
    """Whether columns are of equal length, each place comes after the one around it, and what is referred to is there."""
    nodes, times, names, kinds = len(one.node_name), len(one.pid), len(one.names), len(PLACE_KINDS)
    columns = (
        (one.node_name, nodes, names), (one.node_kind, nodes, kinds), (one.begin_ns, times, _MOST), (one.end_ns, times, _MOST),
        (one.time, len(one.time), times), (one.node, len(one.time), nodes), (one.ns, len(one.time), _MOST),
        (one.number, len(one.time), _MOST), (one.pid, times, _MOST),
    )  # fmt: skip
    sound = all(
        len(column) == size and 0 <= min(column, default=0) and max(column, default=-1) < most for column, size, most in columns
    )
    return sound and len(one.node_parent) == nodes and all(-1 <= parent < at for at, parent in enumerate(one.node_parent))


def pool_key(pool: str) -> bytes:
    """Key of a pool in the metadata."""
    return KEY + b"." + pool.encode()


def stored_pool(items: Sequence[object]) -> bytes:
    """Encode stacks, calls, devices or scheduler steps: JSON, compressed, in base64 because metadata are text."""
    plain = msgspec.to_builtins([call_text(item) if isinstance(item, OpCall) else item for item in items])
    return base64.b64encode(zlib.compress(json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace"), 1))


def read_pool(pool: str, stored: bytes) -> list[Any]:
    """Decode a pool. Raises one of POOL_ERRORS if it is damaged."""
    items = msgspec.json.decode(zlib.decompress(base64.b64decode(stored, validate=True)), type=_TYPES[pool])
    if pool == "calls":
        return list(map(_call, items))
    if pool == "stacks" and not all(-1 <= stack.backward_at < len(stack.seq_names) for stack in items):
        raise ValueError("no such name with a sequence number")
    return list(map(_shared, items))


@lru_cache(_CACHED)
def _call(text: str) -> OpCall:
    return parse_call_text(text)


@lru_cache(_CACHED)
def _shared(item: Item) -> Item:
    """The first of equal items, so that files share one object."""
    return item
