"""What stands in a Parquet file of records beside its columns, and whether all is of the type that it was written with.

A file that was damaged, or written again by another program, ends here as an InputError that says what is wrong; behind this
module types are sure. No Arrow array is touched here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyprof.errors import InputError, NotACapture
from pyprof.parse.records.records import SCHEMA_VERSION, GpuInfo, Stack

__all__ = ["KEY", "StoredFacts", "check_types", "read_facts", "stored_gpu", "stored_stack"]

KEY = b"pyprof"
_HINT = "parse the capture again"
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class StoredFacts:
    """The metadata of a file, as `Records` has them."""

    source: str
    counts: dict[str, int]
    notes: list[str]
    utc_ns: int

    def text(self) -> bytes:
        """As it is stored."""
        return json.dumps({"version": SCHEMA_VERSION, **vars(self)}).encode()


def read_facts(path: object, metadata: dict[bytes, bytes] | None) -> StoredFacts:
    """The facts in a schema's metadata. Raises NotACapture where it is none of ours, InputError where they cannot be read."""
    found = (metadata or {}).get(KEY)
    if found is None:
        raise NotACapture(f"{path}: a Parquet file, but not of records", "give one that `pyprof parse -o` wrote")
    try:
        given = json.loads(found)
        version = given.pop("version")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: its metadata cannot be read", _HINT) from error
    if version != SCHEMA_VERSION:
        raise InputError(f"{path}: records of version {version}, where this pyprof reads {SCHEMA_VERSION}", _HINT)
    try:
        facts = StoredFacts(**{"utc_ns": -1, **given})
    except TypeError as error:
        raise InputError(f"{path}: its metadata cannot be read", _HINT) from error
    sound = isinstance(facts.source, str) and _is_integer(facts.utc_ns) and _texts(facts.notes)
    if not (sound and isinstance(facts.counts, dict) and all(map(_is_integer, facts.counts.values()))):
        raise InputError(f"{path}: its metadata is not what parse writes", _HINT)
    return facts


def check_types(path: object, expected: dict[str, str], given: dict[str, str]) -> None:
    """Raise InputError where a file lacks a column or has one of another type; both by column as Arrow names types."""
    for name, kind in expected.items():
        if name not in given:
            raise InputError(f"{path}: it has no column {name!r}", _HINT)
        if given[name] != kind:
            raise InputError(f"{path}: its column {name!r} is {given[name]}, where {kind} was expected", _HINT)


def stored_stack(fields: Any) -> Stack:
    """A stack from what JSON says of it. Raises ValueError or TypeError where that is no stack."""
    texts: dict[str, Any] = {name: tuple(value) for name, value in fields.items() if _texts(value)}
    others = {name: value for name, value in fields.items() if name not in texts}
    if not _are(others, {"backward_at": _is_integer, "open": _is_truth}) or texts.keys() & {"backward_at", "open"}:
        raise ValueError("not a stack")
    return Stack(**texts, **others)


def stored_gpu(fields: Any) -> GpuInfo:
    """A device from what JSON says of it. Raises ValueError or TypeError where that is no device."""
    given = dict(fields)
    name, cc = given.pop("name", ""), given.pop("cc", None)
    if cc is not None and not (isinstance(cc, list) and len(cc) == 2 and all(map(_is_integer, cc))):
        raise ValueError("not a compute capability")
    if not isinstance(name, str) or not all(map(_is_integer, given.values())):
        raise ValueError("not a device")
    return GpuInfo(name=name, cc=None if cc is None else (cc[0], cc[1]), **given)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _are(given: dict[str, Any], sound: dict[str, Callable[[object], bool]]) -> bool:
    return all(name in sound and sound[name](value) for name, value in given.items())
