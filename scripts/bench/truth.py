"""Check that every kernel of a generated capture is attributed to the range in which the generator launched it.

    python scripts/bench/truth.py CAPTURE.sqlite TRUTH.csv

TRUTH.csv holds for each kernel, by process and correlation id, the text of the innermost range around its launch (empty: none)
and whether its launch is in the capture. Exit code 1 where any kernel differs.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

from pyprof.loading.formats import op_rules
from pyprof.loading.load import open_trace
from pyprof.model.markers import split_ids
from pyprof.model.trace import ActivityKind
from pyprof.parse.attribution.attribute import innermost_ranges

Found = tuple[str, int, int]  # what a range says, its sequence number and its op id


def attributed(capture: str) -> dict[tuple[int, int], tuple[bool, Found | None]]:
    """For each kernel by (pid, correlation id) whether it has a launch, and its innermost range."""
    trace = open_trace(Path(capture))
    has, rows = innermost_ranges(trace, op_rules())
    ranges, markers = trace.ranges, trace.markers
    row = rows.tolist()
    label, seq, op_id = (ranges[name].tolist() for name in ("label", "seq", "op_id"))
    activities = trace.activities
    keys = zip(trace.processes["pid"][activities["process"]].tolist(), activities["corr"].tolist(), strict=True)
    kernel = (activities["kind"] == ActivityKind.KERNEL).tolist()
    found: dict[tuple[int, int], tuple[bool, Found | None]] = {}
    for key, is_kernel, launched, at in zip(keys, kernel, has.tolist(), row, strict=True):
        if is_kernel and key in found:
            raise SystemExit(f"two kernels of process and correlation id {key}")
        if is_kernel:
            found[key] = launched, (markers[label[at]].text, seq[at], op_id[at]) if at >= 0 else None
    return found


def main() -> None:
    """Compare and print."""
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    found = attributed(sys.argv[1])
    differ: Counter[str] = Counter()
    first: dict[str, str] = {}
    kernels = 0
    with open(sys.argv[2], newline="", encoding="utf-8") as stream:
        for line in csv.DictReader(stream):
            kernels += 1
            key = (int(line["globalPid"]) >> 24 & 0xFFFFFF, int(line["correlationId"]))
            launched, told = found.get(key, (None, None))
            bare, seq, op_id, _ = split_ids(line["innermost"])
            has_launch = line["has_launch"] == "1"
            expected = (bare, seq, op_id) if line["innermost"] and has_launch else None  # nothing leads from an orphan to it
            what = "launch" if launched != has_launch else "innermost range" if told != expected else ""
            if what:
                differ[what] += 1
                first.setdefault(what, f"{key}: {told} where {expected} was expected")
    if kernels != len(found):
        differ["number of kernels"] = abs(kernels - len(found))
    print(f"{kernels} kernels, {sum(differ.values())} differ")
    for what, count in differ.items():
        print(f"  {count} in {what}: {first.get(what, '')}")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
