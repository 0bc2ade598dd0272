"""The labels that ncu's details page prints, from the section files of an installed Nsight Compute.

    python scripts/make_metric_labels.py FOLDER/sections > pyprof/parse/sources/measured/labels.csv

A row is a section's name, a label in it, and the metric that it stands for. Labels of different metrics on different
devices are left out. Rows of an older version that are still right may be kept: sort both together.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from pathlib import Path

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([{}])|([A-Za-z]\w*)')


def pairs(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The name of a section, and (label, metric) of every block that has both and of its variants."""
    section, found, stack, field = "", [], [{}], ""
    for quoted, brace, word in _TOKEN.findall(text):
        if brace == "{":
            stack.append({"Label": stack[-1].get("Label", "")} if field == "Options" else {})
        elif brace:
            block = stack.pop()
            if block.get("Label") and "__" in block.get("Name", ""):
                found.append((block["Label"], block["Name"]))
        elif word:
            field = word
        elif field in ("Label", "Name"):
            stack[-1].setdefault(field, quoted)
        elif field == "DisplayName" and not section:
            section = quoted
    return section, found


def main() -> None:
    """Write the table to standard output."""
    metrics: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file in sorted(Path(sys.argv[1]).glob("*.section")):
        section, found = pairs(file.read_text(encoding="utf-8"))
        for label, metric in found:
            metrics[section, label].add(metric)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("section", "label", "metric"))
    table.writerows((*key, *names) for key, names in sorted(metrics.items()) if len(names) == 1)


if __name__ == "__main__":
    main()
