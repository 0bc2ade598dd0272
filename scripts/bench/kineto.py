"""Long torch.profiler traces: parse to Parquet beside what decompressing and decoding alone take.

    python scripts/bench/kineto.py TRACE.json[.gz] [--gigabytes 1 3 10] [--jobs 2] [--folder /tmp] [--keep]

The trace is repeated to each size (of text; the file is compressed by gzip). The floor is one process that decompresses the
file, by the fastest library that is installed, and decodes the events into msgspec's typed structs where they stand, with the
args that parse needs, in blocks that stay in the caches (of 8 MB they take 1.4 times as long). Memory is the sum over all
processes of their proportional shares (PSS), looked at thirty times a second.
The last column is CPU seconds a gigabyte relative to the first size: 1 where time is proportional to length.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from processes import measured

HERE = Path(__file__).parent
BLOCK_BYTES = 1 << 20
PIECE_BYTES = 1 << 18

ARGS = {
    "whole numbers": (
        "External id", "Sequence number", "Fwd thread id", "correlation", "device", "stream", "bytes", "shared memory",
        "registers per thread", "Python id", "Python parent id",
    ),
    "any": ("Input Dims", "Input type", "Input Strides", "Concrete Inputs", "grid", "block"),
    "texts": ("Call stack", "kernel", "Collective name"),
}  # fmt: skip
NONE = msgspec.Raw(b"")


def _struct() -> type[msgspec.Struct]:
    """What every event has."""
    kinds = {"whole numbers": (int | None, None), "any": (msgspec.Raw, NONE), "texts": (str, "")}
    fields = [(name, *kinds[kind]) for kind, names in ARGS.items() for name in names]
    args = msgspec.defstruct(
        "Args",
        [(f"a{n}", kind, msgspec.field(default=default, name=name)) for n, (name, kind, default) in enumerate(fields)],
        gc=False,
    )
    texts = [("ph", str, ""), ("cat", str, ""), ("name", str, "")]
    ids = [("pid", int | str, -1), ("tid", int | str, -1), ("id", int | str | None, None)]
    return msgspec.defstruct(
        "Event", [*texts, *ids, ("ts", float, 0.0), ("dur", float, 0.0), ("args", args | None, None)], gc=False
    )


def decode_alone(path: Path) -> None:
    """The floor: decompress, cut between two events, decode; nothing is kept."""
    decoder = msgspec.json.Decoder(list[_struct()])  # type: ignore[misc]
    text, count, head = bytearray(), 0, True
    with path.open("rb") as stream:
        for piece in texts(stream):
            text += piece
            if head and b'"traceEvents"' in text:
                del text[: text.index(b"[", text.index(b'"traceEvents"'))]
                head = False
            if not head and len(text) > BLOCK_BYTES:
                end = text.rindex(b"},\n{") + 1
                text[end] = ord("]")
                count += len(decoder.decode(memoryview(text)[: end + 1]))
                del text[: end + 1]
                text[:0] = b"["
    count += len(decoder.decode(text[: text.rindex(b"]") + 1]))
    print(f"{count} events")


def texts(stream: BinaryIO) -> Iterator[bytes]:
    """What is in a compressed file of one member, piece by piece."""
    member, packed = fastest_zlib().decompressobj(zlib.MAX_WBITS | 16), b""
    while packed := packed or stream.read(PIECE_BYTES):
        yield member.decompress(packed, PIECE_BYTES)
        packed = member.unconsumed_tail


def fastest_zlib() -> Any:
    """The fastest module with the interface of zlib that is installed."""
    for name in ("isal.isal_zlib", "zlib_ng.zlib_ng"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return zlib


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0, 3.0, 10.0], help="of text")
    parser.add_argument("--jobs", default="2", help="processes of parse")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the files lie meanwhile")
    parser.add_argument("--keep", action="store_true", help="do not delete them, and use those that are there")
    parser.add_argument("--floor", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.floor:
        decode_alone(options.trace)
        return
    print(f"decompressed by {fastest_zlib().__name__}")
    print("| GB | file MB | floor CPU s | wall s | parse CPU s | wall s | peak MiB | CPU to floor | wall to floor | a GB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    first = 0.0
    for size in options.gigabytes:
        path = options.folder / f"kineto-{size:g}.json.gz"
        out = path.with_suffix(".parquet")
        if not path.exists():
            megabytes = ["--megabytes", str(size * 1000)]
            subprocess.run(
                [sys.executable, HERE / "repeat_kineto.py", options.trace, path, *megabytes],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        try:
            floor = measured([sys.executable, __file__, path, "--floor"])
            parse = measured([sys.executable, "-m", "pyprof", "parse", path, "-o", out, "--jobs", options.jobs])
            first = first or parse.cpu_s / size
            print(
                f"| {size:g} | {path.stat().st_size / 1e6:.0f} | {floor.cpu_s:.1f} | {floor.wall_s:.1f} | {parse.cpu_s:.1f} "
                f"| {parse.wall_s:.1f} | {parse.peak_mib:.0f} | {parse.cpu_s / floor.cpu_s:.2f} "
                f"| {parse.wall_s / floor.wall_s:.2f} | {parse.cpu_s / size / first:.2f} |",
                flush=True,
            )
        finally:
            out.unlink(missing_ok=True)
            if not options.keep:
                path.unlink()


if __name__ == "__main__":
    main()
