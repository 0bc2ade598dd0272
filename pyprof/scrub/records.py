"""Records that parse wrote (net.dict, JSON lines, Parquet) -> the same without names of people and machines in texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pyprof.model.records import Records
from pyprof.model.trace import Strings
from pyprof.parse.records import parquet
from pyprof.parse.sources.inputs import Input
from pyprof.scrub.identities import Identities
from pyprof.tables.files import whole_file


def scrub_lines(given: Input, identities: Identities, out: Path) -> None:
    """Lines of net.dict or JSON. Nothing put in place of a name holds a quote or a backslash: literals stay literals."""
    _, path = given.file()
    identities.find_in_file(path, given.encoding)
    with whole_file(out) as stream, path.open(encoding=given.encoding, errors="replace", newline="") as text:
        for line in text:
            stream.write(identities.scrubbed(line).encode("utf-8", "surrogatepass"))


def scrub_parquet(given: Input, identities: Identities, out: Path) -> None:
    """Write the records anew: their texts stand in columns and, compressed, in the file's metadata. Raises as reading does."""
    _, path = given.file()
    with whole_file(out) as stream:
        records = parquet.read(path)
        _with_texts(records, identities.find)
        parquet.write(_with_texts(records, identities.scrubbed), stream)


def _with_texts(records: Records, change: Callable[[str], str | None]) -> Records:
    """The records with every text in their pools changed, each once; the same text where `change` gives None."""
    strings = Strings()
    strings.values = [_changed(text, change) for text in records.strings.values]  # equal ones keep their codes
    pools = {name: _changed(getattr(records, name), change) for name in ("stacks", "calls", "gpus", "notes")}
    same = {name: getattr(records, name) for name in ("columns", "seq_offsets", "seq_numbers", "counts", "source", "utc_ns")}
    return Records(strings=strings, **pools, **same)


def _changed(value: Any, change: Callable[[str], str | None]) -> Any:
    """A value with every text in it changed, however deep."""
    if isinstance(value, str):
        new = change(value)
        return value if new is None else new
    if isinstance(value, (list, tuple)):
        items = [_changed(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _changed(getattr(value, field.name), change) for field in fields(value)})
    return value
