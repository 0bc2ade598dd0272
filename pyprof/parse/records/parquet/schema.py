"""The columns of net.parquet, declared once, for the writer, the reader's check and `pyprof help formats`.

A type is `text`, `bool` or an integer, a list of one type ([type]), or a struct ({field: type}). No Arrow arrays here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Union

import numpy as np

from pyprof.model.records import COLUMNS, DIRECTIONS, KEYS, PHASES, POOLED, SCHEMA_VERSION
from pyprof.model.trace import COPY_KINDS, ActivityKind

Type = Union[str, list["Type"], dict[str, "Type"]]  # noqa: UP007  (Python 3.10 has no | of a text)

# Columns of Records that are codes into fixed texts.
SPELLED: dict[str, tuple[str, ...]] = {
    "kind": ActivityKind.NAMES,
    "dir": DIRECTIONS,
    "phase": PHASES,
    "copykind": tuple(COPY_KINDS.get(code, f"copy kind {code}") for code in range(128)),
}
_KEYS = KEYS | {"bytes": "copy_bytes"}  # prof's `bytes` are the op's


class ParquetColumn(NamedTuple):
    """One column of the file; record: the column of Records that it holds, "" where it is made from others, for people."""

    name: str
    type: Type
    meaning: str
    record: str = ""


def _of_record(name: str) -> ParquetColumn:
    dtype, meaning = COLUMNS[name]
    if name in POOLED:
        what = meaning.partition(": ")[2] or "the device"
        return ParquetColumn(f"{name}_id", "int32", f"number in the file's {POOLED[name]}: {what}", name)
    if name in SPELLED:
        return ParquetColumn(name, "text", COLUMNS[name][1] if name == "copykind" else ", ".join(SPELLED[name]), name)
    if name == "name":
        return ParquetColumn(name, "text", "whole name of the kernel", name)
    return ParquetColumn(_KEYS.get(name, name), np.dtype(dtype).name, meaning, name)


_ARGUMENT: dict[str, Type] = {"name": "text", "shape": ["int64"], "dtype": "text", "strides": ["int64"], "value": "text"}
SCHEMA: tuple[ParquetColumn, ...] = (
    ParquetColumn("mod", "text", "module of the op: torch, Tensor, torch.nn.functional, aten, a class"),
    ParquetColumn("op", "text", "the op; of a backward kernel the forward op"),
    ParquetColumn("params", "text", "the op's arguments as one text"),
    ParquetColumn(
        "args", [_ARGUMENT], "the op's arguments in order: shape, dtype and (where not contiguous) strides of a tensor, all in "
        "elements; of others the value as text; name where it was passed by name; tensors of a list one by one",
    ),
    ParquetColumn("inner", "text", "innermost dispatcher op or autograd function"),
    ParquetColumn("layer", ["text"], "named layers around the op, outermost first; where none was named the user's ranges"),
    ParquetColumn("trace", ["text"], "source lines of the call, outermost first"),
    ParquetColumn("src", "text", "source line that called the op"),
    ParquetColumn("kernel", "text", "short name of the kernel"),
    *(_of_record(name) for name in COLUMNS),
    ParquetColumn("gpu", "text", "name of the device"),
    ParquetColumn("seq_numbers", ["int64"], "autograd sequence numbers on the stack, one for each of its seq_names"),
)  # fmt: skip


def arrow_type(kind: Type) -> Any:
    """The Arrow type; texts are dictionary-encoded."""
    import pyarrow as pa

    if isinstance(kind, list):
        return pa.list_(arrow_type(kind[0]))
    if isinstance(kind, Mapping):
        return pa.struct([(name, arrow_type(field)) for name, field in kind.items()])
    if kind == "text":
        return pa.dictionary(pa.int32(), pa.string())
    return pa.bool_() if kind == "bool" else getattr(pa, kind)()


def leaf_paths(name: str, kind: Type) -> Iterator[str]:
    """The Parquet columns below a column."""
    if isinstance(kind, list):
        yield from leaf_paths(f"{name}.list.element", kind[0])
    elif isinstance(kind, Mapping):
        for field, inner in kind.items():
            yield from leaf_paths(f"{name}.{field}", inner)
    else:
        yield name


def schema_text() -> str:
    """The version of the schema and one line for each column: name, type, meaning. For `pyprof help formats`."""
    import textwrap

    wrap = textwrap.TextWrapper(120, initial_indent="    ", subsequent_indent=" " * 30, break_on_hyphens=False)
    lines = [wrap.fill(f"{column.name:14} {_type_text(column.type):10} {column.meaning}") for column in SCHEMA]
    return "\n".join([f"Schema version {SCHEMA_VERSION}:", "", *lines])


def _type_text(kind: Type) -> str:
    if isinstance(kind, list):
        return f"list<{_type_text(kind[0])}>"
    if isinstance(kind, Mapping):
        return f"struct<{', '.join(f'{name}: {_type_text(field)}' for name, field in kind.items())}>"
    return kind
