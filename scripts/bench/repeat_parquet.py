"""Records in Parquet, repeated one after another: what a capture many times as long gives, without recording or parsing it.

    python scripts/bench/repeat_parquet.py NET.parquet LONG.parquet --times 10

Each copy begins when the one before has ended; its instances, sequence numbers and correlation ids follow those before.
"""

from __future__ import annotations

import argparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_TIMES = ("start", "launch")
_NUMBERS = {"instance": "instance", "fwd_instance": "instance", "corr": "corr", "seq": "seq", "seq_numbers": "seq"}
_STEADY = [*_TIMES, "instance", "fwd_instance", "corr", "seq", "seq_numbers.list.element"]


def lengths(file: pq.ParquetFile) -> dict[str, int]:
    """By how much a copy is shifted: `time` in ns, and the numbers of instances, correlation ids and sequence numbers."""
    found = dict.fromkeys(("time", *_NUMBERS.values()), 0)
    first = None
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, ["start", "sil", *(name for name in _NUMBERS if name != "seq_numbers")])
        start = pc.min(table["start"]).as_py()
        first = start if first is None else min(first, start)
        found["time"] = max(found["time"], pc.max(pc.add(table["start"], table["sil"])).as_py() - first + 1)
        for name, of in _NUMBERS.items():
            if name != "seq_numbers":
                found[of] = max(found[of], (pc.max(table[name]).as_py() or 0) + 1)
    return found


def shifted(column: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    """Numbers, or lists of them, each larger by so much; null stays null."""
    if not pa.types.is_list(column.type):
        return pc.add(column, by)
    chunks = [pa.ListArray.from_arrays(chunk.offsets, pc.add(chunk.values, by), column.type) for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type)


def main() -> None:
    """Read, shift, write, a row group at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records")
    parser.add_argument("output")
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    file = pq.ParquetFile(options.records)
    by = lengths(file)
    names = [file.schema.column(at).path for at in range(len(file.schema))]
    writing = {
        "compression": "zstd", "write_page_checksum": True, "use_dictionary": [name for name in names if name not in _STEADY],
        "column_encoding": dict.fromkeys(_STEADY, "DELTA_BINARY_PACKED"),
    }  # fmt: skip
    with pq.ParquetWriter(options.output, file.schema_arrow, **writing) as writer:
        for copy in range(options.times):
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                for name, of in {**dict.fromkeys(_TIMES, "time"), **_NUMBERS}.items():
                    at = table.column_names.index(name)
                    table = table.set_column(at, table.field(at), shifted(table[name], copy * by[of]))
                writer.write_table(table)


if __name__ == "__main__":
    main()
