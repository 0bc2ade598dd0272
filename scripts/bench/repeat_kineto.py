"""Write a long torch.profiler trace: the events of a given one, again and again.

    python scripts/bench/repeat_kineto.py TRACE.json[.gz] OUT.json (--times N | --megabytes M)

Each repetition begins after the previous one has ended and has ids of its own (correlation, External id, sequence numbers,
flows), so that the file equals the trace of a program N times as long. Names of processes and threads are written once.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec

IDS = (
    "External id", "correlation", "Ev Idx", "Record function id", "Sequence number", "Python id", "Python parent id",
    "Profiler Event Index", "wait_on_cuda_event_record_corr_id",
)  # fmt: skip


def load(path: Path) -> dict[str, Any]:
    """The whole trace, which may contain control characters."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        trace: dict[str, Any] = json.loads(stream.read(), strict=False)
    return trace


def widths(events: list[dict[str, Any]]) -> tuple[int, dict[str, int], int]:
    """The offsets of each repetition: of its times, in whole microseconds, and of its ids."""
    timed = [event for event in events if isinstance(event.get("ts"), (int, float)) and event.get("ph") == "X"]
    begin, end = min(e["ts"] for e in timed), max(e["ts"] + (e.get("dur") or 0) for e in timed)
    ids = dict.fromkeys(IDS, 1)
    for event in events:
        for key in IDS:
            value = event.get("args", {}).get(key)
            if isinstance(value, int) and value < 1 << 40:
                ids[key] = max(ids[key], value + 1)
    # Launches and kernels share one numbering, and ops and what they launch another.
    flows = max((event["id"] + 1 for event in events if isinstance(event.get("id"), int)), default=1)
    return int(end - begin) + 1000, ids, flows


def shifted(event: dict[str, Any], turn: int, microseconds: int, ids: dict[str, int], flows: int) -> dict[str, Any]:
    """An event of a later repetition."""
    moved = dict(event)
    if isinstance(moved.get("ts"), (int, float)):
        moved["ts"] += turn * microseconds
    if isinstance(moved.get("id"), int):
        moved["id"] += turn * flows
    args = moved.get("args")
    if args:
        moved["args"] = args = dict(args)
        for key, width in ids.items():
            value = args.get(key)
            if isinstance(value, int) and value >= 0:
                args[key] = value + turn * width
    return moved


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--times", type=int)
    length.add_argument("--megabytes", type=float, help="as many whole repetitions as fit")
    options = parser.parse_args()
    trace = load(options.trace)
    events = trace.pop("traceEvents")
    once = [event for event in events if event.get("ph") == "M"]
    again = [event for event in events if event.get("ph") != "M"]
    microseconds, ids, flows = widths(again)
    encode = msgspec.json.Encoder().encode
    head = encode(trace)[:-1]
    with options.out.open("wb") as stream:
        stream.write(head + (b"," if len(head) > 1 else b"") + b'"traceEvents":[\n')
        stream.write(b",\n".join(map(encode, once)))
        turn, size = 0, 0
        while turn < options.times if options.times else turn == 0 or (turn + 1) * size / turn <= options.megabytes * 1e6:
            text = b",\n".join([encode(shifted(event, turn, microseconds, ids, flows)) for event in again])
            stream.write((b",\n" if turn or once else b"") + text)
            turn, size = turn + 1, size + len(text)
        stream.write(b"\n]}\n")
    print(f"{options.out}: {turn} times {len(again)} events, {options.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
