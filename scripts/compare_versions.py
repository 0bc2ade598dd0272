"""What another version of pyprof printed, beside what this one prints: net.dict and the CSV of prof, byte by byte.

    python scripts/compare_versions.py OTHER_CHECKOUT FILE... [--cache DIR] [--show N]

For each FILE (a capture, or a folder with captures below it) both checkouts run `parse FILE`, `prof --csv -c COLUMNS FILE` and
`prof --csv -c COLUMNS net.dict`, COLUMNS being all that the other version has, with all kinds of rows. Prints one line a file,
the first lines that differ, and ends with exit code 1 where any did. --cache keeps the other version's output between calls.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
ENDINGS = (".sqlite", ".sql", ".json", ".json.gz")


def captures(names: list[str]) -> list[Path]:
    """The files named, and those below the folders named."""
    found = []
    for path in (Path(name).resolve() for name in names):
        inside = sorted(p for p in path.rglob("*") if p.name.endswith(ENDINGS)) if path.is_dir() else [path]
        found += [p for p in inside if p.is_file()]
    return found


def run(checkout: Path, *arguments: str) -> bytes:
    """Standard output of a pyprof command, and its exit code; run in the checkout, where Python looks before PYTHONPATH."""
    env = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "120"}
    command = [sys.executable, "-m", "pyprof", *arguments]
    done = subprocess.run(command, env=env, cwd=checkout, capture_output=True, check=False)
    return done.stdout + f"exit code {done.returncode}\n".encode()


def outputs(checkout: Path, capture: Path, columns: str) -> dict[str, bytes]:
    """All that is compared of one capture."""
    lines = run(checkout, "parse", "--kinds", "all", str(capture))
    with tempfile.NamedTemporaryFile(suffix=".dict") as stream:
        stream.write(lines[: lines.rindex(b"exit code")])
        stream.flush()
        of_lines = run(checkout, "prof", "--csv", "--kinds", "all", "-c", columns, stream.name)
    return {
        "net.dict": lines,
        "prof of the capture": run(checkout, "prof", "--csv", "--kinds", "all", "-c", columns, str(capture)),
        "prof of net.dict": of_lines,
        "summary": run(checkout, "summary", str(capture)),
    }


def cached(checkout: Path, capture: Path, columns: str, cache: Path | None) -> dict[str, bytes]:
    """Outputs of a version that does not change."""
    if cache is None:
        return outputs(checkout, capture, columns)
    key = hashlib.sha256(f"{checkout} {capture.resolve()} {capture.stat().st_size} {columns}".encode()).hexdigest()[:16]
    folder = cache / key
    if not folder.is_dir():
        made = outputs(checkout, capture, columns)
        folder.mkdir(parents=True)
        for name, text in made.items():
            (folder / name).write_bytes(text)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def main() -> int:
    """Compare and print. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("file", nargs="+")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--show", type=int, default=3, help="differing lines to show of each output")
    parser.add_argument("--only", help="outputs whose name contains this")
    options = parser.parse_args()
    other = options.other.resolve()
    code = "from pyprof.prof.columns import COLUMNS; print(','.join(column.key for column in COLUMNS))"
    env = {**os.environ, "PYTHONPATH": str(other)}
    asked = subprocess.run([sys.executable, "-c", code], env=env, cwd=other, capture_output=True, text=True, check=True)
    columns = asked.stdout.strip()
    worst = 0
    for capture in captures(options.file):
        before, now = cached(other, capture, columns, options.cache), outputs(HERE, capture, columns)
        names = [name for name in sorted(before) if not options.only or options.only in name]
        differing = [name for name in names if before[name] != now[name]]
        print(f"{'differs' if differing else 'same   '} {capture}", flush=True)
        for name in differing:
            worst = 1
            pairs = zip_longest(before[name].splitlines(), now[name].splitlines(), fillvalue=b"(no line)")
            changed = [(number, a, b) for number, (a, b) in enumerate(pairs, 1) if a != b]
            print(f"  {name}: {len(changed)} lines differ")
            for number, a, b in changed[: options.show]:
                print(
                    f"    line {number}\n    - {a.decode(errors='replace')[:1000]}\n    + {b.decode(errors='replace')[:1000]}"
                )
    return worst


if __name__ == "__main__":
    sys.exit(main())
