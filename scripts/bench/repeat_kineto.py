"""Write a long torch.profiler trace: the events of a given one, again and again.

    python scripts/bench/repeat_kineto.py TRACE.json[.gz] OUT.json[.gz] (--times N | --megabytes M)

Each repetition begins after the previous one has ended and has ids of its own (correlation, External id, sequence numbers,
flows), so that the file equals the trace of a program N times as long. Names of processes and threads are written once.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

IDS = (
    "External id", "correlation", "Ev Idx", "Record function id", "Sequence number", "Python id", "Python parent id",
    "Profiler Event Index", "wait_on_cuda_event_record_corr_id",
)  # fmt: skip
_GAP = "\0"  # in no text of JSON


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
    ids["Python parent id"] = ids["Python id"]
    # Launches and kernels share one numbering, and ops and what they launch another.
    flows = max((event["id"] + 1 for event in events if isinstance(event.get("id"), int)), default=1)
    return int(end - begin) + 1000, ids, flows


class Repeated:
    """The text of the events of each repetition, made by filling numbers into one text."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        microseconds, ids, flows = widths(events)
        self._numbers: list[tuple[float, int]] = []  # of the first repetition, and by how much each grows
        encode = msgspec.json.Encoder().encode
        text = b",\n".join([encode(self._gap(event, microseconds, ids, flows)) for event in events]).decode()
        self._text = text.replace("%", "%%").replace(_GAP, "%s")

    def _gap(self, event: dict[str, Any], microseconds: int, ids: dict[str, int], flows: int) -> dict[str, Any]:
        """An event with gaps where its numbers are, which are noted in the order of the text."""
        moved = dict(event)
        for key, value in event.items():
            if (key == "ts" and isinstance(value, (int, float))) or (key == "id" and isinstance(value, int)):
                moved[key] = self._noted(value, microseconds if key == "ts" else flows)
            elif key == "args" and value:
                moved[key] = {
                    name: self._noted(number, ids[name]) if name in ids and isinstance(number, int) and number >= 0 else number
                    for name, number in value.items()
                }
        return moved

    def _noted(self, number: float, width: int) -> msgspec.Raw:
        self._numbers.append((number, width))
        return msgspec.Raw(_GAP.encode())

    def text(self, turn: int) -> bytes:
        """The events of a repetition, the first of which is 0."""
        return (self._text % tuple([number + turn * width for number, width in self._numbers])).encode()


def write(trace: dict[str, Any], stream: BinaryIO, *, times: int = 0, megabytes: float = 0) -> tuple[int, int]:
    """Write so many repetitions, or as many whole ones as fit; returns how many, and of how many events. Takes the events."""
    events = trace.pop("traceEvents")
    once = [event for event in events if event.get("ph") == "M"]
    again = [event for event in events if event.get("ph") != "M"]
    encode = msgspec.json.Encoder().encode
    head = encode(trace)[:-1]
    stream.write(head + (b"," if len(head) > 1 else b"") + b'"traceEvents":[\n')
    stream.write(b",\n".join(map(encode, once)))
    repeated = Repeated(again)
    turn, size = 0, 0
    while turn < times if times else turn == 0 or (turn + 1) * size / turn <= megabytes * 1e6:
        text = repeated.text(turn)
        stream.write(b",\n" if turn or once else b"")
        stream.write(text)
        turn, size = turn + 1, size + len(text)
    stream.write(b"\n]}\n")
    return turn, len(again)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--times", type=int, default=0)
    length.add_argument("--megabytes", type=float, default=0, help="as many whole repetitions as fit")
    options = parser.parse_args()
    trace = load(options.trace)
    with gzip.open(options.out, "wb", 1) if options.out.suffix == ".gz" else options.out.open("wb") as stream:
        turns, events = write(trace, stream, times=options.times, megabytes=options.megabytes)
    print(f"{options.out}: {turns} times {events} events, {options.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
