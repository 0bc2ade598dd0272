"""What a Parquet file of records says beside its columns: version, notes and counts.

A file that was damaged, or written again by another program, ends here as an InputError that says what is wrong.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyprof.errors import InputError, NotACapture
from pyprof.parse.records.parquet.schema import SCHEMA_VERSION

__all__ = ["AGAIN", "KEY", "StoredFacts", "read_facts"]

KEY = b"pyprof"
AGAIN = "parse the capture again: pyprof parse CAPTURE -o net.parquet"
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
    """The facts in a schema's metadata.

    Raises NotACapture for a file that pyprof did not write, InputError for one of another version or with other metadata.
    """
    stored = (metadata or {}).get(KEY)
    if stored is None:
        raise NotACapture(f"{path}: a Parquet file, but not of records", "give one that `pyprof parse -o` wrote")
    try:
        fields = json.loads(stored)
        version = fields.pop("version")
        if version == SCHEMA_VERSION:
            facts = StoredFacts(**fields)
            if not _is_sound(facts):
                raise ValueError("metadata of other types")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: its metadata cannot be read", AGAIN) from error
    if version != SCHEMA_VERSION:
        raise InputError(f"{path}: records of schema version {version}; this pyprof reads version {SCHEMA_VERSION}", AGAIN)
    return facts


def _is_sound(facts: StoredFacts) -> bool:
    texts = isinstance(facts.source, str) and isinstance(facts.notes, list) and all(isinstance(n, str) for n in facts.notes)
    numbers = [facts.utc_ns, *facts.counts.values()]
    return texts and all(type(number) is int and -_LARGEST <= number <= _LARGEST for number in numbers)
